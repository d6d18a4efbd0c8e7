"""Endpoints of nodes, and the classes of their pairs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from sys import intern
from typing import Annotated, NamedTuple, TypeGuard

from msgspec import Meta

#: Name of the group of the first ranks of a collective, and their number.
FIRST_RANKS = re.compile(r"first([0-9]{1,7})")
#: Indexes of a node's endpoints, and rails, are below this; arrays are made from them.
MAX_INDEX = 1 << 16


class PairClass(StrEnum):
    """Relation of two endpoints; values are compared within a class only.

    ``cross-leaf`` is ``same-rail`` for endpoints whose NICs are known to be on different leaf switches. ``same-domain``
    is for GPUs of different nodes that one NVLink domain connects: no NIC carries their data.
    """

    SAME_NODE = "same-node"
    SAME_DOMAIN = "same-domain"
    SAME_RAIL = "same-rail"
    CROSS_LEAF = "cross-leaf"
    CROSS_RAIL = "cross-rail"
    NODE_PAIR = "node-pair"
    ONE_NODE = "one-node"
    ALL = "all"


Index = Annotated[int, Meta(ge=0, lt=MAX_INDEX)]


def is_index(value: object) -> TypeGuard[int]:
    """Return True for an untrusted value that can be the index of an endpoint on its node, or a rail."""
    return type(value) is int and 0 <= value < MAX_INDEX


class ClassKey(NamedTuple):
    """Class that values of a pair are compared within."""

    kind: PairClass  #: Relation of the two ends.
    apart: bool = False  #: Whether they are on different leaf switches, or on different NUMA halves of a node.
    #: Numbers of the hardware of both ends (GPU model and NIC rate), the lower first.
    hardware: tuple[int, int] = (0, 0)
    #: Whether two nodes, of which the results are, are in one NVLink domain; pairs of GPUs have a relation for that.
    together: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A row and column of the grid: one GPU of a node, or one CPU rank where a node has no GPU."""

    number: int  #: Position among all endpoints, from 0; the rank in the world communicator.
    node: str  #: Name of the node.
    index: Index  #: Index on the node (visible index of the GPU, or the CPU rank).
    kind: str = "gpu"  #: ``"gpu"``, ``"cpu"``, or ``"none"`` for the row of a node that has nothing to test.
    name: str = ""  #: Product name of the hardware, for example ``NVIDIA H200``.
    uuid: str | None = None  #: UUID of the GPU, or None.
    bus: str | None = None  #: PCI bus id of the GPU, or None.
    nic: str | None = None  #: Closest NIC, or None if it is unknown or there is none.
    rail: Index | None = None  #: Rail of that NIC, or None if unknown.
    address: str | None = None  #: Data address of that NIC, or the only one of the node, or None.

    def __str__(self) -> str:
        # N x N results are keyed by these names: each is stored once.
        return intern(f"{self.node}:-" if self.kind == "none" else f"{self.node}:{self.index}")

    @property
    def port_name(self) -> str:
        return self.nic or (f"NIC of {self}" if self.rail is None else f"rail {self.rail}")

    @property
    def by_sockets(self) -> bool:
        """True for a CPU rank with a rail: its sockets leave through the interface that leads to the other address."""
        return self.kind == "cpu" and self.rail is not None and self.address is not None


def address_order(address: str) -> tuple[int, bytes]:
    """Return a sort key of addresses: of two CPU ranks, the one with the lower address listens (Gloo)."""
    ip = ipaddress.ip_address(address)
    return ip.version, ip.packed


#: Relations of two endpoints; tables of pairs have their places.
PAIR_CLASSES = (
    PairClass.SAME_NODE,
    PairClass.SAME_RAIL,
    PairClass.CROSS_LEAF,
    PairClass.CROSS_RAIL,
    PairClass.SAME_DOMAIN,
)
#: The classes of pairs within a rail.
WITHIN_RAIL = frozenset({PairClass.SAME_RAIL, PairClass.CROSS_LEAF})


