"""Records of the model: nodes, cells, phases, lines of the log."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

from fabtui.model.events import NodeState
from fabtui.model.facts.node_view import dicts, field
from fabtui.model.measurement import Measurement, Verdict


@dataclass(slots=True)
class NodeRecord:
    """State and probe results of a node.

    Attributes:
        name: Name as the user gave it.
        state: Connection state.
        text: Details of the state, for example why it failed.
        hint: Suggested action, or None.
        backend: Transport of the link (``asyncssh``, ``openssh``, ``local``), or "".
        note: Why it has no endpoint to test, or "".
        inventory: Value of the inventory probe, or None.
        probe_results: Latest value of each probe, by its name; ``{"error": text}`` if it failed.
        first_probe_results: First value of each probe, for deltas over the session.
        since: Start of this state, seconds since the epoch; of a node that is gone, of its absence.
        retry: Time of the next try to reach it (seconds since the epoch), or None if there is none.
    """

    name: str
    state: NodeState = NodeState.WAITING
    text: str = ""
    hint: str | None = None
    backend: str = ""
    note: str = ""
    inventory: dict[str, Any] | None = None
    probe_results: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    first_probe_results: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    since: float = 0.0
    retry: float | None = None


def listed(record: NodeRecord | None, *path: str) -> list[dict[str, Any]]:
    """Return the objects of a list in the inventory of a node; none if it is unknown."""
    return [] if record is None else dicts(field(record.inventory, *path))


def probed(record: NodeRecord | None, probe: str, *path: str) -> list[dict[str, Any]]:
    """Return the objects of a list in the latest value of a probe; none if it is unknown."""
    return [] if record is None else dicts(field(record.probe_results.get(probe), *path))


class LogLine(NamedTuple):
    """A line of the event log."""

    time: float
    level: str
    node: str | None
    text: str


class Cell(NamedTuple):
    """Content of a cell of the grid.

    Attributes:
        verdict: Verdict, slowness included.
        text: Short text in place of a number (a transport), or "".
        measurement: Measurement shown, or None; the worst of several.
        running: Whether it is being tested now.
    """

    verdict: Verdict
    value: float | None
    unit: str
    text: str
    measurement: Measurement | None
    running: bool


class Phase(NamedTuple):
    """Phase of a sweep: name, number of tests (0: unknown) and start time."""

    name: str
    total: int
    since: float
