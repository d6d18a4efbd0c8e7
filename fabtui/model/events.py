"""Events of a session: the journal keeps them, and the model is built from them.

Events are validated objects. Only the journal serialises them, as JSON objects with ``seq`` (from 0), ``time`` (seconds
since the epoch), ``kind`` and the fields of the class; fields with default values are left out. A reader ignores
unknown kinds and fields, so that an older fabtui can show a newer recording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar

from fabtui.model.endpoints import Endpoint
from fabtui.model.event_schema import (
    Reader,
    checked,
    is_flag,
    is_integer,
    is_number,
    is_object,
    is_text,
    is_time,
    list_of,
    optional,
    read_endpoint,
    read_fields,
    read_measurement,
    read_texts_by_name,
    row_of_texts,
)
from fabtui.model.measurement import Measurement

#: Version of the recording format.
FORMAT = 1

#: An ordered pair of endpoint names.
Pair = tuple[str, str]
#: An ordered pair of endpoint names, with a reason or a conclusion.
PairText = tuple[str, str, str]


class NodeState(StrEnum):
    """State of a node's connection."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    LOOKING = "looking"
    READY = "ready"
    FAILED = "failed"
    LOST = "lost"

    @property
    def gone(self) -> bool:
        """Return True if the node cannot be used any more."""
        return self in (NodeState.FAILED, NodeState.LOST)


def _read_state(value: Any) -> NodeState:
    if not isinstance(value, str):
        raise ValueError("not a node state")
    return NodeState(value)


