"""Interfaces whose nodes report a fault of them: down, or a link that comes and goes.

Such a fault explains all that is bad at the interface. What passes there by chance, or over another interface of the
node, is no evidence about other faults.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fabtui.diagnosis.finding import AddressPair
from fabtui.diagnosis.mesh.affected_components import Rail, Seat
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


#: Changes of the carrier within a session that are a flap: it went and came back.
_FLAP = 2
_WORKING = ("up", "unknown")


class InterfaceFault(NamedTuple):
    """Fault of an interface, as its node reports it.

    Attributes:
        nic: The interface.
        flaps: How often the carrier changed during the session; 0 if it is down.
        enabled: Whether the interface is switched on; None if unknown.
    """

    nic: str
    flaps: int
    enabled: bool | None


def interface_faults(model: Model, seats: Iterable[Seat]) -> dict[Seat, InterfaceFault]:
    """Return the interfaces with a fault, by node and address."""
    states: dict[str, dict[str, tuple[str, bool | None]]] = {}
    found = {}
    for node, address in seats:
        if node not in states:
            record = model.nodes.get(node)
            states[node] = {
                str(nic.get("name")): (str(nic.get("state")), enabled if isinstance(enabled, bool) else None)
                for nic in dicts((record.inventory or {}).get("nics") if record is not None else None)
                for enabled in (nic.get("enabled"),)
            }
        nic = model.addresses.seat(node, address).nic
        state, enabled = states[node].get(nic, ("unknown", None))
        flaps = model.carrier_changes(node, nic)
        if flaps >= _FLAP or state not in _WORKING:
            found[node, address] = InterfaceFault(one_line(nic, 40), flaps if flaps >= _FLAP else 0, enabled)
    return found


def paths_at(
    faults: Mapping[Seat, InterfaceFault], paths: Iterable[AddressPair], bad: set[AddressPair], rail: Rail
) -> dict[Seat, set[AddressPair]]:
    """Return the paths that each faulty interface may break.

    Hosts that do not route by source send to a rail over their interface there, and answer over it, from any
    address: where all of these paths are bad, they belong to the interface as well.
    """
    found: dict[Seat, set[AddressPair]] = {seat: set() for seat in faults}
    through: dict[Seat, tuple[set[AddressPair], set[AddressPair]]] = {seat: (set(), set()) for seat in faults}
    on_rail = {
        (node, number): (node, address) for node, address in faults if (number := rail(node, address)) is not None
    }
    for path in paths:
        ends = (path.src, path.src_addr), (path.dst, path.dst_addr)
        touched = [seat for seat in ends if seat in found]
        for seat in touched:
            found[seat].add(path)
        if on_rail and not touched:
            for side, (node, (peer, address)) in enumerate(((path.src, ends[1]), (path.dst, ends[0]))):
                if (number := rail(peer, address)) is not None and (seat_ := on_rail.get((node, number))) is not None:
                    through[seat_][side].add(path)
    for seat, sides in through.items():
        for of_side in sides:
            if of_side <= bad:
                found[seat] |= of_side
    return found
