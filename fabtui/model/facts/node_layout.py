"""Devices within a node, by NUMA node and PCIe switch, from the inventory and the topology matrix.

Probe results come from nodes: no shape is assumed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from fabtui.model.facts.node_view import connections, dicts, field, number, text
from fabtui.model.records import NodeRecord

#: Connections through PCIe switches alone.
SWITCHED = ("PIX", "PXB")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU (by its index) or a NIC (None)."""

    name: str  #: Name of the NIC, or ``GPU 3``.
    gpu: int | None  #: Index of the GPU.
    numa: int | None  #: NUMA node, or None if it is unknown.
    about: str = ""  #: Details.


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Devices of a node."""

    groups: list[list[Device]]  #: Devices that PCIe switches alone connect; a device without such a neighbour is alone.
    nvlink: str = ""  #: How NVLinks connect the GPUs, "" if that is unknown.
    switched: bool | None = None  #: Whether the NVLinks lead to NVSwitches; None if that is unknown.


def node_layout(record: NodeRecord) -> NodeLayout:
    """Return the devices of a node as far as they are known."""
    inventory = record.inventory or {}
    matrix = record.probe_results.get("topology", {}).get("matrix")
    affinity, cells = field(matrix, "affinity"), _cells(matrix)
    # Names in the matrix, and the devices of the inventory that they are.
    devices: dict[str, Device] = {}
    for gpu in dicts(inventory.get("gpus")):
        index = number(gpu.get("index"))
        if isinstance(index, int):
            place = f"GPU{gpu.get('nvml_index', index)}"
            numa = number(gpu.get("numa"))
            numa = number(_int(field(affinity, place, "numa"))) if numa is None else numa
            name = text(gpu.get("name")) or ""
            devices[place] = Device(f"GPU {index}", index, _whole(numa), name.removeprefix("NVIDIA "))
    for name, found in _nics(inventory).items():
        devices[name] = found
    near = {pair for pair, word in cells.items() if word in SWITCHED}
    for gpu in dicts(inventory.get("gpus")):
        if gpu.get("nic_path") in SWITCHED:
            near.add((f"GPU{gpu.get('nvml_index', gpu.get('index'))}", str(gpu.get("nic"))))
    links, switched = _nvlink(record, cells, [name for name, one in devices.items() if one.gpu is not None])
    return NodeLayout(_grouped(devices, near), links, switched)


def _int(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 4 else value


def _whole(value: float | None) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _nics(inventory: dict[str, Any]) -> dict[str, Device]:
    found: dict[str, Device] = {}
    for port in dicts(inventory.get("ib")):
        if (name := text(port.get("ca"))) is not None:
            rate = number(port.get("rate"))
            about = " ".join([text(port.get("state")) or "state unknown", *([f"{rate:g} Gb/s"] if rate else [])])
            found.setdefault(name, Device(name, None, _whole(number(port.get("numa"))), about))
    nics = dicts(inventory.get("nics"))
    numa = {nic.get("rdma"): _whole(number(nic.get("numa"))) for nic in nics}
    found = {
        name: Device(name, None, numa.get(name) if one.numa is None else one.numa, one.about)
        for name, one in found.items()
    }
    for nic in nics if not found else ():
        name = text(nic.get("name"))
        if name is not None and nic.get("kind") not in ("loopback", "virtual"):
            found[name] = Device(name, None, _whole(number(nic.get("numa"))), text(nic.get("state")) or "state unknown")
    return found


def _cells(matrix: Any) -> dict[tuple[str, str], str]:
    nics = field(matrix, "nics")
    names = {name: ca for name, ca in nics.items() if isinstance(ca, str)} if isinstance(nics, dict) else {}
    return {
        (names.get(row, row), names.get(column, column)): word for (row, column), word in connections(matrix).items()
    }


def _grouped(devices: dict[str, Device], near: set[tuple[str, str]]) -> list[list[Device]]:
    group = {name: name for name in devices}
    for one, other in near:
        if one in group and other in group and group[one] != group[other]:
            before, after = group[other], group[one]
            group = {name: after if root == before else root for name, root in group.items()}
    found: dict[str, list[Device]] = {}
    for name, root in group.items():
        found.setdefault(root, []).append(devices[name])
    return list(found.values())


def _nvlink(record: NodeRecord, cells: dict[tuple[str, str], str], gpus: list[str]) -> tuple[str, bool | None]:
    listed = dicts(field(record.probe_results.get("nvlink"), "gpus"))
    per_gpu = [dicts(gpu.get("links")) for gpu in listed]
    most = max(map(len, per_gpu), default=0)
    words = [cells.get((one, other)) for one in gpus for other in gpus if one != other]
    bonds = [int(word[2:]) for word in words if word is not None and word.startswith("NV") and word[2:].isdecimal()]
    if bonds and len(bonds) == len(words):
        sums = Counter(bonds)
        about = f"NV{bonds[0]} between all GPUs" if len(sums) == 1 else "NVLink between all GPUs"
        # More links than a GPU has cannot lead to the other GPUs directly.
        peers = (len(gpus) - 1) * min(bonds)
        return about, (peers > most if most else None)
    if most:
        active = min(sum(link.get("state") == "active" for link in links) for links in per_gpu)
        return f"at least {active} of {most} links active per GPU", None
    return ("NVLink between some GPUs", None) if bonds else ("", None)
