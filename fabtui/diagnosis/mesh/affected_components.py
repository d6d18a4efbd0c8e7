"""Scopes of bad address pairs: an interface, a node, a rail, the path between rails, groups of nodes, or two nodes.

A scope is only named if everything that was tested in it is bad. Larger scopes come first, and pairs that one explains
are not explained again, so that each cause is reported once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple

from fabtui.diagnosis.finding import AddressPair
from fabtui.diagnosis.node_groups import NodeGroups, node_groups

#: Maximum number of pairs of nodes without a common scope that are reported one by one.
MOST_PAIRS = 8
#: Share of the paths from one group of nodes to another, between the same rails, that have to be bad.
_LEAST_ACROSS = 0.8


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


#: Node and address.
Seat = tuple[str, str]
Rail = Callable[[str, str], int | None]


def scopes(bad: Iterable[AddressPair], tested: Iterable[AddressPair], rail: Rail, order: Iterable[str]) -> list[Scope]:
    """Return the scopes that explain bad address pairs, the largest first.

    Args:
        bad: The bad pairs.
        tested: All tested pairs, including the bad ones.
        rail: Returns the rail of a node's address, or None.
        order: The nodes in the order given by the user.
    """
    explained = frozenset(bad)
    return _Search(explained, frozenset(tested), rail, order).run() if explained else []


class _Search:
    def __init__(self, bad: frozenset[AddressPair], tested: frozenset[AddressPair], rail: Rail, order: Iterable[str]):
        self.bad = bad
        self.left = set(bad)
        self.tested = tested
        self.rail = rail
        self.place = {node: number for number, node in enumerate(order)}
        self.out: dict[Seat, set[AddressPair]] = defaultdict(set)
        self.into: dict[Seat, set[AddressPair]] = defaultdict(set)
        self.to_rail: dict[tuple[str, int | None], set[AddressPair]] = defaultdict(set)
        self.from_rail: dict[tuple[int | None, str], set[AddressPair]] = defaultdict(set)
        for path in tested:
            self.out[path.src, path.src_addr].add(path)
            self.into[path.dst, path.dst_addr].add(path)
            self.to_rail[path.src, rail(path.dst, path.dst_addr)].add(path)
            self.from_rail[rail(path.src, path.src_addr), path.dst].add(path)
        self.found: list[Scope] = []

    def run(self) -> list[Scope]:
        self._addresses()
        self._across()
        self._splits()
        self._pairs()
        return self.found

    def _add(
        self,
        kind: ComponentKind,
        nodes: Iterable[str],
        paths: Iterable[AddressPair],
        rails: Iterable[int | None] = (),
        address: str = "",
        direction: str = "both",
        groups: tuple[tuple[str, ...], ...] = (),
    ) -> None:
        known = list(dict.fromkeys(rail for rail in rails if rail is not None))
        if direction == "both":
            known.sort()
        mine = frozenset(paths)
        self.left -= mine
        self.found.append(Scope(kind, tuple(nodes), tuple(known), address, direction, mine, groups))

    def _addresses(self) -> None:
        """Find addresses whose results are all bad; report their node or rail instead if all its addresses are."""
        seats = sorted(self.out.keys() | self.into.keys(), key=lambda seat: (self.place.get(seat[0], 0), seat[1]))
        dead = {seat: direction for seat in seats if (direction := self._dead(seat)) is not None}
        if not dead:
            return
        whole = [seat for seat in seats if dead.get(seat) == "both"]
        if len(whole) == len(seats):
            self._add(ComponentKind.EVERYTHING, sorted({node for node, _ in seats}, key=self._place), self.bad)
            return
        for node in dict.fromkeys(node for node, _ in whole):
            mine = [seat for seat in seats if seat[0] == node]
            if len(mine) > 1 and all(seat in whole for seat in mine):
                self._add(ComponentKind.NODE, (node,), self._paths_of(mine), map(self._rail_of, mine))
                whole = [seat for seat in whole if seat[0] != node]
                dead = {seat: direction for seat, direction in dead.items() if seat[0] != node}
        dead = self._one_way_nodes(seats, dead)
        for rail in sorted({rail for seat in whole if (rail := self._rail_of(seat)) is not None}):
            mine = [seat for seat in seats if self._rail_of(seat) == rail and seat in dead]
            of_rail = [seat for seat in seats if self._rail_of(seat) == rail]
            nodes = list(dict.fromkeys(node for node, _ in of_rail))
            if len(nodes) > 1 and len(mine) == len(of_rail) and all(seat in whole for seat in mine):
                self._add(ComponentKind.RAIL, nodes, self._paths_of(mine), (rail,))
                dead = {seat: direction for seat, direction in dead.items() if seat not in mine}
        for seat, direction in dead.items():
            if self.left & self._paths_of([seat]):
                self._address(seat, direction)

    def _one_way_nodes(self, seats: list[Seat], dead: dict[Seat, str]) -> dict[Seat, str]:
        """Find nodes that send nothing or receive nothing; return the dead addresses that remain."""
        for direction in ("out", "in"):
            for node in dict.fromkeys(node for node, _ in seats):
                mine = [seat for seat in seats if seat[0] == node]
                if len(mine) < 2 or any(dead.get(seat) != direction for seat in mine):
                    continue
                paths = {w for seat in mine for w in (self.out if direction == "out" else self.into)[seat]}
                # With a single peer, either of the two may be at fault.
                if len({w.dst if direction == "out" else w.src for w in paths}) > 1:
                    self._add(ComponentKind.NODE, (node,), paths, map(self._rail_of, mine), direction=direction)
                dead = {seat: found for seat, found in dead.items() if seat not in mine}
        return dead

    def _address(self, seat: Seat, direction: str) -> None:
        rail = self._rail_of(seat)
        through = self._through(seat)
        out = through if through and through <= self.bad else set()
        if direction == "in":
            paths = self.into[seat]
        elif direction == "out":
            paths = out or self.out[seat]
        else:
            # Echo replies from other addresses of the node leave through this interface as well.
            into = self.from_rail[rail, seat[0]] if rail is not None else set()
            paths = self._paths_of([seat]) | out | (into if into <= self.bad else set())
        self._add(ComponentKind.ADDRESS, (seat[0],), paths, (rail,), seat[1], direction)

    def _through(self, seat: Seat) -> set[AddressPair]:
        """Return pairs to the rail of an address: without source routing all leave through its interface."""
        rail = self._rail_of(seat)
        return self.to_rail[seat[0], rail] if rail is not None else set()

    def _dead(self, seat: Seat) -> str | None:
        """Return the directions in which an address is bad with all of several peers, or None."""
        out, into, through = self.out[seat], self.into[seat], self._through(seat)
        peers = {(w.dst, w.dst_addr) for w in out} | {(w.src, w.src_addr) for w in into}
        if len(peers) < 2:
            return None
        deaf = bool(into) and into <= self.bad
        # With a single destination node, the interface of that node may be the dead one.
        telling = deaf or len({w.dst for w in through}) > 1
        mute = bool(out and out <= self.bad) or bool(telling and through and through <= self.bad)
        if (mute or not out) and (deaf or not into):
            return "both"
        return "out" if mute else "in" if deaf else None

    def _paths_of(self, seats: Iterable[Seat]) -> set[AddressPair]:
        return {path for seat in seats for path in self.out[seat] | self.into[seat]} & self.bad

    def _rail_of(self, seat: Seat) -> int | None:
        return self.rail(*seat)

    def _place(self, node: str) -> int:
        return self.place.get(node, len(self.place))

    def _across(self) -> None:
        """Find rails between which nothing works, in one direction or both."""
        groups: dict[tuple[int, int], set[AddressPair]] = defaultdict(set)
        for path in self.tested:
            here, there = self.rail(path.src, path.src_addr), self.rail(path.dst, path.dst_addr)
            if here is not None and there is not None and here != there:
                groups[here, there].add(path)
        explained = self.bad - self.left
        dead = {
            pair: paths & self.left
            for pair, paths in groups.items()
            if len({path.src for path in paths}) > 1 and paths & self.left and paths - explained <= self.bad
        }
        if dead and len(dead) == len(groups):
            self._add(ComponentKind.ACROSS, (), set().union(*dead.values()), {rail for pair in dead for rail in pair})
            return
        rails = sorted({rail for pair in groups for rail in pair})
        for rail in rails if len(rails) > 2 else []:
            into = {pair for pair in groups if pair[1] == rail}
            out = {pair for pair in groups if pair[0] == rail}
            sides = [(name, pairs) for name, pairs in (("in", into), ("out", out)) if pairs and pairs <= dead.keys()]
            if sides:
                mine = [dead.pop(pair) for pair in set().union(*(pairs for _, pairs in sides))]
                direction = "both" if len(sides) > 1 else sides[0][0]
                self._add(ComponentKind.ACROSS, (), set().union(*mine), (rail,), direction=direction)
        for pair in sorted(dead):
            back = dead.get((pair[1], pair[0]))
            if back is None or pair[0] < pair[1]:
                direction = "out" if back is None else "both"
                self._add(ComponentKind.ACROSS, (), dead[pair] | (back or set()), pair, direction=direction)

    def _splits(self) -> None:
        by_rail: dict[int, set[AddressPair]] = defaultdict(set)
        for path in self.tested - (self.bad - self.left):
            here = self.rail(path.src, path.src_addr)
            if here is not None and here == self.rail(path.dst, path.dst_addr):
                by_rail[here].add(path)
        cuts: dict[NodeGroups, list[int]] = defaultdict(list)
        for rail, paths in sorted(by_rail.items()):
            bad = paths & self.left
            nodes = sorted({node for path in paths for node in (path.src, path.dst)}, key=self._place)
            ends = [{(path.src, path.dst) for path in some} for some in (paths - bad, bad)]
            if bad and (cut := node_groups(nodes, *ends)) is not None:
                cuts[cut].append(rail)
        for cut, rails in cuts.items():
            nodes = sorted((node for group in cut.groups for node in group), key=self._place)
            direction = "out" if cut.one_way else "both"
            self._add(ComponentKind.SPLIT, nodes, self._across_cut(cut, rails), rails, "", direction, cut.groups)

    def _across_cut(self, cut: NodeGroups, rails: list[int]) -> set[AddressPair]:
        """Return the bad paths between groups of nodes on rails; traffic between rails may take one of these too."""
        group = {node: at for at, nodes in enumerate(cut.groups) for node in nodes}
        alike: dict[tuple[int, int, int | None, int | None], set[AddressPair]] = defaultdict(set)
        for path in self.tested:
            ends = self.rail(path.src, path.src_addr), self.rail(path.dst, path.dst_addr)
            if cut.are_apart(path.src, path.dst) and set(ends) & set(rails):
                alike[group[path.src], group[path.dst], *ends].add(path)
        explained: set[AddressPair] = set()
        for (*_, here, there), paths in alike.items():
            if here == there or len(paths & self.bad) >= _LEAST_ACROSS * len(paths):
                explained |= paths & self.left
        return explained

    def _pairs(self) -> None:
        by_nodes: dict[tuple[str, str], set[AddressPair]] = defaultdict(set)
        for path in self.left:
            a, b = sorted((path.src, path.dst), key=lambda node: (self._place(node), node))
            by_nodes[a, b].add(path)
        if len(by_nodes) > MOST_PAIRS:
            self._add(ComponentKind.MANY, (), set(self.left))
            return
        for (a, b), paths in sorted(by_nodes.items(), key=lambda item: tuple(map(self._place, item[0]))):
            there, back = {w for w in paths if w.src == a}, {w for w in paths if w.src == b}
            # The opposite direction may be bad for a larger reason that explains it already.
            both = {w for w in paths if w.reverse in self.bad}
            parts = (((a, b), both, "both"), ((a, b), there - both, "out"), ((b, a), back - both, "out"))
            for nodes, mine, how in parts:
                if mine:
                    rails = [
                        r for w in sorted(mine) for r in (self.rail(w.src, w.src_addr), self.rail(w.dst, w.dst_addr))
                    ]
                    self._add(ComponentKind.PAIR, nodes, mine, rails, direction=how)
