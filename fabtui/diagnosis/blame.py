"""Components to blame for bad pairs: the fewest and likeliest ones that explain them.

A component at fault predicts which pairs are bad: a GPU, its NIC, a node, a rail, a leaf switch, a pair of nodes.
The description of all results is shortest (minimum description length, Rissanen 1978) where few components predict them
well. The search is greedy: the component that saves most bits comes first; what it explains counts no more.

Dead pairs and slow ones are handled alike. A dead pair that a component predicts saves bits, one that works costs bits.
For slow pairs, the logarithm of each value over what is usual in its class is compared with its noise: under the
hypothesis that everything the component carries is slower by a factor, and under the hypothesis that it is not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fabtui.diagnosis.finding import Direction, Kind, Reach, Steps, Subject
from fabtui.diagnosis.node_groups import groups_of, sides_of
from fabtui.model import pair_table
from fabtui.model.class_statistics import SURELY_SLOW
from fabtui.model.endpoints import Endpoint
from fabtui.model.pair_table import Flags, Floats, Ints, PairTable, parts, quantile
from fabtui.model.places import Places
from fabtui.nodeset import fold
from fabtui_node.parsers.nccl.transports import Path

#: Maximum number of bits for or against a component by one pair: single results may be wrong.
_MOST_BITS = 8.0
#: Factors by which a component may slow its pairs down.
_FACTORS = (0.8, 0.65, 0.5, 0.35, 0.2, 0.08)
#: Smallest standard deviation (of logarithms) that results are credited with.
_LEAST_SPREAD = 0.04
#: Largest one: however widely a class spreads, a value that is surely slow is at least two deviations away.
_MOST_SPREAD = -math.log(SURELY_SLOW) / 2
#: Bits that a component has to save before it is blamed.
_LEAST_BITS = 3.0
#: Share of its pairs that have to be bad, and that have to speak for it: noise may lift a slow pair above the limit.
_LEAST_BAD, _LEAST_SHARE = 0.15, 0.6
#: Maximum difference of the savings of a rival and of the best component (bits).
_RIVAL_BITS = 5.0
_MOST_BLAMES, _MOST_RIVALS = 16, 4
#: Minimum number of dead pairs that have one node in common, though others of it pass.
_FEWEST_IN_COMMON = 6
#: Minimum number of pairs about as usual that narrow a component down to the part of it without them.
_FEWEST_OTHERS = 2
#: Share of these pairs that may be slow by themselves.
_MOST_STRAYS = 1 / 3
#: Difference of savings (bits) below which the share of bad pairs decides.
_EQUAL_BITS = 3.0
#: Minimum number of slow pairs across a cut that is partly slow, also for each node: fewer cross it by chance.
_FEWEST_ACROSS, _FEWEST_PER_NODE = 8, 2
#: Expected share of slow pairs across such a cut, the least and the largest one, and the share of those that do not.
PARTLY, _LEAST_PARTLY, _MOST_PARTLY, _STRAYS = 0.5, 0.08, 0.8, 0.03
#: Bits that one direction costs more than both.
_DIRECTION_BITS = 1.5


class Blame(NamedTuple):
    """A component that explains bad pairs."""

    subject: Subject  #: The component.
    reach: Reach  #: Which of its pairs it explains.
    direction: Direction  #: Their direction.
    dead: bool  #: Whether they fail; else they are slow.
    factor: float | None  #: Value of the slow pairs over what is usual; None if dead.
    tested: int  #: Number of its tested pairs.
    others: int  #: Number of endpoints at the other ends of these pairs.
    bad: tuple[int, ...]  #: Places in the table of those that are bad.
    confidence: float  #: Probability among the components that explain the same, from 0 to 1.
    rivals: tuple[Subject, ...]  #: Other components that explain the results about as well, the likeliest first.
    number: int = 0  #: Its number in its family.
    family: int = 0  #: Place of its family in the search.
    partly: bool = False  #: Whether many of its pairs pass: all that is bad has it, and nothing else.


class _Score(NamedTuple):
    """Bits that a component saves: place of its family, number in it, and the factor it slows down by."""

    saving: float
    at: int
    number: int
    factor: float | None


@dataclass(slots=True)
class Candidates:
    """Components of one kind, such as rails: each pair's component by one end or both; ``size`` means none."""

    kind: Kind
    reach: Reach
    direction: Direction
    bits: float
    keys: tuple[Ints, ...]
    name: Callable[[int], str]
    size: int
    expected: float = 1.0  #: Expected share of its rows that are bad; below 1 where one of several paths is at fault.
    least: float = _LEAST_SHARE  #: Share of its rows that have to speak for it.
    exist: int = 0

    def members(self, number: int) -> Flags:
        mine: Flags = self.keys[0] == number
        for key in self.keys[1:]:
            mine = mine | (key == number)
        return mine

    def total(self, weights: Floats | Flags) -> Steps[Floats]:
        """Return the sum of the weights of its pairs for each component; flags count the pairs."""
        sums: Floats = np.zeros(self.size + 1)
        for key in self.keys:
            for part in parts(len(key)):
                sums += np.bincount(key[part], weights=weights[part], minlength=self.size + 1)
                yield
        return sums[:-1]


