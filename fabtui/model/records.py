"""Records of the model: nodes, cells, phases, lines of the log."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

from fabtui.model.events import NodeState
from fabtui.model.facts.node_view import Entry, dicts, field
from fabtui.model.measurement import Measurement, Verdict


class Absence(NamedTuple):
    """Time in which a node was gone, and came back after."""

    since: float  #: Start (epoch seconds).
    until: float  #: End (epoch seconds); 0 while it is being joined again.
    text: str  #: Why it was gone.


@dataclass(slots=True)
class NodeRecord:
    """State and probe results of a node."""

    name: str  #: Name as the user gave it.
    state: NodeState = NodeState.WAITING  #: Connection state.
    text: str = ""  #: Details of the state, for example why it failed.
    hint: str | None = None  #: Suggested action, or None.
    backend: str = ""  #: Transport of the link (``asyncssh``, ``openssh``, ``local``), or "".
    note: str = ""  #: Why it has no endpoint to test, or "".
    inventory: Entry | None = None  #: Value of the inventory probe, or None.
    #: Latest value of each probe, by its name; ``{"error": text}`` if it failed.
    probe_results: dict[str, Entry] = dataclasses.field(default_factory=dict)
    #: First value of each probe, for deltas over the session.
    first_probe_results: dict[str, Entry] = dataclasses.field(default_factory=dict)
    absence: Absence | None = None  #: The latest time in which it was gone; None if it never came back.
    since: float = 0.0  #: Start of this state, seconds since the epoch; of a node that is gone, of its absence.
    retry: float | None = None  #: Time of the next try to reach it (seconds since the epoch), or None if there is none.


def listed(record: NodeRecord | None, *path: str) -> list[Entry]:
    """Return the objects of a list in the inventory of a node; none if it is unknown."""
    return [] if record is None else dicts(field(record.inventory, *path))


def probed(record: NodeRecord | None, probe: str, *path: str) -> list[Entry]:
    """Return the objects of a list in the latest value of a probe; none if it is unknown."""
    return [] if record is None else dicts(field(record.probe_results.get(probe), *path))


class LogLine(NamedTuple):
    """A line of the event log."""

    time: float
    level: str
    node: str | None
    text: str


class Cell(NamedTuple):
    """Content of a cell of the grid."""

    verdict: Verdict  #: Verdict, slowness included.
    value: float | None
    unit: str
    text: str  #: Short text in place of a number (a transport), or "".
    measurement: Measurement | None  #: Measurement shown, or None; the worst of several.
    running: bool  #: Whether it is being tested now.


class Phase(NamedTuple):
    """Phase of a sweep: name, number of tests (0: unknown) and start time."""

    name: str
    total: int
    since: float