#: Readers of the fields' JSON values, by the annotation of the field.
_READERS: dict[str, Reader] = {
    "bool": checked(is_flag),
    "int": checked(is_integer),
    "int | None": optional(checked(is_integer)),
    "float | None": optional(checked(is_number)),
    "EpochSeconds": checked(is_time),
    "str": checked(is_text),
    "str | None": optional(checked(is_text)),
    "JsonObject": checked(is_object),
    "JsonObject | None": optional(checked(is_object)),
    "NodeState": _read_state,
    "Mapping[str, str]": read_texts_by_name,
    "Sequence[str]": list_of(checked(is_text)),
    "Sequence[str] | None": optional(list_of(checked(is_text))),
    "Sequence[Pair]": list_of(row_of_texts(2)),
    "Sequence[PairText]": list_of(row_of_texts(3)),
    "Sequence[Endpoint]": list_of(read_endpoint),
    "Sequence[Measurement]": list_of(read_measurement),
}
EpochSeconds = float
JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        kind: Name of the event in a recording.
        time: When it happened, seconds since the epoch.
        seq: Number within the session, from 0; None before the event pump has numbered it.
    """

    kind: ClassVar[str] = ""

    time: EpochSeconds = field(default=0.0, kw_only=True)
    seq: int | None = field(default=None, kw_only=True)

    def to_json(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        value: dict[str, Any] = {} if self.seq is None else {"seq": self.seq}
        value |= {"time": self.time, "kind": self.kind}
        for one in fields(self)[2:]:
            found = getattr(self, one.name)
            if found != one.default:
                value[one.name] = found
        return value


@dataclass(frozen=True, slots=True)
class SessionStart(Event):
    """Start of a session.

    Attributes:
        nodes: Names of the nodes.
        options: Options of the session, as recorded.
        version: Version of fabtui.
        lab: Shape of the lab (``2x4``), or None on real nodes.
        faults: Lab faults, as text.
        synthetic: Origin of generated values; None where they were measured.
        format: Version of the recording format.
    """

    kind: ClassVar[str] = "start"

    nodes: Sequence[str]
    options: JsonObject = field(default_factory=dict)
    version: str = ""
    lab: str | None = None
    faults: Sequence[str] = ()
    synthetic: str | None = None
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class NodeUpdate(Event):
    """New connection state of a node, with its transport (``backend``)."""

    kind: ClassVar[str] = "node"

    node: str
    state: NodeState
    text: str | None = ""
    hint: str | None = None
    backend: str | None = ""


@dataclass(frozen=True, slots=True)
class InventoryUpdate(Event):
    """Result of the inventory probe on a node."""

    kind: ClassVar[str] = "inventory"

    node: str
    value: JsonObject


@dataclass(frozen=True, slots=True)
class EndpointsAdded(Event):
    """New endpoints; ``notes`` gives, by node, the reason why a node has nothing to test."""

    kind: ClassVar[str] = "endpoints"

    endpoints: Sequence[Endpoint]
    notes: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        return Event.to_json(self) | {"endpoints": [asdict(endpoint) for endpoint in self.endpoints]}


@dataclass(frozen=True, slots=True)
class ProbeResult(Event):
    """Result of a probe on a node: its value, or why there is none."""

    kind: ClassVar[str] = "look"

    node: str
    probe: str
    value: JsonObject | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PhaseStart(Event):
    """Start of a phase (``connect``, ``look``, ``ping``, ``p2p``, ``done``...); ``total`` is its number of tests."""

    kind: ClassVar[str] = "phase"

    name: str
    total: int = 0


@dataclass(frozen=True, slots=True)
class PairsStarted(Event):
    """Ordered pairs whose tests have just started."""

    kind: ClassVar[str] = "running"

    pairs: Sequence[Pair]


@dataclass(frozen=True, slots=True)
class Measured(Event):
    """Finished measurements."""

    kind: ClassVar[str] = "measured"

    measurements: Sequence[Measurement]

    def to_json(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        return Event.to_json(self) | {"measurements": [one.to_json() for one in self.measurements]}


@dataclass(frozen=True, slots=True)
class PlanUpdate(Event):
    """Change of the test plan.

    Attributes:
        slow_below: Share of the class median below which a value is slow.
        arms: Arms of an A/B comparison, the first one first.
        untested: Ordered pairs that will not be tested, with the reason.
        suspects: Bad ordered pairs, with the conclusion of their tests with other partners.
    """

    kind: ClassVar[str] = "plan"

    slow_below: float | None = None
    arms: Sequence[str] | None = None
    untested: Sequence[PairText] = ()
    suspects: Sequence[PairText] = ()


@dataclass(frozen=True, slots=True)
class CounterDeltas(Event):
    """Counter deltas of a node between two samples (`fabtui.model.counter_log`); none are sent where nothing moved."""

    kind: ClassVar[str] = "counters"

    node: str
    since: EpochSeconds
    until: EpochSeconds
    deltas: JsonObject


@dataclass(frozen=True, slots=True)
class LogEntry(Event):
    """Line of the event log; ``level`` is ``info``, ``notice``, ``warning`` or ``error``."""

    kind: ClassVar[str] = "log"

    level: str
    text: str
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Paused(Event):
    """Pause of a session, or its end."""

    kind: ClassVar[str] = "paused"

    on: bool


@dataclass(frozen=True, slots=True)
class Watching(Event):
    """Start or end of watching: pairs are tested again in the background."""

    kind: ClassVar[str] = "watch"

    on: bool


@dataclass(frozen=True, slots=True)
class SessionEnd(Event):
    """End of a session's tests, with the exit code."""

    kind: ClassVar[str] = "end"

    exit: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class UnknownEvent(Event):
    """Event of a kind that this version does not know."""


#: The events of a session by their name in a recording.
EVENTS: dict[str, type[Event]] = {
    event.kind: event
    for event in (
        SessionStart,
        NodeUpdate,
        InventoryUpdate,
        EndpointsAdded,
        ProbeResult,
        PhaseStart,
        PairsStarted,
        Measured,
        PlanUpdate,
        CounterDeltas,
        LogEntry,
        Paused,
        Watching,
        SessionEnd,
    )
}
_FIELD_READERS = {
    event: {one.name: _READERS[str(one.type)] for one in fields(event)} for event in (*EVENTS.values(), UnknownEvent)
}
_REQUIRED_FIELDS = {
    event: [one.name for one in fields(event) if one.default is MISSING and one.default_factory is MISSING]
    for event in _FIELD_READERS
}


def event_from_json(value: Any) -> Event:
    """Return the event of a JSON object, validated.

    Raises:
        ValueError: The object is not an event, or a field is missing or invalid.
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise ValueError("not an event")
    event = EVENTS.get(kind, UnknownEvent)
    found = read_fields(value, _FIELD_READERS[event])
    for name in _REQUIRED_FIELDS[event]:
        if name not in found:
            raise ValueError(f"{name!r} of {kind!r} is missing")
    return event(**found)
