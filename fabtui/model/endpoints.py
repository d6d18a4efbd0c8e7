"""Nodes' endpoints and the classes of their pairs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from sys import intern


class PairClass(StrEnum):
    """What two endpoints are to each other; values are compared within a class only.

    ``cross-leaf`` is ``same-rail`` for endpoints whose NICs are known to hang on different leaf switches.
    """

    SAME_NODE = "same-node"
    SAME_RAIL = "same-rail"
    CROSS_LEAF = "cross-leaf"
    CROSS_RAIL = "cross-rail"
    NODE_PAIR = "node-pair"
    ONE_NODE = "one-node"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A row and column of the grid: one GPU of a node, or one CPU rank where a node has no GPU.

    Attributes:
        number: Its place among all endpoints, from 0; the rank in the world communicator.
        node: The node's name.
        index: Its index on the node (the GPU's visible index, or the CPU rank).
        kind: ``"gpu"``, ``"cpu"``, or ``"none"`` for the one row that stands for a node that has nothing to test.
        name: What the hardware calls itself, for example ``NVIDIA H200``.
        uuid: The GPU's UUID, or None.
        bus: The GPU's PCI bus id, or None.
        nic: The NIC closest to it, or None when unknown or when it has none of its own.
        rail: The rail of that NIC, or None when unknown.
        address: The data address of that NIC, or the node's only one, or None.
    """

    number: int
    node: str
    index: int
    kind: str = "gpu"
    name: str = ""
    uuid: str | None = None
    bus: str | None = None
    nic: str | None = None
    rail: int | None = None
    address: str | None = None

    def __str__(self) -> str:
        # What is known of N x N pairs is kept by these names: each is kept once.
        return intern(f"{self.node}:-" if self.kind == "none" else f"{self.node}:{self.index}")


#: The classes of pairs within a rail.
WITHIN_RAIL = frozenset({PairClass.SAME_RAIL, PairClass.CROSS_LEAF})


def pair_class(a: Endpoint, b: Endpoint, apart: bool = False) -> PairClass:
    """Return the class of the pair of two endpoints.

    Where rails are unknown the index on the node stands for the rail, as it does on every rail-aligned machine.

    Args:
        a: One endpoint.
        b: The other.
        apart: Whether their NICs are known to hang on different leaf switches.
    """
    if a.node == b.node:
        return PairClass.SAME_NODE
    rail_a = a.index if a.rail is None else a.rail
    rail_b = b.index if b.rail is None else b.rail
    if rail_a != rail_b:
        return PairClass.CROSS_RAIL
    return PairClass.CROSS_LEAF if apart else PairClass.SAME_RAIL
