"""Hardware kind of a node (its GPUs and NICs), within which nodes are compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fabtui.model.facts.node_view import ProbedNode, counted, dicts, text


class Hardware(NamedTuple):
    """GPUs and NICs of a node.

    Attributes:
        gpus: GPUs with their number, as ``8 x H200``; ``no GPU``.
        model: Models without their number.
        nics: NICs with their number.
    """

    gpus: str
    model: str
    nics: str

    def __str__(self) -> str:
        return f"{self.gpus}, {self.nics}" if self.nics else self.gpus


def gpu_models(node: ProbedNode) -> list[str]:
    """Return the model of each GPU, also of GPUs without a driver."""
    found = [(text(gpu.get("name")) or "GPU").removeprefix("NVIDIA ") for gpu in dicts(node.part("gpus"))]
    on_pci = node.part("pci_gpus")
    if not found and isinstance(on_pci, list):
        return ["NVIDIA GPU without a driver"] * len(on_pci)
    return found


def rdma_models(node: ProbedNode) -> list[str]:
    """Return the type of each RDMA device as in ibstat; the kind of its link if the type is unknown."""
    types = {str(ca.get("ca")): text(ca.get("type")) for ca in dicts(node.seen("ibstat", "cas"))}
    found = {}
    for port in dicts(node.part("ib")):
        name = str(port.get("ca"))
        found[name] = text(port.get("type")) or types.get(name) or f"{text(port.get('link_layer')) or 'RDMA'} device"
    return list(found.values())


def hardware(node: ProbedNode) -> Hardware:
    """Return the hardware of a node."""
    models = gpu_models(node)
    nics = rdma_models(node)
    if not nics:
        nics = ["Ethernet NIC" for nic in dicts(node.part("nics")) if nic.get("kind") == "ethernet"]
    kinds = sorted(set(models))
    return Hardware(counted(models) or "no GPU", " and ".join(kinds) or "no GPU", counted(nics) or "")


def kinds_of(nodes: Iterable[ProbedNode]) -> dict[str, Hardware]:
    """Return the hardware kind that each node is compared within.

    Nodes of the same hardware are of one kind. A node with unique hardware but a common GPU model is compared with the
    largest kind of that model: it may have lost a GPU or a NIC.
    """
    own = {node.name: hardware(node) for node in nodes}
    sizes: dict[Hardware, int] = {}
    for one in own.values():
        sizes[one] = sizes.get(one, 0) + 1
    found = {}
    for name, one in own.items():
        alike = [other for other in sizes if other.model == one.model]
        found[name] = one if sizes[one] > 1 else max(alike, key=lambda other: sizes[other])
    return found
