"""Facts of software, limits and machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabtui.model.facts.compare import Compare, Fact
from fabtui.model.facts.node_view import (
    ProbedNode,
    Value,
    dicts,
    field,
    host_number,
    host_text,
    known_text,
    number,
    text,
    yes,
)


def _python(name: str) -> Callable[[ProbedNode], Value]:
    """Return a reader of a field of the Python with PyTorch that the ranks would use."""
    return lambda node: text(field(next((p for p in dicts(node.part("pythons")) if p.get("torch")), None), name))


def _nccl(node: ProbedNode) -> Value:
    """Return the version of the NCCL that ranks would load: of the first Python that has one, else of the system."""
    libraries = dicts(node.part("nccl"))
    for python in dicts(node.part("pythons")):
        if python.get("nccl"):
            same = [library for library in libraries if library.get("path") == python.get("nccl")]
            return text(python.get("nccl_version")) or _first_version(same)
    return _first_version(libraries)


def _first_version(libraries: list[dict[str, Any]]) -> Value:
    return text(libraries[0].get("version")) if libraries else None


def _environment(*prefixes: str) -> Callable[[ProbedNode], Value]:
    """Return a reader of the variables with some prefixes."""

    def find(node: ProbedNode) -> Value:
        env = node.part("env")
        names = sorted(name for name in env if str(name).startswith(prefixes)) if isinstance(env, dict) else []
        # In a lab each node has its own host id, so that NCCL treats it as a host.
        return text(" ".join(f"{name}={env[name]}" for name in names if name != "NCCL_HOSTID")) or "none"

    return find


def _limit(name: str, unlimited: Value = -1) -> Callable[[ProbedNode], Value]:
    def find(node: ProbedNode) -> Value:
        found = number(node.seen("host", "limits", name, "soft")) or number(node.part("limits", name, "soft"))
        return unlimited if found == -1 else found

    return find


def _huge_pages(node: ProbedNode) -> Value:
    total, size = number(node.seen("host", "memory", "huge_total")), number(node.seen("host", "memory", "huge_size"))
    return None if total is None or size is None else int(total * size)


def _governor(node: ProbedNode) -> Value:
    found = node.seen("host", "processors", "governors")
    return ", ".join(sorted(filter(None, map(text, found)))) or None if isinstance(found, dict) else None


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


def _container(node: ProbedNode) -> Value:
    identity = node.seen("host", "identity")
    return text(field(identity, "container")) or (None if identity is None else "none")


A, N, U = Compare.ALL, Compare.NONE, Compare.UNLIKE

# One argument per line, as the formatter has it, would hide the table.
# fmt: off
SYSTEM_FACTS: tuple[Fact, ...] = (
    Fact("nccl", "NCCL", _nccl, A, verdict="bad", next="the same NCCL on all nodes", main=True),
    Fact("torch", "PyTorch", _python("torch"), A, next="the same PyTorch on all nodes"),
    Fact("torch_cuda", "CUDA of PyTorch", _python("torch_cuda"), A),
    Fact("net_plugins", "NCCL net plugins", _plugins),
    Fact("nccl_env", "NCCL variables", _environment("NCCL_"), A, next="ssh {node} env | grep NCCL_"),
    Fact("other_env", "UCX and PyTorch environment", _environment("UCX_", "TORCH_NCCL_"),
        next="ssh {node} env | grep -E 'UCX_|TORCH_NCCL_'"),
    # Which GPUs a process may use is up to its job.
    Fact("visible_gpus", "CUDA_VISIBLE_DEVICES", _environment("CUDA_VISIBLE_"), N),
    Fact("slurm", "Slurm state", lambda n: text(n.seen("slurm", "state")), N, next="scontrol show node {node}"),
    Fact("slurm_reason", "reason in Slurm", lambda n: text(n.seen("slurm", "reason")), N),
    Fact("slurm_leaf", "switch in Slurm's topology", lambda n: text(n.seen("slurm", "leaf")), N),
    Fact("kernel", "kernel", lambda n: text(n.part("kernel")), next="ssh {node} uname -r", main=True),
    Fact("os", "system", lambda n: text(n.part("os")), main=True),
    Fact("memlock", "memlock", _limit("memlock"), unit="B", verdict="bad", next="ssh {node} ulimit -l", main=True),
    Fact("nofile", "open files", _limit("nofile", "unlimited"), next="ssh {node} ulimit -n"),
    Fact("acs", "PCI ACS", known_text("host", "acs", "state"), verdict="bad",
        next="ssh {node} sudo lspci -vvv | grep ACSCtl"),
    Fact("iommu", "IOMMU", host_text("iommu", "state"), next="ssh {node} cat /proc/cmdline"),
    Fact("shm", "/dev/shm", host_number("memory", "shm_size"), Compare.NEAR, "B", share=0.1,
        next="ssh {node} df -h /dev/shm"),
    Fact("governor", "CPU governor", _governor, next="ssh {node} cpupower frequency-info"),
    Fact("numa_balancing", "NUMA balancing", lambda n: yes(n.seen("host", "processors", "numa_balancing"))),
    Fact("huge_pages", "huge pages", _huge_pages, unit="B", verdict="note"),
    Fact("transparent", "transparent huge pages", host_text("memory", "transparent"), verdict="note"),
    Fact("cgroup_cpus", "CPUs of the cgroup", host_number("cgroup", "cpus")),
    Fact("cgroup_memory", "memory of the cgroup", host_number("cgroup", "memory"), unit="B"),
    Fact("container", "container", _container, verdict="note"),
    Fact("cpu", "CPU", host_text("processors", "model"), main=True),
    Fact("cpus", "usable CPUs", lambda n: number(n.part("cpus")), next="ssh {node} lscpu"),
    Fact("numa_nodes", "NUMA nodes", host_number("processors", "numa_nodes"), next="ssh {node} numactl -H"),
    Fact("memory", "memory", lambda n: number(n.part("memory")), Compare.NEAR, "B", share=0.02,
        next="ssh {node} free -h"),
    Fact("available", "memory available", host_number("memory", "available"), Compare.NEAR, "B", "note", share=0.5),
    Fact("product", "machine", host_text("identity", "product"), verdict="note"),
    Fact("bios", "BIOS", host_text("identity", "bios"), verdict="note"),
    Fact("clock", "clock offset", _offset, Compare.NEAR_ALL, "s", floor=1.0, slack=_uncertainty,
        next="ssh {node} chronyc tracking", main=True),
    Fact("clock_known", "clock known to within", lambda n: number(n.seen("clock", "uncertainty")), N, "s"),
    Fact("uptime", "up for", host_number("uptime"), N, "s"),
    Fact("load", "load", host_number("processors", "load"), N),
    Fact("hostname", "host name", lambda n: text(n.seen("host", "identity", "hostname")) or text(n.part("host")), U),
    Fact("boot_id", "boot id", host_text("identity", "boot_id"), U),
    Fact("machine_id", "machine id", host_text("identity", "machine_id"), U),
    Fact("addresses", "addresses", _addresses, U),
)
# fmt: on
