"""The facts that a preflight compares: how each is found in what the probes gave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fabtui.fabric.facts import Compare, Fact
from fabtui.fabric.hardware import gpu_models, rdma_models
from fabtui.fabric.interfaces import candidates, chosen
from fabtui.fabric.looked import Looked, Value, counted, dicts, field, number, spread, text, yes

_GIB = 1 << 30
#: So many values of one of the user's own probes are compared.
MOST_OWN = 40


def _gpus(node: Looked, *path: str) -> list[tuple[Any, Any]]:
    return [(f"GPU {gpu.get('index')}", field(gpu, *path)) for gpu in dicts(node.part("gpus"))]


def _gpu_memory(node: Looked) -> Value:
    return spread((name, f"{v / _GIB:.4g} GiB") if number(v) else (name, None) for name, v in _gpus(node, "memory"))


def _gpu_pcie(node: Looked) -> Value:
    """The width now and the best generation: the generation now goes down while a GPU idles."""
    found = []
    for gpu in dicts(node.part("gpus")):
        width, best = number(field(gpu, "pcie", "width")), number(field(gpu, "pcie", "gen_max"))
        known = [f"gen{best}"] if best else []
        found.append((f"GPU {gpu.get('index')}", " ".join([*known, f"x{width}"]) if width else None))
    return spread(found)


def _gpu_nics(node: Looked) -> Value:
    return spread(_gpus(node, "nic_path"))


def _gpu_users(node: Looked) -> Value:
    gpus = dicts(node.part("gpus"))
    return sum(1 for gpu in gpus if gpu.get("processes")) if gpus else None


def _nvlinks(node: Looked) -> Value:
    gpus = dicts(node.seen("nvlink", "gpus"))
    counts = [
        (f"GPU {gpu.get('index')}", sum(1 for link in dicts(gpu.get("links")) if link.get("state") == "active"))
        for gpu in gpus
        if dicts(gpu.get("links"))
    ]
    return spread(counts) if counts else None


def _nvlink_speed(node: Looked) -> Value:
    speeds = [
        (f"GPU {gpu.get('index')} link {link.get('link')}", link.get("speed"))
        for gpu in dicts(node.seen("nvlink", "gpus"))
        for link in dicts(gpu.get("links"))
        if link.get("state") == "active"
    ]
    return spread(speeds, "GB/s")


def _ports(node: Looked, name: str) -> list[tuple[Any, Any]]:
    several = {str(port.get("ca")) for port in dicts(node.part("ib")) if port.get("port") not in (None, 1)}
    return [
        (f"{port.get('ca')}/{port.get('port')}" if str(port.get("ca")) in several else port.get("ca"), port.get(name))
        for port in dicts(node.part("ib"))
    ]


def _rate(node: Looked) -> Value:
    return spread(_ports(node, "rate"), "Gb/s")


def _data_nics(node: Looked) -> list[dict[str, Any]]:
    names = {entry.get("nic") for entry in dicts(node.part("data_addresses"))}
    return [nic for nic in dicts(node.part("nics")) if nic.get("name") in names]


def _nic_speed(node: Looked) -> Value:
    speeds = [
        (nic.get("name"), f"{v / 1000:g}" if (v := number(nic.get("speed_mbps"))) else None) for nic in _data_nics(node)
    ]
    return spread(speeds, "Gb/s")


def _python(node: Looked, name: str) -> Value:
    """Of the Python with PyTorch that the ranks would use."""
    found = next((python for python in dicts(node.part("pythons")) if python.get("torch")), None)
    return text(field(found, name))


def _nccl(node: Looked) -> Value:
    """The version of the NCCL that the ranks would load: that of the first Python that has one, else the system's."""
    for python in dicts(node.part("pythons")):
        if python.get("nccl"):
            return text(python.get("nccl_version")) or _system_version(node, python.get("nccl"))
    libraries = dicts(node.part("nccl"))
    return text(libraries[0].get("version")) if libraries else None


