"""Comparison of two files that hold sessions: recordings, CSV snapshots and JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fabtui.diagnosis.session_diff import SessionDiff, has_facts, session_diff
from fabtui.errors import InputError
from fabtui.importers.result import Result, read
from fabtui.importers.session import is_recording, replayed
from fabtui.importers.sources import sources
from fabtui.importers.to_model.dispatch import check_comparable, model, without_facts
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.paths import user_path
from fabtui.sanitize import one_line

#: Makes what is called with the share of a file that was read.
ProgressOf = Callable[[Path], Callable[[float], object]]


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
    found = []
    for source in sources([name]):
        if source.cut:
            # The state at the end of a session would be different.
            advice = "; fabtui replay FILE --text --csv FILE writes a snapshot of a large recording"
            raise InputError(f"{source.name}: {source.cut}{advice}")
        result = read(source)
        warnings = result.warnings if result.known else ()
        notices += [f"{one_line(source.name)}: {one_line(warning, 300)}" for warning in warnings]
        found.append(result)
    return found


def _model(name: str, results: list[Result]) -> Model:
    found = model(results)
    if not found.nodes:
        unknown = next((one.warnings[0] for one in results if not one.known and one.warnings), "no pair, no node")
        raise InputError(f"nothing to compare in {name}: {unknown}; expected a recording, a CSV or a JSON of fabtui")
    return found
