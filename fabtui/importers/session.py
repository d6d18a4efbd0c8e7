"""Models of sessions from any files that hold one, and the comparison of two."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fabtui.diagnosis.session_diff import SessionDiff, has_facts, session_diff
from fabtui.errors import InputError
from fabtui.history.query import past_of
from fabtui.importers.result import Result, read
from fabtui.importers.sources import sources
from fabtui.importers.to_model.dispatch import check_comparable, convertible, without_facts
from fabtui.importers.to_model.dispatch import model as model_of
from fabtui.model.recording import DamagedRecording, EventReader, apply_recorded, check_recording
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.paths import user_path
from fabtui.sanitize import one_line

#: What is called with the share of a file that was read, and what makes it.
Progress = Callable[[float], object]
ProgressOf = Callable[[Path], Progress]


def read_session(name: str, progress: Progress = lambda share: None) -> Model:
    """Return the model of a recording, of a snapshot, or of the output of a tool that tests pairs; see `replayed`.

    Raises:
        InputError: The file cannot be read, is damaged, or holds no pairs.
    """
    path = user_path(name)
    if is_recording(path):
        model, damage = replayed(path, progress)
        if damage is not None:
            raise damage
        return model
    results = [read(source) for source in sources([name])]
    if not any(convertible(result.kind) for result in results):
        known = "expected a recording, CSV or JSON of fabtui, or output with pairs (fabtui read --list)"
        raise InputError(f"{name}: {known}")
    return model_of(results)


def is_recording(path: Path) -> bool:
    """Return True if a file is a recording, of any size, damaged or not."""
    try:
        check_recording(path)
    except InputError as error:
        return isinstance(error, DamagedRecording)
    return True


def replayed(path: Path, progress: Progress = lambda share: None) -> tuple[Model, DamagedRecording | None]:
    """Return the model that a recording ends with, or that of the part before its damage, and the damage.

    ``progress`` is called with the share of the file that was read, with 1 at the end.

    Raises:
        InputError: It is not a recording.
    """
    model = Model()
    collecting = gc.isenabled()
    # Events have no cycles; looking for cycles in all that is kept takes a fifth of the time.
    gc.disable()
    try:
        # Event by event: a recording may be larger than any other file.
        reader = EventReader(path)
        size = max(1, path.stat().st_size) if path.exists() else 1
        for event in reader:
            apply_recorded(model, event, path)
            progress(min(0.99, reader.offset / size))
    except DamagedRecording as damage:
        return model, damage
    finally:
        # Sessions before it, if this machine knows any.
        model.past = past_of(model)
        progress(1.0)
        if collecting:
            gc.enable()
    return model, None


class Comparison(NamedTuple):
    """Two sessions, and their differences."""

    then: Model  #: The earlier one.
    now: Model  #: The later one.
    diff: SessionDiff  #: What changed.
    notices: list[str]  #: What was not read or not understood, one line each.


def compared(names: tuple[str, str], progress_of: ProgressOf) -> Comparison:
    """Return the comparison of two files, the earlier one first; ``-`` is standard input.

    Raises:
        InputError: A file cannot be read or holds no session, or they have no node in common.
    """
    if names == ("-", "-"):
        raise InputError("standard input (-) can be read only once")
    notices: list[str] = []
    recorded = [_recorded(name, progress_of, notices) for name in names]
    results = [_read(name, notices) if found is None else [] for name, found in zip(names, recorded, strict=True)]
    check_comparable([*results[0], *results[1]], ours=any(recorded))
    then, now = (each or _model(name, found) for name, each, found in zip(names, recorded, results, strict=True))
    if not then.nodes.keys() & now.nodes.keys():
        ours, others = (one_line(fold(each.nodes), 80) for each in (then, now))
        raise InputError(f"nothing to compare: {names[0]} has the nodes {ours}, {names[1]} has {others}")
    if has_facts(then) != has_facts(now):
        # Findings from facts would all be new or gone.
        then, now = without_facts(then), without_facts(now)
    return Comparison(then, now, session_diff(then, now), notices)


def _recorded(name: str, progress_of: ProgressOf, notices: list[str]) -> Model | None:
    """Return the model of a recording, read event by event; None for any other file."""
    path = user_path(name)
    if name == "-" or not is_recording(path):
        return None
    model, damage = replayed(path, progress_of(path))
    if damage is not None:
        notices.append(f"{one_line(str(damage), 300)}; what follows is left out")
    return model


def _read(name: str, notices: list[str]) -> list[Result]:
    results = []
    for source in sources([name]):
        if source.cut:
            # The state at the end of a session would be different.
            advice = "; fabtui replay FILE --text --csv FILE writes a snapshot of a large recording"
            raise InputError(f"{source.name}: {source.cut}{advice}")
        result = read(source)
        warnings = result.warnings if result.known else ()
        notices += [f"{one_line(source.name)}: {one_line(warning, 300)}" for warning in warnings]
        results.append(result)
    return results


def _model(name: str, results: list[Result]) -> Model:
    model = model_of(results)
    if not model.nodes:
        warned = (result.warnings[0] for result in results if not result.known and result.warnings)
        unknown = next(warned, "no pair, no node")
        raise InputError(f"nothing to compare in {name}: {unknown}; expected a recording, a CSV or a JSON of fabtui")
    return model