def _system_version(node: Looked, path: Any) -> Value:
    found = (library for library in dicts(node.part("nccl")) if library.get("path") == path)
    return text(field(next(found, None), "version"))


def _environment(node: Looked) -> Value:
    env = node.part("env")
    names = sorted(name for name in env if str(name).startswith("NCCL_")) if isinstance(env, dict) else []
    # In a lab each node has a host id of its own, so that NCCL takes it for a host.
    return text(" ".join(f"{name}={env[name]}" for name in names if name != "NCCL_HOSTID")) or "none"


def _interfaces(node: Looked) -> Value:
    names = candidates(node.part("nics"), node.seen("host", "network", "indexes") or {})
    env = node.part("env", "NCCL_SOCKET_IFNAME")
    return text(", ".join(chosen(names, text(env)))) or ("none" if names else None)


def _limit(node: Looked, name: str) -> Value:
    return number(node.seen("host", "limits", name, "soft")) or number(node.part("limits", name, "soft"))


def _files(node: Looked) -> Value:
    found = _limit(node, "nofile")
    return "unlimited" if found == -1 else found


def _gpudirect(node: Looked) -> Value:
    known = node.seen("host", "gpudirect") is not None
    if not known or not dicts(node.part("gpus")) or not dicts(node.part("ib")):
        return None
    ways = [text(node.seen("host", "gpudirect", "peermem"))]
    if node.seen("host", "gpudirect", "dma_buf") is True:
        ways.append("DMA-BUF")
    return " and ".join(way for way in ways if way) or "none"


def _huge_pages(node: Looked) -> Value:
    total, size = number(node.seen("host", "memory", "huge_total")), number(node.seen("host", "memory", "huge_size"))
    return None if total is None or size is None else int(total * size)


def _governor(node: Looked) -> Value:
    found = node.seen("host", "processors", "governors")
    return ", ".join(sorted(filter(None, map(text, found)))) or None if isinstance(found, dict) else None


def _acs(node: Looked) -> Value:
    found = text(node.seen("host", "acs", "state"))
    return None if found == "unknown" else found


def _firewall(node: Looked) -> Value:
    found = text(node.seen("firewall", "input"))
    return None if found == "unknown" else found


def _plugins(node: Looked) -> Value:
    found = node.seen("host", "versions", "net_plugins")
    if not isinstance(found, list):
        return None
    return text(", ".join(sorted(str(path).rpartition("/")[2] for path in found))) or "none"


def _offset(node: Looked) -> Value:
    offset = number(node.seen("clock", "offset"))
    # An SSH connection tells no more than milliseconds; what is added makes 0 of -0.
    return None if offset is None else round(offset, 3) + 0.0


def _uncertainty(node: Looked) -> float:
    return float(number(node.seen("clock", "uncertainty")) or 0.0)


def _addresses(node: Looked) -> Value:
    return text(", ".join(str(entry.get("address")) for entry in dicts(node.part("data_addresses"))))


def _number_of_addresses(node: Looked) -> Value:
    return len(dicts(node.part("data_addresses"))) if node.inventory else None


def _host(*path: str) -> Any:
    return lambda node: text(node.seen("host", *path))


def _host_number(*path: str) -> Any:
    return lambda node: number(node.seen("host", *path))


K, A, N, U = Compare.KIND, Compare.ALL, Compare.NONE, Compare.UNLIKE

