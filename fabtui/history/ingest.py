"""Reads recordings into the history of a site, on several processors."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding
from fabtui.errors import InputError
from fabtui.history.history_writer import HistoryWriter
from fabtui.history.session_entry import SessionEntry, entry_of
from fabtui.model.recording import DamagedRecording, apply_recorded, read_events
from fabtui.model.session_model import Model

#: Number of recordings that are written in one transaction, and handed to one process at a time.
_BATCH, _CHUNK = 200, 8
#: Number of recordings from which further processes are worth their start (0.4 s each), and of these at most.
_WORTH, _MOST_PROCESSES = 12, 8

Title = Callable[[Finding], str]


class Added(NamedTuple):
    """A recording that was read."""

    path: Path
    problem: str  #: Why it was not added; "" if it was.


def read_entry(path: Path, title: Title) -> SessionEntry:
    """Return the entry of a recording; of a damaged one, of the part before the damage.

    Raises:
        InputError: It is not a recording, or its values were made up.
    """
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


def _read(path: Path, title: Title) -> tuple[SessionEntry | None, str]:
    # Events have no cycles, and the collector would take a fifth of the time.
    gc.disable()
    try:
        return read_entry(path, title), ""
    except InputError as error:
        return None, str(error)
    except RecursionError:
        return None, f"{path}: not read, it is nested too deeply"
    finally:
        gc.enable()


def add_recordings(paths: Sequence[Path], path: Path, title: Title, processes: int | None = None) -> Iterator[Added]:
    """Yield each recording after it was added to a history, in order.

    Args:
        paths: Recordings.
        path: File of the history.
        title: Function that words the title of a finding, for other processes by its name.
        processes: Number of processes; None: one for each processor.

    Raises:
        InputError: The history cannot be written.
    """
    writer = HistoryWriter(path)
    for batch, entries in _batches(paths, title, processes):
        writer.add(entry for entry, _ in entries if entry is not None)
        yield from (Added(one, problem) for one, (_, problem) in zip(batch, entries, strict=True))


def _batches(
    paths: Sequence[Path], title: Title, processes: int | None
) -> Iterator[tuple[Sequence[Path], list[tuple[SessionEntry | None, str]]]]:
    count = min(processes or len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    read = partial(_read, title=title)
    if count < 2 or len(paths) < _WORTH:
        yield from ((batch, list(map(read, batch))) for batch in _parts(paths, _CHUNK))
        return
    # Not by fork: other threads of this process may hold locks.
    with multiprocessing.get_context("spawn").Pool(count, maxtasksperchild=200) as pool:
        found = pool.imap(read, paths, chunksize=_CHUNK)
        for batch in _parts(paths, _BATCH):
            yield batch, [next(found) for _ in batch]


def _parts(paths: Sequence[Path], size: int) -> Iterator[Sequence[Path]]:
    return (paths[at : at + size] for at in range(0, len(paths), size))
