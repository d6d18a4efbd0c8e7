"""Reads recordings into the history of a site."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding
from fabtui.errors import InputError
from fabtui.history.entry import SessionEntry, entry_of
from fabtui.history.file import HistoryWriter, history_file
from fabtui.model.events import SessionStart
from fabtui.model.recording import DamagedRecording, apply_recorded, read_events
from fabtui.model.session_model import Model

#: Number of recordings that are written in one transaction.
_BATCH = 50


def history_of(recording: Path) -> Path:
    """Return the file of the history that a recording belongs to: that of the site, or of labs."""
    start = next(read_events(recording))
    return history_file(isinstance(start, SessionStart) and bool(start.lab))


def add_recordings(paths: Sequence[Path], path: Path, title: Callable[[Finding], str]) -> Iterator[tuple[Path, str]]:
    """Yield each recording after it was added to a history, in order, with why it was not added or "".

    Args:
        paths: Recordings; of a damaged one, the part before the damage is added.
        path: File of the history.
        title: Function that words the title of a finding.

    Raises:
        InputError: The history cannot be written.
    """
    for at in range(0, len(paths), _BATCH):
        entries, problems = list[SessionEntry](), dict[Path, str]()
        for recording in paths[at : at + _BATCH]:
            try:
                entries.append(_read_entry(recording, title))
            except InputError as error:
                problems[recording] = str(error)
            except RecursionError:
                problems[recording] = f"{recording}: not read, it is nested too deeply"
        HistoryWriter(path).add(entries)
        yield from ((recording, problems.get(recording, "")) for recording in paths[at : at + _BATCH])


def _read_entry(path: Path, title: Callable[[Finding], str]) -> SessionEntry:
    model = Model()
    try:
        for event in read_events(path):
            apply_recorded(model, event, path)
    except DamagedRecording:
        # What comes before the damage is valid.
        pass
    if model.synthetic:
        raise InputError(f"{path}: its values are made up ({model.synthetic})")
    return entry_of(diagnose(model), path.name, title)
