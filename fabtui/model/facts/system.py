"""Facts of software, limits and machines."""

from __future__ import annotations

from typing import Any

from fabtui.model.facts.compare import Compare, Fact
from fabtui.model.facts.node_view import ProbedNode, Value, dicts, field, host_number, host_text, number, text, yes


def _python(node: ProbedNode, name: str) -> Value:
    """Return a field of the Python with PyTorch that the ranks would use."""
    found = next((python for python in dicts(node.part("pythons")) if python.get("torch")), None)
    return text(field(found, name))


def _nccl(node: ProbedNode) -> Value:
    """Return the version of the NCCL that ranks would load: of the first Python that has one, else of the system."""
    for python in dicts(node.part("pythons")):
        if python.get("nccl"):
            return text(python.get("nccl_version")) or _system_version(node, python.get("nccl"))
    libraries = dicts(node.part("nccl"))
    return text(libraries[0].get("version")) if libraries else None


def _system_version(node: ProbedNode, path: Any) -> Value:
    found = (library for library in dicts(node.part("nccl")) if library.get("path") == path)
    return text(field(next(found, None), "version"))


def _environment(node: ProbedNode) -> Value:
    env = node.part("env")
    names = sorted(name for name in env if str(name).startswith("NCCL_")) if isinstance(env, dict) else []
    # In a lab each node has its own host id, so that NCCL treats it as a host.
    return text(" ".join(f"{name}={env[name]}" for name in names if name != "NCCL_HOSTID")) or "none"


def _limit(node: ProbedNode, name: str) -> Value:
    return number(node.seen("host", "limits", name, "soft")) or number(node.part("limits", name, "soft"))


def _files(node: ProbedNode) -> Value:
    found = _limit(node, "nofile")
    return "unlimited" if found == -1 else found


def _huge_pages(node: ProbedNode) -> Value:
    total, size = number(node.seen("host", "memory", "huge_total")), number(node.seen("host", "memory", "huge_size"))
    return None if total is None or size is None else int(total * size)


def _governor(node: ProbedNode) -> Value:
    found = node.seen("host", "processors", "governors")
    return ", ".join(sorted(filter(None, map(text, found)))) or None if isinstance(found, dict) else None


def _acs(node: ProbedNode) -> Value:
    found = text(node.seen("host", "acs", "state"))
    return None if found == "unknown" else found


def _plugins(node: ProbedNode) -> Value:
    found = node.seen("host", "versions", "net_plugins")
    if not isinstance(found, list):
        return None
    return text(", ".join(sorted(str(path).rpartition("/")[2] for path in found))) or "none"


def _offset(node: ProbedNode) -> Value:
    offset = number(node.seen("clock", "offset"))
    # An SSH connection is precise to milliseconds; adding 0.0 turns -0.0 into 0.0.
    return None if offset is None else round(offset, 3) + 0.0


def _uncertainty(node: ProbedNode) -> float:
    return float(number(node.seen("clock", "uncertainty")) or 0.0)


def _addresses(node: ProbedNode) -> Value:
    return text(", ".join(str(entry.get("address")) for entry in dicts(node.part("data_addresses"))))


def _no(node: ProbedNode) -> Value:
    return None if node.seen("host", "identity") is None else "none"


K, A, N, U = Compare.KIND, Compare.ALL, Compare.NONE, Compare.UNLIKE

SYSTEM_FACTS: tuple[Fact, ...] = (
    Fact("nccl", "NCCL", _nccl, A, verdict="bad", next="the same NCCL on all nodes", main=True),
    Fact("torch", "PyTorch", lambda n: _python(n, "torch"), A, next="the same PyTorch on all nodes"),
    Fact("torch_cuda", "CUDA of PyTorch", lambda n: _python(n, "torch_cuda"), A),
    Fact("net_plugins", "NCCL net plugins", _plugins),
    Fact("nccl_env", "NCCL variables", _environment, A, next="ssh {node} env | grep NCCL_"),
    Fact("kernel", "kernel", lambda n: text(n.part("kernel")), next="ssh {node} uname -r", main=True),
    Fact("os", "system", lambda n: text(n.part("os")), main=True),
    Fact(
        "memlock",
        "memlock",
        lambda n: _limit(n, "memlock"),
        unit="B",
        verdict="bad",
        next="ssh {node} ulimit -l",
        main=True,
    ),
    Fact("nofile", "open files", _files, next="ssh {node} ulimit -n"),
    Fact("acs", "PCI ACS", _acs, verdict="bad", next="ssh {node} sudo lspci -vvv | grep ACSCtl"),
    Fact("iommu", "IOMMU", host_text("iommu", "state"), next="ssh {node} cat /proc/cmdline"),
    Fact(
        "shm",
        "/dev/shm",
        host_number("memory", "shm_size"),
        Compare.NEAR,
        "B",
        share=0.1,
        next="ssh {node} df -h /dev/shm",
    ),
    Fact("governor", "CPU governor", _governor, next="ssh {node} cpupower frequency-info"),
    Fact("numa_balancing", "NUMA balancing", lambda n: yes(n.seen("host", "processors", "numa_balancing"))),
    Fact("huge_pages", "huge pages", _huge_pages, unit="B", verdict="note"),
    Fact("transparent", "transparent huge pages", host_text("memory", "transparent"), verdict="note"),
    Fact("cgroup_cpus", "CPUs of the cgroup", host_number("cgroup", "cpus")),
    Fact("cgroup_memory", "memory of the cgroup", host_number("cgroup", "memory"), unit="B"),
    Fact("container", "container", lambda n: text(n.seen("host", "identity", "container")) or _no(n), verdict="note"),
    Fact("cpu", "CPU", host_text("processors", "model"), main=True),
    Fact("cpus", "usable CPUs", lambda n: number(n.part("cpus")), next="ssh {node} lscpu"),
    Fact("numa_nodes", "NUMA nodes", host_number("processors", "numa_nodes"), next="ssh {node} numactl -H"),
    Fact(
        "memory", "memory", lambda n: number(n.part("memory")), Compare.NEAR, "B", share=0.02, next="ssh {node} free -h"
    ),
    Fact("available", "memory available", host_number("memory", "available"), Compare.NEAR, "B", "note", share=0.5),
    Fact("product", "machine", host_text("identity", "product"), verdict="note"),
    Fact("bios", "BIOS", host_text("identity", "bios"), verdict="note"),
    Fact(
        "clock",
        "clock offset",
        _offset,
        Compare.NEAR_ALL,
        "s",
        floor=1.0,
        slack=_uncertainty,
        next="ssh {node} chronyc tracking",
        main=True,
    ),
    Fact("clock_known", "clock known to within", lambda n: number(n.seen("clock", "uncertainty")), N, "s"),
    Fact("uptime", "up for", host_number("uptime"), N, "s"),
    Fact("load", "load", host_number("processors", "load"), N),
    Fact("hostname", "host name", lambda n: text(n.seen("host", "identity", "hostname")) or text(n.part("host")), U),
    Fact("boot_id", "boot id", host_text("identity", "boot_id"), U),
    Fact("machine_id", "machine id", host_text("identity", "machine_id"), U),
    Fact("addresses", "addresses", _addresses, U),
)
