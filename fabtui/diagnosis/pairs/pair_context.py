"""State of a search for causes among pairs: verdicts, pairs not explained yet, and evidence that rules share."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fabtui.diagnosis.blame import Blame, blamed, in_common
from fabtui.diagnosis.finding import Finding, Pair, Rule, Steps, in_steps
from fabtui.diagnosis.knowledge.error_catalogue import (
    CommonError,
    common_error,
    kind_of_error,
    meaning_of_measurement,
)
from fabtui.diagnosis.knowledge.next_commands import (
    commands_of_meaning,
    pair_commands,
)
from fabtui.diagnosis.links.rdma_ports import PortNotes
from fabtui.diagnosis.pairs.busy_cores import BusyCores
from fabtui.diagnosis.pairs.tally import Tally
from fabtui.model.counter_log import LEAST_CONGESTION, CounterMeaning, counts_of
from fabtui.model.endpoints import node_of
from fabtui.model.events import at_fault
from fabtui.model.layers import COLLECTIVES, Layer
from fabtui.model.measurement import DEAD, Measurement, Reduced, Verdict, worst
from fabtui.model.pair_table import DEAD as DEAD_CODES
from fabtui.model.pair_table import OK, SAME_DOMAIN, SLOW, Flags, Ints, PairTable, parts, quantile
from fabtui.model.places import Places
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line
from fabtui_node.parsers.nccl.transports import NETWORK

#: Maximum number of cells of a finding whose RDMA ports are inspected.
MOST_INSPECTED = 64
_MOST_COMMANDS = 4
#: Logarithm of a value over the usual one that no load of the cores explains, and number of such pairs with one cause.
_FAR, _FEWEST_FAR = math.log(0.02), 3
#: Number of collectives per step.
_GROUPS = 32
#: Maximum number of ports with congestion or loss that a finding names, and of their counters.
_MOST_COUNTED, _MOST_COUNTERS = 3, 3


class SlowestFact(NamedTuple):
    """The slowest pair of a finding, compared with the usual value of its class."""

    source: str
    destination: str
    value: float
    median: float
    unit: str
    reduced: Reduced | None = None  #: If its message was smaller than requested.


class InWorldFact(NamedTuple):
    """Results of the pairs of a finding in the world communicator."""

    passed: int  #: Pairs that pass.
    pairs: int  #: All pairs of the finding.
    collectives_run: bool  #: Whether NCCL can relay for all of them, so that collective jobs run.


class GroupResult(NamedTuple):
    """Result of a collective over the ranks of some nodes, with its largest message."""

    kind: str
    name: str  #: The nodes as text, or the name of the group.
    nodes: tuple[str, ...]
    verdict: Verdict
    value: float | None
    unit: str
    share: float | None  #: Share of the median of its class.
    measured: Measurement  #: The measurement.

    @property
    def bad(self) -> bool:
        """True if it is slow or fails."""
        return self.verdict.bad

    @property
    def slow(self) -> bool:
        """True if it is slow."""
        return self.verdict is Verdict.SLOW

    def __str__(self) -> str:
        return f"{self.kind} of {self.name}"


def group_results(model: Model) -> Steps[list[GroupResult]]:
    store = model.results.store
    rows = [row for layer in COLLECTIVES.values() for some in model.results.counting_rows(layer) for row in some]
    # Nodes that take part in the other groups: rails, and all ranks.
    everyone = tuple(dict.fromkeys(end.node for end in model.endpoints if end.kind != "none"))
    results = []
    # In the order of their arrival.
    for some in in_steps(sorted(rows), _GROUPS):
        for one in map(store.get, some):
            named = one.src in model.nodes and one.dst in model.nodes
            nodes = tuple(dict.fromkeys((one.src, one.dst))) if named else everyone
            usual = model.usual(one)
            share = one.value / usual if one.value is not None and usual else None
            name = one_line(" and ".join(nodes) if named else one.src, 200)
            kind, verdict = str(one.layer.spec.collective), model.verdict(one)
            results.append(GroupResult(kind, name, nodes, verdict, one.value, one.unit, share, one))
        yield
    return results


def uses_any(model: Model, pair: Pair, ends: frozenset[str]) -> bool:
    """Return True if a pair has one of some endpoints, or its data goes over the NIC of one."""
    if not ends.isdisjoint(pair):
        return True
    numbers = [number for name in pair if (number := model.table.number(name)) is not None]
    if len(numbers) < 2:
        return False
    carriers = model.table.carriers(*(model.endpoints[number] for number in numbers))
    return not ends.isdisjoint(map(str, carriers))


class PairContext:
    """Verdicts of pairs, as rules see them.

    Args:
        model: The session model.
        tally: The verdicts of all pairs.
        settled: Endpoints whose bad pairs a fact about their node explains: they are no evidence about anything else.
        groups: Results of collectives.
    """

    def __init__(
        self,
        model: Model,
        tally: Tally,
        settled: frozenset[str] = frozenset(),
        groups: Sequence[GroupResult] = (),
    ) -> None:
        self.model = model
        self.tally = tally
        #: Bad pairs that no finding explains.
        self.unexplained: dict[Pair, Verdict] = dict(self.tally.bad)
        #: Pairs that pass alone and are bad in world, likewise.
        self.only_inside = self.tally.only_inside
        if settled:
            self.unexplained = {p: one for p, one in self.unexplained.items() if not uses_any(model, p, settled)}
            self.only_inside = [pair for pair in self.only_inside if not uses_any(model, pair, settled)]
        self.cores = BusyCores(model)  #: Cores that CPU ranks share.
        #: What pairs showed that were slow alongside other traffic only, where that may be the cores of CPU ranks.
        self.contended: dict[str, Any] = {}
        #: Components that explain bad pairs, the one that explains most first; None until `search` has found them.
        self.blames: list[Blame] | None = None
        self.groups = groups  #: Results of collectives.
        #: Bad results of collectives that no finding explains.
        self.bad_groups = [one for one in self.groups if one.bad]
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
    ) -> Steps[Finding]:
        """Return a finding that explains cells, with the evidence that all of them share.

        Args:
            rule: The rule.
            subject: Topic of the finding.
            cells: The cells; the first ones are inspected.
            facts: Facts for the templates of the rule.
            error: The error that most of the cells have; by default the first ones are asked.
            commands: Next commands.
            nodes: Names of nodes; by default the nodes of the cells.
        """
        listed = list(cells)
        explained, ends = set(listed), set(itertools.chain.from_iterable(listed))
        yield
        for pair in explained:
            self.unexplained.pop(pair, None)
        yield
        first_cells = listed[:MOST_INSPECTED]
        shown = error
        if error is None and first_cells and self.tally.bad.get(first_cells[0]) in DEAD:
            shown = yield from self.error(first_cells)
        example = None if shown is None else shown.example
        meaning = meaning_of_measurement(example)
        first = [] if meaning is None or example is None else commands_of_meaning(self.model, meaning.commands, example)
        yield
        seen = [self.tally.bad[pair] for pair in first_cells if pair in self.tally.bad]
        common = {
            "seen": worst(seen) if seen else None,
            "error": None if error is None else error.fact,
            **({} if meaning is None else meaning.facts),
            "ports": self._known_ports(first_cells),
            "counted": (yield from self._counted(first_cells)),
            **self._in_world(listed),
        }
        yield
        # Commands for what many pairs have in common go before those for one of them, unless all have one known cause.
        known = error is not None and meaning is not None and meaning.role == "cause"
        following = [*first, *commands] if known or len(explained) <= 2 else [*commands, *first]
        return rule.finding(
            subject,
            nodes=self._nodes_of(ends) if nodes is None else nodes,
            cells=explained,
            facts={**(facts or {}), "pairs": len(explained), **common},
            commands=list(dict.fromkeys(following))[:_MOST_COMMANDS],
        )

    def _nodes_of(self, ends: Iterable[str]) -> list[str]:
        place = {node: number for number, node in enumerate(self.model.nodes)}
        return sorted({node_of(end) for end in ends}, key=lambda node: place.get(node, -1))

    def _known_ports(self, cells: Sequence[Pair]) -> tuple[str, ...]:
        counted: dict[str, int] = defaultdict(int)
        for pair in cells:
            for note in self._port_notes.of(*pair):
                counted[note] += 1
        least = len(cells) / 2
        return tuple(note for note, n in sorted(counted.items(), key=lambda item: -item[1]) if n >= least)[:2]

    def _counted(self, cells: Sequence[Pair]) -> Steps[tuple[str, ...] | None]:
        """Return the ports that were congested or lost packets while most of some slow pairs were tested."""
        ports: Counter[tuple[CounterMeaning, str, str]] = Counter()
        counts: dict[tuple[CounterMeaning, str, str], Counter[str]] = defaultdict(Counter)
        slow = [pair for pair in cells if self.tally.bad.get(pair) is Verdict.SLOW]
        for pair in slow:
            measured = self.model.latest(Layer.P2P, *pair) or self.model.latest(Layer.WORLD, *pair)
            moved = {} if measured is None else self.model.counters.of(measured)
            for meaning in (CounterMeaning.CONGESTION, CounterMeaning.LOSS):
                seen = set()
                for node, deltas in moved.items():
                    for path, count in counts_of(meaning, deltas).items():
                        # Pairs that were tested at the same time share their counts.
                        counted = counts[meaning, node, path[1]]
                        counted[path[-1]] = max(counted[path[-1]], count)
                        seen.add((meaning, node, path[1]))
                ports.update(seen)
            yield
        lines = []
        for key, times in ports.most_common():
            if times * 2 > len(slow) and max(counts[key].values()) >= LEAST_CONGESTION:
                meaning, node, port = key
                named = ", ".join(f"{name} {count:,}" for name, count in counts[key].most_common(_MOST_COUNTERS))
                lines.append(one_line(f"{meaning} while tested: {node} {port}: {named}", 300))
        return tuple(lines[:_MOST_COUNTED]) or None

    def _in_world(self, cells: Sequence[Pair]) -> dict[str, Any]:
        if self._made(cells):
            return {"made_by_lab": True}
        passed = sum(self.tally.inside.get(pair) is Verdict.OK for pair in cells)
        gpus = all(end.kind == "gpu" for end in self.model.endpoints)
        return {"in_world": InWorldFact(passed, len(cells), gpus and passed == len(cells))} if passed else {}

    def _made(self, pairs: Sequence[Pair]) -> bool:
        """Return True if a lab fault made the result of one of some pairs."""
        place, (shapes, shape_of, _) = self.tally.place, self.model.results.store.columns()
        if self.tally.table is None:
            return False
        rows = self.tally.table.row[[place[pair] for pair in pairs if pair in place]]
        return any((shape := shapes[number]) is not None and shape.made for number in {shape_of[row] for row in rows})

    def error(self, cells: Sequence[Pair]) -> Steps[CommonError | None]:
        """Return the error that most bad pairs have; details such as addresses may differ."""
        table = self.tally.table
        assert table is not None
        counted: Counter[str] = Counter()
        rows: dict[str, int] = {}
        for some in in_steps(cells):
            for pair in some:
                if (kind := self.error_kind(pair)) is not None:
                    counted[kind] += 1
                    rows.setdefault(kind, int(table.row[self.tally.place[pair]]))
            yield
        return common_error(counted, rows, self.model.results.store.get)

    def error_kind(self, pair: Pair) -> str | None:
        """Return the error of a bad pair without its details, or None."""
        table, at = self.tally.table, self.tally.place.get(pair)
        error = None if table is None or at is None else self.model.results.store.shape(int(table.row[at])).error
        return kind_of_error(error) if error else None

    def first_commands(self, cells: Sequence[Pair], node: str | None = None) -> list[str]:
        """Return commands about the first of some pairs, of those that a node sends if there is one."""
        return pair_commands(self.model, *next((pair for pair in cells if node_of(pair[0]) == node), cells[0]))

    def retest(self, pairs: Iterable[Pair]) -> dict[str, Any]:
        """Return what retests with other partners showed about the first pair that was retested."""
        conclusions = [one_line(self.model.suspects[pair], 300) for pair in pairs if pair in self.model.suspects]
        return {"retest": conclusions[0], "at_fault": at_fault(conclusions[0])} if conclusions else {}

    # -- components to blame ------------------------------------------------------------------------------------------

    def by_cores(self, pairs: Sequence[Pair]) -> bool:
        """Return True if slow pairs may be slow because the ranks at their ends share cores, and for no fault."""
        return self.tally.table is not None and self.cores.among(pairs) and not self._made(pairs)

    def search(self) -> Iterator[None]:
        """Find the components to blame, once, in small steps; rules that explain pairs otherwise come before."""
        if self.blames is not None:
            return
        table, places = self.tally.table, self.tally.places
        self.blames = []
        if table is not None and places is not None and self.unexplained:
            # `NvlinkUnused` explains why pairs are slow that use the network within their NVLink domain.
            for part in parts(len(table)):
                for pair in self.pairs_at(part.start + np.flatnonzero(without_nvlink(table, part))):
                    self.unexplained.pop(pair, None)
                yield
            settled = [at for pair, at in self.tally.place.items() if pair not in self.unexplained]
            yield
            left = np.ones(len(table), dtype=bool)
            left[settled] = False
            self.blames += yield from self._far_below(table, places, settled)
            settled += [at for one in self.blames for at in one.bad]
            for found in blamed(table, places, self.model.endpoints, settled):
                if found is not None:
                    self.blames.append(found)
                yield None
            if (shared := in_common(table, places, self.blames, left)) is not None:
                self.blames = [shared, *(one for one in self.blames if not one.dead)]

    def _far_below(self, table: PairTable, places: Places, settled: Sequence[int]) -> Steps[list[Blame]]:
        """Return what pairs have in common that are slower than busy cores make them; the others pass as it were."""
        slow = table.verdict == SLOW
        far = slow & (table.share < _FAR)
        if self.cores.enough or np.count_nonzero(far) < _FEWEST_FAR:
            return []
        blames: list[Blame] = []
        judged = replace(table, verdict=np.where(far, DEAD_CODES[0], np.where(slow, OK, table.verdict)))
        for one in blamed(judged, places, self.model.endpoints, [*settled, *np.flatnonzero(table.dead).tolist()]):
            if one is not None and len(one.bad) >= _FEWEST_FAR:
                factor = math.exp(quantile(table.share[list(one.bad)]))
                blames.append(one._replace(dead=False, factor=factor))
            yield
        return blames

    def pairs_at(self, places: Sequence[int] | Ints) -> list[Pair]:
        table, names = self.tally.table, self.model.table.names
        assert table is not None
        at = np.asarray(places, np.int64)
        return [(names[a], names[b]) for a, b in zip(table.source[at], table.target[at], strict=True)]

    def slow_inside(self, pair: Pair) -> bool:
        """Return True if a pair is slow in the world communicator, rather than broken."""
        inside = self.model.latest(Layer.WORLD, *pair)
        return inside is not None and self.model.verdict(inside) is Verdict.SLOW

    def slowest(self, cells: Iterable[Pair]) -> SlowestFact | None:
        """Return the pair with the lowest share of what is usual in its class."""
        table, place = self.tally.table, self.tally.place
        if table is None:
            return None
        at = np.array([place[pair] for pair in cells if pair in place], dtype=np.int64)
        at = at[~np.isnan(table.share[at])]
        if not len(at):
            return None
        m = self.model.results.store.get(int(table.row[at[np.argmin(table.share[at])]]))
        usual = self.model.usual(m)
        return None if m.value is None or not usual else SlowestFact(m.src, m.dst, m.value, usual, m.unit, m.reduced)


def without_nvlink(table: PairTable, part: slice) -> Flags:
    """Return which of some pairs use the network, though their GPUs are in one NVLink domain."""
    networked: Flags = (table.kind[part] == SAME_DOMAIN) & np.isin(table.path[part], NETWORK)
    return networked


def crosses_nodes(pair: Pair) -> bool:
    """Return True if a pair has its ends on different nodes."""
    return node_of(pair[0]) != node_of(pair[1])
