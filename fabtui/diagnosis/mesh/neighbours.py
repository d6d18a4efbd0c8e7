"""Rules about MAC addresses, neighbour tables and switches: who answers for addresses of nodes, and where cables lead.

They look at addresses on data interfaces of nodes of the session alone, so that no gateway or virtual router is blamed.
A machine that answers for addresses of several nodes is a router or a proxy.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from fabtui.diagnosis.finding import RULES, AddressPair, Finding, Severity, register
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.mesh.addresses import AddressRule, is_bad, misconnected, paths_of_seats
from fabtui.diagnosis.mesh.affected_components import ComponentKind, Scope
from fabtui.diagnosis.mesh.mesh import Mesh, Place
from fabtui.model.facts.leaf_switches import SwitchPort, switch_ports
from fabtui.model.facts.node_view import text
from fabtui.model.records import listed, probed
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.sanitize import one_line

#: A MAC address of Ethernet; InfiniBand has addresses of 20 bytes, which tables of neighbours cut.
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.ASCII)
#: Virtual routers (RFC 9568) have one of these on several machines; so have all that are null or a group.
_VIRTUAL = ("00:00:5e:00:01:", "00:00:5e:00:02:", "00:00:00:00:00:00", "ff:")
#: Interfaces that share the MAC address of the interface below them, in containers too.
_SHARING = ("ipvlan", "ipvtap")
_PERMANENT, _CONFIRMED = "permanent", "reachable"
_MOST_LISTED = 8
#: Minimum number of other nodes whose cabling shows which switch has a rail.
_FEWEST_ALIKE = 2
#: Maximum number of switches of a rail, of which one is wrong.
_MOST_SWITCHES = 2
_WRONG: WeakKeyDictionary[Mesh, list[_Wrong]] = WeakKeyDictionary()


def _is_of_one(mac: str) -> bool:
    return _MAC.fullmatch(mac) is not None and not mac.startswith(_VIRTUAL) and not int(mac[:2], 16) & 1


class _Entry(NamedTuple):
    """Entry of a node's table of neighbours about an address of another node."""

    node: str
    place: Place  #: The address, and the interface that has it.
    mac: str  #: The MAC address that the table has.
    state: str

    @property
    def is_permanent(self) -> bool:
        return self.state == _PERMANENT


class _Wrong(NamedTuple):
    """Entries with one MAC address that the interface with the address does not have."""

    place: Place
    mac: str
    entries: tuple[_Entry, ...]
    others_right: bool  #: Whether other nodes have the right one.
    passes: bool | None  #: Whether all that was tested on the paths passes; None if nothing was.

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.node for entry in self.entries))


def _macs(model: Model) -> dict[str, set[str]]:
    return {
        name: {str(nic.get("mac")).lower() for nic in listed(record, "nics")} for name, record in model.nodes.items()
    }


def _entries(mesh: Mesh) -> list[_Entry]:
    learned = {
        node: entries
        for node, record in mesh.model.nodes.items()
        if (entries := probed(record, "routes", "neighbours"))
    }
    if not learned:
        return []
    holders: dict[str, list[Place]] = defaultdict(list)
    own: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for place in mesh.places:
        holders[place.address].append(place)
        own[place.node, place.nic].append(place)
    known = []
    for node, entries in learned.items():
        for entry in entries:
            held = holders.get(str(entry.get("address")), ())
            if len(held) != 1 or held[0].node == node:
                continue
            mac, nic = str(entry.get("mac")).lower(), one_line(str(entry.get("nic")), 40)
            if not _is_of_one(mac) or not _is_of_one(held[0].mac):
                continue
            if any(held[0].network.ip in place.network.network for place in own.get((node, nic), ())):
                known.append(_Entry(node, held[0], mac, (text(entry.get("state")) or "").lower()))
    return known


def _paths(mesh: Mesh, nodes: Iterable[str], place: Place) -> frozenset[AddressPair]:
    others = set(nodes)
    out = {
        path for path in mesh.paths if path.src in others and (path.dst, path.dst_addr) == (place.node, place.address)
    }
    return frozenset(out | {path.reverse for path in out if path.reverse in mesh.paths})


def _wrong(mesh: Mesh) -> list[_Wrong]:
    """Return the entries that are wrong, by address and MAC address; two rules need them."""
    if (known := _WRONG.get(mesh)) is None:
        known = _WRONG[mesh] = _searched(mesh)
    return known


