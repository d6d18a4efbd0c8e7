"""What the model hands out: nodes, cells, phases, lines of the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fabtui.model.events import NodeState
from fabtui.model.measurement import Measurement, Verdict


@dataclass(slots=True)
class NodeRecord:
    """What is known of a node.

    Attributes:
        name: Its name as the user gave it.
        state: How far it is.
        text: What the state means here, for example why it failed.
        hint: What to do about it, or None.
        backend: What carries the link (``asyncssh``, ``openssh``, ``local``), or "".
        note: Why it has no endpoint to test, or "".
        inventory: The value of the inventory probe, or None.
        looks: The latest value of each light probe, by its name; ``{"error": text}`` where it failed.
        first_looks: The first value of each light probe, for deltas over the session.
        since: When it came into this state, seconds since the epoch.
    """

    name: str
    state: NodeState = NodeState.WAITING
    text: str = ""
    hint: str | None = None
    backend: str = ""
    note: str = ""
    inventory: dict[str, Any] | None = None
    looks: dict[str, dict[str, Any]] = field(default_factory=dict)
    first_looks: dict[str, dict[str, Any]] = field(default_factory=dict)
    since: float = 0.0


class LogLine(NamedTuple):
    """A line of the event log."""

    time: float
    level: str
    node: str | None
    text: str


class Cell(NamedTuple):
    """What a cell of the grid shows.

    Attributes:
        verdict: The verdict, slowness included.
        value: The value, or None.
        unit: Its unit, or "".
        text: A short text where that says more than a number (a transport), or "".
        measurement: Where it comes from, or None; of several, the worst.
        running: Whether it is being tested now.
    """

    verdict: Verdict
    value: float | None
    unit: str
    text: str
    measurement: Measurement | None
    running: bool


class Phase(NamedTuple):
    """A part of the sweep: its name, how many tests it has (0: not known) and when it began."""

    name: str
    total: int
    since: float