def of_both(first: Ints, second: Ints, where: Flags) -> tuple[Ints, Ints, Ints]:
    """Return the components of the ends of some pairs, -1 for the others, and the second only where it differs."""
    first, second = np.where(where, first, -1), np.where(where, second, -1)
    return first, second, np.where(second == first, -1, second)


def of_pairs(first: Ints, second: Ints, where: Flags, size: int) -> tuple[Ints, Ints]:
    """Return numbers for the components at both ends of some pairs, without and with order; -1 for the others."""
    where = where & (first >= 0) & (second >= 0) & (first != second)
    pair = np.minimum(first, second) * size + np.maximum(first, second)
    return np.where(where, pair, -1), np.where(where, first * size + second, -1)


def _none_last(key: Ints, size: int, part: slice) -> tuple[Ints]:
    """Return the components of some pairs as small numbers; what belongs to none is counted last."""
    return (np.where(key[part] < 0, size, key[part]).astype(np.min_scalar_type(size)),)


def _in_parts(
    count: int, columns: Callable[[slice], tuple[np.ndarray[Any, Any], ...]]
) -> Steps[tuple[np.ndarray[Any, Any], ...]]:
    whole: list[np.ndarray[Any, Any]] = []
    for part in parts(count):
        some = columns(part)
        whole = whole or [np.empty(count, column.dtype) for column in some]
        for column, values in zip(whole, some, strict=True):
            column[part] = values
        yield
    return tuple(whole)


def blamed(
    table: PairTable, places: Places, endpoints: Sequence[Endpoint], settled: Sequence[int] = ()
) -> Iterator[Blame | None]:
    """Yield None after each small step, and the components to blame, the one that explains most first.

    Args:
        table: Results of all pairs.
        places: Places of the endpoints.
        endpoints: The endpoints, by number.
        settled: Places in the table of bad pairs that are explained otherwise.
    """
    search = _PairSearch(table, places, endpoints)
    yield None
    yield from search.prepare()
    if settled:
        search.forget(settled)
    yield from search.run()


