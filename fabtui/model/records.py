"""Records of the model: nodes, cells, phases, lines of the log, and how earlier sessions had a finding."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fabtui.model.events import NodeState
from fabtui.model.facts.node_view import Entry, dicts, field
from fabtui.model.measurement import Measurement, Verdict


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


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Earlier sessions that had a finding of this one."""

    first: float  #: Start of the first session that found it (epoch seconds).
    last: float  #: Start of the last session before this one that found it (epoch seconds).
    sessions_ago: int  #: Sessions of the component since the first one: 3 for "first seen 3 sessions ago".
    times: int  #: Which time this is, this session included: 3 for the third time.
    days: float  #: Days from the first sighting to this session.
    running: int  #: Sessions in a row that found it, this one included.
    moved: str = ""  #: What moved with it: ``gpu``, ``cable``, ``port``; "" if nothing did.
    moved_from: str = ""  #: Place at which the component had the finding before: it moved with it; "" if it did not.


class FindingPast(Protocol):
    """Earlier sessions of a site, as they were when a session began."""

    #: What the rules about earlier sessions find, of all nodes; their type is `fabtui.diagnosis.finding.Finding`.
    findings: tuple[Any, ...]
    #: What stands out in the 30 days before, at all nodes; its type is `fabtui.history.query.Overview`.
    overview: Any
    #: Time (s since the epoch) and usual value of the latest session that has one, by kind of value.
    usual: Mapping[str, tuple[float, float]]

    def about(self, model: Any, finding: Any) -> Recurrence | None:
        """Return how earlier sessions had a finding of a session; None if none did.

        It is asked while a frame is made: it neither waits nor reads a file.
        """
