"""Events of a session: the journal keeps them, and the model is built from them.

Only the journal serialises events, as JSON objects with ``seq`` (from 0), ``time`` (seconds since the epoch), ``kind``
and the fields of the class; fields with default values are left out. They are validated when they are read, so that the
model needs no checks of its own. Unknown kinds and fields are ignored, so that an older fabtui can show a newer
recording.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from functools import cache, reduce
from typing import Any

import msgspec

from fabtui.model.endpoints import Endpoint
from fabtui.model.layers import Layer
from fabtui.model.measurement import MAX_NUMBER, UNITS, EpochSeconds, Integer, Measurement, Number

#: Version of the recording format.
FORMAT = 1

#: Start of the arms of measurements that belong to experiments.
EXPERIMENT_ARM = "experiment "

#: An ordered pair of endpoint names.
Pair = tuple[str, str]
#: An ordered pair of endpoint names, with a reason or a conclusion.
PairText = tuple[str, str, str]
#: Parts of the conclusions about suspects that blame the path, and an endpoint.
PATH_BLAMED, CHECK = "the path between them", ": check "
JsonObject = dict[str, Any]
_MAX_DEPTH = 24

#: Errors of a model on events of damaged recordings: valid by themselves, they may contradict each other.
APPLY_ERRORS = (KeyError, ValueError, TypeError, AttributeError, OverflowError)


def at_fault(conclusion: str) -> str | None:
    """Return what a conclusion about a suspect blames: ``path``, an endpoint, or None."""
    if PATH_BLAMED in conclusion:
        return "path"
    end = conclusion.rpartition(CHECK)[2] if CHECK in conclusion else ""
    return end if end and " " not in end else None


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
        """Return True if the node can no longer be used."""
        return self in (NodeState.FAILED, NodeState.LOST)


class Event(msgspec.Struct, kw_only=True, tag_field="kind"):
    """One event; the tag of its class is its ``kind`` in a recording."""

    time: EpochSeconds = 0.0  #: When it happened, seconds since the epoch.
    #: Number within the session, from 0; None before the event pump has numbered it.
    seq: Integer | None = None

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag or "")

    def to_json(self) -> JsonObject:
        """Return the event as a JSON object."""
        value: JsonObject = {} if self.seq is None else {"seq": self.seq}
        value |= {"time": self.time, "kind": self.kind}
        names, defaults = self.__struct_fields__, self.__struct_defaults__
        defaults = (msgspec.NODEFAULT,) * (len(names) - len(defaults)) + defaults
        for name, default in zip(names[:-2], defaults[:-2], strict=True):
            content = getattr(self, name)
            # Read from a file, an empty sequence is a list.
            if (() if content == [] and default == () else content) != default:
                value[name] = content
        return value


class SessionStart(Event, tag="start"):
    """Start of a session."""

    nodes: Sequence[str]  #: Names of the nodes.
    options: JsonObject = {}  #: Options of the session, as recorded.
    version: str = ""  #: Version of fabtui.
    lab: str | None = None  #: Shape of the lab (``2x4``), or None on real nodes.
    faults: Sequence[str] = ()  #: Lab faults, as text.
    synthetic: str | None = None  #: Origin of generated values; None where they were measured.
    format: Integer = FORMAT  #: Version of the recording format.


class NodeUpdate(Event, tag="node"):
    """New connection state of a node, with its transport (``backend``).

    ``retry`` is the time of the next try to reach a node that is gone; None: there is none. ``silent`` is for how long
    (s) a node had not been heard when it was lost; None if unknown.
    """

    node: str
    state: NodeState
    text: str | None = ""
    hint: str | None = None
    backend: str | None = ""
    retry: EpochSeconds | None = None
    silent: Number | None = None


class Incident(Event, tag="incident"):
    """Something that happened on a node and is over, as a session noticed it; ``time`` is when it was over.

    ``what`` is ``silence`` or ``rank-host`` (`fabtui.model.interval_log.IntervalKind`); others are ignored.
    """

    node: str
    what: str
    since: EpochSeconds  #: When it began, as far as that was seen.
    text: str = ""  #: What was seen.


class InventoryUpdate(Event, tag="inventory"):
    """Result of the inventory probe on a node."""

    node: str
    value: JsonObject


class EndpointsAdded(Event, tag="endpoints"):
    """New endpoints; ``notes`` gives, by node, the reason why a node has nothing to test."""

    endpoints: Sequence[Endpoint]
    notes: Mapping[str, str] = {}

    def to_json(self) -> JsonObject:
        """Return the event as a JSON object."""
        return Event.to_json(self) | {"endpoints": [asdict(endpoint) for endpoint in self.endpoints]}


class ProbeResult(Event, tag="look"):
    """Result of a probe on a node: its value, or why there is none."""

    node: str
    probe: str
    value: JsonObject | None = None
    error: str | None = None


class PhaseStart(Event, tag="phase"):
    """Start of a phase (``connect``, ``look``, ``ping``, ``p2p``, ``done``...); ``total`` is its number of tests."""

    name: str
    total: Integer = 0


class RanksReady(Event, tag="ranks"):
    """The ranks of a node have started or failed to, in the phase ``ranks``, whose total is a number of nodes."""

    node: str


class PairsStarted(Event, tag="running"):
    """Ordered pairs whose tests have just started."""

    pairs: Sequence[Pair]


class Measured(Event, tag="measured"):
    """Finished measurements."""

    measurements: Sequence[Measurement]

    def to_json(self) -> JsonObject:
        """Return the event as a JSON object."""
        return Event.to_json(self) | {"measurements": [measurement.to_json() for measurement in self.measurements]}


class PlanUpdate(Event, tag="plan"):
    """Change of the test plan."""

    slow_below: Number | None = None  #: Share of the usual value of a class below which a value is slow.
    pairs: str = ""  #: Which pairs are tested, if not all; "" for no change.
    arms: Sequence[str] | None = None  #: Arms of an A/B comparison, the first one first.
    untested: Sequence[PairText] = ()  #: Ordered pairs that will not be tested, with the reason.
    suspects: Sequence[PairText] = ()  #: Bad ordered pairs, with the conclusion of their tests with other partners.


class Experiment(Event, tag="experiment"):
    """End of an experiment about a finding; its measurements came before, in its `arm`."""

    rule: str  #: Id of the rule of the finding.
    subject: Sequence[str]  #: Kind and name of the component that the finding blames.
    trial: str  #: What was tried.
    #: Environment variables of the ranks, besides those of the session.
    env: Mapping[str, str] = {}
    pairs: Sequence[Pair] = ()  #: Ordered pairs whose results decide.
    controls: Sequence[Pair] = ()  #: Ordered pairs that should pass.
    #: Groups of ranks whose collective decides, each by its two names in the snapshot (of one node, twice the node).
    groups: Sequence[Pair] = ()
    collective: str = ""  #: That collective; "" without groups.
    problem: str = ""  #: Why it could not be run, or "".
    fresh: bool = False  #: Whether the rank hosts of its pairs start again for it.

    @property
    def arm(self) -> str:
        """Arm of its measurements, which belong to no A/B comparison."""
        return EXPERIMENT_ARM + self.env_text

    @property
    def env_text(self) -> str:
        """Its variables: ``NCCL_NET=Socket``."""
        return " ".join(f"{name}={value}" for name, value in self.env.items())


class BisectGroup(msgspec.Struct):
    """A group of ranks in a round of a search: numbers of its units, of which ``fill`` were cleared before.

    ``verdict`` is ``ok``, ``slow``, ``failed``, ``timeout``, ... or "" while it runs; ``value`` is its busbw (GB/s).
    """

    suspects: Sequence[Integer]
    fill: Sequence[Integer] = ()
    verdict: str = ""
    value: Number | None = None


class BisectStart(Event, tag="bisecting"):
    """Start of a search for what makes a collective over many ranks slow or fail."""

    units: Sequence[str]  #: The units of the search, by number: nodes, or endpoints of few nodes.
    collective: str
    bytes: Integer
    ranks: Integer  #: Number of ranks of all units.


class BisectRound(Event, tag="bisect"):
    """A round of that search as it starts, and once more with its verdicts; the last one has an ``outcome``."""

    number: Integer  #: From 0, which is for comparison.
    purpose: str  #: One of `fabtui.model.session_logs.PURPOSES`.
    groups: Sequence[BisectGroup] = ()
    left: Sequence[Integer] = ()  #: Units that may be at fault.
    cleared: Sequence[Integer] = ()
    culprits: Sequence[Sequence[Integer]] = ()  #: Units that were found; several that are bad only together.
    outcome: str = ""  #: ``nothing``, ``found``, ``more``, ``whole`` or ``undecided``; "" while it runs.
    problem: str = ""  #: Why there is no answer, or "".


class CommandStart(Event, tag="command"):
    """Start of a command that the user runs on a node."""

    number: Integer  #: Number of the command in the session, from 1.
    node: str  #: Where it runs.
    command: str  #: The next step as the user saw it.
    argv: Sequence[str] = ()  #: Words that are run, without a shell.


class CommandEnd(Event, tag="output"):
    """End of a command that the user ran."""

    number: Integer  #: That of its start.
    output: str = ""  #: The first of its output, after its filters.
    lines: Integer = 0  #: Number of lines that the filters saw; 0 without filters.
    dropped: Integer = 0  #: Bytes of further output, which are not kept.
    exit: Integer | None = None  #: Exit status; None if it did not end by itself.
    problem: str = ""  #: Why it did not run, or did not end by itself; or "".


class Acknowledged(Event, tag="acknowledged"):
    """A finding that the user knows about."""

    finding: str  #: What identifies it.
    title: str  #: Its title.
    note: str = ""  #: What the user wrote, or "" to show it as any other again.
    since: EpochSeconds = 0.0  #: When that was, for notes of earlier sessions; 0 for now.


class CounterDeltas(Event, tag="counters"):
    """Counter deltas of a node between two samples (`fabtui.model.counter_log`); none are sent where nothing moved."""

    node: str
    since: EpochSeconds
    until: EpochSeconds
    deltas: JsonObject


class NodeGrowth(Event, tag="growth"):
    """Growth of all counters of a node during a phase of the session (`fabtui.model.growth_log`)."""

    node: str
    phase: str  #: Name of the phase that has ended.
    seconds: float  #: Time between the two readings.
    grew: JsonObject  #: By how much, by the name of the counter; those that did not grow are left out.
    fell: list[str] = []  #: Counters that fell: no counters, but gauges.


class JobEvidence(Event, tag="job"):
    """Reading of a source about the running job on a node (`fabtui.model.job_evidence`)."""

    node: str
    source: str  #: One of `fabtui.model.job_evidence.JobSource`; unknown ones are ignored.
    value: JsonObject


class LogEntry(Event, tag="log"):
    """Line of the event log; ``level`` is ``info``, ``notice``, ``warning`` or ``error``."""

    level: str
    text: str
    node: str | None = None


class Paused(Event, tag="paused"):
    """Pause of a session, or its end."""

    on: bool


class Watching(Event, tag="watch"):
    """Start or end of watching: pairs are tested again in the background."""

    on: bool


class SessionEnd(Event, tag="end"):
    """End of a session's tests, with the exit code."""

    exit: Integer | None = None
    text: str = ""


