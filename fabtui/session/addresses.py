"""The addresses of a mesh, from the inventories of its nodes, and which of them are asked for which."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

#: Up to so many address pairs in all, each is asked; with more, the pairs across rails are sampled.
MOST_PAIRS = 20_000
#: Heads of IP and of ICMP or UDP, which are of the same length.
_HEADS = {4: 28, 6: 48}
#: No IPv4 packet is larger.
_LARGEST = 65_535
#: Every interface carries packets of this size; nothing larger is known where no MTU is.
_LEAST_MTU = 576


class Address(NamedTuple):
    """An address of a node.

    Attributes:
        address: The address.
        family: 4 or 6.
        rail: Its rail, or None when unknown.
        nic: The interface that has it, or "".
        mtu: That interface's MTU in bytes, or None when unknown.
        up: Whether that interface is up.
    """

    address: str
    family: int = 4
    rail: int | None = None
    nic: str = ""
    mtu: int | None = None
    up: bool = True

    def payload(self, other: Address) -> int | None:
        """Return the bytes of an echo or a datagram that fill the MTU of both ends, or None when that is not known."""
        if self.mtu is None or other.mtu is None:
            return None
        mtu = min(self.mtu, other.mtu, _LARGEST)
        return mtu - _HEADS[self.family] if mtu > _LEAST_MTU else None


def packet_bytes(payload: int, address: str) -> int:
    """Return the length of the IP packet of an echo or a datagram."""
    return payload + _HEADS[6 if ":" in address else 4]


def payload_of(packet: int, address: str) -> int:
    """Return the bytes of an echo or a datagram in an IP packet of a length."""
    return packet - _HEADS[6 if ":" in address else 4]


class Target(NamedTuple):
    """An ordered pair of addresses to ask."""

    node: str
    here: Address
    peer: str
    there: Address

    @property
    def key(self) -> tuple[str, str, str]:
        """Peer and addresses: what tells the targets of one node apart."""
        return self.peer, self.here.address, self.there.address


def addresses_of(inventories: Mapping[str, Any]) -> dict[str, list[Address]]:
    """Return the addresses of each node, by its inventory.

    An address whose interface is down is among them where another node has the same network up: its cable may be out.
    """
    listed = {node: inventory if isinstance(inventory, dict) else {} for node, inventory in inventories.items()}
    found = {node: _listed(inventory, "data_addresses", up=True) for node, inventory in listed.items()}
    alive = {
        network
        for node, inventory in listed.items()
        for one in found[node]
        if (network := _networks(inventory).get(one.address)) is not None
    }
    for node, inventory in listed.items():
        networks = _networks(inventory)
        down = _listed(inventory, "down_addresses", up=False)
        found[node] += [one for one in down if networks.get(one.address) in alive]
    return found


def _listed(inventory: dict[str, Any], name: str, *, up: bool) -> list[Address]:
    mtus = {str(nic.get("name")): nic.get("mtu") for nic in _dicts(inventory.get("nics"))}
    found = []
    for entry in _dicts(inventory.get(name)):
        address, nic = entry.get("address"), entry.get("nic")
        if not isinstance(address, str) or not _is_address(address):
            continue
        name_of_nic = nic if isinstance(nic, str) else ""
        family = 6 if entry.get("family") == 6 else 4
        found.append(
            Address(address, family, _whole(entry.get("rail")), name_of_nic, _whole(mtus.get(name_of_nic)), up)
        )
    return found


def _networks(inventory: dict[str, Any]) -> dict[str, str]:
    """Return the network of each address of a node."""
    found = {}
    for nic in _dicts(inventory.get("nics")):
        for entry in _dicts(nic.get("addresses")):
            try:
                interface = ipaddress.ip_interface(f"{entry.get('address')}/{entry.get('prefix')}")
            except ValueError:
                continue
            found[str(interface.ip)] = str(interface.network)
    return found


def targets_between(new: Iterable[str], old: Iterable[str], addresses: Mapping[str, list[Address]]) -> list[Target]:
    """Return all ordered pairs of addresses of one family in which a node of ``new`` takes part.

    Of more than `MOST_PAIRS` the pairs of one rail are kept, and of those across rails one a node pair.
    """
    fresh = list(new)
    nodes = [*old, *fresh]
    targets = [
        Target(node, here, peer, there)
        for node in nodes
        for peer in nodes
        if peer != node and (node in fresh or peer in fresh)
        for here in addresses.get(node, [])
        for there in addresses.get(peer, [])
        if here.family == there.family
    ]
    return targets if len(targets) <= MOST_PAIRS else _sampled(targets)


def _sampled(targets: list[Target]) -> list[Target]:
    kept = []
    crossed: dict[tuple[str, str], int] = {}
    for target in targets:
        if target.here.rail is not None and target.here.rail == target.there.rail:
            kept.append(target)
            continue
        pair = (target.node, target.peer)
        # Another one for each pair, so that all rails come up.
        crossed[pair] = seen = crossed.get(pair, _spread(pair)) - 1
        if seen == 0:
            kept.append(target)
    return kept


def _spread(pair: tuple[str, str]) -> int:
    """Return a small number that differs between pairs and is the same in every run."""
    return 1 + sum(f"{pair[0]}>{pair[1]}".encode()) % 8


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
