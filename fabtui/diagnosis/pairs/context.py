"""State of a search for causes among pairs: verdicts, pairs not explained yet, and evidence that rules share."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fabtui.diagnosis.finding import Finding, Pair, Rule
from fabtui.diagnosis.knowledge.error_catalogue import CommonError, common_error, meaning_of_measurement
from fabtui.diagnosis.knowledge.next_commands import commands_of_meaning, pair_commands
from fabtui.diagnosis.links.rdma_ports import PortNotes
from fabtui.diagnosis.pairs.tally import DEAD, Survey, Tally
from fabtui.model.endpoints import Endpoint
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line

#: Minimum number of tests of an endpoint before it is blamed for all of them.
FEWEST = 3
#: Maximum number of cells of a finding whose RDMA ports are inspected.
_MOST_INSPECTED = 64
_MOST_COMMANDS = 4


class SlowestFact(NamedTuple):
    """The slowest pair of a finding, compared with the median of its class."""

    source: str
    destination: str
    value: float
    median: float
    unit: str


class InWorldFact(NamedTuple):
    """Results of the pairs of a finding in the world communicator.

    Attributes:
        passed: Pairs that pass.
        pairs: All pairs of the finding.
        collectives_run: Whether NCCL can relay for all of them, so that collective jobs run.
    """

    passed: int
    pairs: int
    collectives_run: bool


class PairContext:
    """Verdicts of pairs, as rules see them.

    Args:
        model: The session model.
        tally: The verdicts of all pairs; by default they are gathered now.
    """

    def __init__(self, model: Model, tally: Tally | None = None) -> None:
        self.model = model
        self.tally = Survey(model).finish() if tally is None else tally
        #: Bad pairs that no finding explains.
        self.unexplained: dict[Pair, Verdict] = dict(self.tally.bad)
        #: All bad pairs by endpoint.
        self.bad_pairs_of: dict[str, list[Pair]] = defaultdict(list)
        for pair in self.unexplained:
            for end in pair:
                self.bad_pairs_of[end].append(pair)
        self._port_notes = PortNotes(model)

    def explain(
        self,
        rule: Rule[PairContext],
        subject: str,
        cells: Iterable[Pair],
        *,
        facts: Mapping[str, Any] | None = None,
        error: CommonError | None = None,
        commands: Iterable[str] = (),
        nodes: Iterable[str] | None = None,
    ) -> Finding:
        """Return a finding that explains cells, with the evidence that all of them share."""
        explained = frozenset(cells)
        for pair in explained:
            self.unexplained.pop(pair, None)
        example = self._example(explained) if error is None else error.example
        meaning = meaning_of_measurement(example)
        first = [] if meaning is None or example is None else commands_of_meaning(self.model, meaning.commands, example)
        common = {
            "error": None if error is None else error.fact,
            "meaning": None if meaning is None else meaning.text,
            "ports": self._known_ports(explained),
            **self._in_world(explained),
        }
        # Commands for what many pairs have in common go before those for one of them.
        following = [*first, *commands] if len(explained) <= 2 else [*commands, *first]
        if nodes is None:
            place = {node: number for number, node in enumerate(self.model.nodes)}
            nodes = sorted({node_of(end) for pair in explained for end in pair}, key=lambda node: place.get(node, -1))
        return rule.finding(
            subject,
            nodes=nodes,
            cells=explained,
            facts={**(facts or {}), "pairs": len(explained), **common},
            commands=list(dict.fromkeys(following))[:_MOST_COMMANDS],
        )

    def _example(self, cells: frozenset[Pair]) -> Measurement | None:
        if not any(self.tally.bad.get(pair) in DEAD for pair in itertools.islice(cells, 1)):
            return None
        found = common_error(self.model, heapq.nsmallest(_MOST_INSPECTED, cells))
        return None if found is None else found.example

    def _known_ports(self, cells: frozenset[Pair]) -> tuple[str, ...]:
        """Return what probes report about the ports and cables of most of the cells."""
        counted: dict[str, int] = defaultdict(int)
        for pair in sorted(cells)[:_MOST_INSPECTED]:
            for note in self._port_notes.of(*pair):
                counted[note] += 1
        least = min(len(cells), _MOST_INSPECTED) / 2
        return tuple(note for note, n in sorted(counted.items(), key=lambda item: -item[1]) if n >= least)[:2]

    def _in_world(self, cells: frozenset[Pair]) -> dict[str, Any]:
        """Return how cells that are bad alone do in the world communicator."""
        if any((latest := self.model.latest(Layer.P2P, *pair)) is not None and latest.made for pair in cells):
            return {"made_by_lab": True}
        inside = [self.tally.inside[pair] for pair in cells if pair in self.tally.inside]
        passed = sum(verdict is Verdict.OK for verdict in inside)
        if not passed:
            return {}
        gpus = all(end.kind == "gpu" for end in self.model.endpoints)
        return {"in_world": InWorldFact(passed, len(cells), gpus and passed == len(cells))}

    def error(self, cells: Iterable[Pair]) -> CommonError | None:
        """Return the error that most cells have."""
        return common_error(self.model, cells)

    def first_commands(self, cells: Iterable[Pair]) -> list[str]:
        """Return commands that inspect the first of some pairs."""
        return pair_commands(self.model, *min(cells))

    def retest(self, pairs: Iterable[Pair]) -> dict[str, Any]:
        """Return what retests with other partners showed about the first pair that was retested."""
        found = [one_line(self.model.suspects[pair], 300) for pair in pairs if pair in self.model.suspects]
        return {"retest": found[0]} if found else {}

    def endpoint(self, name: str) -> Endpoint | None:
        """Return an endpoint by its name."""
        number = self.model.number(name)
        return None if number is None else self.model.endpoints[number]

    def endpoints_by_blame(self) -> list[Endpoint]:
        """Return all endpoints, the one with the most bad pairs first."""
        return sorted(self.model.endpoints, key=lambda end: -len(self.bad_pairs_of.get(str(end), ())))

    def dead_off_node(self, end: str) -> bool:
        """Return True if an endpoint fails with all endpoints of other nodes."""
        tested = self.tally.tested[end, True]
        return tested >= FEWEST and self.tally.dead[end, True] == tested

    def slow_off_node(self, end: str) -> bool:
        """Return True if an endpoint is slow with most endpoints of other nodes."""
        return self.tally.slow[end, True] >= 0.75 * self.tally.tested[end, True]

    def off_node_cells(self, ends: Iterable[str]) -> set[Pair]:
        """Return unexplained pairs of endpoints with other nodes."""
        return {p for end in ends for p in self.bad_pairs_of[end] if p in self.unexplained and crosses_nodes(p)}

    def slowest(self, cells: Iterable[Pair]) -> SlowestFact | None:
        """Return the pair with the lowest share of the median of its class."""
        worst: tuple[float, SlowestFact] | None = None
        for src, dst in cells:
            latest = self.model.latest(Layer.P2P, src, dst) or self.model.latest(Layer.WORLD, src, dst)
            if latest is None or latest.value is None:
                continue
            median = self.model.median(latest.layer, self.model.class_of(latest))
            if median:
                fact = SlowestFact(src, dst, latest.value, median, latest.unit)
                worst = min(filter(None, (worst, (latest.value / median, fact))))
        return None if worst is None else worst[1]


def node_of(end: str) -> str:
    """Return the node of an endpoint."""
    return end.rpartition(":")[0]


def crosses_nodes(pair: Pair) -> bool:
    """Return True if a pair has its ends on different nodes."""
    return node_of(pair[0]) != node_of(pair[1])