class SessionResumed(Event, tag="resumed"):
    """Continuation of a session whose earlier part was cut short; what comes before is a copy of its recording."""

    version: str = ""


class UnknownEvent(Event, tag=False):
    """Event of a kind that this version does not know."""


#: The events of a session by their name in a recording.
EVENTS: dict[str, type[Event]] = {
    str(event.__struct_config__.tag): event for event in Event.__subclasses__() if event is not UnknownEvent
}


def _is_number(value: Any) -> bool:
    """Return True if a JSON value is a finite number within bounds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -MAX_NUMBER <= value <= MAX_NUMBER


def _is_object(value: Any) -> bool:
    """Return True if a JSON object has a bounded depth, and finite numbers."""
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, (int, float)) and not -MAX_NUMBER <= item <= MAX_NUMBER:
                return False
        if not below:
            return True
        level = below
    return False


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


#: Rules of values in the extras of a measurement.
_EXTRA: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("algorithm", "came_from", "error_kind", "last_hop"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("loss", "rtt_min", "rtt_max", "payload", "path_mtu", "passes"), _is_number),
    **dict.fromkeys(("no_room", "retransmits", "both_ways", "errno"), _is_number),
    # Bytes of a collective, or numbers of datagrams by their size.
    **dict.fromkeys(("sent", "arrived"), lambda value: _is_number(value) or _is_counts(value)),
    **dict.fromkeys(("algbw", "seconds", "fastest", "wrong", "ranks"), _is_number),
    "asked_bytes": lambda value: type(value) is int and value.bit_length() < 64,
    **dict.fromkeys(("times", "flows"), _is_counts),
}


def _checked(event: Event) -> Event:
    """Return a decoded event.

    Raises:
        ValueError: JSON objects in it are out of bounds, or a measurement has a wrong unit or extras.
    """
    if isinstance(event, Measured):
        for measurement in event.measurements:
            if measurement.unit not in UNITS:
                raise ValueError("unknown unit")
            for name, value in (measurement.extra or {}).items():
                if value is not None and name in _EXTRA and not _EXTRA[name](value):
                    raise ValueError("'measurements' is out of bounds")
        return event
    for name in event.__struct_fields__:
        if isinstance(value := getattr(event, name), dict) and not _is_object(value):
            raise ValueError(f"{name!r} is out of bounds")
    return event


def _decoded_layer(kind: type, name: Any) -> Layer:
    if kind is not Layer or not isinstance(name, str):
        raise ValueError("not a layer")
    return Layer(name)


@cache
def _decoder() -> msgspec.json.Decoder[Event]:
    return msgspec.json.Decoder(reduce(operator.or_, EVENTS.values()), dec_hook=_decoded_layer)


def event_from_line(line: bytes) -> Event:
    """Return the event of a line of a recording, validated.

    Raises:
        ValueError: The line is not an event, or a field is missing or invalid.
    """
    try:
        return _checked(_decoder().decode(line))
    except msgspec.DecodeError:
        # An event of an unknown kind; or half of a surrogate pair, which may stand for a byte of a node's output and is
        # not text for msgspec.
        return event_from_json(json.loads(line))


def event_from_json(value: Any) -> Event:
    """Return the event of a JSON object, validated; see `event_from_line`."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise ValueError("not an event")
    try:
        return _checked(msgspec.convert(value, EVENTS.get(kind, UnknownEvent), dec_hook=_decoded_layer))
    except msgspec.ValidationError as error:
        text = str(error)
        if text.startswith("Object missing required field `") and "$" not in text:
            raise ValueError(f"{text.split('`')[1]!r} of {kind!r} is missing") from None
        raise ValueError(f"not a measurement: {text}" if "`$.measurements" in text else text) from None
