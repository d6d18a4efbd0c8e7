"""Events of a session: the journal keeps them, and the model is built from them.

Events are validated objects. Only the journal serialises them, as JSON objects with ``seq`` (from 0), ``time`` (seconds
since the epoch), ``kind`` and the fields of the class; fields with default values are left out. They are validated
when they are read, so that the model needs no checks of its own. Unknown kinds and fields are ignored, so that an older
fabtui can show a newer recording.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar

from fabtui.model.endpoints import Endpoint, is_index
from fabtui.model.measurement import Measurement

#: Version of the recording format.
FORMAT = 1

#: Start of the arms of measurements that belong to experiments.
EXPERIMENT_ARM = "experiment "

#: An ordered pair of endpoint names.
Pair = tuple[str, str]
#: An ordered pair of endpoint names, with a reason or a conclusion.
PairText = tuple[str, str, str]
EpochSeconds = float
JsonObject = dict[str, Any]

#: Returns the Python value of a JSON value, or raises ValueError.
Reader = Callable[[Any], Any]
Rule = Callable[[Any], bool]

#: Errors of a model on events of damaged recordings: valid by themselves, they may contradict each other.
APPLY_ERRORS = (KeyError, ValueError, TypeError, AttributeError, OverflowError)
#: Last second of the year 9999, the limit of calendars, in seconds since the epoch.
_MAX_TIME = 253_402_300_799
#: Bound of numbers, far below the overflow of floats.
_MAX_NUMBER = 1e100
_MAX_DEPTH = 24
_MAX_INTEGER_BITS = 63


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


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    """Return True if a JSON value is a finite number within bounds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_MAX_NUMBER <= value <= _MAX_NUMBER


def _is_time(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= _MAX_TIME


def _is_integer(value: Any) -> bool:
    """Return True if a JSON value is an integer of 64 bits at most."""
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _MAX_INTEGER_BITS


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_object(value: Any) -> bool:
    """Return True if a JSON value is an object of bounded depth with finite numbers."""
    if not isinstance(value, dict):
        return False
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, (int, float)) and not -_MAX_NUMBER <= item <= _MAX_NUMBER:
                return False
        if not below:
            return True
        level = below
    return False


def _or_none(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


def _mapping_to(rule: Rule) -> Rule:
    return lambda value: isinstance(value, dict) and all(map(rule, value.values()))


def _first_invalid(value: Mapping[str, Any], rules: Mapping[str, Rule]) -> str | None:
    return next((name for name, rule in rules.items() if name in value and not rule(value[name])), None)


def _matches(rules: Mapping[str, Rule]) -> Rule:
    return lambda value: isinstance(value, dict) and _first_invalid(value, rules) is None


_counts = _mapping_to(_is_number)
_EXTRA: dict[str, Rule] = {
    **dict.fromkeys(("algorithm", "came_from", "error_kind"), _or_none(_is_text)),
    **dict.fromkeys(("loss", "rtt_min", "rtt_max", "payload", "path_mtu", "passes"), _or_none(_is_number)),
    **dict.fromkeys(("no_room", "retransmits", "both_ways"), _or_none(_is_number)),
    # Bytes of a collective, or numbers of datagrams by their size.
    **dict.fromkeys(("sent", "arrived"), lambda value: value is None or _is_number(value) or _counts(value)),
    **dict.fromkeys(("algbw", "seconds", "fastest", "wrong", "ranks"), _or_none(_is_number)),
    "asked_bytes": _or_none(_is_integer),
    "times": _or_none(_mapping_to(_is_number)),
}
_MEASUREMENT: dict[str, Rule] = {
    **dict.fromkeys(("layer", "src", "dst", "verdict", "unit", "how"), _is_text),
    **dict.fromkeys(("transport", "src_addr", "dst_addr", "error", "raw", "arm"), _or_none(_is_text)),
    "value": _or_none(_is_number),
    "bytes": _or_none(_is_integer),
    "attempts": _is_integer,
    "time": _is_time,
    "made": _is_flag,
    "extra": _or_none(_matches(_EXTRA)),
}
_ENDPOINT: dict[str, Rule] = {
    "number": _is_integer,
    "index": is_index,
    **dict.fromkeys(("node", "kind", "name"), _is_text),
    **dict.fromkeys(("uuid", "bus", "nic", "address"), _or_none(_is_text)),
    "rail": _or_none(is_index),
}
_ENDPOINT_FIELDS = tuple(field.name for field in fields(Endpoint))


def _checked(rule: Rule, error: str = "invalid value") -> Reader:
    """Return a reader that passes on values that satisfy a rule."""

    def read(value: Any) -> Any:
        if not rule(value):
            raise ValueError(error)
        return value

    return read


def _list_of(reader: Reader) -> Reader:

    def read(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise ValueError("not a list")
        return tuple(map(reader, value))

    return read


def _row_of_texts(length: int) -> Reader:
    """Return a reader of lists of a fixed number of strings."""

    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)) or len(value) != length or not all(map(_is_text, value)):
            raise ValueError("invalid row")
        return tuple(value)

    return read


