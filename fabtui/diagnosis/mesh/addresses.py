"""Rules about addresses, netmasks, routes and wiring of nodes: causes of what the mesh of addresses shows.

They are checked before the other rules of the mesh, and what they explain is no evidence about anything else.
"""

from __future__ import annotations

import contextlib
import ipaddress
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from fabtui.diagnosis.finding import AddressPair, Finding, Pair, Role, Severity, register
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.mesh.affected_components import ComponentKind, Scope
from fabtui.diagnosis.mesh.mesh import Mesh, MeshRule, Place
from fabtui.model.facts.node_view import dicts, field
from fabtui.model.layers import MESH
from fabtui.model.records import listed, probed
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.sanitize import one_line

#: Node and interface.
_Nic = tuple[str, str]
_Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface
#: ``rp_filter``: what comes in is dropped unless its answer leaves by the same interface.
_STRICT = 1


class _Interface(NamedTuple):
    rail: int
    networks: tuple[_Network, ...]

    def shares_network(self, other: _Interface) -> bool:
        """Return True if one has an address in a network of the other."""
        pairs = ((a, b) for a in self.networks for b in other.networks)
        return any(a.ip in b.network or b.ip in a.network for a, b in pairs)


def misconnected(model: Model) -> dict[str, dict[str, int]]:
    """Return the interfaces that are connected to a rail other than their own, by node: interface and that rail.

    A node answers for all of its addresses on every interface by default, so that crossed rails pass everything. The
    MAC address that others learn identifies the interface that answered. An interface is in the wrong place if it is
    heard in the network of a different interface of its node; nodes may count their rails differently. A node is
    blamed if more of the others see it in the wrong place than in the right one; what is heard on several rails is no
    evidence, as one wire may hold them all.
    """
    interfaces, owners = _interfaces(model)
    heard: dict[tuple[_Nic, str], set[str]] = defaultdict(set)
    strangers: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for node, record in model.nodes.items():
        for entry in probed(record, "routes", "neighbours"):
            mac, nic = str(entry.get("mac")).lower(), str(entry.get("nic"))
            owner = owners.get(mac)
            if (node, nic) not in interfaces:
                continue
            if owner is None:
                strangers[mac][node].add(nic)
            elif owner[0] != node:
                heard[owner, node].add(nic)
    seen = [(owner, (node, next(iter(nics))), node) for (owner, node), nics in heard.items() if len(nics) == 1]
    of_node: dict[str, dict[str, _Interface]] = defaultdict(dict)
    for (node, nic), interface in interfaces.items():
        of_node[node][nic] = interface
    right: dict[str, set[str]] = defaultdict(set)
    wrong: dict[str, set[str]] = defaultdict(set)
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for mine, other, witness in seen + _by_routers(strangers, interfaces):
        node, nic = mine
        if interfaces[mine].shares_network(interfaces[other]):
            right[node].add(witness)
            continue
        for name, place in of_node[node].items():
            if name != nic and place.shares_network(interfaces[other]):
                wrong[node].add(witness)
                found[node][nic] = place.rail
    return {node: nics for node, nics in found.items() if len(wrong[node]) > len(right[node] - wrong[node])}


def _interfaces(model: Model) -> tuple[dict[_Nic, _Interface], dict[str, _Nic]]:
    interfaces: dict[_Nic, _Interface] = {}
    owners: dict[str, _Nic] = {}
    for node, record in model.nodes.items():
        rails = {str(entry.get("nic")): entry.get("rail") for entry in listed(record, "data_addresses")}
        for nic in listed(record, "nics"):
            name = str(nic.get("name"))
            networks: list[_Network] = []
            for entry in dicts(nic.get("addresses")):
                with contextlib.suppress(ValueError):
                    networks.append(ipaddress.ip_interface(f"{entry.get('address')}/{entry.get('prefix')}"))
            networks = [network for network in networks if not network.ip.is_link_local]
            if networks and isinstance(rail := rails.get(name), int):
                interfaces[node, name] = _Interface(rail, tuple(networks))
                owners[str(nic.get("mac")).lower()] = (node, name)
    return interfaces, owners


def _by_routers(
    strangers: dict[str, dict[str, set[str]]], interfaces: dict[_Nic, _Interface]
) -> list[tuple[_Nic, _Nic, str]]:
    """Return interfaces that see a router, each with one of others, which see it on the same rail; no witness."""
    pairs = []
    for seen in strangers.values():
        places = [(node, next(iter(nics))) for node, nics in seen.items() if len(nics) == 1]
        for mine in places if len(places) == len(seen) else ():
            others = [other for other in places if other != mine]
            if len(others) > 1 and len({interfaces[other].rail for other in others}) == 1:
                pairs.append((mine, others[0], ""))
    return pairs