def _searched(mesh: Mesh) -> list[_Wrong]:
    if not (learned := _entries(mesh)):
        return []
    macs = _macs(mesh.model)
    right: dict[str, set[str]] = defaultdict(set)
    wrong: dict[tuple[Place, str, bool], list[_Entry]] = defaultdict(list)
    answers: dict[str, set[str]] = defaultdict(set)
    for entry in learned:
        if entry.mac in macs[entry.place.node]:
            right[entry.place.address].add(entry.node)
        else:
            wrong[entry.place, entry.mac, entry.is_permanent].append(entry)
            answers[entry.mac].add(entry.place.node)
    wrong_entries = []
    for (place, mac, _), entries in wrong.items():
        # What answers for several nodes is a router, or a proxy of the network.
        if len(answers[mac]) > 1:
            continue
        nodes = {entry.node for entry in entries}
        paths = _paths(mesh, nodes, place)
        passes = not any(is_bad(mesh, path) for path in paths) if paths else None
        wrong_entries.append(_Wrong(place, mac, tuple(entries), bool(right[place.address] - nodes), passes))
    return wrong_entries


def _is_stale(one: _Wrong) -> bool:
    """Return True for entries that nobody confirms: permanent ones, and single ones that the kernel still has."""
    if any(entry.is_permanent for entry in one.entries):
        return True
    return one.others_right and len(one.nodes) == 1 and all(entry.state != _CONFIRMED for entry in one.entries)


class _MacRule(AddressRule):
    """Base of the rules about MAC addresses."""

    def _about(self, mesh: Mesh, scope: Scope, facts: Mapping[str, Any], *commands: tuple[str, str]) -> Finding:
        finding = self._finding(mesh, scope, facts, "")
        lines = (on_node(node, command, mesh.model) for node, command in commands)
        return finding.replace(next=tuple(dict.fromkeys(lines)))

    @staticmethod
    def _address_facts(one: _Wrong) -> dict[str, object]:
        place = one.place
        return {
            "node": place.node,
            "nic": place.nic,
            "address": place.address,
            "own": one_line(place.mac, 40),
            "seen": one.mac,
            "witnesses": fold(one.nodes),
            "several": len(one.nodes) > 1,
            "single": len(one.nodes) == 1,
        }

    @staticmethod
    def _commands(one: _Wrong) -> tuple[tuple[str, str], tuple[str, str]]:
        nic = shlex.quote(one.place.nic)
        return (
            (one.nodes[0], f"ip neigh show {shlex.quote(one.place.address)}"),
            (one.place.node, f"ip -br link show {nic}"),
        )


@register
class DuplicateMac(_MacRule):
    """Interfaces of several nodes have the same MAC address in one network. Frames reach only one of them."""

    id = "FT236"
    by_chance = True

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        sharing = {
            (name, one_line(str(nic.get("name")), 40))
            for name, record in mesh.model.nodes.items()
            for nic in listed(record, "nics")
            if nic.get("link_kind") in _SHARING
        }
        by_mac: dict[str, list[Place]] = defaultdict(list)
        for place in mesh.places:
            if _is_of_one(place.mac) and (place.node, place.nic) not in sharing:
                by_mac[place.mac].append(place)
        for mac, places in by_mac.items():
            colliding = [place for place in places if any(_collide(mesh, place, other) for other in places)]
            if not colliding:
                continue
            nodes = tuple(dict.fromkeys(place.node for place in colliding))
            named = list(dict.fromkeys(f"{place.node} {place.nic}" for place in colliding))
            facts = {
                "interfaces": f"{', '.join(named[:-1][:_MOST_LISTED])} and {named[-1]}",
                "mac": mac,
                "addresses": tuple(place.address for place in colliding),
                "by_interface": tuple(
                    f"{place.node} {place.nic}: {place.address}" for place in colliding[:_MOST_LISTED]
                ),
            }
            scope = Scope(
                ComponentKind.MANY,
                nodes,
                pairs=paths_of_seats(mesh, {(place.node, place.address) for place in colliding}),
            )
            shown = ((place.node, f"ip -br link show {shlex.quote(place.nic)}") for place in colliding[:2])
            yield self._about(mesh, scope, facts, *shown)


def _collide(mesh: Mesh, one: Place, other: Place) -> bool:
    """Return True for interfaces of two nodes in one network, unless they reach each other: then they are in two."""
    if one.node == other.node or one.address == other.address:
        return False
    if one.network.ip not in other.network.network and other.network.ip not in one.network.network:
        return False
    path = AddressPair(one.node, one.address, other.node, other.address)
    tested = [way for way in (path, path.reverse) if way in mesh.paths]
    return not tested or any(is_bad(mesh, way) for way in tested)


@register
class StrangerAnswers(_MacRule):
    """Nodes have learned a MAC address for an address of another node that none of its interfaces has."""

    id = "FT237"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        macs = _macs(mesh.model)
        for one in _wrong(mesh):
            sure = one.passes is False or any(entry.state == _CONFIRMED for entry in one.entries)
            if one.passes or not sure or _is_stale(one):
                continue
            node = next((name for name, known in macs.items() if one.mac in known), None)
            facts = {**self._address_facts(one), "answers": node, "stranger": node is None}
            nodes = (one.place.node, *([node] if node is not None else []))
            rails = () if one.place.rail is None else (one.place.rail,)
            seat = paths_of_seats(mesh, {(one.place.node, one.place.address)})
            kind = ComponentKind.ADDRESS if node is None else ComponentKind.MANY
            scope = Scope(kind, nodes, rails, one.place.address, pairs=seat)
            finding = self._about(mesh, scope, facts, *self._commands(one))
            yield finding if one.passes is False else finding.replace(severity=Severity.WARN)


