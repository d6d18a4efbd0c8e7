"""Rules, and the findings they produce."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from fabtui.diagnosis.knowledge import load
from fabtui.model.endpoints import node_of
from fabtui.model.layers import Layer
from fabtui.model.records import Recurrence
from fabtui.nodeset import fold

if TYPE_CHECKING:
    from fabtui.model.session_logs import Acknowledgement

Pair = tuple[str, str]
ContextT = TypeVar("ContextT")
RuleT = TypeVar("RuleT", bound="type[Rule[Any]]")
ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")
#: What is between the ends of a path in its name.
_ENDS = re.compile(r" [->] ")
#: Number of cells per step.
_STEP = 256
#: Computation that returns a result and yields after each small step, so that it never blocks keys for long.
Steps = Generator[None, None, ResultT]
#: All rules, in the order in which they are checked. `fabtui.diagnosis.diagnosis` imports every module of rules.
RULES: list[Rule[Any]] = []


def finished(steps: Steps[ResultT]) -> ResultT:
    """Return the result of a computation in steps, computed at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: ResultT = end.value
            return result


def in_steps(items: Iterable[ItemT], most: int = _STEP) -> Iterator[list[ItemT]]:
    """Yield parts of some items, such as cells, each for a small step of at most ``most``."""
    left = iter(items)
    while some := list(itertools.islice(left, most)):
        yield some


class Severity(StrEnum):
    """Severity of a finding: ``bad`` (a job fails or is slow), ``warn`` (likely) or ``note`` (worth knowing)."""

    BAD = "bad"
    WARN = "warn"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """Position among severities, the worst first."""
        return list(Severity).index(self)


class Domain(StrEnum):
    """Subject of a group of rules, which determines the type of their context.

    ``pairs``: a `PairContext`. ``links``: the session model. ``mesh``: a `Mesh`. ``nodes``: a `NodeContext`.
    ``summary``: findings of the preflight. ``logs``: the `Occurrences` of an error. ``jobs``: facts of a job from its
    logs. ``running``: the session model, with the evidence about a running job. ``history``: what earlier sessions saw.
    """

    PAIRS = "pairs"
    LINKS = "links"
    MESH = "mesh"
    NODES = "nodes"
    SUMMARY = "summary"
    LOGS = "logs"
    JOBS = "jobs"
    RUNNING = "running"
    HISTORY = "history"


class Role(StrEnum):
    """Relation of the findings of a rule to others about the same components."""

    RESULT = "result"  #: Bad results, whose cause others may name.
    SLOW = "slow"  #: A component whose results are slow.
    DEAD = "dead"  #: A component whose results fail.
    REASON = "reason"  #: What a slow component has in common with its addresses.
    CAUSE = "cause"  #: Why pairs fail.
    REPORTED = "reported"  #: An interface that its node reports to be at fault: it holds before anything fails there.
    CONNECTION = "connection"  #: Connections that never pass: all else that these pairs show follows from it.
    SETTING = "setting"  #: Addresses and routes of nodes: no other cause is as likely.
    COUNTER = "counter"  #: What a node counts, which any part of it may cause.
    CONSEQUENCE = "consequence"  #: What follows from anything else about the same node.
    PAST = "past"  #: What was bad and passes now: beside connections that some ports break, it is one of these.


class Kind(StrEnum):
    """Kind of the subject of a finding, as in JSON."""

    GPU = "gpu"
    NIC = "nic"
    NODE = "node"
    NODES = "nodes"
    RAIL = "rail"
    LEAF = "leaf"
    LEAF_CUT = "leaf-cut"
    PAIR = "pair"
    PAIRS = "pairs"
    NODE_PAIR = "node-pair"
    RAIL_PAIR = "rail-pair"
    HALVES = "halves"
    CROSS_RAIL = "cross-rail"
    CROSS_NODE = "cross-node"
    CONTENTION = "contention"
    CORES = "cores"
    WORLD = "world"
    FABRIC = "fabric"


class ExperimentKind(StrEnum):
    """Experiment that separates a finding from its rivals; `fabtui.diagnosis.experiment` declares how it is run."""

    ALONE = "alone"
    FRESH = "fresh-rank-hosts"
    PARTNERS = "other-partners"
    SOCKET = "sockets"
    OTHER_HCA = "other-hca"
    GID = "gid-index"
    ONE_RAIL = "one-rail"
    NO_P2P = "no-p2p"
    P2P = "p2p"
    RDMA = "rdma"
    GPUDIRECT = "gpudirect"
    NO_NVLS = "no-nvls"


