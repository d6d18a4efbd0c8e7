"""Placement of a process against the NUMA nodes of its GPU and of the NIC that it names."""

from __future__ import annotations

from typing import AbstractSet, List, NamedTuple, Optional

from fabtui_node.system import sysfs


class Placement(NamedTuple):
    """Processors and memory that a process may use."""

    cpus: AbstractSet[int]
    memory: AbstractSet[int]  #: NUMA nodes of which it may have memory; empty if unknown.
    hca: str = ""  #: Its NCCL_IB_HCA.


def parse_cpus(text: Optional[str]) -> List[int]:
    """Return the numbers in a list of the kernel, such as ``0-3,8``."""
    numbers: List[int] = []
    for word in (text or "").split(","):
        first, _, last = word.strip().partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            numbers += range(int(first), min(int(last or first), int(first) + 8192) + 1)
    return numbers


def of_process(pid: str, hca: str = "", proc: str = "/proc") -> Placement:
    """Return the placement of a process (``self``: of this one)."""
    lines = (sysfs.text(proc, pid, "status") or "").splitlines()
    lists = {name: value for name, _, value in (line.partition(":") for line in lines)}
    cpus, memory = (set(parse_cpus(lists.get("%s_allowed_list" % name))) for name in ("Cpus", "Mems"))
    return Placement(cpus, memory, hca)


def near_cpus(bus: str, root: str = "/sys") -> List[int]:
    """Return the processors near a device, none if the machine has one NUMA node or does not show them."""
    folder = "bus/pci/devices"
    return (
        [] if sysfs.numa_node(root, folder, bus) is None else parse_cpus(sysfs.text(root, folder, bus, "local_cpulist"))
    )


def problem(placed: Placement, gpu: int, bus: str, root: str = "/sys") -> Optional[str]:
    """Return what is far from a GPU, with the line that mends it; None if nothing is, or it is not known."""
    numa, near = sysfs.numa_node(root, "bus/pci/devices", bus), set(near_cpus(bus, root))
    if numa is None or not near or not placed.cpus:
        return None
    mend = "start it with numactl --cpunodebind=%d --membind=%d, or srun --cpu-bind=ldoms" % (numa, numa)
    if not placed.cpus & near:
        return "its CPUs are not those near GPU %d (NUMA node %d): %s" % (gpu, numa, mend)
    if placed.memory and numa not in placed.memory:
        return "it may have no memory of NUMA node %d, where GPU %d is: %s" % (numa, gpu, mend)
    names = sysfs.names(root, "class/infiniband")[:64]
    cards = {name: sysfs.numa_node(root, "class/infiniband", name, "device") for name in names}
    named = [name for name in cards if _is_named(name, placed.hca)]
    here = [name for name, node in cards.items() if node == numa]
    if named and here and not set(named) & set(here):
        text = "NCCL_IB_HCA names %s, far from GPU %d; near it is %s: export NCCL_IB_HCA=%s"
        return text % (", ".join(named[:4]), gpu, ", ".join(here[:4]), ",".join(here[:4]))
    return None


def _is_named(name: str, hca: str) -> bool:
    """Return True if NCCL_IB_HCA names a device: prefixes, or whole names after ``=``; exclusions name none."""
    if not hca or hca.startswith("^"):
        return False
    words = [word.partition(":")[0] for word in hca.lstrip("=").split(",")]
    return name in words if hca.startswith("=") else any(word and name.startswith(word) for word in words)
