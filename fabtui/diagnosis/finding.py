"""Rules, and the findings they produce."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from fabtui.model.acknowledgements import Acknowledgement
from fabtui.model.endpoints import node_of
from fabtui.model.layers import Layer
from fabtui.nodeset import fold

Pair = tuple[str, str]
ContextT = TypeVar("ContextT")
RuleT = TypeVar("RuleT", bound="type[Rule[Any]]")
ResultT = TypeVar("ResultT")
#: Computation that returns a result and yields after each small step, so that it never blocks keys for long.
Steps = Generator[None, None, ResultT]


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
    ``summary``: findings of the preflight. ``logs``: the `Occurrences` of an error. ``jobs``: facts of a running job.
    """

    PAIRS = "pairs"
    LINKS = "links"
    MESH = "mesh"
    NODES = "nodes"
    SUMMARY = "summary"
    LOGS = "logs"
    JOBS = "jobs"


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
    WORLD = "world"
    FABRIC = "fabric"


class Trial(StrEnum):
    """Experiment that separates a finding from its rivals; `fabtui.diagnosis.experiment` declares how it is run."""

    ALONE = "alone"
    PARTNERS = "other-partners"
    SOCKET = "sockets"
    OTHER_HCA = "other-hca"
    GID = "gid-index"
    ONE_RAIL = "one-rail"
    NO_P2P = "no-p2p"
    P2P = "p2p"
    RDMA = "rdma"
    GPUDIRECT = "gpudirect"


class Reach(StrEnum):
    """Pairs of a component: all, those with other nodes, or those within its node."""

    ALL = "all"
    OFF_NODE = "off-node"
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
        """The opposite direction."""
        return AddressPair(self.dst, self.dst_addr, self.src, self.src_addr)


class Route(NamedTuple):
    """Two ends of a path, in one direction or in both.

    Attributes:
        source: The end that sends.
        destination: The other end.
        both: Whether both directions are meant.
    """

    source: str | int
    destination: str | int
    both: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that fired. `fabtui.presentation.findings` renders its text.

    Attributes:
        rule: The rule.
        severity: How serious it is.
        topic: What it is about, in one word: a node, an endpoint, ``memlock``; "" for pairs without a common end.
        nodes: The nodes it is about.
        cells: The ordered pairs of endpoints that it explains.
        facts: Structured values for the templates of the rule and for common evidence.
        next: Commands to run next.
        measurements: The bad measurements between addresses that it explains.
        weight: Counts for its place among findings of the same severity, besides its cells.
        blames: The component to blame; None to derive it from the nodes.
        about: The components that a fact is about; by default the subject alone.
        tested: Number of tested pairs of that component; 0 if unknown.
        confidence: Probability (0 to 1) among the components that explain the same; None if there is no choice.
        rivals: Other components that explain the results about as well.
        acknowledged: Note of the user, who knows about it; None without one.
    """

    rule: Rule[Any]
    severity: Severity
    topic: str
    nodes: tuple[str, ...] = ()
    cells: frozenset[Pair] = frozenset()
    facts: Mapping[str, Any] = field(default_factory=dict)
    next: tuple[str, ...] = ()
    measurements: frozenset[tuple[Layer, AddressPair]] = frozenset()
    weight: int = 0
    blames: Subject | None = None
    about: tuple[Subject, ...] = ()
    tested: int = 0
    confidence: float | None = None
    rivals: tuple[Subject, ...] = ()
    acknowledged: Acknowledgement | None = None

    @property
    def known(self) -> bool:
        """True if the user has acknowledged it."""
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
    def code(self) -> str:
        """Code of the error behind it in the error catalogue, such as ``E13``, or ""."""
        code: str = self.facts.get("code") or ""
        return code

    @property
    def share(self) -> float | None:
        """Share of the tested pairs of the component that are bad; None if unknown."""
        return len(self.cells) / self.tested if self.tested else None

    def replace(self, **changes: Any) -> Finding:
        """Return a copy with some attributes changed."""
        return replace(self, **changes)


class Rule(ABC, Generic[ContextT]):
    """A named check. Its docstring is its description in the documentation.

    Templates are format strings over the facts of a finding. A section in brackets is left out where one of its facts
    is missing, and so is a line of evidence.

    Attributes:
        id: Stable identifier, such as ``FT010``.
        name: Stable short name, such as ``rail-isolated``.
        title: What the rule finds, for lists of rules.
        severity: Default severity of its findings.
        domain: What it looks at.
        message: Template of the title of a finding.
        evidence: Templates of lines of evidence.
        next_step: What to do about it.
        trials: Experiments that confirm or refute its findings, the decisive ones first.
    """

    id: ClassVar[str]
    name: ClassVar[str]
    title: ClassVar[str]
    severity: ClassVar[Severity] = Severity.BAD
    domain: ClassVar[Domain] = Domain.PAIRS
    message: ClassVar[str]
    evidence: ClassVar[tuple[str, ...]] = ()
    next_step: ClassVar[str] = ""
    trials: ClassVar[tuple[Trial, ...]] = ()

    @property
    def description(self) -> str:
        """Description for the documentation, on one line."""
        return " ".join((type(self).__doc__ or self.title).split())

    @abstractmethod
    def check(self, context: ContextT) -> Iterable[Finding | None]:
        """Return the findings of this rule, and None after each small step between them."""

    def findings(self, context: ContextT) -> list[Finding]:
        """Return the findings of this rule."""
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
        """Return a finding of this rule."""
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


#: All rules, in the order in which they are checked. `fabtui.diagnosis.diagnosis` imports every module of rules.
RULES: list[Rule[Any]] = []


def register(rule: RuleT) -> RuleT:
    """Add a class of rules to `RULES`."""
    RULES.append(rule())
    return rule


def rules_of(domain: Domain) -> list[Rule[Any]]:
    """Return the rules of a domain in the order in which they are checked."""
    return [rule for rule in RULES if rule.domain is domain]