class Reach(StrEnum):
    """Pairs of a component: all, those with other nodes, some of these, or those within its node.

    Where NVLink domains span nodes, pairs with other nodes stay within a domain, over NVLink, or use the network.
    """

    ALL = "all"
    OFF_NODE = "off-node"
    DOMAIN = "domain"
    NETWORK = "network"
    INSIDE = "inside"


class Direction(StrEnum):
    """Pairs of a component by their direction, seen from it or from the first of two."""

    BOTH = "both"
    SENDS = "sends"
    RECEIVES = "receives"


class Subject(NamedTuple):
    """Subject of a finding: the kind of component, and its name."""

    kind: Kind
    name: str

    @property
    def node(self) -> str | None:
        """Node of the component; None if it is not on one node alone."""
        if self.kind in (Kind.NODE, Kind.HALVES):
            return self.name
        if self.kind is Kind.GPU:
            return node_of(self.name)
        return self.name.partition(" ")[0] if self.kind is Kind.NIC else None


class AddressPair(NamedTuple):
    """An ordered pair of addresses, with their nodes."""

    src: str
    src_addr: str
    dst: str
    dst_addr: str

    @property
    def reverse(self) -> AddressPair:
        return AddressPair(self.dst, self.dst_addr, self.src, self.src_addr)


class Route(NamedTuple):
    """Two ends of a path, in one direction or in both."""

    source: str | int  #: The end that sends.
    destination: str | int  #: The other end.
    both: bool  #: Whether both directions are meant.