def _read_measurement(value: Any) -> Measurement:
    if not isinstance(value, dict):
        raise ValueError("not a measurement")
    if (invalid := _first_invalid(value, _MEASUREMENT)) is not None:
        raise ValueError(f"{invalid!r} is invalid")
    return Measurement.from_json(value)


def _read_endpoint(value: Any) -> Endpoint:
    if not isinstance(value, dict) or _first_invalid(value, _ENDPOINT) is not None:
        raise ValueError("not an endpoint")
    try:
        return Endpoint(**{name: value[name] for name in _ENDPOINT_FIELDS if name in value})
    except TypeError as error:
        raise ValueError(f"not an endpoint: {error}") from None


def _read_state(value: Any) -> NodeState:
    if not isinstance(value, str):
        raise ValueError("not a node state")
    return NodeState(value)


#: Readers of the fields' JSON values, by the annotation of the field.
_READERS: dict[str, Reader] = {
    "bool": _checked(_is_flag),
    "int": _checked(_is_integer),
    "float": _checked(_is_number),
    "EpochSeconds": _checked(_is_time),
    "str": _checked(_is_text),
    "JsonObject": _checked(_is_object),
    "NodeState": _read_state,
    "Mapping[str, str]": _checked(_mapping_to(_is_text), "not an object of strings"),
    "Sequence[str]": _list_of(_checked(_is_text)),
    "Sequence[Pair]": _list_of(_row_of_texts(2)),
    "Sequence[PairText]": _list_of(_row_of_texts(3)),
    "Sequence[Endpoint]": _list_of(_read_endpoint),
    "Sequence[Measurement]": _list_of(_read_measurement),
}


def _reader_of(annotation: str) -> Reader:
    reader = _READERS[annotation.removesuffix(" | None")]
    return (lambda value: None if value is None else reader(value)) if annotation.endswith(" | None") else reader


# Frozen classes with slots would double the time of this import, which the first frame waits for; methods
# of their own for each class do the same.
@dataclass(repr=False, eq=False)
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(self) is type(other) else NotImplemented


@dataclass(repr=False, eq=False)
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


@dataclass(repr=False, eq=False)
class NodeUpdate(Event):
    """New connection state of a node, with its transport (``backend``).

    ``retry`` is the time of the next try to reach a node that is gone; None: there is none.
    """

    kind: ClassVar[str] = "node"

    node: str
    state: NodeState
    text: str | None = ""
    hint: str | None = None
    backend: str | None = ""
    retry: EpochSeconds | None = None


@dataclass(repr=False, eq=False)
class InventoryUpdate(Event):
    """Result of the inventory probe on a node."""

    kind: ClassVar[str] = "inventory"

    node: str
    value: JsonObject


@dataclass(repr=False, eq=False)
class EndpointsAdded(Event):
    """New endpoints; ``notes`` gives, by node, the reason why a node has nothing to test."""

    kind: ClassVar[str] = "endpoints"

    endpoints: Sequence[Endpoint]
    notes: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        return Event.to_json(self) | {"endpoints": [asdict(endpoint) for endpoint in self.endpoints]}


@dataclass(repr=False, eq=False)
class ProbeResult(Event):
    """Result of a probe on a node: its value, or why there is none."""

    kind: ClassVar[str] = "look"

    node: str
    probe: str
    value: JsonObject | None = None
    error: str | None = None


@dataclass(repr=False, eq=False)
class PhaseStart(Event):
    """Start of a phase (``connect``, ``look``, ``ping``, ``p2p``, ``done``...); ``total`` is its number of tests."""

    kind: ClassVar[str] = "phase"

    name: str
    total: int = 0


@dataclass(repr=False, eq=False)
class RanksReady(Event):
    """The ranks of a node have started or failed to, in the phase ``ranks``, whose total is a number of nodes."""

    kind: ClassVar[str] = "ranks"

    node: str


@dataclass(repr=False, eq=False)
class PairsStarted(Event):
    """Ordered pairs whose tests have just started."""

    kind: ClassVar[str] = "running"

    pairs: Sequence[Pair]