FACTS: tuple[Fact, ...] = (
    # GPUs
    Fact("gpus", "GPUs", lambda n: counted(gpu_models(n)), verdict="bad", next="ssh {node} nvidia-smi -L", main=True),
    Fact("gpu_memory", "GPU memory", _gpu_memory, next="ssh {node} nvidia-smi -q -d MEMORY"),
    Fact(
        "gpu_pcie", "PCIe of GPUs", _gpu_pcie, verdict="bad", next="ssh {node} nvidia-smi -q | grep -A9 'GPU Link Info'"
    ),
    Fact("gpu_mig", "MIG", lambda n: spread((g, yes(v)) for g, v in _gpus(n, "mig")), next="ssh {node} nvidia-smi -L"),
    Fact("gpu_nics", "GPU to nearest NIC", _gpu_nics, next="ssh {node} nvidia-smi topo -m"),
    Fact("gpu_users", "GPUs in use by others", _gpu_users, N),
    Fact("nvlinks", "active NVLinks", _nvlinks, verdict="bad", next="ssh {node} nvidia-smi nvlink -s", main=True),
    Fact("nvlink_speed", "NVLink speed", _nvlink_speed, verdict="bad", next="ssh {node} nvidia-smi nvlink -s"),
    Fact("driver", "driver", lambda n: text(n.part("driver")), next="ssh {node} nvidia-smi --version", main=True),
    Fact("cuda", "CUDA of the driver", lambda n: text(n.part("cuda")), verdict="note"),
    # RDMA and network
    Fact("rdma", "RDMA devices", lambda n: counted(rdma_models(n)), verdict="bad", next="ssh {node} ibstat", main=True),
    Fact(
        "rdma_state", "RDMA port state", lambda n: spread(_ports(n, "state")), verdict="bad", next="ssh {node} ibstat"
    ),
    Fact("rdma_rate", "RDMA rate", _rate, verdict="bad", next="ssh {node} ibstat", main=True),
    Fact("rdma_link", "RDMA link layer", lambda n: spread(_ports(n, "link_layer")), verdict="bad"),
    Fact("rdma_firmware", "RDMA firmware", lambda n: spread(_ports(n, "firmware")), next="ssh {node} ibstat"),
    Fact("addresses_number", "data addresses", _number_of_addresses, next="ssh {node} ip -br addr"),
    Fact(
        "mtu",
        "MTU",
        lambda n: spread((nic.get("name"), number(nic.get("mtu"))) for nic in _data_nics(n)),
        verdict="bad",
        next="ssh {node} ip -br link",
        main=True,
    ),
    Fact("nic_speed", "speed of data NICs", _nic_speed, verdict="bad", next="ssh {node} ethtool <interface>"),
    Fact("nccl_interfaces", "interfaces NCCL takes", _interfaces, next="set NCCL_SOCKET_IFNAME to one that all have"),
    Fact("firewall", "firewall for input", _firewall, next="ssh {node} nft list ruleset"),
    Fact(
        "gpudirect",
        "GPUDirect RDMA by",
        _gpudirect,
        verdict="bad",
        next="ssh {node} modprobe nvidia-peermem",
        main=True,
    ),
    # software
    Fact("nccl", "NCCL", _nccl, A, verdict="bad", next="the same NCCL on all nodes", main=True),
    Fact("torch", "PyTorch", lambda n: _python(n, "torch"), A, next="the same PyTorch on all nodes"),
    Fact("torch_cuda", "CUDA of PyTorch", lambda n: _python(n, "torch_cuda"), A),
    Fact("net_plugins", "NCCL net plugins", _plugins),
    Fact("nccl_env", "NCCL variables", _environment, A, next="ssh {node} env | grep NCCL_"),
    Fact("ofed", "OFED", _host("versions", "ofed"), next="ssh {node} ofed_info -s"),
    Fact("rdma_core", "rdma-core", _host("versions", "rdma_core"), verdict="note"),
    Fact("kernel", "kernel", lambda n: text(n.part("kernel")), next="ssh {node} uname -r", main=True),
    Fact("os", "system", lambda n: text(n.part("os")), main=True),
    # limits and settings
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
    Fact("iommu", "IOMMU", _host("iommu", "state"), next="ssh {node} cat /proc/cmdline"),
    Fact(
        "shm",
        "/dev/shm",
        _host_number("memory", "shm_size"),
        Compare.NEAR,
        "B",
        share=0.1,
        next="ssh {node} df -h /dev/shm",
    ),
    Fact("governor", "CPU governor", _governor, next="ssh {node} cpupower frequency-info"),
    Fact("numa_balancing", "NUMA balancing", lambda n: yes(n.seen("host", "processors", "numa_balancing"))),
    Fact("huge_pages", "huge pages", _huge_pages, unit="B", verdict="note"),
    Fact("transparent", "transparent huge pages", _host("memory", "transparent"), verdict="note"),
    Fact("cgroup_cpus", "CPUs of the cgroup", _host_number("cgroup", "cpus")),
    Fact("cgroup_memory", "memory of the cgroup", _host_number("cgroup", "memory"), unit="B"),
    Fact("container", "container", lambda n: text(n.seen("host", "identity", "container")) or _no(n), verdict="note"),
    # the machine
    Fact("cpu", "CPU", _host("processors", "model"), main=True),
    Fact("cpus", "usable CPUs", lambda n: number(n.part("cpus")), next="ssh {node} lscpu"),
    Fact("numa_nodes", "NUMA nodes", _host_number("processors", "numa_nodes"), next="ssh {node} numactl -H"),
    Fact(
        "memory", "memory", lambda n: number(n.part("memory")), Compare.NEAR, "B", share=0.02, next="ssh {node} free -h"
    ),
    Fact("available", "memory available", _host_number("memory", "available"), Compare.NEAR, "B", "note", share=0.5),
    Fact("product", "machine", _host("identity", "product"), verdict="note"),
    Fact("bios", "BIOS", _host("identity", "bios"), verdict="note"),
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
    Fact("uptime", "up for", _host_number("uptime"), N, "s"),
    Fact("load", "load", _host_number("processors", "load"), N),
    # what no two nodes have
    Fact("hostname", "host name", lambda n: text(n.seen("host", "identity", "hostname")) or text(n.part("host")), U),
    Fact("boot_id", "boot id", _host("identity", "boot_id"), U),
    Fact("machine_id", "machine id", _host("identity", "machine_id"), U),
    Fact("addresses", "addresses", _addresses, U),
)


