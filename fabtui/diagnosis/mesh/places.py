"""Data addresses of nodes, with the interfaces and networks that they belong to."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from fabtui.model.facts.node_view import dicts
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line


class Place(NamedTuple):
    """A data address of a node: its interface, rail (None: unknown), MAC address and network."""

    node: str
    address: str
    nic: str
    rail: int | None
    mac: str
    network: ipaddress.IPv4Interface | ipaddress.IPv6Interface


def places(model: Model) -> list[Place]:
    """Return the data addresses of all nodes whose netmask is known."""
    found = []
    for node, record in model.nodes.items():
        inventory = record.inventory or {}
        data = {str(entry.get("address")): entry for entry in dicts(inventory.get("data_addresses"))}
        for nic in dicts(inventory.get("nics")):
            for entry in dicts(nic.get("addresses")):
                address = str(entry.get("address"))
                rail = data.get(address, {}).get("rail")
                try:
                    network = ipaddress.ip_interface(f"{address}/{entry.get('prefix')}")
                except ValueError:
                    continue
                if address in data:
                    name = one_line(str(nic.get("name")), 40)
                    mac = str(nic.get("mac")).lower()
                    found.append(Place(node, address, name, rail if isinstance(rail, int) else None, mac, network))
    return found
