"""Metrics of the rounds of ``fabtui watch``, and the values that a failed round leaves in place."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from fabtui.export.exposition import Exposition
from fabtui.export.openmetrics import Family, Sample, families, families_text, write_text
from fabtui.model.session_model import Model

#: Maximum size (bytes) of an earlier file whose values are kept.
_LARGEST = 64 << 20
_OURS = "# HELP fabtui_"
#: At the start of a line: a label may hold this text.
_OF_ROUNDS = f"\n{_OURS}watch_"
_END = "# EOF\n"


class RoundState(StrEnum):
    """Outcome of a round."""

    COMPLETE = "complete"
    OVER_BUDGET = "over-budget"
    NOTHING_TESTED = "nothing-tested"
    ERROR = "error"


class Round(NamedTuple):
    """A round that has ended: its outcome, and its start and end in seconds since the epoch."""

    state: RoundState
    began: float
    ended: float


def write_round(found: Round, model: Model | None, path: Path, contents: Exposition) -> None:
    """Write the metrics of a round, whole or not at all (OSError).

    Args:
        found: The round.
        model: Its session; None keeps the values that the file has.
        path: File to write.
        contents: Contents of the file.
    """
    values = _kept(path) if model is None else families_text(families(model, contents.pairs), contents)
    write_text(values.removesuffix(_END) + families_text(_families(found), contents), path)


def _families(found: Round) -> Iterator[Family]:
    yield Family("watch_round_timestamp_seconds", "End of the latest round.", [Sample({}, found.ended)])
    took = found.ended - found.began
    yield Family("watch_round_duration_seconds", "Duration of the latest round.", [Sample({}, took)])
    states = [Sample({"state": state}, int(state is found.state)) for state in RoundState]
    yield Family("watch_round_state", "Outcome of the latest round; 1 for the one that it had.", states)


def _kept(path: Path) -> str:
    """Return the values of sessions in a file of ours, or nothing."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST).decode()
    except (OSError, UnicodeDecodeError):
        return ""
    # A file that is cut, or somebody else's, holds nothing of use.
    if not text.startswith(_OURS) or not text.endswith(_END):
        return ""
    values = f"\n{text.removesuffix(_END)}".partition(_OF_ROUNDS)[0].strip("\n")
    return f"{values}\n" if values else ""