def _no(node: Looked) -> Value:
    return None if node.seen("host", "identity") is None else "none"


def facts_for(nodes: Sequence[Looked]) -> list[Fact]:
    """Return the facts to compare: those that are always asked for, and those of users' own probes."""
    return [*FACTS, *_own(nodes)]


def _own(nodes: Iterable[Looked]) -> list[Fact]:
    """Return a fact for each single value of the user's own probes."""
    found: dict[str, Fact] = {}
    for node in nodes:
        for probe, look in node.looks.items():
            value = look.get("value")
            if look.get("own") is not True or not isinstance(value, dict):
                continue
            for name, one in list(value.items())[:MOST_OWN]:
                if isinstance(one, (str, int, float)) and f"{probe}.{name}" not in found:
                    found[f"{probe}.{name}"] = _own_fact(probe, name, one, look)
    return list(found.values())


def _own_fact(probe: str, name: str, value: Any, look: Mapping[str, Any]) -> Fact:
    """Texts and truths are compared unless the probe says otherwise; numbers only when it says how."""
    default = "none" if number(value) is not None else "kind"
    word = text(field(look.get("compare"), name)) or default
    compare = Compare(word) if word in _OWN_COMPARED else Compare.NONE
    unit, title = text(field(look.get("units"), name)) or "", text(f"{probe}: {name}") or probe
    return Fact(f"{probe}.{name}", title, _taken(probe, name), compare, unit, share=0.2, main=True)


_OWN_COMPARED = ("kind", "all", "near", "near-all", "none")


def _taken(probe: str, name: str) -> Callable[[Looked], Value]:
    def find(node: Looked) -> Value:
        value = node.seen(probe, "value", name) if node.seen(probe, "own") is True else None
        return text(value) if isinstance(value, str) else yes(value) if isinstance(value, bool) else number(value)

    return find