def reaches_other_rails_only(mesh: Mesh, node: str) -> bool:
    """Return True if all that a node sends crosses rails to arrive, and nothing arrives at it.

    So do hosts with crossed rails that answer for an address on its own interface only.
    """
    sent = [path for path in mesh.paths if path.src == node]
    came = [path for path in mesh.paths if path.dst == node]
    if len({path.dst for path in sent}) < 2 or any(mesh.paths[path].small_arrived is not False for path in came):
        return False
    across = {path: here != there for path in sent for here, there in (mesh.rails(path),)}
    return len({*across.values()}) == 2 and all(mesh.paths[path].small_arrived is far for path, far in across.items())


class AddressRule(MeshRule):
    """Base of the rules about causes at addresses of nodes."""

    role = Role.SETTING
    evidence: ClassVar[tuple[str, ...]] = ("{count} of {total} address pairs are affected",)
    #: Whether a finding explains all bad pairs of the endpoints at its addresses.
    takes_endpoints: ClassVar[bool] = True
    #: Whether the nodes of a finding work by chance: which of them gets the packets may change at any moment.
    by_chance: ClassVar[bool] = False

    def _finding(
        self, mesh: Mesh, scope: Scope, facts: Mapping[str, Any], command: str, cells: Iterable[Pair] = ()
    ) -> Finding:
        bad = sum(is_bad(mesh, path) for path in scope.pairs) or None
        finding = mesh.finding(self, scope, MESH, {**facts, "count": bad}, command)
        mesh.clouded |= scope.pairs
        return finding.replace(cells=finding.cells | frozenset(cells))


def paths_of_seats(mesh: Mesh, seats: set[tuple[str, str]]) -> frozenset[AddressPair]:
    """Return the paths that begin or end at addresses, given by node and address."""
    return frozenset(p for p in mesh.paths if {(p.src, p.src_addr), (p.dst, p.dst_addr)} & seats)


def is_bad(mesh: Mesh, path: AddressPair) -> bool:
    """Return True if something that was tested on a path fails."""
    tests = mesh.paths[path]
    return any(m is not None and m.verdict.bad for m in (tests.ping, tests.udp, tests.tcp, tests.mtu))


def explained_endpoints(model: Model, finding: Finding) -> frozenset[str]:
    rule, address = finding.rule, finding.facts.get("address")
    if not isinstance(rule, AddressRule) or not rule.takes_endpoints or finding.severity is not Severity.BAD:
        return frozenset()
    addresses = finding.facts.get("addresses") or (() if address is None else (address,))
    ends = (end for node in finding.nodes for end in model.table.of_node(node))
    return frozenset(str(end) for end in ends if not addresses or end.address in addresses)


def nodes_by_chance(finding: Finding) -> tuple[str, ...]:
    """Return the nodes of a finding that work by chance, if they work at all."""
    rule = finding.rule
    return finding.nodes if isinstance(rule, AddressRule) and rule.by_chance else ()


@register
class DuplicateAddress(AddressRule):
    """Several nodes have the same address on a data interface. Packets reach only one of them."""

    id = "FT230"
    by_chance = True

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        holders: dict[str, list[Place]] = {}
        for place in mesh.places:
            holders.setdefault(place.address, []).append(place)
        for address, places in holders.items():
            # One machine under several names has one MAC address.
            if len({place.mac for place in places}) < 2 or len({place.node for place in places}) < 2:
                continue
            paths = paths_of_seats(mesh, {(place.node, address) for place in places})
            nodes = tuple(dict.fromkeys(place.node for place in places))
            facts = {
                "address": address,
                "holders": fold(nodes),
                "by_interface": tuple(f"{p.node} {p.nic}: MAC {one_line(p.mac, 40)}" for p in places[:8]),
            }
            command = on_node(nodes[-1], f"ip -br addr show {shlex.quote(places[-1].nic)}", mesh.model)
            yield self._finding(mesh, Scope(ComponentKind.MANY, nodes, pairs=paths), facts, command)


@register
class RailsSwapped(AddressRule):
    """Interfaces of a node are connected to each other's rails. By default Linux hides it: everything passes."""

    id = "FT231"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        wrong = misconnected(mesh.model)
        across = [node for node in mesh.order if node not in wrong and reaches_other_rails_only(mesh, node)]
        for node in [*(node for node in mesh.order if node in wrong), *across]:
            nics = sorted(wrong.get(node, {}).items())
            plugs = [f"{one_line(nic, 40)} is connected to rail {rail}" for nic, rail in nics]
            paths = frozenset(path for path in mesh.paths if node in (path.src, path.dst))
            facts = {"node": node, "plugs": ", ".join(plugs) or None, "across": node in across}
            rails = sorted({rail for path in paths for rail in mesh.rails(path) if rail is not None})
            scope = Scope(ComponentKind.NODE, (node,), tuple(rails), pairs=paths)
            yield self._finding(mesh, scope, facts, on_node(node, "sudo lldpctl", mesh.model))