#: Types of attributes of rules that are declared in a table, texts apart, and attributes with another name there.
_TYPES: Mapping[str, Callable[[Any], Any]] = {
    "severity": Severity,
    "role": Role,
    "evidence": tuple,
    "experiments": lambda kinds: tuple(map(ExperimentKind, kinds)),
    "kinds": lambda kinds: frozenset((Kind(kind), Reach(reach)) for kind, reach in kinds),
}
_NAMES = {"next": "next_step", "meaning": "__doc__"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that fired. `fabtui.presentation.findings` renders its text."""

    rule: Rule[Any]  #: The rule.
    severity: Severity  #: How serious it is.
    topic: str  #: What it is about, in one word: a node, an endpoint, ``memlock``; "" for pairs without a common end.
    nodes: tuple[str, ...] = ()  #: The nodes it is about.
    cells: frozenset[Pair] = frozenset()  #: The ordered pairs of endpoints that it explains.
    #: Structured values for the templates of the rule and for common evidence.
    facts: Mapping[str, Any] = field(default_factory=dict)
    next: tuple[str, ...] = ()  #: Commands to run next.
    #: The bad measurements between addresses that it explains.
    measurements: frozenset[tuple[Layer, AddressPair]] = frozenset()
    weight: int = 0  #: Counts for its place among findings of the same severity, besides its cells.
    blames: Subject | None = None  #: The component to blame; None to derive it from the nodes.
    about: tuple[Subject, ...] = ()  #: The components that a fact is about; by default the subject alone.
    tested: int = 0  #: Number of tested pairs of that component; 0 if unknown.
    #: Probability (0 to 1) among the components that explain the same; None if there is no choice.
    confidence: float | None = None
    rivals: tuple[Subject, ...] = ()  #: Other components that explain the results about as well.
    acknowledged: Acknowledgement | None = None  #: Note of the user, who knows about it; None without one.
    recurrence: Recurrence | None = None  #: How earlier sessions had it; None if none did.

    @property
    def known(self) -> bool:
        return self.acknowledged is not None

    @property
    def subject(self) -> Subject:
        """Subject of the finding: the component to blame, else its nodes."""
        if self.blames is not None:
            return self.blames
        if len(self.nodes) == 1:
            return Subject(Kind.NODE, self.nodes[0])
        return Subject(Kind.NODES, fold(self.nodes)) if self.nodes else Subject(Kind.FABRIC, "all nodes")

    @property
    def blamed_nodes(self) -> frozenset[str]:
        """Nodes of the subject: of a path its ends, of a part its own; those that the finding is about otherwise."""
        kind, name = self.subject
        if kind in (Kind.PAIR, Kind.NODE_PAIR):
            ends = _ENDS.split(name)
            return frozenset(map(node_of, ends) if kind is Kind.PAIR else ends)
        return frozenset(self.nodes if self.subject.node is None else (self.subject.node,))

    @property
    def at_fault(self) -> tuple[str, ...]:
        """Nodes that it blames: one alone, or those of its fact ``culprits``; none for a path, a switch or all nodes.

        A single pair with a different node is no proof against one of them. Both directions of a pair are two cells.
        """
        if self.severity is not Severity.BAD:
            return ()
        if len(self.nodes) != 1:
            return tuple(self.facts.get("culprits", ()))
        ends = {frozenset(pair) for pair in self.cells} if len(self.cells) < 3 else ()
        return () if len(ends) == 1 and any(len(set(map(node_of, pair))) > 1 for pair in ends) else self.nodes

    @property
    def code(self) -> str:
        """Code of the error behind it in the error catalogue, such as ``E13``, or ""."""
        code: str = self.facts.get("code") or ""
        return code

    @property
    def share(self) -> float | None:
        """Share of the tested pairs of the component that are bad; None if unknown."""
        return len(self.cells) / self.tested if self.tested else None

    def replace(self, **changes: Any) -> Finding:
        return replace(self, **changes)


class NextStep(str):
    """Command of a next step that runs on a node, as it is typed on another machine.

    Steps without a node, such as a command of fabtui, are plain strings.
    """

    node: str  #: Where it runs.
    remote: str  #: What follows the node in the command.
    here: str  #: ``lab`` or ``local`` if the nodes of the session are this machine, which needs no login; else "".

    def __new__(cls, text: str, node: str = "", remote: str = "", here: str = "") -> NextStep:
        """Return a step; ``text`` is the whole command."""
        step = super().__new__(cls, text)
        step.node, step.remote, step.here = node, remote, here
        return step

    @property
    def there(self) -> str:
        """Command as typed on the node itself: ssh takes the quotes of a command of several words away."""
        with contextlib.suppress(ValueError):
            if len(words := shlex.split(self.remote)) == 1:
                return words[0]
        return self.remote


def declared(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a row of a table declares of a rule, as attributes of its class."""
    return {_NAMES.get(name, name): _TYPES.get(name, lambda value: value)(value) for name, value in row.items()}


class Rule(ABC, Generic[ContextT]):
    """A named check. Its docstring is its description in the documentation, ``rules.toml`` has its words by its id.

    Templates are format strings over the facts of a finding. A section in brackets is left out where one of its facts
    is missing, and so is a line of evidence.
    """

    id: ClassVar[str]  #: Stable identifier, such as ``FT010``.
    name: ClassVar[str]  #: Stable short name, such as ``rail-isolated``.
    title: ClassVar[str]  #: What the rule finds, for lists of rules.
    severity: ClassVar[Severity] = Severity.BAD  #: Default severity of its findings.
    domain: ClassVar[Domain] = Domain.PAIRS  #: What it looks at.
    role: ClassVar[Role] = Role.RESULT  #: How its findings relate to others.
    message: ClassVar[str]  #: Template of the title of a finding.
    evidence: ClassVar[tuple[str, ...]] = ()  #: Templates of lines of evidence.
    next_step: ClassVar[str] = ""  #: What to do about it.
    #: Experiments that confirm or refute its findings, the decisive ones first.
    experiments: ClassVar[tuple[ExperimentKind, ...]] = ()
    exit_note: ClassVar[str] = ""  #: Exit code of a session with a bad finding of it, where that is not 1, and why.
    #: Whether its findings last while a sweep tests pairs and groups; findings of other rules wait for its end.
    lasts: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        for name, value in declared(load("rules").get(cls.__dict__.get("id", ""), {})).items():
            setattr(cls, name, value)

    @property
    def description(self) -> str:
        return " ".join((type(self).__doc__ or self.title).split())

    @abstractmethod
    def check(self, context: ContextT) -> Iterable[Finding | None]:
        """Return the findings of this rule, and None after each small step between them."""

    def findings(self, context: ContextT) -> list[Finding]:
        return [found for found in self.check(context) if found is not None]

    def finding(
        self,
        topic: str = "",
        *,
        severity: Severity | None = None,
        nodes: Iterable[str] = (),
        cells: Iterable[Pair] = (),
        commands: Iterable[str] = (),
        measurements: Iterable[tuple[Layer, AddressPair]] = (),
        weight: int = 0,
        facts: Mapping[str, Any] | None = None,
        blames: Subject | None = None,
    ) -> Finding:
        return Finding(
            self,
            severity or self.severity,
            topic,
            tuple(nodes),
            frozenset(cells),
            facts or {},
            tuple(commands),
            frozenset(measurements),
            weight,
            blames,
        )


def register(rule: RuleT) -> RuleT:
    RULES.append(rule())
    return rule


def register_family(base: type[Any], own: Mapping[str, Mapping[str, Any]]) -> None:
    """Register the rules of a base class by their ids, with their own attributes; the rest is in ``rules.toml``."""
    for rule_id, attributes in own.items():
        register(type(rule_id, (base,), {"id": rule_id, **attributes}))


def rules_of(domain: Domain) -> list[Rule[Any]]:
    return [rule for rule in RULES if rule.domain is domain]


def findings_of(domain: Domain, context: Any) -> list[Finding]:
    return [one for rule in rules_of(domain) for one in rule.findings(context)]
