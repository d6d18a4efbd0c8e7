"""Wiring of interfaces to rails, by the MAC addresses that nodes learn on each rail."""

from __future__ import annotations

import contextlib
import ipaddress
from collections import defaultdict
from typing import NamedTuple

from fabtui.diagnosis.mesh.mesh import Mesh
from fabtui.model.facts.node_view import dicts
from fabtui.model.session_model import Model

#: Node and interface.
_Nic = tuple[str, str]
_Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface


class _Interface(NamedTuple):
    rail: int
    networks: tuple[_Network, ...]

    def shares_network(self, other: _Interface) -> bool:
        """Return True if one has an address in a network of the other."""
        pairs = ((a, b) for a in self.networks for b in other.networks)
        return any(a.ip in b.network or b.ip in a.network for a, b in pairs)


def misconnected(model: Model) -> dict[str, dict[str, int]]:
    """Return the interfaces that are connected to another rail than their own, by node: interface and that rail.

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
        for entry in dicts((record.probe_results.get("routes") or {}).get("neighbours")):
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
    """Return the interfaces that have a rail, and the same by MAC address."""
    interfaces: dict[_Nic, _Interface] = {}
    owners: dict[str, _Nic] = {}
    for node, record in model.nodes.items():
        inventory = record.inventory or {}
        rails = {str(entry.get("nic")): entry.get("rail") for entry in dicts(inventory.get("data_addresses"))}
        for nic in dicts(inventory.get("nics")):
            name = str(nic.get("name"))
            networks: list[_Network] = []
            for entry in dicts(nic.get("addresses")):
                with contextlib.suppress(ValueError):
                    networks.append(ipaddress.ip_interface(f"{entry.get('address')}/{entry.get('prefix')}"))
            networks = [one for one in networks if not one.ip.is_link_local]
            if networks and isinstance(rail := rails.get(name), int):
                interfaces[node, name] = _Interface(rail, tuple(networks))
                owners[str(nic.get("mac")).lower()] = (node, name)
    return interfaces, owners


def _by_routers(
    strangers: dict[str, dict[str, set[str]]], interfaces: dict[_Nic, _Interface]
) -> list[tuple[_Nic, _Nic, str]]:
    """Return interfaces that see a router, each with one of others, which see it on the same rail; no witness."""
    found = []
    for seen in strangers.values():
        places = [(node, next(iter(nics))) for node, nics in seen.items() if len(nics) == 1]
        if len(places) < len(seen):
            continue
        for mine in places:
            others = [other for other in places if other != mine]
            if len(others) > 1 and len({interfaces[other].rail for other in others}) == 1:
                found.append((mine, others[0], ""))
    return found


def reaches_other_rails_only(mesh: Mesh, node: str) -> bool:
    """Return True if all that a node sends crosses rails to arrive, and nothing arrives at it.

    So do hosts with crossed rails that answer for an address on its own interface only.
    """
    sent = [path for path in mesh.paths if path.src == node]
    came = [path for path in mesh.paths if path.dst == node]
    if len({path.dst for path in sent}) < 2 or any(mesh.paths[path].small_arrived is not False for path in came):
        return False
    across = {here != there for path in sent for here, there in (mesh.rails(path),)}
    return across == {True, False} and all(
        mesh.paths[path].small_arrived is (here != there) for path in sent for here, there in (mesh.rails(path),)
    )
