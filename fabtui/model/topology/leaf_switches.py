"""Which RDMA ports an endpoint sends over, and on which leaf switch they hang, as far as looks tell. Pure.

Everything of a look comes from a node: nothing of its shape is relied on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.node_view import dicts
from fabtui.model.records import NodeRecord

#: The looks that tell on which leaf ports hang.
TELLING = frozenset({"ibfabric", "ibstat"})


class Port(NamedTuple):
    """An RDMA port of a node.

    Attributes:
        ca: The device.
        number: The port's number, from 1.
    """

    ca: str
    number: int

    def __str__(self) -> str:
        return f"{self.ca}/{self.number}"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _port(ca: Any, number: Any) -> Port | None:
    """Return the port that a node named, or None for what is no name of one."""
    known = isinstance(ca, str) and isinstance(number, int) and not isinstance(number, bool)
    return Port(ca, number) if known else None


def ports_of(endpoint: Endpoint, record: NodeRecord | None) -> list[Port]:
    """Return the RDMA ports that an endpoint sends over: those of its NIC, or of the interface that has its address.

    None where its NIC is not known.
    """
    inventory = (record.inventory if record is not None else None) or {}
    names = {endpoint.nic} if endpoint.nic else _holders(endpoint.address, inventory)
    found = []
    for told in dicts(inventory.get("ib")):
        port = _port(told.get("ca"), told.get("port"))
        if port is not None and names & {port.ca, _text(told.get("netdev"))}:
            found.append(port)
    return found


def _holders(address: str | None, inventory: Mapping[str, Any]) -> set[str]:
    if address is None:
        return set()
    found: set[str] = set()
    for nic in dicts(inventory.get("nics")):
        if any(entry.get("address") == address for entry in dicts(nic.get("addresses"))):
            found.update(name for key in ("name", "rdma") if (name := _text(nic.get(key))) is not None)
    return found


def guids_of(record: NodeRecord) -> dict[Port, str]:
    """Return the GUID of each port of a node, as its looks tell it."""
    found: dict[Port, str] = {}
    for ca in dicts((record.looks.get("ibstat") or {}).get("cas")):
        for port in dicts(ca.get("ports")):
            _note(found, ca.get("ca"), port)
    for port in dicts((record.looks.get("ibfabric") or {}).get("ports")):
        _note(found, port.get("ca"), port)
    return found


def _note(found: dict[Port, str], ca: Any, port: Mapping[str, Any]) -> None:
    place, guid = _port(ca, port.get("port")), _text(port.get("guid"))
    if place is not None and guid is not None:
        found[place] = guid


def walked_leaves(records: Iterable[NodeRecord]) -> dict[str, str]:
    """Return the leaf of each port by GUID, as those nodes tell that walked over a whole fabric."""
    found: dict[str, str] = {}
    for record in records:
        fabric = (record.looks.get("ibfabric") or {}).get("fabric")
        leaves = fabric.get("leaves") if isinstance(fabric, dict) else None
        for guid, leaf in leaves.items() if isinstance(leaves, dict) else ():
            if isinstance(leaf, dict) and isinstance(leaf.get("guid"), str):
                found[guid] = leaf["guid"]
    return found


def leaf_of(endpoint: Endpoint, record: NodeRecord, walked: Mapping[str, str]) -> str | None:
    """Return the GUID of the leaf that all ports of an endpoint hang on; None where that is not known, or not one.

    Args:
        endpoint: The endpoint.
        record: Its node.
        walked: What `walked_leaves` returned, for nodes that may not ask themselves.
    """
    own = {
        _port(port.get("ca"), port.get("port")): _text(port["leaf"].get("guid"))
        for port in dicts((record.looks.get("ibfabric") or {}).get("ports"))
        # Two adapters on one cable have no leaf.
        if isinstance(port.get("leaf"), dict) and port["leaf"].get("type", "switch") == "switch"
    }
    guids = guids_of(record)
    found = {own.get(port) or walked.get(guids.get(port, "")) for port in ports_of(endpoint, record)}
    return leaf if len(found) == 1 and isinstance(leaf := next(iter(found)), str) else None