def in_common(table: PairTable, places: Places, blames: Sequence[Blame], left: Flags) -> Blame | None:
    """Return the node that all dead pairs have, though others of it pass; None unless several findings would share it.

    A fault that came and went, or that hits single connections, leaves pairs of its node that pass.

    Args:
        table: Results of all pairs.
        places: Places of the endpoints.
        blames: Components that explain dead pairs.
        left: Which pairs of the table are to be explained.
    """
    bad = np.flatnonzero(left & table.dead)
    first, second = (places.node[end[bad]] for end in (table.source, table.target))
    several = [one for one in blames if one.dead]
    if len(bad) < _FEWEST_IN_COMMON or (len(several) == 1 and len(several[0].bad) == len(bad)):
        return None
    for node in {int(first[0]), int(second[0])}:
        others = {*first.tolist(), *second.tolist()} - {node}
        if len(others) > 1 and bool(((first == node) | (second == node)).all()) and (first != second).all():
            mine = (places.node[table.source] == node) | (places.node[table.target] == node)
            tested, rivals = int(np.count_nonzero(mine)), tuple(one.subject for one in several[:_MOST_RIVALS])
            count, subject = np.count_nonzero(places.node != node), Subject(Kind.NODE, places.nodes[node])
            where = subject, Reach.OFF_NODE, Direction.BOTH
            return Blame(*where, True, None, tested, int(count), tuple(bad.tolist()), 1.0, rivals, partly=True)
    return None


