"""GPU facts, from the inventory and the probes nvlink, gpus, gpuload, topology and kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabtui.model.facts.compare import Compare, Fact
from fabtui.model.facts.node_view import ProbedNode, Value, counted, dicts, field, gpu_models, number, spread, text, yes

_GIB = 1 << 30
#: Reasons for slower clocks that do not indicate a fault.
_USUAL_REASONS = {"idle", "applications_clocks_setting", "sync_boost", "display_clock_setting"}
_QUERY = "ssh {node} nvidia-smi -q"
_FABRIC = _QUERY + " | grep -A4 Fabric"
_LINK = _QUERY + " | grep -A9 'GPU Link Info'"


def _named(value: Any, *path: str) -> list[tuple[str, Any]]:
    """Return a field of each GPU in a list, with the name of the GPU."""
    return [(f"GPU {gpu.get('index')}", field(gpu, *path)) for gpu in dicts(value)]


def _gpu_memory(node: ProbedNode) -> Value:
    sizes = _named(node.part("gpus"), "memory")
    return spread((name, f"{size / _GIB:.4g} GiB" if number(size) else None) for name, size in sizes)


def _mig(node: ProbedNode) -> Value:
    return spread((name, yes(mode)) for name, mode in _named(node.part("gpus"), "mig"))


def _gpu_pcie(node: ProbedNode) -> Value:
    """Return current width and best generation: the current generation drops while a GPU idles."""
    found = []
    for gpu in dicts(node.part("gpus")):
        width, best = number(field(gpu, "pcie", "width")), number(field(gpu, "pcie", "gen_max"))
        generation = f"gen{best} " if best else ""
        found.append((f"GPU {gpu.get('index')}", f"{generation}x{width}" if width else None))
    return spread(found)


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
        counts = [
            count for _, value in _named(node.seen("gpus", "gpus"), *path) if (count := number(value)) is not None
        ]
        return sum(counts) if counts else None

    return find


def _under_load(node: ProbedNode) -> Value:
    """Return generation and width of the busy GPUs: an idle GPU lowers them."""
    found = []
    for gpu in dicts(node.seen("gpuload", "gpus")):
        generation, width = number(field(gpu, "pcie", "generation")), number(field(gpu, "pcie", "width"))
        if yes(gpu.get("busy")) and generation is not None and width is not None:
            found.append((f"GPU {gpu.get('index')}", f"gen{generation} x{width}"))
    return spread(found)


def _held_down(node: ProbedNode) -> Value:
    """Return the notable reasons for lowered clocks, of all GPUs."""
    gpus = [gpu for probe in ("gpus", "gpuload") for gpu in dicts(node.seen(probe, "gpus"))]
    lists = [reasons for gpu in gpus if isinstance(reasons := gpu.get("reasons"), list)]
    found = {reason for reasons in lists for reason in reasons if isinstance(reason, str)} - _USUAL_REASONS
    return ", ".join(sorted(found)) or ("nothing" if lists else None)


def _pairs(node: ProbedNode) -> Value:
    """Return the connections of GPUs from the topology matrix: ``28 x NV18``."""
    words = []
    matrix = node.seen("topology", "matrix")
    rows, columns, cells = (field(matrix, name) for name in ("rows", "columns", "cells"))
    if not (isinstance(rows, list) and isinstance(columns, list) and isinstance(cells, list)):
        return None
    for at, row in enumerate(cells[: len(rows)]):
        for column, word in zip(columns, row if isinstance(row, list) else [], strict=False):
            ahead = column in rows and rows.index(column) > at
            if ahead and str(rows[at]).startswith("GPU") and str(column).startswith("GPU"):
                words.append(word)
    return counted(words)


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
    """Return the multi-node NVLink domain of the GPUs."""
    found = [
        (gpu, f"{cluster} clique {number(field(fabric, 'clique'))}")
        for gpu, fabric in _named(node.seen("gpus", "gpus"), "fabric")
        if (cluster := text(field(fabric, "cluster"))) is not None
    ]
    return spread(found)


def _xids(node: ProbedNode) -> Value:
    if node.seen("kernel", "readable") != "yes":
        return None
    found = node.seen("kernel", "xids")
    counts = {str(code): number(count) for code, count in found.items()} if isinstance(found, dict) else {}
    return ", ".join(f"{count} x {code}" for code, count in list(counts.items())[:8]) or "none"


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
    Fact("fabric_manager", "Fabric Manager", _fabric_manager, next="ssh {node} systemctl status nvidia-fabricmanager"),
    Fact("xids", "Xids since boot", _xids, Compare.NONE, next="ssh {node} sudo dmesg | grep -i xid"),
)
# fmt: on
