"""Scopes of the mesh in words: ``n3 rail 2 (eth2 10.3.0.4)``, ``between rails 0 and 2``, ``on rails 0, 1``."""

from __future__ import annotations

import shlex
from collections.abc import Collection

from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.mesh.scopes import Kind, Scope, Way
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line


class ScopeWords:
    """Puts scopes into words.

    Args:
        model: Knows rails, interfaces and what nodes say of them.
        ways: All ways that were tested.
    """

    def __init__(self, model: Model, ways: Collection[Way]) -> None:
        self._model = model
        self._ways = ways

    def where(self, scope: Scope) -> str:
        """Return the name of a scope; of one of two nodes the rails alone, with a space before them."""
        if scope.kind is Kind.NODE:
            return scope.nodes[0]
        if scope.kind is Kind.ADDRESS:
            rail = f" rail {scope.rails[0]}" if scope.rails else ""
            return f"{scope.nodes[0]}{rail} ({self._named(scope.nodes[0], scope.address)})"
        if scope.kind in (Kind.RAIL, Kind.SPLIT):
            return f"rail {scope.rails[0]}"
        if scope.kind is Kind.ACROSS:
            return self._rails(scope)
        if scope.kind is Kind.MANY:
            pairs = {frozenset((way.src, way.dst)) for way in scope.ways}
            return f"{len(pairs)} pairs of nodes that have nothing in common"
        return self._on(scope) if scope.kind is Kind.PAIR else "all nodes"

    def subject(self, scope: Scope) -> str:
        """Return a scope as what something is said of."""
        if scope.kind in (Kind.NODE, Kind.ADDRESS):
            return self.where(scope) + {"both": "", "out": ", what it sends", "in": ", what is sent to it"}[scope.way]
        if scope.kind is Kind.PAIR:
            a, b = scope.nodes
            return f"{a} and {b}{self.where(scope)}" if scope.way == "both" else f"{a} > {b}{self.where(scope)}"
        return f"between {self.where(scope)}" if scope.kind is Kind.EVERYTHING else self.where(scope)

    def between(self, scope: Scope) -> str:
        """Return a scope as the place of something: ``between n0 and n1 on rail 2``."""
        if scope.kind in (Kind.NODE, Kind.ADDRESS):
            ways = {"both": "at", "out": "for what is sent by", "in": "for what is sent to"}
            return f"{ways[scope.way]} {self.where(scope)}"
        if scope.kind in (Kind.RAIL, Kind.SPLIT):
            return f"on {self.where(scope)}"
        if scope.kind is Kind.PAIR:
            a, b = scope.nodes
            ends = f"between {a} and {b}" if scope.way == "both" else f"from {a} to {b}"
            return ends + self.where(scope)
        return self.where(scope) if scope.kind is Kind.ACROSS else f"between {self.where(scope)}"

    def count(self, scope: Scope, what: str) -> str:
        """Return how many of all ways a scope has."""
        return f"{len(scope.ways)} of {len(self._ways)} {what}"

    def port(self, scope: Scope) -> str:
        """Return what the node itself says of the interface of a scope of one address, or ""."""
        if scope.kind is not Kind.ADDRESS:
            return ""
        (node,) = scope.nodes
        nic = self._model.addresses.seat(node, scope.address).nic
        record = self._model.nodes.get(node)
        listed = (record.inventory or {}).get("nics") if record is not None else None
        for entry in listed if isinstance(listed, list) else []:
            if isinstance(entry, dict) and nic and entry.get("name") == nic:
                state = entry.get("state")
                more = ": the fault lies beyond it" if state == "up" else ""
                return f"{node} says that {nic} is {state}{more}"
        return ""

    def look(self, scope: Scope) -> str:
        """Return a command that looks further."""
        way = min(scope.ways)
        if scope.kind is Kind.ADDRESS:
            nic = shlex.quote(one_line(self._model.addresses.seat(scope.nodes[0], scope.address).nic, 40))
            return on_node(scope.nodes[0], f"ip -s link show {nic}", self._model)
        ends = f"{shlex.quote(way.dst_addr)} from {shlex.quote(way.src_addr)}"
        return on_node(way.src, f"ip route get {ends}", self._model)

    def rails(self, way: Way) -> tuple[int | None, int | None]:
        """Return the rails of both ends."""
        seat = self._model.addresses.seat
        return seat(way.src, way.src_addr).rail, seat(way.dst, way.dst_addr).rail

    @staticmethod
    def _rails(scope: Scope) -> str:
        if len(scope.rails) == 1:
            ways = {"both": "between rail {} and the others", "out": "from rail {} to the others"}
            return ways.get(scope.way, "from the other rails to rail {}").format(*scope.rails)
        if len(scope.rails) == 2:
            return ("between rails {} and {}" if scope.way == "both" else "from rail {} to rail {}").format(
                *scope.rails
            )
        return "between rails"

    def _on(self, scope: Scope) -> str:
        first = scope.nodes[0]
        both = scope.way == "both"
        everything = {w for w in self._ways if {w.src, w.dst} == set(scope.nodes) and (both or w.src == first)}
        if scope.ways >= everything and len(everything) > 2:
            return " on every rail"
        ways = sorted(way for way in scope.ways if way.src == first) or sorted(scope.ways)
        pairs = [self.rails(way) for way in ways]
        same = [here for here, there in pairs if here is not None and here == there]
        if len(ways) == 1:
            here, there = pairs[0]
            rails = f"rail {here}" if same else f"rail {here} > rail {there}"
            addresses = f"({ways[0].src_addr} > {ways[0].dst_addr})"
            return f" {addresses}" if here is None or there is None else f" on {rails} {addresses}"
        if len(same) == len(ways):
            return " on rails " + ", ".join(map(str, sorted(set(same))))
        shown = ", ".join(f"{way.src_addr} > {way.dst_addr}" for way in ways[:3])
        return f" ({shown}{f' and {len(ways) - 3} more' if len(ways) > 3 else ''})"

    def _named(self, node: str, address: str) -> str:
        nic = self._model.addresses.seat(node, address).nic
        return f"{nic} {address}" if nic else address


def names(nodes: tuple[str, ...], most: int = 6) -> str:
    """Return nodes as a list, cut where there are many."""
    more = f" and {len(nodes) - most} more" if len(nodes) > most else ""
    return ", ".join(nodes[:most]) + more