def blocked_across(table: PairTable, places: Places) -> Steps[list[tuple[int, int]]]:
    """Return ordered pairs of nodes between which all pairs across rails fail and one within a rail works.

    Empty if that holds for all pairs of nodes that have any.
    """
    size = int(places.node.max(initial=-1)) + 1
    tested, lost, works = (np.zeros(size * size, dtype=np.int64) for _ in range(3))
    for part in parts(len(table)):
        code = places.node[table.source[part]] * size + places.node[table.target[part]]
        dead, across = table.dead[part], table.kind[part] == pair_table.CROSS_RAIL
        works_within = (table.kind[part] > 0) & (table.kind[part] != pair_table.SAME_DOMAIN) & ~across & ~dead
        for counts, where in ((tested, across), (lost, across & dead), (works, works_within)):
            counts += np.bincount(code[where], minlength=len(counts))
        yield
    whole = (tested > 1) & (tested == lost) & (works > 0)
    if not whole.any() or (whole == (tested > 0)).all():
        return []
    return [(at // size, at % size) for at in np.flatnonzero(whole).tolist()]


class CauseSearch(ABC):
    """Search for the components that explain the bad rows of a table; what kinds there are, subclasses know.

    Args:
        table: Results.
        count: Number of what their ends are.
    """

    def __init__(self, table: PairTable, count: int) -> None:
        self.table, self.count = table, count
        self.dead = table.dead
        self.slow: Flags = table.verdict == pair_table.SLOW
        #: Slow pairs that no component explains yet; the value of one may show two components.
        self.open: Flags = self.slow | self.dead
        self.alive: Flags = self.slow | (table.verdict == pair_table.OK)
        #: Logarithm of the value over what is usual and over what blamed components explain.
        self.share: Floats = table.share
        self.known: Flags = self.alive
        self.spread: Floats = table.spread
        self.families: list[Candidates] = []

    @abstractmethod
    def kinds(self) -> Iterator[Candidates | None]:
        """Yield the families of components, and None after each small step."""

    def prepare(self) -> Iterator[None]:
        self.share, self.known, self.spread = yield from _in_parts(len(self.table), self._values)
        known = self.alive | self.dead
        for family in self.kinds():
            yield
            if family is None:
                continue
            keys: list[Ints] = []
            for key in family.keys:
                if (key >= 0).any():
                    keys += yield from _in_parts(len(key), partial(_none_last, key, family.size))
                yield
            family.keys = tuple(keys)
            if keys:
                counts = yield from family.total(known)
                family.exist = max(1, int(np.count_nonzero(counts)))
                self.families.append(family)

    def _values(self, part: slice) -> tuple[Floats, Flags, Floats]:
        share, spread = self.table.share[part], self.table.spread[part]
        unknown = np.isnan(share)
        spread = np.clip(np.where(np.isnan(spread), _MOST_SPREAD, spread), _LEAST_SPREAD, _MOST_SPREAD)
        return np.where(unknown, 0.0, share), self.alive[part] & ~unknown, spread

    def forget(self, settled: Sequence[int]) -> None:
        at = np.array(settled)
        for flags in (self.dead, self.slow, self.alive, self.known, self.open):
            flags[at] = False

    def run(self) -> Iterator[Blame | None]:
        """Yield the components to blame, and None in between."""
        for _ in range(_MOST_BLAMES):
            if not (self.dead.any() or self.slow.any()):
                return
            scored: list[_Score] = []
            weights: dict[tuple[float | None, float], Floats] = {}
            groups = ((self.dead, self.dead | self.alive, (None,)), (self.slow, self.known, _FACTORS))
            for at, family in enumerate(self.families):
                for bad, tested, factors in groups:
                    usable, counts = yield from self._usable(family, bad, tested)
                    yield None
                    for factor in factors if len(usable) else ():
                        key = factor, family.expected
                        if key not in weights:
                            (weights[key],) = yield from _in_parts(len(self.table), partial(self._bits, *key))
                        savings = yield from family.total(weights[key])
                        agree = yield from family.total(weights[key] > 0)
                        cost = family.bits + math.log2(family.exist)
                        most = [n for n in usable if agree[n] >= family.least * counts[n]]
                        scored += [_Score(float(savings[n]) - cost, at, n, factor) for n in most]
                        yield None
            best = max(scored, default=None, key=lambda one: one.saving)
            if best is None or best.saving < _LEAST_BITS:
                return
            best = yield from self._likeliest(scored)
            best = yield from self._narrowed(best, scored)
            yield (yield from self._blame(best, scored))

    def _likeliest(self, scored: list[_Score]) -> Steps[_Score]:
        """Return the component that saves most bits; among equals, the one with the largest share of bad pairs."""
        best = max(one.saving for one in scored)
        shares: dict[_Score, float] = {}
        for one in scored:
            if one.saving >= best - _EQUAL_BITS:
                shares[one] = self._share_of_bad(one)
                yield
        return max(shares, key=lambda one: (shares[one], one.saving))

    def _narrowed(self, best: _Score, scored: list[_Score]) -> Steps[_Score]:
        """Return the component within the best one that has its very slow pairs, if its others are about as usual.

        Very slow pairs count no more than slow ones, so that a few values below the usual one would outweigh the fit.
        """
        narrower = [best] if best.factor is not None else []
        while narrower:
            best = yield from self._likeliest(narrower)
            mine = self.families[best.at].members(best.number) & self.known
            narrower = []
            for one in scored:
                if one.factor is None or one.saving < best.saving / 2:
                    continue
                if self._is_narrower(self.families[one.at].members(one.number) & self.known, mine):
                    narrower.append(one)
                yield
        return best

    def _is_narrower(self, part: Flags, whole: Flags) -> bool:
        """Return whether a part of the pairs of a component has the very slow ones, and the others are as usual."""
        others, slow = whole & ~part, whole & self.slow
        count = np.count_nonzero(others)
        if (part & ~whole).any() or count < _FEWEST_OTHERS or not (slow & part).any():
            return False
        mild = quantile(self.share[slow & part]) / 2
        stray = slow & others
        if np.count_nonzero(stray) > _MOST_STRAYS * count or (self.share[stray] < mild).any():
            return False
        return quantile(self.share[others]) > mild

    def _share_of_bad(self, score: _Score) -> float:
        bad, tested = (self.dead, self.dead | self.alive) if score.factor is None else (self.slow, self.known)
        mine = self.families[score.at].members(score.number)
        return float(np.count_nonzero(mine & bad) / np.count_nonzero(mine & tested))

    def _usable(self, family: Candidates, bad: Flags, tested: Flags) -> Steps[tuple[list[int], Floats]]:
        if not bad.any():
            return [], np.zeros(0)
        counts = yield from family.total(bad)
        if counts.max(initial=0) < 2:
            return [], counts
        # What is only a pair of endpoints is reported as a pair: two results in both directions, one in one.
        all_of_it = yield from family.total(tested)
        least = 2 if family.direction is Direction.BOTH else 1
        share = min(_LEAST_BAD, family.least)
        usable = np.flatnonzero((counts >= 2) & (all_of_it > least) & (counts >= share * all_of_it))
        return usable.tolist(), all_of_it

    def _bits(self, factor: float | None, expected: float, part: slice) -> tuple[Floats]:
        """Return the bits of some pairs for a component that slows a share down by a factor; None: that is dead."""
        if factor is None:
            bits: Floats = np.where(self.dead[part], _MOST_BITS, np.where(self.alive[part], -_MOST_BITS, 0.0))
        else:
            shift = math.log(factor)
            bits = (2 * self.share[part] * shift - shift * shift) / (2 * self.spread[part] ** 2) / math.log(2)
            bits = np.where(self.known[part], np.clip(bits, -_MOST_BITS, _MOST_BITS), 0.0)
        return (np.log2(1 - expected + expected * np.exp2(bits)) if expected < 1 else bits,)

    def _blame(self, best: _Score, scored: list[_Score]) -> Steps[Blame]:
        saving, at, number, factor = best
        family = self.families[at]
        mine = family.members(number)
        bad = mine & (self.dead if factor is None else self.slow)
        subject = Subject(family.kind, family.name(number))
        rivals: dict[Subject, float] = {}
        for other_saving, other, other_number, other_factor in scored:
            rival = Subject(self.families[other].kind, self.families[other].name(other_number))
            close = saving - other_saving <= _RIVAL_BITS and (other_factor is None) == (factor is None)
            if rival != subject and close and rivals.get(rival, -math.inf) < other_saving:
                yield
                theirs = self.families[other].members(other_number)
                theirs_bad = theirs & (self.dead if factor is None else self.slow)
                if np.count_nonzero(theirs_bad & bad) < 0.8 * np.count_nonzero(theirs_bad | bad):
                    continue
                # The pairs that only the rival has may exonerate it.
                if factor is None or not self._is_narrower(mine & self.known, theirs & self.known):
                    rivals[rival] = other_saving
        ranked = sorted(rivals, key=lambda one: -rivals[one])[:_MOST_RIVALS]
        confidence = 1.0 / (1.0 + sum(2 ** (rivals[one] - saving) for one in ranked))
        yield
        explained = mine if family.expected == 1 else bad.copy()
        measured = explained & self.known
        middle = quantile(self.share[measured]) if factor is not None and measured.any() else None
        tested = int(np.count_nonzero(mine & (self.alive | self.dead)))
        others = np.zeros(self.count, dtype=bool)
        others[self.table.source[mine]] = others[self.table.target[mine]] = True
        yield
        self._explain(explained, bad, middle)
        bad &= self.open
        self.open = self.open & ~bad
        return Blame(
            subject,
            family.reach,
            family.direction,
            factor is None,
            None if middle is None else math.exp(middle),
            tested,
            int(np.count_nonzero(others)) - 1,
            tuple(np.flatnonzero(bad).tolist()),
            confidence,
            tuple(ranked),
            number,
            at,
        )

    def _explain(self, mine: Flags, bad: Flags, middle: float | None) -> None:
        if middle is None:
            self.dead = self.dead & ~bad
            return
        self.share = np.where(mine, self.share - middle, self.share)
        self.slow = np.where(mine, self.known & (self.share < self.table.limit), self.slow)


class _PairSearch(CauseSearch):
    def __init__(self, table: PairTable, places: Places, endpoints: Sequence[Endpoint]) -> None:
        super().__init__(table, len(endpoints))
        self.places, self.ends, self.nodes = places, endpoints, places.nodes

    def kinds(self) -> Iterator[Candidates | None]:
        table, places = self.table, self.places
        source, target = table.source, table.target
        off, inside = table.kind > 0, table.kind == 0
        across = table.kind == pair_table.CROSS_RAIL
        domain, network = self._off_node(off)
        everywhere = np.ones(len(table), dtype=bool)
        carriers = yield from _in_parts(len(table), lambda part: places.carriers(source[part], target[part]))

        both, two = partial(self._of_ends, carriers), self._of_two
        nics, nic_names = self._nics()
        gpus = np.arange(len(self.ends), dtype=np.int32)
        yield from both(Kind.GPU, Reach.ALL, 2.0, gpus, everywhere, lambda n: str(self.ends[n]))
        yield from both(Kind.GPU, Reach.INSIDE, 2.5, gpus, inside, lambda n: str(self.ends[n]))
        yield from both(Kind.NIC, Reach.OFF_NODE, 2.2, nics, network, lambda n: nic_names[n])
        yield from both(Kind.NODE, Reach.OFF_NODE, 2.0, places.node, off, lambda n: self.nodes[n])
        yield from both(Kind.NODE, Reach.ALL, 2.5, places.node, everywhere, lambda n: self.nodes[n])
        yield from both(Kind.NODE, Reach.INSIDE, 3.0, places.node, inside, lambda n: self.nodes[n])
        if domain.any() and network.any():
            for reach, where in ((Reach.DOMAIN, domain), (Reach.NETWORK, network)):
                yield from both(Kind.NODE, reach, 2.5, places.node, where, lambda n: self.nodes[n])
        yield from both(Kind.RAIL, Reach.OFF_NODE, 2.0, places.rail, network, str)
        yield from both(Kind.RAIL, Reach.INSIDE, 3.0, places.rail, network & ~across, str)
        # With only two rails there is one rail pair, and blaming it explains nothing.
        if len(set(places.rail.tolist())) > 2:
            yield from two(Kind.RAIL_PAIR, 3.0, places.rail, across, lambda a, b, sign: f"{a} {sign} {b}")
        bits = 3.0 if len(self.nodes) > 2 else 1.5
        yield from two(
            Kind.NODE_PAIR, bits, places.node, off, lambda a, b, sign: f"{self.nodes[a]} {sign} {self.nodes[b]}"
        )
        yield None
        yield from self._leaf_families(carriers, network)
        yield from self._of_relations(off, across, domain, network)
        size_of_node = np.bincount(places.node, minlength=len(self.nodes))[places.node]
        half = np.array([end.index for end in self.ends]) * 2 >= size_of_node

        def split(part: slice) -> tuple[Ints]:
            a, b = source[part], target[part]
            return (np.where(inside[part] & (half[a] != half[b]), places.node[a], -1),)

        key = yield from _in_parts(len(table), split)
        yield Candidates(Kind.HALVES, Reach.INSIDE, Direction.BOTH, 3.0, key, lambda n: self.nodes[n], len(self.nodes))

    def _off_node(self, off: Flags) -> tuple[Flags, Flags]:
        """Return the pairs of different nodes that stay within an NVLink domain, and those that use the network.

        What an NVLink domain connects uses the network where its transport shows it.
        """
        table = self.table
        together = table.kind == pair_table.SAME_DOMAIN
        if not together.any():
            return together, off
        known = together & (table.path != Path.UNKNOWN)
        networked = known & (table.path != Path.P2P)
        if np.count_nonzero(networked) * 2 > np.count_nonzero(known):
            # Nothing uses NVLink between nodes, and pairs that failed show no transport.
            networked = together
        return together & ~networked, off & ~(together & ~networked)

    def _of_relations(self, off: Flags, across: Flags, domain: Flags, network: Flags) -> Iterator[Candidates | None]:
        whole = [(Kind.CROSS_RAIL, Reach.ALL, across, "all rails", 1.5)]
        whole.append((Kind.FABRIC, Reach.ALL, np.ones(len(off), dtype=bool), "all pairs", 1.0))
        if len(self.nodes) > 2:
            whole.append((Kind.CROSS_NODE, Reach.ALL, off, "all nodes", 1.5))
            if domain.any() and network.any():
                whole.append((Kind.CROSS_NODE, Reach.NETWORK, network, "all nodes", 2.0))
        for kind, reach, where, name, bits in whole:
            yield Candidates(kind, reach, Direction.BOTH, bits, (where.astype(np.int8) - 1,), [name].__getitem__, 1)
        yield None

    def _leaf_families(self, carriers: tuple[Ints, ...], off: Flags) -> Iterator[Candidates | None]:
        leaves: Ints = self.places.leaf
        rails: Ints | None = None
        if leaves.max(initial=-1) < 1 < self.places.domain.max(initial=-1):
            # Racks have their own.
            leaves = self.places.domain
        elif leaves.max(initial=-1) < 1:
            # Where they are unknown, groups of nodes that do not reach each other stand for them.
            leaves, rails = yield from self._groups(carriers, off)
        count = int(leaves.max(initial=-1)) + 1
        yield None

        def leaf(number: int) -> str:
            return fold(list(dict.fromkeys(self.ends[at].node for at in np.flatnonzero(leaves == number).tolist())))

        def cut(a: int, b: int, sign: str) -> str:
            rail = "" if rails is None else f" on rail {self.places.rail[leaves == a][0]}"
            return f"{leaf(a)} {sign} {leaf(b)}{rail}"

        if count > 2 and rails is None:
            yield from self._of_ends(carriers, Kind.LEAF, Reach.OFF_NODE, 2.5, leaves, off, leaf)
        if count > 1:
            ends = (self.table.source, self.table.target) if rails is None else carriers
            where = off if rails is None else rails >= 0
            yield from self._of_two(Kind.LEAF_CUT, 2.0, leaves, where, cut, ends)
        yield from self._partly_slow_cut(off)

    def _partly_slow_cut(self, off: Flags) -> Iterator[Candidates | None]:
        """Yield the cut between two groups of nodes that almost all slow pairs cross, if there is one.

        One of several uplinks is degraded then. Each connection keeps the uplink that its addresses and ports choose:
        pairs over the others pass.
        """
        node, count = self.places.node, len(self.nodes)
        slow = np.flatnonzero(self.slow & off)
        if count < 4 or len(slow) < max(_FEWEST_ACROSS, _FEWEST_PER_NODE * count):
            return
        source, target = node[self.table.source[slow]], node[self.table.target[slow]]
        near = np.bincount(source * count + target, minlength=count * count).reshape(count, count)
        near = near + near.T
        # A node pair with one slow pair among many with several may be a stray.
        linked = near > (1 if quantile(near[near > 0].astype(float)) > 3 else 0)
        yield None
        cut = sides_of(self.nodes, np.ones_like(linked), linked)
        if cut is None or sum(map(len, cut.groups)) < count:
            return
        side = np.array([name in cut.groups[1] for name in self.nodes])
        if np.count_nonzero(side[source] == side[target]) > _STRAYS * len(source):
            return

        def across(part: slice) -> tuple[Ints]:
            first, second = (side[node[ends[part]]] for ends in (self.table.source, self.table.target))
            return (np.where(off[part] & (first != second), first, -1).astype(np.int8),)

        (group,) = yield from _in_parts(len(self.table), across)
        shares = [float(np.mean(self.slow[group == first])) for first in (0, 1)]
        # Components explain larger shares.
        if not (min(shares) >= _LEAST_PARTLY and max(shares) <= _MOST_PARTLY):
            return
        name = " - ".join(map(fold, cut.groups))
        family = Candidates(
            Kind.LEAF_CUT, Reach.NETWORK, Direction.BOTH, 2.0, (np.minimum(group, 0),), [name].__getitem__, 1
        )
        family.expected, family.least = PARTLY, _LEAST_PARTLY
        yield family

    def _of_ends(
        self,
        carriers: tuple[Ints, ...],
        kind: Kind,
        reach: Reach,
        bits: float,
        of: Ints,
        where: Flags,
        name: Callable[[int], str],
    ) -> Iterator[Candidates | None]:
        table = self.table
        size = int(of.max(initial=-1)) + 1
        ends = carriers if kind in (Kind.NIC, Kind.RAIL) else (table.source, table.target)
        first, second, twice = yield from _in_parts(
            len(table), lambda part: of_both(of[ends[0][part]], of[ends[1][part]], where[part])
        )
        yield Candidates(kind, reach, Direction.BOTH, bits, (first, twice), name, size)
        if kind in (Kind.GPU, Kind.NIC, Kind.NODE) and reach is not Reach.INSIDE:
            yield Candidates(kind, reach, Direction.SENDS, bits + _DIRECTION_BITS, (first,), name, size)
            yield Candidates(kind, reach, Direction.RECEIVES, bits + _DIRECTION_BITS, (second,), name, size)

    def _of_two(
        self,
        kind: Kind,
        bits: float,
        of: Ints,
        where: Flags,
        name: Callable[[int, int, str], str],
        ends: tuple[Ints, ...] = (),
    ) -> Iterator[Candidates | None]:
        source, target = ends or (self.table.source, self.table.target)
        size = int(of.max(initial=-1)) + 1
        pair, ordered = yield from _in_parts(
            len(self.table), lambda part: of_pairs(of[source[part]], of[target[part]], where[part], size)
        )
        names = (lambda n: name(n // size, n % size, "-"), lambda n: name(n // size, n % size, ">"))
        yield Candidates(kind, Reach.ALL, Direction.BOTH, bits, (pair,), names[0], size * size)
        yield Candidates(kind, Reach.ALL, Direction.SENDS, bits + _DIRECTION_BITS, (ordered,), names[1], size * size)

    def _nics(self) -> tuple[Ints, list[str]]:
        numbers: dict[tuple[str, str], int] = {}
        nics = [numbers.setdefault((end.node, end.port_name), len(numbers)) for end in self.ends]
        return np.array(nics, dtype=np.int32), [f"{node} {nic}" for node, nic in numbers]

    def _groups(self, carriers: tuple[Ints, ...], off: Flags) -> Steps[tuple[Ints, Ints | None]]:
        """Return the group of each endpoint, where the nodes fall into groups between which no pair works.

        If they do on single rails alone, the rail of each pair follows, -1 for pairs that take none of these rails.
        """
        table, node, size = self.table, self.places.node, len(self.nodes)
        numbers, rail_of = np.unique(self.places.rail, return_inverse=True)
        group_of: Ints = np.full(len(node), -1)
        if not self.dead.any():
            return group_of, None

        def taken(part: slice) -> tuple[Ints]:
            first, second = (rail_of[ends[part]] for ends in carriers)
            return (np.where(off[part] & (first == second), first, -1).astype(np.int16),)

        (rails,) = yield from _in_parts(len(table), taken)
        # The last matrix is about the pairs of all rails.
        works, dead = (np.zeros((len(numbers) + 1, size, size), dtype=bool) for _ in range(2))
        for part in parts(len(table)):
            for flags, of in ((works, self.alive), (dead, self.dead)):
                where = of[part] & off[part]
                ends = node[table.source[part][where]], node[table.target[part][where]]
                flags[rails[part][where], ends[0], ends[1]] = True
                flags[-1, ends[0], ends[1]] = True
            yield
        place = {name: at for at, name in enumerate(self.nodes)}
        cut_rails = []
        for rail in (-1, *range(len(numbers))):
            yield
            cut = groups_of(self.nodes, works[rail], dead[rail] & ~works[rail])
            for group in cut.groups if cut is not None else ():
                members = np.isin(node, [place[name] for name in group]) & ((rail < 0) | (rail_of == rail))
                group_of[members] = group_of.max(initial=-1) + 1
            if cut is not None and rail < 0:
                return group_of, None
            cut_rails += [rail] if cut is not None else []
        if not cut_rails:
            return group_of, None
        (kept,) = yield from _in_parts(
            len(table), lambda part: (np.where(np.isin(rails[part], cut_rails), rails[part], -1),)
        )
        return group_of, kept
