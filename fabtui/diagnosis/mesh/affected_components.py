"""Scopes of bad address pairs: an interface, a node, a rail, the path between rails, groups of nodes, or two nodes.

They are found by the search for what bad results have in common (`fabtui.diagnosis.blame`): rows are pairs of
addresses, and nearly everything that was tested in a scope is bad. What explains most comes first, and is not explained
again, so that each cause is reported once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from fabtui.diagnosis.blame import PARTLY, Blame, Candidates, CauseSearch, of_both, of_pairs
from fabtui.diagnosis.finding import AddressPair, Direction, Kind, Reach
from fabtui.diagnosis.node_groups import NodeGroups, groups_of, sides_of
from fabtui.model.pair_table import DEAD, OK, Flags, Ints, PairTable

#: Maximum number of pairs of nodes without a common scope that are reported one by one.
MOST_PAIRS = 8
#: Share of the paths across a border that have to be bad where one of several equal paths is.
_LEAST_PARTLY = 0.2
_DIRECTIONS = {Direction.BOTH: "both", Direction.SENDS: "out", Direction.RECEIVES: "in"}


class ComponentKind(StrEnum):
    """Kinds of scopes."""

    EVERYTHING = "everything"
    NODE = "node"
    ADDRESS = "address"
    RAIL = "rail"
    ACROSS = "across"
    SPLIT = "split"
    PAIR = "pair"
    MANY = "many"


class Scope(NamedTuple):
    """Common property of bad address pairs."""

    kind: ComponentKind  #: Its kind.
    nodes: tuple[str, ...]  #: The node, the two nodes (source first if one direction is bad), or all nodes of groups.
    rails: tuple[int, ...] = ()  #: The rail or rails, as far as they are known.
    address: str = ""  #: The address, for a scope of one.
    direction: str = "both"  #: ``both``, ``out`` (what it sends, or from the first node to the second) or ``in``.
    pairs: frozenset[AddressPair] = frozenset()  #: The bad address pairs that it explains.
    #: Groups of nodes that do not reach each other; the group that sends first if one direction is bad.
    groups: tuple[tuple[str, ...], ...] = ()
    partly: bool = False  #: Whether some pairs of these groups pass: one of several equal paths is at fault.


#: Node and address.
Seat = tuple[str, str]
Rail = Callable[[str, str], int | None]


class How(NamedTuple):
    """Certainty of results: how much a path that passes counts against a component."""

    expected: float = 1.0  #: Expected share of the paths of a component that are bad.
    least: float = 0.9  #: Share of its paths that have to be bad.
    by_chance: bool = False  #: Whether those that pass may have done so by chance, and belong to the scope.
    partly: bool = False  #: Whether one of several equal paths may be bad, which some pairs do not take.


CERTAIN, EQUAL_PATHS = How(), How(partly=True)
BY_CHANCE, SOMETIMES = How(0.9, 0.5, by_chance=True), How(0.5, 0.2, by_chance=True)


def scopes(
    bad: Iterable[AddressPair], tested: Iterable[AddressPair], rail: Rail, order: Iterable[str], how: How = CERTAIN
) -> list[Scope]:
    """Return the scopes that explain bad address pairs, those that explain most first.

    Args:
        bad: The bad pairs.
        tested: All tested pairs, including the bad ones.
        rail: Returns the rail of a node's address, or None.
        order: The nodes in the order given by the user.
        how: How certain the results are.
    """
    every, left, listed = frozenset(bad), set(bad), list(order)
    known = every.union(tested)
    found: list[Scope] = []
    again = bool(left)
    while again:
        # Without what is explained, groups of nodes may show that were not clear before.
        mine = list(_AddressSearch(list(known - (every - left)), left, rail, listed, how).scopes())
        left.difference_update(*(scope.pairs for scope in mine))
        known = known.difference(*(scope.pairs for scope in mine)) | left
        found += mine
        again = bool(mine and left)
    return [*found, *_pairs(left, every, rail, listed)]


class _AddressSearch(CauseSearch):
    """Search for what bad address pairs have in common: the ends of a row are addresses, each with a NIC of its own."""

    def __init__(self, rows: list[AddressPair], bad: set[AddressPair], rail: Rail, order: Iterable[str], how: How):
        place = {node: number for number, node in enumerate(order)}
        ends = {(path.src, path.src_addr) for path in rows} | {(path.dst, path.dst_addr) for path in rows}
        self.seats = sorted(ends, key=lambda seat: (place.get(seat[0], len(place)), *seat))
        number = {seat: at for at, seat in enumerate(self.seats)}
        self.nodes = list(dict.fromkeys(node for node, _ in self.seats))
        rails = [rail(*seat) for seat in self.seats]
        self.rails = sorted({one for one in rails if one is not None})
        self.node: Ints = np.array([self.nodes.index(node) for node, _ in self.seats], dtype=np.int32)
        self.rail: Ints = np.array([-1 if one is None else self.rails.index(one) for one in rails], dtype=np.int32)
        self.rows, self.how, self.rail_of = rows, how, rail
        self.cuts: list[tuple[NodeGroups, list[int]]] = []
        source, target = (
            np.fromiter((number[seat] for seat in seats), np.int32, len(rows))
            for seats in (((p.src, p.src_addr) for p in rows), ((p.dst, p.dst_addr) for p in rows))
        )
        dead: Flags = np.fromiter((path in bad for path in rows), bool, len(rows))
        none, zeros = np.zeros(len(rows), dtype=np.float32), np.zeros(len(rows), dtype=np.int8)
        verdict = np.where(dead, DEAD[0], OK).astype(np.int8)
        super().__init__(
            PairTable(source, target, verdict, none, none, none, zeros, zeros, zeros, none), len(self.seats)
        )

    def scopes(self) -> Iterator[Scope]:
        for _ in self.prepare():
            pass
        for blame in self.run():
            if blame is not None:
                yield self._scope(blame)

    # -- components ---------------------------------------------------------------------------------------------------

    def kinds(self) -> Iterator[Candidates | None]:
        a, b = self.table.source, self.table.target
        here, there, first, second = self.node[a], self.node[b], self.rail[a], self.rail[b]
        across = (first != second) & (first >= 0) & (second >= 0)
        everywhere = np.ones(len(a), dtype=bool)
        nics, rails, nodes = len(self.seats), len(self.rails), len(self.nodes)
        both, sends, receives = Direction.BOTH, Direction.SENDS, Direction.RECEIVES
        yield self._family(Kind.CROSS_NODE, both, 1.0, 1, np.zeros(len(a), dtype=np.int32))
        yield self._family(Kind.NIC, both, 2.0, nics, a, b)
        yield self._family(Kind.NIC, sends, 3.5, nics, a)
        yield self._family(Kind.NIC, receives, 3.5, nics, b)
        yield self._family(Kind.NODE, both, 2.0, nodes, here, there)
        yield self._family(Kind.NODE, sends, 3.5, nodes, here)
        yield self._family(Kind.NODE, receives, 3.5, nodes, there)
        pair, ordered = of_pairs(here, there, everywhere, nodes)
        bits = 3.0 if nodes > 2 else 1.5
        yield self._family(Kind.NODE_PAIR, both, bits, nodes * nodes, pair)
        yield self._family(Kind.NODE_PAIR, sends, bits + 1.5, nodes * nodes, ordered)
        yield self._family(Kind.RAIL, both, 2.0, rails, *of_both(first, second, everywhere)[::2])
        if rails > 1:
            # Hosts that do not route by source send to a rail over their interface there, and answer over it.
            on_rail = np.full((nodes, rails + 1), -1, dtype=np.int32)
            on_rail[self.node, self.rail] = np.arange(nics)
            on_rail[:, -1] = -1
            out, back = on_rail[here, second], on_rail[there, first]
            yield self._family(Kind.NIC, both, 2.2, nics, out, b)
            yield self._family(Kind.NIC, sends, 3.7, nics, out)
            other = np.where(out == a, -1, out)
            yield self._family(Kind.NIC, both, 2.4, nics, a, b, other)
            yield self._family(Kind.NIC, both, 2.5, nics, out, back)
            yield self._family(Kind.NIC, both, 2.6, nics, a, b, other, np.where(back == b, -1, back))
            yield self._family(Kind.RAIL, both, 2.2, rails, second)
            yield self._family(Kind.CROSS_RAIL, both, 1.5, 1, across.astype(np.int8) - 1)
            pair, ordered = of_pairs(first, second, across, rails)
            yield self._family(Kind.RAIL_PAIR, sends, 4.5, rails * rails, ordered)
        if rails > 2:
            yield self._family(Kind.RAIL_PAIR, both, 3.0, rails * rails, pair)
            from_rail, to_rail = np.where(across, first, -1), np.where(across, second, -1)
            yield self._family(Kind.CROSS_RAIL, both, 2.5, rails, from_rail, to_rail)
            yield self._family(Kind.CROSS_RAIL, sends, 4.0, rails, from_rail)
            yield self._family(Kind.CROSS_RAIL, receives, 4.0, rails, to_rail)
        yield from self._borders(here, there, first, second)

    def _family(self, kind: Kind, direction: Direction, bits: float, size: int, *keys: Ints) -> Candidates:
        family = Candidates(kind, Reach.ALL, direction, bits, keys, str, max(1, size))
        family.expected, family.least = self.how.expected, self.how.least
        return family

    def _borders(self, here: Ints, there: Ints, first: Ints, second: Ints) -> Iterator[Candidates]:
        """Yield borders between groups of nodes: what is within a rail, what a rail carries, and what touches it."""
        dead, count = self.dead, len(self.nodes)

        def between(where: Flags) -> Flags:
            flags = np.zeros((count, count), dtype=bool)
            flags[here[where], there[where]] = True
            return flags

        rails_of: dict[NodeGroups, list[int]] = {}
        for rail in range(len(self.rails)):
            within = (first == rail) & (second == rail)
            cut = groups_of(self.nodes, between(within & ~dead), between(within & dead))
            if cut is not None:
                rails_of.setdefault(cut, []).append(rail)
        self.cuts = list(rails_of.items())
        if self.how.partly and (cut := sides_of(self.nodes, between(~dead), between(dead))) is not None:
            self.cuts.append((cut, list({*first[dead].tolist(), *second[dead].tolist()})))
        for number, (cut, rails) in enumerate(self.cuts):
            side = np.array([next((at for at, g in enumerate(cut.groups) if n in g), -1) for n in self.nodes])
            apart = (side[here] >= 0) & (side[there] >= 0) & (side[here] != side[there])
            apart &= (side[here] == 0) | ~np.bool_(cut.one_way)
            ends = np.isin(first, rails), np.isin(second, rails)
            wide = [(2.4, ends[0] | ends[1])]
            for bits, where in wide if cut.partly else ((2.0, ends[0] & (first == second)), (2.2, ends[1]), *wide):
                key = np.where(apart & where, number, -1)
                direction = Direction.SENDS if cut.one_way else Direction.BOTH
                family = self._family(Kind.LEAF_CUT, direction, bits, len(self.cuts), key)
                if cut.partly:
                    family.expected, family.least = PARTLY, _LEAST_PARTLY
                yield family

    # -- names --------------------------------------------------------------------------------------------------------

    def _scope(self, blame: Blame) -> Scope:
        family, number = self.families[blame.family], blame.number
        mine = np.flatnonzero(family.members(number)).tolist() if self.how.by_chance else blame.bad
        pairs = frozenset(self.rows[at] for at in mine)
        direction = _DIRECTIONS[blame.direction]
        rails: list[int] = []
        match family.kind:
            case Kind.NIC:
                node, address = self.seats[number]
                rails = [self.rail[number]] if self.rail[number] >= 0 else []
                return Scope(ComponentKind.ADDRESS, (node,), self._numbers(rails), address, direction, pairs)
            case Kind.NODE if len(own := self._seats_of(number, pairs)) == 1:
                # Nothing separates a node from the only one of its addresses that was tested.
                rails = [one] if (one := self.rail_of(*own[0])) is not None else []
                return Scope(ComponentKind.ADDRESS, (own[0][0],), tuple(rails), own[0][1], direction, pairs)
            case Kind.NODE:
                known = self._numbers(sorted(set(self.rail[self.node == number].tolist()) - {-1}))
                return Scope(ComponentKind.NODE, (self.nodes[number],), known, "", direction, pairs)
            case Kind.RAIL:
                nodes = [self.nodes[at] for at in dict.fromkeys(self.node[self.rail == number].tolist())]
                return Scope(ComponentKind.RAIL, tuple(nodes), self._numbers([number]), "", direction, pairs)
            case Kind.CROSS_RAIL | Kind.RAIL_PAIR:
                size = len(self.rails)
                rails = [number] if family.kind is Kind.CROSS_RAIL else [number // size, number % size]
                rails = list(range(size)) if family.size == 1 else rails
                return Scope(ComponentKind.ACROSS, (), self._numbers(rails), "", direction, pairs)
            case Kind.NODE_PAIR:
                ends = self.nodes[number // len(self.nodes)], self.nodes[number % len(self.nodes)]
                return _pair(ends, pairs, direction, self.rail_of)
            case Kind.LEAF_CUT:
                cut, rails = self.cuts[number]
                nodes = [node for node in self.nodes if any(node in group for group in cut.groups)]
                kind, known = ComponentKind.SPLIT, self._numbers(sorted(rails))
                return Scope(kind, tuple(nodes), known, "", direction, pairs, cut.groups, cut.partly)
            case _:
                return Scope(ComponentKind.EVERYTHING, tuple(self.nodes), (), "", direction, pairs)

    def _seats_of(self, number: int, paths: Iterable[AddressPair]) -> list[Seat]:
        """Return the addresses of a node that some paths have."""
        ends = {seat for w in paths for seat in ((w.src, w.src_addr), (w.dst, w.dst_addr))}
        return [seat for seat in ends if seat[0] == self.nodes[number]]

    def _numbers(self, rails: Iterable[int]) -> tuple[int, ...]:
        return tuple(self.rails[at] for at in rails)


def _pair(nodes: tuple[str, str], paths: Iterable[AddressPair], direction: str, rail: Rail) -> Scope:
    mine = sorted(paths)
    rails = [r for w in mine for r in (rail(w.src, w.src_addr), rail(w.dst, w.dst_addr)) if r is not None]
    known = sorted(set(rails)) if direction == "both" else list(dict.fromkeys(rails))
    return Scope(ComponentKind.PAIR, nodes, tuple(known), "", direction, frozenset(mine))


def _pairs(left: set[AddressPair], bad: frozenset[AddressPair], rail: Rail, order: Iterable[str]) -> Iterator[Scope]:
    """Yield the scopes of what no component explains: two nodes each, or one if there are many."""
    place = {node: number for number, node in enumerate(order)}
    by_nodes: dict[tuple[str, str], set[AddressPair]] = defaultdict(set)
    for path in left:
        a, b = sorted((path.src, path.dst), key=lambda node: (place.get(node, len(place)), node))
        by_nodes[a, b].add(path)
    if len(by_nodes) > MOST_PAIRS:
        yield Scope(ComponentKind.MANY, (), pairs=frozenset(left))
        return
    for (a, b), paths in sorted(by_nodes.items(), key=lambda item: [place.get(node, len(place)) for node in item[0]]):
        # The opposite direction may be bad for a larger reason that explains it already.
        both = {w for w in paths if w.reverse in bad}
        there, back = ({w for w in paths - both if w.src == node} for node in (a, b))
        for nodes, mine, how in (((a, b), both, "both"), ((a, b), there, "out"), ((b, a), back, "out")):
            if mine:
                yield _pair(nodes, mine, how, rail)
