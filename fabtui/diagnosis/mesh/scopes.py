"""What bad address pairs have in common: an interface, a node, a rail, the way between rails, or two nodes alone.

A scope is only named when everything that was tested in it is bad. So that one cause is told once, larger scopes are
looked for first, and what one explains is not explained again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple

#: More pairs of nodes than this that have nothing in common are told as one.
MOST_PAIRS = 8


class Way(NamedTuple):
    """An ordered pair of addresses: node and address of the source, node and address of the destination."""

    src: str
    src_addr: str
    dst: str
    dst_addr: str

    @property
    def back(self) -> Way:
        """The other way."""
        return Way(self.dst, self.dst_addr, self.src, self.src_addr)


class Kind(StrEnum):
    """What a scope is."""

    EVERYTHING = "everything"
    NODE = "node"
    ADDRESS = "address"
    RAIL = "rail"
    ACROSS = "across"
    SPLIT = "split"
    PAIR = "pair"
    MANY = "many"


class Scope(NamedTuple):
    """What bad pairs have in common.

    Attributes:
        kind: What it is.
        nodes: The node, the two nodes (source first where one way is bad), or the nodes of one half of a split rail.
        rails: The rail or rails, as far as they are known.
        address: The address, of a scope of one.
        way: ``both``, ``out`` (what it sends, or from the first node to the second) or ``in``.
        ways: What is bad and explained by it.
    """

    kind: Kind
    nodes: tuple[str, ...]
    rails: tuple[int, ...]
    address: str
    way: str
    ways: frozenset[Way]


Rail = Callable[[str, str], int | None]


def scopes(bad: Iterable[Way], tested: Iterable[Way], rail: Rail, order: Iterable[str]) -> list[Scope]:
    """Return what explains bad ways, the largest first.

    Args:
        bad: The bad ways.
        tested: All that were tested, the bad ones among them.
        rail: Tells the rail of a node's address, or None.
        order: The nodes in the order of the user.
    """
    search = _Search(frozenset(bad), frozenset(tested), rail, list(order))
    return search.run() if search.bad else []


class _Search:
    def __init__(self, bad: frozenset[Way], tested: frozenset[Way], rail: Rail, order: list[str]) -> None:
        self.bad = bad
        self.left = set(bad)
        self.tested = tested
        self.rail = rail
        self.place = {node: number for number, node in enumerate(order)}
        self.out: dict[tuple[str, str], set[Way]] = defaultdict(set)
        self.into: dict[tuple[str, str], set[Way]] = defaultdict(set)
        self.to_rail: dict[tuple[str, int | None], set[Way]] = defaultdict(set)
        self.from_rail: dict[tuple[int | None, str], set[Way]] = defaultdict(set)
        for way in tested:
            self.out[way.src, way.src_addr].add(way)
            self.into[way.dst, way.dst_addr].add(way)
            self.to_rail[way.src, rail(way.dst, way.dst_addr)].add(way)
            self.from_rail[rail(way.src, way.src_addr), way.dst].add(way)
        self.found: list[Scope] = []

    def run(self) -> list[Scope]:
        self._addresses()
        self._across()
        self._splits()
        self._pairs()
        return self.found

    def _add(
        self,
        kind: Kind,
        nodes: Iterable[str],
        ways: Iterable[Way],
        rails: Iterable[int | None] = (),
        address: str = "",
        way: str = "both",
    ) -> None:
        known = list(dict.fromkeys(rail for rail in rails if rail is not None))
        if way == "both":
            known.sort()
        mine = frozenset(ways)
        self.left -= mine
        self.found.append(Scope(kind, tuple(nodes), tuple(known), address, way, mine))

    # -- interfaces, nodes, rails -------------------------------------------------------------------------------------

    def _addresses(self) -> None:
        """Find addresses of which everything is bad, then say it of their node or rail if that holds for all of it."""
        seats = sorted(self.out.keys() | self.into.keys(), key=lambda seat: (self.place.get(seat[0], 0), seat[1]))
        dead = {seat: way for seat in seats if (way := self._dead(seat)) is not None}
        if not dead:
            return
        whole = [seat for seat in seats if dead.get(seat) == "both"]
        if len(whole) == len(seats):
            self._add(Kind.EVERYTHING, sorted({node for node, _ in seats}, key=self._place), self.bad)
            return
        for node in dict.fromkeys(node for node, _ in whole):
            mine = [seat for seat in seats if seat[0] == node]
            if len(mine) > 1 and all(seat in whole for seat in mine):
                self._add(Kind.NODE, (node,), self._ways_of(mine), map(self._rail_of, mine))
                whole = [seat for seat in whole if seat[0] != node]
                dead = {seat: way for seat, way in dead.items() if seat[0] != node}
        dead = self._one_way_nodes(seats, dead)
        for rail in sorted({rail for seat in whole if (rail := self._rail_of(seat)) is not None}):
            mine = [seat for seat in seats if self._rail_of(seat) == rail and seat in dead]
            of_rail = [seat for seat in seats if self._rail_of(seat) == rail]
            nodes = list(dict.fromkeys(node for node, _ in of_rail))
            if len(nodes) > 1 and len(mine) == len(of_rail) and all(seat in whole for seat in mine):
                self._add(Kind.RAIL, nodes, self._ways_of(mine), (rail,))
                dead = {seat: way for seat, way in dead.items() if seat not in mine}
        for seat, way in dead.items():
            if self.left & self._ways_of([seat]):
                self._address(seat, way)

    def _one_way_nodes(
        self, seats: list[tuple[str, str]], dead: dict[tuple[str, str], str]
    ) -> dict[tuple[str, str], str]:
        """Find nodes that send nothing, or that nothing comes in to; return what is left of the dead addresses."""
        for way in ("out", "in"):
            for node in dict.fromkeys(node for node, _ in seats):
                mine = [seat for seat in seats if seat[0] == node]
                if len(mine) < 2 or any(dead.get(seat) != way for seat in mine):
                    continue
                ways = {w for seat in mine for w in (self.out if way == "out" else self.into)[seat]}
                # With one peer alone it is a matter of the two.
                if len({w.dst if way == "out" else w.src for w in ways}) > 1:
                    self._add(Kind.NODE, (node,), ways, map(self._rail_of, mine), way=way)
                dead = {seat: found for seat, found in dead.items() if seat not in mine}
        return dead

    def _address(self, seat: tuple[str, str], way: str) -> None:
        rail = self._rail_of(seat)
        through = self._through(seat)
        out = through if through and through <= self.bad else set()
        if way == "in":
            ways = self.into[seat]
        elif way == "out":
            ways = out or self.out[seat]
        else:
            # Echoes to others of its addresses are lost on their way back through it.
            into = self.from_rail[rail, seat[0]] if rail is not None else set()
            ways = self._ways_of([seat]) | out | (into if into <= self.bad else set())
        self._add(Kind.ADDRESS, (seat[0],), ways, (rail,), seat[1], way)

    def _through(self, seat: tuple[str, str]) -> set[Way]:
        """Return the ways to a rail of a node that does not route by source: all leave by its interface there."""
        rail = self._rail_of(seat)
        return self.to_rail[seat[0], rail] if rail is not None else set()

    def _dead(self, seat: tuple[str, str]) -> str | None:
        """Return which ways of an address are bad with everybody, or None; a lone peer could be the culprit itself."""
        out, into, through = self.out[seat], self.into[seat], self._through(seat)
        peers = {(w.dst, w.dst_addr) for w in out} | {(w.src, w.src_addr) for w in into}
        if len(peers) < 2:
            return None
        deaf = bool(into) and into <= self.bad
        # With one node alone to send to, it may be that node's interface that is dead.
        telling = deaf or len({w.dst for w in through}) > 1
        mute = bool(out and out <= self.bad) or bool(telling and through and through <= self.bad)
        if (mute or not out) and (deaf or not into):
            return "both"
        return "out" if mute else "in" if deaf else None

    def _ways_of(self, seats: Iterable[tuple[str, str]]) -> set[Way]:
        return {way for seat in seats for way in self.out[seat] | self.into[seat]} & self.bad

    def _rail_of(self, seat: tuple[str, str]) -> int | None:
        return self.rail(*seat)

    def _place(self, node: str) -> int:
        return self.place.get(node, len(self.place))

    # -- the ways between rails, and halves of a rail -----------------------------------------------------------------

    def _explained(self) -> set[Way]:
        return set(self.bad) - self.left

    def _across(self) -> None:
        """Find rails between which nothing is good, in one way or both."""
        groups: dict[tuple[int, int], set[Way]] = defaultdict(set)
        for way in self.tested:
            here, there = self.rail(way.src, way.src_addr), self.rail(way.dst, way.dst_addr)
            if here is not None and there is not None and here != there:
                groups[here, there].add(way)
        explained = self._explained()
        dead = {
            pair: ways & self.left
            for pair, ways in groups.items()
            if len({way.src for way in ways}) > 1 and ways & self.left and ways - explained <= self.bad
        }
        if dead and len(dead) == len(groups):
            self._add(Kind.ACROSS, (), set().union(*dead.values()), {rail for pair in dead for rail in pair})
            return
        rails = sorted({rail for pair in groups for rail in pair})
        for rail in rails if len(rails) > 2 else []:
            into = {pair for pair in groups if pair[1] == rail}
            out = {pair for pair in groups if pair[0] == rail}
            ways = [(name, pairs) for name, pairs in (("in", into), ("out", out)) if pairs and pairs <= dead.keys()]
            if ways:
                mine = [dead.pop(pair) for pair in set().union(*(pairs for _, pairs in ways))]
                self._add(Kind.ACROSS, (), set().union(*mine), (rail,), way="both" if len(ways) > 1 else ways[0][0])
        for pair in sorted(dead):
            back = dead.get((pair[1], pair[0]))
            if back is None or pair[0] < pair[1]:
                self._add(Kind.ACROSS, (), dead[pair] | (back or set()), pair, way="out" if back is None else "both")

    def _splits(self) -> None:
        """Find rails whose nodes fall into groups, with nothing good between two of them."""
        by_rail: dict[int, set[Way]] = defaultdict(set)
        for way in self.tested - self._explained():
            here = self.rail(way.src, way.src_addr)
            if here is not None and here == self.rail(way.dst, way.dst_addr):
                by_rail[here].add(way)
        for rail, ways in sorted(by_rail.items()):
            groups = _groups(ways, ways & self.left)
            if len(groups) == 2 and min(map(len, groups)) > 1:
                half = min(groups, key=lambda group: min(map(self._place, group)))
                self._add(Kind.SPLIT, sorted(half, key=self._place), ways & self.left, (rail,))

    # -- two nodes ----------------------------------------------------------------------------------------------------

    def _pairs(self) -> None:
        by_nodes: dict[tuple[str, str], set[Way]] = defaultdict(set)
        for way in self.left:
            a, b = sorted((way.src, way.dst), key=lambda node: (self._place(node), node))
            by_nodes[a, b].add(way)
        if len(by_nodes) > MOST_PAIRS:
            self._add(Kind.MANY, (), set(self.left))
            return
        for (a, b), ways in sorted(by_nodes.items(), key=lambda item: tuple(map(self._place, item[0]))):
            there, back = {w for w in ways if w.src == a}, {w for w in ways if w.src == b}
            both = {w for w in ways if w.back in ways}
            for nodes, mine, how in (
                ((a, b), both, "both"),
                ((a, b), there - both, "out"),
                ((b, a), back - both, "out"),
            ):
                if mine:
                    self._add(Kind.PAIR, nodes, mine, self._rails_of(mine), way=how)

    def _rails_of(self, ways: Iterable[Way]) -> Iterable[int | None]:
        return [rail for w in ways for rail in (self.rail(w.src, w.src_addr), self.rail(w.dst, w.dst_addr))]


def _groups(tested: set[Way], bad: set[Way]) -> list[set[str]]:
    """Return the groups of nodes of a rail between which nothing is good; one group, if something within one is bad."""
    nodes = {node for way in tested for node in (way.src, way.dst)}
    groups = {node: {node} for node in nodes}
    for way in tested - bad:
        one, other = groups[way.src], groups[way.dst]
        if one is not other:
            one |= other
            for node in other:
                groups[node] = one
    found = list({id(group): group for group in groups.values()}.values())
    inside = any(groups[way.src] is groups[way.dst] for way in bad)
    return [nodes] if inside else found
