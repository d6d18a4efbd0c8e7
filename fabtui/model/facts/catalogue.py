"""Facts compared by the preflight: built-in ones, declared ones, and ones that user probes have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fabtui.model.facts.compare import Compare, Fact
from fabtui.model.facts.network import NETWORK_FACTS
from fabtui.model.facts.node_view import (
    ProbedNode,
    Value,
    connections,
    counted,
    dicts,
    field,
    gpu_models,
    host_number,
    host_text,
    known_text,
    number,
    single,
    spread,
    text,
    yes,
)
from fabtui_node import registry

A, N, U = Compare.ALL, Compare.NONE, Compare.UNLIKE
_GIB = 1 << 30
#: Reasons for slower clocks that do not indicate a fault.
_USUAL_REASONS = {"idle", "applications_clocks_setting", "sync_boost", "display_clock_setting"}
_QUERY = "ssh {node} nvidia-smi -q"
_FABRIC = _QUERY + " | grep -A4 Fabric"
_IMEX = "ssh {node} nvidia-imex-ctl -N -H"
_LINK = _QUERY + " | grep -A9 'GPU Link Info'"
#: Maximum number of values compared per user probe.
MOST_OWN = 40
_OWN_COMPARED = ("kind", "all", "near", "near-all", "none")


def _python(name: str) -> Callable[[ProbedNode], Value]:
    return lambda node: text(field(next((p for p in dicts(node.part("pythons")) if p.get("torch")), None), name))


def _torch(node: ProbedNode) -> Value:
    """Return the version of PyTorch that the ranks would use; ``none`` if all interpreters answered, without it."""
    pythons = node.part("pythons")
    without = isinstance(pythons, list) and not any(python.get("error") for python in dicts(pythons))
    return _python("torch")(node) or ("none" if without else None)


def _first_python(node: ProbedNode) -> Value:
    path = text(node.part("tools", "python3")) or ""
    pythons = {str(python.get("path")): text(python.get("version")) for python in dicts(node.part("pythons"))}
    # One that is found by two names, such as python3.11, is inspected once.
    beside = (version for other, version in pythons.items() if other.rpartition("/")[0] == path.rpartition("/")[0])
    return pythons.get(path) or next(beside, None) if path else None


def _nccl(node: ProbedNode) -> Value:
    """Return the version of the NCCL that ranks would load: of the first Python that has one, else of the system."""
    libraries = dicts(node.part("nccl"))
    python = next((python for python in dicts(node.part("pythons")) if python.get("nccl")), None)
    if python is not None:
        libraries = [library for library in libraries if library.get("path") == python.get("nccl")]
    return text(field(python, "nccl_version")) or next((text(library.get("version")) for library in libraries), None)


def _environment(*prefixes: str) -> Callable[[ProbedNode], Value]:

    def find(node: ProbedNode) -> Value:
        env = node.part("env")
        names = sorted(name for name in env if str(name).startswith(prefixes)) if isinstance(env, dict) else []
        # In a lab each node has its own host id, so that NCCL treats it as a host.
        return text(" ".join(f"{name}={env[name]}" for name in names if name != "NCCL_HOSTID")) or "none"

    return find


def _limit(name: str, unlimited: Value = -1) -> Callable[[ProbedNode], Value]:
    def find(node: ProbedNode) -> Value:
        soft = number(node.seen("host", "limits", name, "soft")) or number(node.part("limits", name, "soft"))
        return unlimited if soft == -1 else soft

    return find


def _huge_pages(node: ProbedNode) -> Value:
    total, size = number(node.seen("host", "memory", "huge_total")), number(node.seen("host", "memory", "huge_size"))
    return None if total is None or size is None else int(total * size)


def _governor(node: ProbedNode) -> Value:
    governors = node.seen("host", "processors", "governors")
    return ", ".join(sorted(filter(None, map(text, governors)))) or None if isinstance(governors, dict) else None


def _conntrack(node: ProbedNode) -> Value:
    used, most = number(node.seen("host", "connections", "count")), number(node.seen("host", "connections", "max"))
    return None if used is None or most is None else f"{used:.0f} of {most:.0f}"


def _listed(paths: Any) -> Value:
    return (text(", ".join(map(str, paths))) or "none") if isinstance(paths, list) else None


def _folders(flag: str) -> Callable[[ProbedNode], Value]:
    return lambda node: _listed(node.seen("host", "folders", flag))


def _plugins(node: ProbedNode) -> Value:
    paths = node.seen("host", "versions", "net_plugins")
    return _listed(sorted(str(path).rpartition("/")[2] for path in paths) if isinstance(paths, list) else None)


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


# One argument per line, as the formatter has it, would hide the table.
# fmt: off
SYSTEM_FACTS: tuple[Fact, ...] = (
    Fact("nccl", "NCCL", _nccl, A, verdict="bad", next="ssh {node} python3 -m pip list | grep -i nccl", main=True),
    Fact("torch", "PyTorch", _torch, A, next="ssh {node} python3 -m torch.utils.collect_env"),
    Fact("torch_cuda", "CUDA of PyTorch", _python("torch_cuda"), A),
    Fact("python", "python3 in PATH", _first_python, next="ssh {node} python3 --version"),
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
    Fact("oom_kills", "killed for lack of memory", host_number("cgroup", "oom_kills"), N),
    Fact("conntrack", "tracked connections", _conntrack, N,
        next="ssh {node} sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max"),
    Fact("noexec", "folders without exec", _folders("noexec"), next="ssh {node} findmnt -o TARGET,OPTIONS"),
    Fact("read_only", "read-only folders", _folders("read_only"), next="ssh {node} findmnt -o TARGET,OPTIONS"),
    Fact("container", "container", _container, verdict="note"),
    Fact("cpu", "CPU", host_text("processors", "model"), main=True),
    Fact("cpus", "usable CPUs", lambda n: number(n.part("cpus")), next="ssh {node} 'taskset -pc $$'"),
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
    Fact("login", "login takes", lambda n: number(n.seen("login", "seconds")), N, "s", next="ssh -v {node} true"),
    Fact("master", "connection to --master", lambda n: text(n.seen("master", "state")), N, main=True),
    Fact("load", "load", host_number("processors", "load"), N),
    Fact("hostname", "host name", lambda n: text(n.seen("host", "identity", "hostname")) or text(n.part("host")), U),
    Fact("boot_id", "boot id", host_text("identity", "boot_id"), U),
    Fact("machine_id", "machine id", host_text("identity", "machine_id"), U),
    Fact("addresses", "addresses", _addresses, U),
)
# fmt: on


def _named(value: Any, *path: str) -> list[tuple[str, Any]]:
    return [(f"GPU {gpu.get('index')}", field(gpu, *path)) for gpu in dicts(value)]


def _gpu_memory(node: ProbedNode) -> Value:
    sizes = _named(node.part("gpus"), "memory")
    return spread((name, f"{size / _GIB:.4g} GiB" if number(size) else None) for name, size in sizes)


def _mig(node: ProbedNode) -> Value:
    return spread((name, yes(mode)) for name, mode in _named(node.part("gpus"), "mig"))


def _gpu_pcie(node: ProbedNode) -> Value:
    """Return current width and best generation: the current generation drops while a GPU idles."""
    links = (
        (name, number(field(link, "width")), number(field(link, "gen_max")))
        for name, link in _named(node.part("gpus"), "pcie")
    )
    return spread((name, f"{f'gen{best} ' if best else ''}x{width}" if width else None) for name, width, best in links)


def _gpu_users(node: ProbedNode) -> Value:
    gpus = dicts(node.part("gpus"))
    return sum(bool(gpu.get("processes")) for gpu in gpus) if gpus else None


def _nvlinks(node: ProbedNode) -> Value:
    return spread(
        (name, sum(link.get("state") == "active" for link in links))
        for name, value in _named(node.seen("nvlink", "gpus"), "links")
        if (links := dicts(value))
    )


def _nvlink_speed(node: ProbedNode) -> Value:
    speeds = [
        (f"{name} link {link.get('link')}", link.get("speed"))
        for name, links in _named(node.seen("nvlink", "gpus"), "links")
        for link in dicts(links)
        if link.get("state") == "active"
    ]
    return spread(speeds, "GB/s")


def _spread(*path: str, unit: str = "") -> Callable[[ProbedNode], Value]:
    return lambda node: spread(_named(node.seen("gpus", "gpus"), *path), unit)


def _switch(*path: str) -> Callable[[ProbedNode], Value]:
    """Return a reader of a mode: on or off."""
    words = {True: "on", False: "off", None: None}
    return lambda node: spread((gpu, words[yes(value)]) for gpu, value in _named(node.seen("gpus", "gpus"), *path))


def _sum(*path: str) -> Callable[[ProbedNode], Value]:
    """Return a reader of the sum over all GPUs; None if no GPU reports a value."""

    def find(node: ProbedNode) -> Value:
        counts = [number(value) for _, value in _named(node.seen("gpus", "gpus"), *path)]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    return find


def _under_load(node: ProbedNode) -> Value:
    """Return generation and width of the busy GPUs: an idle GPU lowers them."""
    busy = [gpu for gpu in dicts(node.seen("gpuload", "gpus")) if yes(gpu.get("busy"))]
    links = (
        (name, number(field(link, "generation")), number(field(link, "width"))) for name, link in _named(busy, "pcie")
    )
    return spread(
        (name, f"gen{best} x{width}") for name, best, width in links if best is not None and width is not None
    )


def _held_down(node: ProbedNode) -> Value:
    gpus = [gpu for probe in ("gpus", "gpuload") for gpu in dicts(node.seen(probe, "gpus"))]
    lists = [reasons for gpu in gpus if isinstance(reasons := gpu.get("reasons"), list)]
    reasons = {reason for reasons in lists for reason in reasons if isinstance(reason, str)} - _USUAL_REASONS
    return ", ".join(sorted(reasons)) or ("nothing" if lists else None)


def _pairs(node: ProbedNode) -> Value:
    """Return the connections of GPUs from the topology matrix: ``28 x NV18``."""
    words = {ends: word for ends, word in connections(node.seen("topology", "matrix")).items() if ends[0][:3] == "GPU"}
    place = {row: at for at, row in enumerate(dict.fromkeys(row for row, _ in words))}
    return counted(word for (row, column), word in words.items() if place.get(column, -1) > place[row])


def _p2p(name: str) -> Callable[[ProbedNode], Value]:
    def find(node: ProbedNode) -> Value:
        table = node.seen("topology", "p2p", name)
        able, bad = yes(field(table, "p2p")), field(table, "bad")
        if able is not False:
            return "all pairs" if able else None
        lines = [line for line in bad if isinstance(line, list) and len(line) == 3] if isinstance(bad, list) else []
        return f"not: {counted(line[2] for line in lines)}"

    return find


def _fabric_manager(node: ProbedNode) -> Value:
    manager = node.seen("gpus", "fabric_manager")
    if not field(manager, "installed"):
        return None if manager is None else "none"
    version, active = text(field(manager, "version")), yes(field(manager, "active"))
    return " ".join(filter(None, [version or "unknown version", None if active is not False else "not running"]))


def _clique(node: ProbedNode) -> Value:
    fabrics = _named(node.seen("gpus", "gpus"), "fabric")
    named = ((gpu, text(field(fabric, "cluster")), number(field(fabric, "clique"))) for gpu, fabric in fabrics)
    return spread((gpu, f"{cluster} clique {clique}") for gpu, cluster, clique in named if cluster is not None)


def _xids(node: ProbedNode) -> Value:
    if node.seen("kernel", "readable") != "yes":
        return None
    xids = node.seen("kernel", "xids")
    counts = list(xids.items())[:8] if isinstance(xids, dict) else ()
    return ", ".join(f"{number(count)} x {code}" for code, count in counts) or "none"


# One argument per line, as the formatter has it, would hide the table.
# fmt: off
GPU_FACTS: tuple[Fact, ...] = (
    Fact("gpus", "GPUs", lambda n: counted(gpu_models(n)), verdict="bad", next="ssh {node} nvidia-smi -L", main=True),
    Fact("gpu_memory", "GPU memory", _gpu_memory, next="ssh {node} nvidia-smi -q -d MEMORY"),
    Fact("gpu_pcie", "PCIe of GPUs", _gpu_pcie, verdict="bad", next=_LINK),
    Fact("gpu_mig", "MIG", _mig, next="ssh {node} nvidia-smi -L"),
    Fact("gpu_nics", "GPU to nearest NIC", lambda n: spread(_named(n.part("gpus"), "nic_path")),
        next="ssh {node} nvidia-smi topo -m"),
    Fact("gpu_users", "GPUs in use by others", _gpu_users, Compare.NONE),
    Fact("nvlinks", "active NVLinks", _nvlinks, verdict="bad", next="ssh {node} nvidia-smi nvlink -s", main=True,
        judges=("nvlink",)),
    Fact("nvlink_speed", "NVLink speed", _nvlink_speed, verdict="bad", next="ssh {node} nvidia-smi nvlink -s"),
    Fact("driver", "driver", lambda n: text(n.part("driver")), next="ssh {node} nvidia-smi --version", main=True),
    Fact("cuda", "CUDA of the driver", lambda n: text(n.part("cuda")), verdict="note"),
    Fact("vbios", "VBIOS", _spread("vbios"), next=_QUERY + " | grep VBIOS"),
    Fact("pcie_load", "PCIe under load", _under_load, verdict="bad", next=_LINK),
    Fact("gpu_pairs", "GPU to GPU", _pairs, verdict="bad", next="ssh {node} nvidia-smi topo -m", main=True),
    Fact("p2p_read", "P2P reads", _p2p("read"), verdict="bad", next="ssh {node} nvidia-smi topo -p2p r"),
    Fact("p2p_write", "P2P writes", _p2p("write"), verdict="bad", next="ssh {node} nvidia-smi topo -p2p w"),
    Fact("ecc", "ECC", _switch("ecc", "on"), next=_QUERY + " -d ECC"),
    Fact("ecc_errors", "uncorrected memory errors", _sum("ecc_errors", "uncorrected"), Compare.NONE,
        next=_QUERY + " -d ECC"),
    Fact("rows", "remapped rows", _sum("rows", "uncorrectable"), Compare.NONE, next=_QUERY + " -d ROW_REMAPPER"),
    Fact("power_limit", "power limit", _spread("power_limit", unit="W"), next=_QUERY + " -d POWER"),
    Fact("clock_max", "top SM clock", _spread("clocks", "sm_max", unit="MHz"), next=_QUERY + " -d CLOCK"),
    Fact("held_down", "clocks held down by", _held_down, Compare.NONE, next=_QUERY + " -d PERFORMANCE"),
    Fact("persistence", "persistence mode", _switch("persistence"), verdict="note",
        next="ssh {node} sudo nvidia-smi -pm 1"),
    Fact("compute_mode", "compute mode", _spread("compute_mode"), next="ssh {node} sudo nvidia-smi -c DEFAULT"),
    Fact("nvlink_fabric", "NVLink fabric", _spread("fabric", "state"), verdict="bad", next=_FABRIC),
    Fact("nvlink_clique", "NVLink domain", _clique, Compare.NONE, next=_FABRIC),
    Fact("imex_state", "IMEX", lambda n: text(n.seen("imex", "state")), Compare.NONE, next=_IMEX),
    Fact("imex_version", "IMEX version", lambda n: text(n.seen("imex", "version")), Compare.NONE, next=_IMEX),
    Fact("imex_channels", "usable IMEX channels", lambda n: number(n.seen("imex", "channels", "writable")),
        next="ssh {node} ls -l /dev/nvidia-caps-imex-channels"),
    Fact("fabric_manager", "Fabric Manager", _fabric_manager, next="ssh {node} systemctl status nvidia-fabricmanager"),
    Fact("xids", "Xids since boot", _xids, Compare.NONE, next="ssh {node} sudo dmesg | grep -i xid"),
)
# fmt: on


FACTS: tuple[Fact, ...] = (*GPU_FACTS, *NETWORK_FACTS, *SYSTEM_FACTS)


def facts_for(nodes: Sequence[ProbedNode]) -> list[Fact]:
    specs = registry.PROBES.values()
    declared = [_declared_fact(spec, path, mode) for spec in specs for path, mode in spec.compare.items()]
    return [*FACTS, *declared, *_own(nodes)]


def _declared_fact(spec: registry.ProbeSpec, path: str, mode: str) -> Fact:
    label = next((label for label, shown in spec.view if shown == path), path)
    return Fact(
        f"{spec.name}.{path}",
        f"{spec.name}: {label}",
        lambda node: single(node.seen(spec.name, *path.split("."))),
        Compare(mode),
        spec.units.get(path, ""),
        next=spec.next,
        share=0.2,
        main=True,
    )


def _own(nodes: Iterable[ProbedNode]) -> list[Fact]:
    facts: dict[str, Fact] = {}
    for probe, look in (item for node in nodes for item in node.probe_results.items() if item[1].get("own") is True):
        values = look.get("value")
        for name, value in list(values.items())[:MOST_OWN] if isinstance(values, dict) else ():
            if isinstance(value, (str, int, float)) and f"{probe}.{name}" not in facts:
                facts[f"{probe}.{name}"] = _own_fact(probe, name, value, look)
    return list(facts.values())


def _own_fact(probe: str, name: str, value: Any, look: Mapping[str, Any]) -> Fact:
    """Return the fact of a value; texts and booleans are compared by default, numbers if declared."""
    default = "none" if number(value) is not None else "kind"
    word = text(field(look.get("compare"), name)) or default
    compare = Compare(word) if word in _OWN_COMPARED else Compare.NONE
    unit, title = text(field(look.get("units"), name)) or "", text(f"{probe}: {name}") or probe

    def find(node: ProbedNode) -> Value:
        return single(node.seen(probe, "value", name)) if node.seen(probe, "own") is True else None

    return Fact(f"{probe}.{name}", title, find, compare, unit, share=0.2, main=True)
