"""RDMA ports of endpoints, and the leaf switches they are connected to: by the fabric, or by LLDP on Ethernet.

Probe results come from nodes: no shape is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.node_view import dicts, field, number, text
from fabtui.model.records import NodeRecord, probed
from fabtui_node.parsers.lines import json_text

#: Probes that report the leaf switches of ports.
LEAF_PROBES = frozenset({"ibfabric", "ibstat", "lldp", "slurm"})


class Port(NamedTuple):
    """An RDMA port of a node: its device, and its number from 1."""

    ca: str
    number: int

    def __str__(self) -> str:
        return f"{self.ca}/{self.number}"


def _port(ca: Any, number: Any) -> Port | None:
    """Return the port that a node named, or None for malformed names."""
    known = isinstance(ca, str) and isinstance(number, int) and not isinstance(number, bool)
    return Port(ca, number) if known else None


def ports_of(endpoint: Endpoint, record: NodeRecord | None) -> list[Port]:
    """Return the RDMA ports of an endpoint: those of its NIC, or of the interface with its address.

    Empty if its NIC is unknown.
    """
    inventory = (record.inventory if record is not None else None) or {}
    names = {endpoint.nic} if endpoint.nic else _holders(endpoint.address, inventory)
    ports = ((_port(entry.get("ca"), entry.get("port")), entry) for entry in dicts(inventory.get("ib")))
    return [port for port, entry in ports if port is not None and names & {port.ca, json_text(entry.get("netdev"))}]


def _holders(address: str | None, inventory: Mapping[str, Any]) -> set[str]:
    nics = dicts(inventory.get("nics")) if address is not None else ()
    mine = [nic for nic in nics if any(entry.get("address") == address for entry in dicts(nic.get("addresses")))]
    return {name for nic in mine for key in ("name", "rdma") if (name := json_text(nic.get(key))) is not None}


def guids_of(record: NodeRecord) -> dict[Port, str]:
    ports = [(ca.get("ca"), port) for ca in probed(record, "ibstat", "cas") for port in dicts(ca.get("ports"))]
    ports += [(port.get("ca"), port) for port in probed(record, "ibfabric", "ports")]
    return {
        place: guid
        for ca, port in ports
        if (place := _port(ca, port.get("port"))) is not None and (guid := json_text(port.get("guid"))) is not None
    }


class SwitchPort(NamedTuple):
    """A port of a switch, as it announces itself by LLDP."""

    chassis: str  #: Identifier of the switch.
    name: str  #: Name of the switch; its identifier if it has none.
    port: str


def switch_ports(record: NodeRecord | None) -> dict[str, SwitchPort]:
    """Return the switch port behind each interface of a node; none where several announce themselves, or no switch."""
    heard: dict[str, list[SwitchPort]] = {}
    for entry in probed(record, "lldp", "neighbours"):
        interface, chassis = text(entry.get("interface")), text(entry.get("chassis"))
        # Others are hosts that are connected to each other, and switches of hypervisors' guests.
        if interface is not None and chassis is not None and entry.get("switch") is not False:
            port = SwitchPort(chassis, text(entry.get("system")) or chassis, text(entry.get("port")) or "")
            heard.setdefault(interface, []).append(port)
    return {interface: ports[0] for interface, ports in heard.items() if len(ports) == 1}


def _announced_leaf(endpoint: Endpoint, record: NodeRecord) -> str | None:
    """Return the switch behind all interfaces of an endpoint, by LLDP; the ports of a bond count, not the bond."""
    ports = switch_ports(record)
    inventory = record.inventory or {}
    names = {endpoint.nic} if endpoint.nic else _holders(endpoint.address, inventory)
    mine = {json_text(port.get("netdev")) for port in dicts(inventory.get("ib")) if json_text(port.get("ca")) in names}
    mine |= names
    nics = dicts(inventory.get("nics"))
    mine |= {json_text(nic.get("name")) for nic in nics if json_text(nic.get("master")) in mine - {None}}
    switches = {ports[name].chassis for name in mine if name in ports}
    return switches.pop() if len(switches) == 1 else None


def walked_leaves(records: Iterable[NodeRecord]) -> dict[str, str]:
    """Return the leaf of each port by GUID, from nodes that scanned the whole fabric."""
    walks = (field(record.probe_results.get("ibfabric"), "fabric", "leaves") for record in records)
    leaves = (item for walk in walks if isinstance(walk, dict) for item in walk.items())
    return {port: guid for port, leaf in leaves if isinstance(guid := field(leaf, "guid"), str)}


def leaf_of(endpoint: Endpoint, record: NodeRecord, walked: Mapping[str, str]) -> str | None:
    """Return the leaf of all ports of an endpoint by GUID; None if it is unknown, or there are several.

    ``walked`` is the result of `walked_leaves`, for nodes that may not query the fabric themselves. Where the fabric
    cannot be queried, it is the leaf of the node by name in Slurm's topology, which nobody measured.
    """
    own = {
        _port(port.get("ca"), port.get("port")): json_text(port["leaf"].get("guid"))
        for port in probed(record, "ibfabric", "ports")
        # Two adapters on one cable have no leaf.
        if isinstance(port.get("leaf"), dict) and port["leaf"].get("type", "switch") == "switch"
    }
    guids = guids_of(record)
    leaves = {own.get(port) or walked.get(guids.get(port, "")) for port in ports_of(endpoint, record)}
    if not any(leaves):
        announced = _announced_leaf(endpoint, record)
        return text(field(record.probe_results.get("slurm"), "leaf")) if announced is None else announced
    return leaves.pop() if len(leaves) == 1 else None


def data_rate(inventory: Mapping[str, Any] | None) -> float:
    """Return the rate (Gb/s) of the fastest data port of a node; 0 if unknown."""
    known = inventory or {}
    rates = [number(port.get("rate")) for port in dicts(known.get("ib"))]
    if not rates:
        names = [entry.get("nic") for entry in dicts(known.get("data_addresses"))]
        nics = (nic for nic in dicts(known.get("nics")) if nic.get("name") in names)
        rates = [speed / 1000 for nic in nics if (speed := number(nic.get("speed_mbps"))) is not None]
    return max((float(rate) for rate in rates if rate is not None), default=0.0)


def leaf_names(nodes: Iterable[NodeRecord]) -> dict[str, str]:
    """Return the names of leaf switches by identifier, as ``ibfabric`` and ``lldp`` of any node report them."""
    names: dict[str, str] = {}
    for record in nodes:
        for port in probed(record, "ibfabric", "ports"):
            guid, name = (text(field(port, "leaf", key)) for key in ("guid", "name"))
            if guid is not None and name is not None:
                names[guid] = name
        names |= {port.chassis: port.name for port in switch_ports(record).values()}
    return names
