"""Events of a session: the journal keeps them, and the model is built from them.

Events are validated objects. Only the journal serialises them, as JSON objects with ``seq`` (from 0), ``time`` (seconds
since the epoch), ``kind`` and the fields of the class; fields with default values are left out. They are validated
when they are read (`fabtui.model.event_decoding`), so that the model needs no checks of its own. Unknown kinds and
fields are ignored, so that an older fabtui can show a newer recording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from fabtui.model.endpoints import Endpoint
from fabtui.model.measurement import Measurement
from fabtui.model.node_state import NodeState as NodeState

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


def at_fault(conclusion: str) -> str | None:
    """Return what a conclusion about a suspect blames: ``path``, an endpoint, or None."""
    if PATH_BLAMED in conclusion:
        return "path"
    end = conclusion.rpartition(CHECK)[2] if CHECK in conclusion else ""
    return end if end and " " not in end else None


#: JSON keeps apart whole numbers and others.
Number = int | float
EpochSeconds = Number
JsonObject = dict[str, Any]

#: Errors of a model on events of damaged recordings: valid by themselves, they may contradict each other.
APPLY_ERRORS = (KeyError, ValueError, TypeError, AttributeError, OverflowError)


# Frozen classes with slots would double the time of this import, which the first frame waits for; methods
# of their own for each class do the same.
@dataclass(repr=False, eq=False)
class Event:
    """One event."""

    kind: ClassVar[str] = ""  #: Name of the event in a recording.

    time: EpochSeconds = field(default=0.0, kw_only=True)  #: When it happened, seconds since the epoch.
    #: Number within the session, from 0; None before the event pump has numbered it.
    seq: int | None = field(default=None, kw_only=True)

    def to_json(self) -> JsonObject:
        """Return the event as a JSON object."""
        value: JsonObject = {} if self.seq is None else {"seq": self.seq}
        value |= {"time": self.time, "kind": self.kind}
        for one in fields(self)[2:]:
            found = getattr(self, one.name)
            if found != one.default:
                value[one.name] = found
        return value

    def __repr__(self) -> str:
        values = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self))
        return f"{type(self).__name__}({', '.join(values)})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, one.name) == getattr(other, one.name) for one in fields(self))


@dataclass(repr=False, eq=False)
class SessionStart(Event):
    """Start of a session."""

    kind: ClassVar[str] = "start"

    nodes: Sequence[str]  #: Names of the nodes.
    options: JsonObject = field(default_factory=dict)  #: Options of the session, as recorded.
    version: str = ""  #: Version of fabtui.
    lab: str | None = None  #: Shape of the lab (``2x4``), or None on real nodes.
    faults: Sequence[str] = ()  #: Lab faults, as text.
    synthetic: str | None = None  #: Origin of generated values; None where they were measured.
    format: int = FORMAT  #: Version of the recording format.


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

    def to_json(self) -> JsonObject:
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

    def to_json(self) -> JsonObject:
        """Return the event as a JSON object."""
        return Event.to_json(self) | {"measurements": [one.to_json() for one in self.measurements]}


@dataclass(repr=False, eq=False)
class PlanUpdate(Event):
    """Change of the test plan."""

    kind: ClassVar[str] = "plan"

    slow_below: Number | None = None  #: Share of the usual value of a class below which a value is slow.
    arms: Sequence[str] | None = None  #: Arms of an A/B comparison, the first one first.
    untested: Sequence[PairText] = ()  #: Ordered pairs that will not be tested, with the reason.
    suspects: Sequence[PairText] = ()  #: Bad ordered pairs, with the conclusion of their tests with other partners.


@dataclass(repr=False, eq=False)
class Experiment(Event):
    """End of an experiment about a finding; its measurements came before, in its `arm`."""

    kind: ClassVar[str] = "experiment"

    rule: str  #: Id of the rule of the finding.
    subject: Sequence[str]  #: Kind and name of the component that the finding blames.
    trial: str  #: What was tried.
    #: Environment variables of the ranks, besides those of the session.
    env: Mapping[str, str] = field(default_factory=dict)
    pairs: Sequence[Pair] = ()  #: Ordered pairs whose results decide.
    controls: Sequence[Pair] = ()  #: Ordered pairs that should pass.
    #: Groups of ranks whose collective decides, each by its two names in the snapshot (of one node, twice the node).
    groups: Sequence[Pair] = ()
    collective: str = ""  #: That collective; "" without groups.
    problem: str = ""  #: Why it could not be run, or "".

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
    """Start of a command that the user runs on a node."""

    kind: ClassVar[str] = "command"

    number: int  #: Number of the command in the session, from 1.
    node: str  #: Where it runs.
    command: str  #: The next step as the user saw it.
    argv: Sequence[str] = ()  #: Words that are run, without a shell.


@dataclass(repr=False, eq=False)
class CommandEnd(Event):
    """End of a command that the user ran."""

    kind: ClassVar[str] = "output"

    number: int  #: That of its start.
    output: str = ""  #: The first of its output, after its filters.
    lines: int = 0  #: Number of lines that the filters saw; 0 without filters.
    dropped: int = 0  #: Bytes of further output, which are not kept.
    exit: int | None = None  #: Exit status; None if it did not end by itself.
    problem: str = ""  #: Why it did not run, or did not end by itself; or "".


@dataclass(repr=False, eq=False)
class Acknowledged(Event):
    """A finding that the user knows about."""

    kind: ClassVar[str] = "acknowledged"

    finding: str  #: What identifies it.
    title: str  #: Its title.
    note: str = ""  #: What the user wrote, or "" to show it as any other again.
    since: EpochSeconds = 0.0  #: When that was, for notes of earlier sessions; 0 for now.


@dataclass(repr=False, eq=False)
class CounterDeltas(Event):
    """Counter deltas of a node between two samples (`fabtui.model.counter_log`); none are sent where nothing moved."""

    kind: ClassVar[str] = "counters"

    node: str
    since: EpochSeconds
    until: EpochSeconds
    deltas: JsonObject


@dataclass(repr=False, eq=False)
class JobEvidence(Event):
    """Reading of a source about the running job on a node (`fabtui.model.job_evidence`)."""

    kind: ClassVar[str] = "job"

    node: str
    source: str  #: One of `fabtui.model.job_evidence.JobSource`; unknown ones are ignored.
    value: JsonObject


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
        JobEvidence,
        LogEntry,
        Paused,
        Watching,
        SessionEnd,
        SessionResumed,
    )
}