def node_of(end: str) -> str:
    """Return the node of an endpoint by its name (``n060`` of ``n060:3``)."""
    return end.rpartition(":")[0]


def pair_class(a: Endpoint, b: Endpoint, apart: bool = False, together: bool = False) -> PairClass:
    """Return the class of the pair of two endpoints.

    Where rails are unknown the index on the node stands for the rail, as it does on every rail-aligned machine. Sockets
    of CPU ranks do not cross rails, see `EndpointTable.carriers`.

    Args:
        a: One endpoint.
        b: The other.
        apart: Whether their NICs are known to be on different leaf switches.
        together: Whether they are known to be in one NVLink domain.
    """
    if a.node == b.node:
        return PairClass.SAME_NODE
    if together:
        return PairClass.SAME_DOMAIN
    rail_a = a.index if a.rail is None else a.rail
    rail_b = b.index if b.rail is None else b.rail
    if rail_a != rail_b and not (a.by_sockets and b.by_sockets):
        return PairClass.CROSS_RAIL
    return PairClass.CROSS_LEAF if apart else PairClass.SAME_RAIL


class EndpointTable:
    """All endpoints by number and by name, and where they are."""

    def __init__(self) -> None:
        self.endpoints: list[Endpoint] = []  #: Rows and columns of the grid, by number.
        self.names: list[str] = []  #: Their names, by number.
        #: Leaf switch of each endpoint that is known or inferred to be on one, by number.
        self.leaves: dict[int, str] = {}
        #: NUMA half of each endpoint, by number, where pairs between halves are slower by design.
        self.halves: dict[int, int] = {}
        #: NVLink domain of each GPU that reports one, by number.
        self.domains: dict[int, str] = {}
        self.hardware: list[int] = []  #: Number of the hardware of each endpoint, by number.
        self._hardware_numbers: dict[tuple[str, float], int] = {}
        self._numbers: dict[str, int] = {}
        self._by_node: dict[str, list[int]] = {}

    def add(self, endpoint: Endpoint) -> str | None:
        """Add the next endpoint; return the name of the row without endpoint that it replaces, or None.

        Raises:
            ValueError: Its number is not the next one.
        """
        if endpoint.number != len(self.endpoints):
            raise ValueError(f"endpoint {endpoint} has number {endpoint.number}, not {len(self.endpoints)}")
        self.endpoints.append(endpoint)
        self.names.append(str(endpoint))
        self._numbers[self.names[-1]] = endpoint.number
        mine = self._by_node.setdefault(endpoint.node, [])
        # The row of a node that could not be reached keeps its number, but is no longer a row of the node.
        replaced = self.names[mine.pop()] if mine and self.endpoints[mine[0]].kind == "none" else None
        mine.append(endpoint.number)
        self.hardware.append(self._hardware_number(endpoint, 0.0))
        return replaced

    def _hardware_number(self, endpoint: Endpoint, rate: float) -> int:
        return self._hardware_numbers.setdefault((endpoint.name, rate), len(self._hardware_numbers))

    def set_rates(self, rates: dict[str, float]) -> bool:
        """Set the fastest data port (Gb/s) of each node; return True if that changes the classes.

        A node with a rate of its own is compared with the others of its GPU model: it may have lost speed.
        """
        nodes: dict[tuple[str, float], set[str]] = {}
        for end in self.endpoints:
            nodes.setdefault((end.name, rates.get(end.node, 0.0)), set()).add(end.node)
        hardware = []
        for end in self.endpoints:
            alike = {rate: len(names) for (model, rate), names in nodes.items() if model == end.name}
            rate = rates.get(end.node, 0.0)
            common = max(alike, key=lambda one: (alike[one], one))
            hardware.append(self._hardware_number(end, rate if alike[rate] > 1 else common))
        changed, self.hardware = hardware != self.hardware, hardware
        return changed

    def number(self, name: str) -> int | None:
        """Return the number of the endpoint of a name (``n060:3``), or None."""
        return self._numbers.get(name)

    def of_node(self, node: str) -> list[Endpoint]:
        return [self.endpoints[number] for number in self._by_node.get(node, ())]

    def carriers(self, a: Endpoint, b: Endpoint) -> tuple[Endpoint, Endpoint]:
        """Return the endpoints over whose NICs the data of a pair goes: of CPU ranks, those on the listener's rail."""
        if a.node == b.node or a.rail == b.rail or not (a.by_sockets and b.by_sockets):
            return a, b
        rail = min(a, b, key=lambda end: address_order(end.address or "")).rail
        first, second = (next((one for one in self.of_node(end.node) if one.rail == rail), end) for end in (a, b))
        return first, second

    def class_between(self, src: str, dst: str) -> PairClass:
        """Return the class of a pair of endpoints, of nodes, or of everything (``all``)."""
        return self.key_between(src, dst).kind

    def key_between(self, src: str, dst: str) -> ClassKey:
        """Return the class that values of a pair are compared within."""
        a, b = self._numbers.get(src), self._numbers.get(dst)
        if a is None or b is None:
            return self._key_of_group(src, dst)
        together = bool(self.domains) and self.together(a, b)
        kind = pair_class(self.endpoints[a], self.endpoints[b], self._apart(self.leaves, a, b), together)
        apart = not together and self._apart(self.halves if kind is PairClass.SAME_NODE else self.leaves, a, b)
        one, other = self.hardware[a], self.hardware[b]
        return ClassKey(kind, apart, (one, other) if one <= other else (other, one))

    def together(self, a: int, b: int) -> bool:
        """Return True if two endpoints, by number, are on different nodes of one NVLink domain."""
        domain = self.domains.get(a)
        other_node = self.endpoints[a].node != self.endpoints[b].node
        return domain is not None and domain == self.domains.get(b) and other_node

    def relation(self, a: int, b: int) -> PairClass:
        """Return the class of a pair by the numbers of its ends, without regard to leaf switches."""
        return pair_class(self.endpoints[a], self.endpoints[b], together=self.together(a, b))

    def _key_of_group(self, src: str, dst: str) -> ClassKey:
        """Return the class of the ranks of a node, of two nodes, of a rail, of the first ranks or of all."""
        if src == "all":
            return ClassKey(PairClass.ALL)
        mine, theirs = self._by_node.get(src, []), self._by_node.get(dst, [])
        # The slowest hardware limits a group.
        if not mine and (count := FIRST_RANKS.fullmatch(src)) is not None:
            # Bandwidth depends on the number of ranks, so each number is a class of its own.
            return ClassKey(PairClass.ALL, False, (int(count[1]), int(count[1])))
        kinds = [self.hardware[number] for number in (*mine, *theirs)]
        hardware = (min(kinds), max(kinds)) if kinds else (0, 0)
        if src != dst:
            # There are many groups, and often no leaf switch is known.
            pairs = zip(mine, theirs, strict=False) if self.leaves else ()
            apart = any(self._apart(self.leaves, *pair) for pair in pairs)
            domains = {self.domains.get(number) for number in (*mine, *theirs)} if self.domains else set()
            together = len(domains) == 1 and None not in domains
            return ClassKey(PairClass.NODE_PAIR, apart and not together, hardware, together)
        # The group of a rail crosses nodes, unlike that of a node.
        return ClassKey(PairClass.ONE_NODE, not mine, hardware)

    @staticmethod
    def _apart(places: Mapping[int, object], a: int, b: int) -> bool:
        here, there = places.get(a), places.get(b)
        return here is not None and there is not None and here != there

    def cells_of(self, src: str, dst: str) -> Iterator[tuple[int, int]]:
        """Yield the cells that show results of a pair of endpoints, or of nodes."""
        a, b = self._numbers.get(src), self._numbers.get(dst)
        if a is not None and b is not None:
            yield a, b
            return
        for number in self._by_node.get(src, ()):
            for other in self._by_node.get(dst, ()):
                # Results of two nodes are shown in both directions.
                yield number, other
                yield other, number