@dataclass(repr=False, eq=False)
class Measured(Event):
    """Finished measurements."""

    kind: ClassVar[str] = "measured"

    measurements: Sequence[Measurement]

    def to_json(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        return Event.to_json(self) | {"measurements": [one.to_json() for one in self.measurements]}


@dataclass(repr=False, eq=False)
class PlanUpdate(Event):
    """Change of the test plan.

    Attributes:
        slow_below: Share of the usual value of a class below which a value is slow.
        arms: Arms of an A/B comparison, the first one first.
        untested: Ordered pairs that will not be tested, with the reason.
        suspects: Bad ordered pairs, with the conclusion of their tests with other partners.
    """

    kind: ClassVar[str] = "plan"

    slow_below: float | None = None
    arms: Sequence[str] | None = None
    untested: Sequence[PairText] = ()
    suspects: Sequence[PairText] = ()


@dataclass(repr=False, eq=False)
class Experiment(Event):
    """End of an experiment about a finding; its measurements came before, in its `arm`.

    Attributes:
        rule: Id of the rule of the finding.
        subject: Kind and name of the component that the finding blames.
        trial: What was tried.
        env: Environment variables of the ranks, besides those of the session.
        pairs: Ordered pairs whose results decide.
        controls: Ordered pairs that should pass.
        problem: Why it could not be run, or "".
    """

    kind: ClassVar[str] = "experiment"

    rule: str
    subject: Sequence[str]
    trial: str
    env: Mapping[str, str] = field(default_factory=dict)
    pairs: Sequence[Pair] = ()
    controls: Sequence[Pair] = ()
    problem: str = ""

    @property
    def arm(self) -> str:
        """Arm of its measurements, which belong to no A/B comparison."""
        return EXPERIMENT_ARM + self.env_text

    @property
    def env_text(self) -> str:
        """Its variables: ``NCCL_NET=Socket``."""
        return " ".join(f"{name}={value}" for name, value in self.env.items())


@dataclass(repr=False, eq=False)
class CommandStart(Event):
    """Start of a command that the user runs on a node.

    Attributes:
        number: Number of the command in the session, from 1.
        node: Where it runs.
        command: The next step as the user saw it.
        argv: Words that are run, without a shell.
    """

    kind: ClassVar[str] = "command"

    number: int
    node: str
    command: str
    argv: Sequence[str] = ()


@dataclass(repr=False, eq=False)
class CommandEnd(Event):
    """End of a command that the user ran.

    Attributes:
        number: That of its start.
        output: The first of its output, after its filters.
        lines: Number of lines that the filters saw; 0 without filters.
        dropped: Bytes of further output, which are not kept.
        exit: Exit status; None if it did not end by itself.
        problem: Why it did not run, or did not end by itself; or "".
    """

    kind: ClassVar[str] = "output"

    number: int
    output: str = ""
    lines: int = 0
    dropped: int = 0
    exit: int | None = None
    problem: str = ""


@dataclass(repr=False, eq=False)
class Acknowledged(Event):
    """A finding that the user knows about.

    Attributes:
        finding: What identifies it.
        title: Its title.
        note: What the user wrote, or "" to show it as any other again.
        since: When that was, for notes of earlier sessions; 0 for now.
    """

    kind: ClassVar[str] = "acknowledged"

    finding: str
    title: str
    note: str = ""
    since: EpochSeconds = 0.0


@dataclass(repr=False, eq=False)
class CounterDeltas(Event):
    """Counter deltas of a node between two samples (`fabtui.model.counter_log`); none are sent where nothing moved."""

    kind: ClassVar[str] = "counters"

    node: str
    since: EpochSeconds
    until: EpochSeconds
    deltas: JsonObject


@dataclass(repr=False, eq=False)
class LogEntry(Event):
    """Line of the event log; ``level`` is ``info``, ``notice``, ``warning`` or ``error``."""

    kind: ClassVar[str] = "log"

    level: str
    text: str
    node: str | None = None


@dataclass(repr=False, eq=False)
class Paused(Event):
    """Pause of a session, or its end."""

    kind: ClassVar[str] = "paused"

    on: bool


@dataclass(repr=False, eq=False)
class Watching(Event):
    """Start or end of watching: pairs are tested again in the background."""

    kind: ClassVar[str] = "watch"

    on: bool


@dataclass(repr=False, eq=False)
class SessionEnd(Event):
    """End of a session's tests, with the exit code."""

    kind: ClassVar[str] = "end"

    exit: int | None = None
    text: str = ""


@dataclass(repr=False, eq=False)
class SessionResumed(Event):
    """Continuation of a session whose earlier part was cut short; what comes before is a copy of its recording."""

    kind: ClassVar[str] = "resumed"

    version: str = ""


@dataclass(repr=False, eq=False)
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
        RanksReady,
        PairsStarted,
        Measured,
        PlanUpdate,
        Experiment,
        CommandStart,
        CommandEnd,
        Acknowledged,
        CounterDeltas,
        LogEntry,
        Paused,
        Watching,
        SessionEnd,
        SessionResumed,
    )
}
_FIELD_READERS = {
    event: {one.name: _reader_of(str(one.type)) for one in fields(event)} for event in (*EVENTS.values(), UnknownEvent)
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
    found = {}
    for name, reader in _FIELD_READERS[event].items():
        if name in value:
            try:
                found[name] = reader(value[name])
            except ValueError as error:
                raise ValueError(f"{name!r} is invalid ({error})") from None
    for name in _REQUIRED_FIELDS[event]:
        if name not in found:
            raise ValueError(f"{name!r} of {kind!r} is missing")
    return event(**found)
