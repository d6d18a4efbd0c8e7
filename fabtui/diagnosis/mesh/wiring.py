"""Wiring of interfaces to rails, by the MAC addresses that nodes learn on each rail."""

from __future__ import annotations

from collections import defaultdict

from fabtui.diagnosis.mesh.mesh import Mesh
from fabtui.model.facts.node_view import dicts
from fabtui.model.session_model import Model

#: Node and interface.
_Nic = tuple[str, str]


def misconnected(model: Model) -> dict[str, dict[str, int]]:
    """Return the interfaces that are connected to another rail than their own, by node: interface and that rail.

    A node answers for all of its addresses on every interface by default, so that crossed rails pass everything. The
    MAC address that others learn identifies the interface that answered. A node is blamed if more of the others see it
    on another rail than on its own; what is heard on several rails is no evidence, as one network may hold them all.
    """
    rails, owners = _interfaces(model)
    heard: dict[tuple[_Nic, str], set[int]] = defaultdict(set)
    strangers: dict[str, dict[str, set[tuple[str, int]]]] = defaultdict(lambda: defaultdict(set))
    for node, record in model.nodes.items():
        for entry in dicts((record.probe_results.get("routes") or {}).get("neighbours")):
            mac, nic = str(entry.get("mac")).lower(), str(entry.get("nic"))
            if (rail := rails.get((node, nic))) is None:
                continue
            owner = owners.get(mac)
            if owner is None:
                strangers[mac][node].add((nic, rail))
            elif owner[0] != node:
                heard[owner, node].add(rail)
    right: dict[str, set[str]] = defaultdict(set)
    wrong: dict[str, set[str]] = defaultdict(set)
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for (owner, node), places in heard.items():
        if len(places) == 1:
            (place,) = places
            (right if place == rails[owner] else wrong)[owner[0]].add(node)
            if place != rails[owner]:
                found[owner[0]][owner[1]] = place
    for node, nic, place in _by_routers(strangers):
        (right if rails[node, nic] == place else wrong)[node].add("")
        if rails[node, nic] != place:
            found[node][nic] = place
    return {node: nics for node, nics in found.items() if len(wrong[node]) > len(right[node] - wrong[node])}


def _interfaces(model: Model) -> tuple[dict[_Nic, int], dict[str, _Nic]]:
    """Return the rails of interfaces, and the interfaces by MAC address."""
    rails: dict[_Nic, int] = {}
    owners: dict[str, _Nic] = {}
    for node, record in model.nodes.items():
        inventory = record.inventory or {}
        for entry in dicts(inventory.get("data_addresses")):
            if isinstance(rail := entry.get("rail"), int):
                rails[node, str(entry.get("nic"))] = rail
        for nic in dicts(inventory.get("nics")):
            if (node, str(nic.get("name"))) in rails:
                owners[str(nic.get("mac")).lower()] = (node, str(nic.get("name")))
    return rails, owners


def _by_routers(strangers: dict[str, dict[str, set[tuple[str, int]]]]) -> list[tuple[str, str, int]]:
    """Return nodes and interfaces with the rail on which most others see the same router."""
    found = []
    for seen in strangers.values():
        places = {node: next(iter(ends)) for node, ends in seen.items() if len(ends) == 1}
        if len(places) < len(seen):
            continue
        for node, (nic, _) in places.items():
            others = [rail for other, (_, rail) in places.items() if other != node]
            if len(others) > 1 and len(set(others)) == 1:
                found.append((node, nic, others[0]))
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
