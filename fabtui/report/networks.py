"""The networks that a session tests, and those of management that it leaves alone."""

from __future__ import annotations

import ipaddress
from typing import Any

from fabtui.model.facts.node_view import dicts
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line

#: Maximum number of networks that are named.
_MOST = 8
Places = dict[tuple[int, str], dict[str, None]]


def networks(model: Model) -> list[str]:
    """Return lines on the tested networks, one for each rail, and on the interfaces that only SSH uses."""
    tested: Places = {}
    left_out: Places = {}
    for record in model.nodes.values():
        inventory = record.inventory or {}
        data = {str(entry.get("address")): entry for entry in dicts(inventory.get("data_addresses"))}
        for nic in dicts(inventory.get("nics")):
            name, entries = one_line(str(nic.get("name")), 40), dicts(nic.get("addresses"))
            for entry in entries:
                rail = data.get(str(entry.get("address")), {}).get("rail", -1)
                if str(entry.get("address")) in data:
                    place = rail if isinstance(rail, int) else -1
                    tested.setdefault((place, _network(entry)), {})[name] = None
                elif nic.get("login") is True and not any(str(one.get("address")) in data for one in entries):
                    left_out.setdefault((-1, _network(entry)), {})[name] = None
    # One network without another to be confused with needs no line.
    if not tested or len(tested) + len(left_out) == 1:
        return []
    lines = ["tested networks: " + _listed(tested)]
    used = {end.rail for end in model.endpoints if end.kind == "cpu" and end.rail is not None}
    idle = sorted({rail for rail, _ in tested if rail >= 0} - used)
    if used and idle and any(m.layer in (Layer.P2P, Layer.WORLD) for m in model.measurements()):
        ranks = max(idle) + 1
        lines.append(f"no CPU rank sends over rail {', '.join(map(str, idle))}: --ranks-per-node {ranks}")
    if left_out:
        names = sorted({name for found in left_out.values() for name in found})
        lines.append(
            f"not tested, as SSH uses it: {_listed(left_out)}"
            f" (NCCL_SOCKET_IFNAME={names[0]} in the nodes' login environment has it tested)"
        )
    return lines


def _listed(places: Places) -> str:
    found = [
        f"{f'rail {rail} ' if rail >= 0 else ''}{network} ({', '.join(names)})"
        for (rail, network), names in sorted(places.items())
        if not network.startswith("fe80:")
    ]
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return ", ".join(found[:_MOST]) + more


def _network(entry: dict[str, Any]) -> str:
    try:
        return str(ipaddress.ip_interface(f"{entry.get('address')}/{entry.get('prefix')}").network)
    except ValueError:
        return "unknown network"
