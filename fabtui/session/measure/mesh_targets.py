"""Addresses of a mesh, from the inventories of its nodes, and the pairs to test."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fabtui.model.facts.node_view import dicts
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.sanitize import one_line
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure.p2p_result import whole
from fabtui.session.node_client import NodeClient, ProbeFailed

#: Maximum number of targets per request.
A_REQUEST = 4096
#: Maximum number of ordered pairs of addresses that are all tested; of more, a sample is tested.
MAX_PAIRS = 16_000
#: Bytes of the headers of IP and ICMP or UDP, which have the same length.
_HEADERS = {4: 28, 6: 48}
#: Maximum length of an IPv4 packet.
_LARGEST = 65_535
#: Minimum MTU; smaller values are ignored.
_MIN_MTU = 576


class Address(NamedTuple):
    """An address of a node, with its rail (None when unknown) and its interface; the MTU is in bytes."""

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
        return mtu - _HEADERS[self.family] if mtu > _MIN_MTU else None


def header_bytes(address: str) -> int:
    """Return the length of the headers of an echo or a datagram."""
    return _HEADERS[6 if ":" in address else 4]


class Target(NamedTuple):
    """Ordered pair of addresses to test."""

    node: str
    here: Address
    peer: str
    there: Address

    @property
    def key(self) -> tuple[str, str, str]:
        """Peer and addresses, which identify the targets of one node."""
        return self.peer, self.here.address, self.there.address

    def measurement(
        self, layer: Layer, verdict: Verdict, value: float | None, unit: str, size: int | None, **more: Any
    ) -> Measurement:
        """Return a measurement of this target at this time."""
        ends: dict[str, Any] = {"src_addr": self.here.address, "dst_addr": self.there.address}
        return Measurement(layer, self.node, self.peer, verdict, value, unit, size, time.time(), **ends, **more)


class MeshTest:
    """Base of the tests between addresses: the sink of the results, and the nodes by name."""

    def __init__(self, pump: EventPump, clients: Mapping[str, NodeClient]) -> None:
        self._pump = pump
        self._clients = clients
        #: Why the probe failed on a node, for its last failure.
        self._failures: dict[str, str] = {}

    def _failed(self, probe: str, node: str, failed: ProbeFailed) -> str:
        """Note that a probe failed on a node, and return why."""
        why = one_line(failed.text, 300)
        if self._failures.get(node) != why:
            self._pump.log("warning", f"{probe}: {why}", node)
        # A lost node is reported as that.
        if failed.kind != "lost":
            self._failures[node] = why
        return why

    def _failure_of(self, node: str) -> dict[str, Any] | None:
        """Return further values of a measurement that is missing because the probe failed on a node."""
        return {"probe_failed": node, "reason": self._failures[node]} if node in self._failures else None

    def _latest(self, layer: Layer, target: Target) -> Measurement | None:
        ends = (target.node, target.peer, target.here.address, target.there.address)
        return self._pump.model.addresses.last(layer, *ends)

    def _losing(self, layer: Layer, targets: Iterable[Target]) -> list[Target]:
        """Return the targets that lost some of their packets."""
        return [t for t in targets if (m := self._latest(layer, t)) is not None and m.verdict is Verdict.SLOW]

    def _next_attempt(self, layer: Layer, target: Target) -> int:
        before = self._latest(layer, target)
        return 1 if before is None else before.attempts + 1


def addresses_of(inventories: Mapping[str, Any]) -> dict[str, list[Address]]:
    """Return the addresses of each node, by its inventory.

    An address whose interface is down counts if the same network is up on another node: a cable may be unplugged.
    """
    listed = {node: inventory if isinstance(inventory, dict) else {} for node, inventory in inventories.items()}
    found = {node: _listed(inventory, "data_addresses", up=True) for node, inventory in listed.items()}
    networks = {node: _networks(inventory) for node, inventory in listed.items()}
    alive = {networks[node][one.address] for node in listed for one in found[node] if one.address in networks[node]}
    for node, inventory in listed.items():
        down = _listed(inventory, "down_addresses", up=False)
        found[node] += [one for one in down if networks[node].get(one.address) in alive]
    return found


def _listed(inventory: dict[str, Any], name: str, *, up: bool) -> list[Address]:
    mtus = {str(nic.get("name")): nic.get("mtu") for nic in dicts(inventory.get("nics"))}
    found = []
    for entry in dicts(inventory.get(name)):
        address, nic = entry.get("address"), entry.get("nic")
        try:
            ipaddress.ip_address(address if isinstance(address, str) else "")
        except ValueError:
            continue
        nic = nic if isinstance(nic, str) else ""
        family = 6 if entry.get("family") == 6 else 4
        found.append(Address(str(address), family, whole(entry.get("rail")), nic, whole(mtus.get(nic)), up))
    return found


def _networks(inventory: dict[str, Any]) -> dict[str, str]:
    """Return the network of each address of a node."""
    found = {}
    for nic in dicts(inventory.get("nics")):
        for entry in dicts(nic.get("addresses")):
            try:
                interface = ipaddress.ip_interface(f"{entry.get('address')}/{entry.get('prefix')}")
            except ValueError:
                continue
            found[str(interface.ip)] = str(interface.network)
    return found


def targets_between(
    new: Sequence[str], old: Sequence[str], addresses: Mapping[str, list[Address]]
) -> tuple[list[Target], int]:
    """Return the ordered pairs of addresses of one family in which a node of ``new`` takes part, and how many exist.

    Above `MAX_PAIRS`, each pair of nodes keeps one pair of addresses across rails. If that is not enough, each node is
    paired with its neighbours in the list, and with others at even distances.
    """
    fresh = set(new)
    nodes = [*old, *new]
    pairs = [(i, j) for i in range(len(nodes)) for j in range(len(nodes)) if i != j and {nodes[i], nodes[j]} & fresh]

    def between(i: int, j: int, thin: bool) -> list[Target]:
        found = [
            Target(nodes[i], here, nodes[j], there)
            for here in addresses.get(nodes[i], [])
            for there in addresses.get(nodes[j], [])
            if here.family == there.family
        ]
        return _thinned(found) if thin else found

    counts = [Counter(address.family for address in addresses.get(node, [])) for node in nodes]
    total = sum(counts[i][family] * counts[j][family] for i, j in pairs for family in _HEADERS)
    if total <= MAX_PAIRS:
        return [target for i, j in pairs for target in between(i, j, False)], total
    rails = max((len(found) for found in addresses.values()), default=1)
    share = MAX_PAIRS / (len(pairs) * (rails + 1))
    near = _distances(len(nodes), share)
    return [t for i, j in pairs if (j - i) % len(nodes) in near for t in between(i, j, True)], total


def _thinned(targets: list[Target]) -> list[Target]:
    """Return the targets of two nodes within a rail, and one across rails."""
    same = [t for t in targets if t.here.rail is not None and t.here.rail == t.there.rail]
    cross = [t for t in targets if t not in same]
    # A different choice for each pair of nodes, so that all rails occur.
    return same + [cross[sum(f"{t.node}>{t.peer}".encode()) % len(cross)] for t in cross[:1]]


def _distances(count: int, share: float) -> set[int]:
    """Return the distances in a circle of nodes at which nodes are paired, in both directions."""
    if share >= 1:
        return set(range(1, count))
    half = max(1, int(share * (count - 1) / 2))
    step = max(1.0, (count // 2 - 1) / half)
    near = {1 + round(step * at) for at in range(half)}
    return {distance for one in near for distance in (one, count - one)}