@register
class WrongNetmask(AddressRule):
    """The netmask of an interface differs from the one that other nodes have in the same network."""

    id = "FT232"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        networks: Counter[Any] = Counter(place.network.network for place in mesh.places)
        rails_of_all = len({place.rail for place in mesh.places})
        for place in mesh.places:
            own = place.network.network
            around = [
                (count, net)
                for net, count in networks.items()
                if net.version == own.version and net != own and place.network.ip in net and count > 1
            ]
            count, common = max(around, default=(0, own), key=lambda one: one[0])
            # Routed fabrics have a small network for each link, and one network may contain others.
            if networks[own] > 1 or count <= len(mesh.places) / 2 / max(1, rails_of_all):
                continue
            paths = paths_of_seats(mesh, {(place.node, place.address)})
            bad = any(is_bad(mesh, path) for path in paths)
            facts = {
                "node": place.node,
                "nic": place.nic,
                "address": place.address,
                "own": own.prefixlen,
                "common": common.prefixlen,
                "others": count,
            }
            command = on_node(place.node, f"ip addr show {shlex.quote(place.nic)}", mesh.model)
            rails = () if place.rail is None else (place.rail,)
            scope = Scope(ComponentKind.ADDRESS, (place.node,), rails, place.address, pairs=paths)
            made = self._finding(mesh, scope, facts, command)
            yield made if bad else made.replace(severity=Severity.WARN)


@register
class ReversePathFilter(AddressRule):
    """A node drops packets that arrive on an interface other than the one its answer would leave through."""

    id = "FT233"
    takes_endpoints = False

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        seats = {(place.node, place.address): place for place in mesh.places}
        blamed: dict[str, tuple[set[AddressPair], dict[str, None], list[str]]] = {}
        for node in mesh.order:
            value = mesh.model.nodes[node].probe_results.get("routes") or {}
            filters = field(value, "filters")
            for route in dicts(value.get("routes")):
                src, dst, leaves = (str(route.get(name)) for name in ("src", "dst", "dev"))
                place = seats.get((node, src))
                if place is None or field(filters, place.nic, "rp_filter") != _STRICT:
                    continue
                if leaves in ("None", place.nic):
                    continue
                paths, nics, texts = blamed.setdefault(node, (set(), {}, []))
                ends = {(node, src), *((other, dst) for other, address in seats if address == dst)}
                paths |= {p for p in mesh.paths if {(p.src, p.src_addr), (p.dst, p.dst_addr)} <= ends}
                nics[place.nic] = None
                texts.append(
                    f"{src} is on {place.nic}, and answers to {one_line(dst, 60)} leave through {one_line(leaves, 40)}"
                )
        # Where most nodes are alike, what they lack is a route between rails.
        for node, (paths, nics, texts) in blamed.items() if 2 * len(blamed) < len(mesh.order) else ():
            facts = {"node": node, "filtered": ", ".join(nics), "routes": tuple(texts[:2])}
            scope = Scope(ComponentKind.NODE, (node,), pairs=frozenset(paths))
            keys = " ".join(f"net.ipv4.conf.{nic}.rp_filter" for nic in ("all", *nics))
            yield self._finding(mesh, scope, facts, on_node(node, f"'sysctl {keys}; ip rule'", mesh.model))


@register
class OtherFamily(AddressRule):
    """The data interfaces of some nodes have addresses of a different family from the other nodes."""

    id = "FT234"

    def check(self, mesh: Mesh) -> Iterator[Finding]:
        families: dict[int, list[str]] = {}
        for place in mesh.places:
            families.setdefault(place.network.version, []).append(place.node)
        if len(families) < 2:
            return
        own = min(families, key=lambda family: len(set(families[family])))
        common = 10 - own
        nodes = [node for node in mesh.order if node in families[own] and node not in families[common]]
        others = {node for node in mesh.order if node in families[common] and node not in families[own]}
        if not nodes or not others:
            return
        ends = [
            (str(a), str(b))
            for node in nodes
            for a in mesh.model.table.of_node(node)
            for b in mesh.model.endpoints
            if b.node in others
        ]
        facts = {"nodes": fold(nodes), "own": own, "common": common}
        scope = Scope(ComponentKind.MANY if len(nodes) > 1 else ComponentKind.NODE, tuple(nodes))
        command = on_node(nodes[0], "ip -br addr", mesh.model)
        yield self._finding(mesh, scope, facts, command, [*ends, *(pair[::-1] for pair in ends)])