@register
class StaleNeighbour(_MacRule):
    """A node keeps a MAC address for an address of another node that none of its interfaces has (or no longer has)."""

    id = "FT238"
    takes_endpoints = False

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        macs = _macs(mesh.model)
        for one in _wrong(mesh):
            owner = next((name for name, known in macs.items() if one.mac in known), None)
            permanent = any(entry.is_permanent for entry in one.entries)
            # The kernel replaces other entries as soon as they do not work. What a node passes on that has no part in
            # it takes a detour, though all pings pass.
            detour = permanent and owner is not None
            if (one.passes and not detour) or not _is_stale(one) or (one.passes is None and not permanent):
                continue
            facts = {**self._address_facts(one), "state": _PERMANENT if permanent else "stale"}
            facts |= {"owner": owner, "stranger": owner is None}
            pairs = _paths(mesh, one.nodes, one.place)
            nodes = (*one.nodes, one.place.node)
            kind = ComponentKind.PAIR if len(nodes) == 2 else ComponentKind.MANY
            yield self._about(mesh, Scope(kind, nodes, pairs=pairs), facts, *self._commands(one))


class _Plug(NamedTuple):
    """An interface with a rail, and the switch port behind it."""

    place: Place
    port: SwitchPort


@register
class WrongSwitch(_MacRule):
    """An interface is connected to a switch that has another rail, or no rail, of the other nodes: wrong cabling."""

    id = "FT239"
    takes_endpoints = False

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        plugs = _plugs(mesh)
        holders: dict[tuple[int | None, str], set[str]] = defaultdict(set)
        for plug in plugs:
            holders[plug.place.rail, plug.port.chassis].add(plug.place.node)
        # With more switches on a rail, no pattern is clear.
        if max(Counter(rail for rail, _ in holders).values(), default=0) > _MOST_SWITCHES:
            return
        known = misconnected(mesh.model)
        for plug in plugs:
            place, port = plug
            if len(holders[place.rail, port.chassis]) > 1 or place.node in known:
                continue
            others = [one for one in plugs if one.place.node != place.node]
            rails = {one.place.rail for one in others if one.port.chassis == port.chassis}
            if place.rail in rails or not _is_clear(others):
                continue
            # A node of another part of the fabric has all of its rails elsewhere.
            mine = {one.port.chassis for one in plugs if one.place.node == place.node and one is not plug}
            if not rails and mine.isdisjoint(one.port.chassis for one in others):
                continue
            same = [one for one in others if one.place.rail == place.rail]
            facts = {
                "node": place.node,
                "nic": place.nic,
                "rail": place.rail,
                "switch": one_line(port.name, 60),
                "port": one_line(port.port, 60) or None,
                "others": len(same),
                "usual": one_line(same[0].port.name, 60),
                "of_switch": next(iter(rails), None),
            }
            nic = shlex.quote(place.nic)
            scope = Scope(ComponentKind.ADDRESS, (place.node,), (), place.address)
            yield self._about(mesh, scope, facts, (place.node, f"sudo lldpctl {nic}"))


def _is_clear(plugs: Iterable[_Plug]) -> bool:
    """Return True if each rail of several nodes has one switch, and each switch one rail."""
    switches: dict[int | None, set[str]] = defaultdict(set)
    rails: dict[str, set[int | None]] = defaultdict(set)
    nodes: dict[int | None, set[str]] = defaultdict(set)
    for place, port in plugs:
        switches[place.rail].add(port.chassis)
        rails[port.chassis].add(place.rail)
        nodes[place.rail].add(place.node)
    one_each = all(len(found) == 1 for found in switches.values()) and all(len(found) == 1 for found in rails.values())
    return one_each and len(switches) > 1 and all(len(found) >= _FEWEST_ALIKE for found in nodes.values())


def _plugs(mesh: Mesh) -> list[_Plug]:
    ports = {name: switch_ports(record) for name, record in mesh.model.nodes.items()}
    first = {(place.node, place.nic): place for place in reversed(mesh.places) if place.rail is not None}
    return [
        _Plug(place, ports[node][nic]) for (node, nic), place in reversed(first.items()) if nic in ports.get(node, {})
    ]


#: The rules of this module, which need no test: they are part of the preflight, too.
LINK_LAYER_RULES = tuple(rule for rule in RULES if isinstance(rule, _MacRule))
