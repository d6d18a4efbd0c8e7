"""GPU facts, from the inventory and the probes nvlink, gpus, gpuload, topology and kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabtui.model.facts.compare import Compare, Fact
from fabtui.model.facts.hardware_kind import gpu_models
from fabtui.model.facts.node_view import ProbedNode, Value, counted, dicts, field, number, spread, text, yes

_GIB = 1 << 30
#: Reasons for slower clocks that do not indicate a fault.
_USUAL_REASONS = {"idle", "applications_clocks_setting", "sync_boost", "display_clock_setting"}
_QUERY = "ssh {node} nvidia-smi -q"
_FABRIC = _QUERY + " | grep -A4 Fabric"


def _gpus(node: ProbedNode, *path: str) -> list[tuple[Any, Any]]:
    return [(f"GPU {gpu.get('index')}", field(gpu, *path)) for gpu in dicts(node.part("gpus"))]


def _gpu_memory(node: ProbedNode) -> Value:
    return spread((name, f"{v / _GIB:.4g} GiB") if number(v) else (name, None) for name, v in _gpus(node, "memory"))


def _gpu_pcie(node: ProbedNode) -> Value:
    """Return current width and best generation: the current generation drops while a GPU idles."""
    found = []
    for gpu in dicts(node.part("gpus")):
        width, best = number(field(gpu, "pcie", "width")), number(field(gpu, "pcie", "gen_max"))
        known = [f"gen{best}"] if best else []
        found.append((f"GPU {gpu.get('index')}", " ".join([*known, f"x{width}"]) if width else None))
    return spread(found)


def _gpu_nics(node: ProbedNode) -> Value:
    return spread(_gpus(node, "nic_path"))


def _gpu_users(node: ProbedNode) -> Value:
    gpus = dicts(node.part("gpus"))
    return sum(1 for gpu in gpus if gpu.get("processes")) if gpus else None


def _nvlinks(node: ProbedNode) -> Value:
    gpus = dicts(node.seen("nvlink", "gpus"))
    counts = [
        (f"GPU {gpu.get('index')}", sum(1 for link in dicts(gpu.get("links")) if link.get("state") == "active"))
        for gpu in gpus
        if dicts(gpu.get("links"))
    ]
    return spread(counts) if counts else None


def _nvlink_speed(node: ProbedNode) -> Value:
    speeds = [
        (f"GPU {gpu.get('index')} link {link.get('link')}", link.get("speed"))
        for gpu in dicts(node.seen("nvlink", "gpus"))
        for link in dicts(gpu.get("links"))
        if link.get("state") == "active"
    ]
    return spread(speeds, "GB/s")


def _each(node: ProbedNode, *path: str, probe: str = "gpus") -> list[tuple[str, Any]]:
    return [(f"GPU {gpu.get('index')}", field(gpu, *path)) for gpu in dicts(node.seen(probe, "gpus"))]


def _spread(*path: str, unit: str = "") -> Callable[[ProbedNode], Value]:
    return lambda node: spread(_each(node, *path), unit)


def _switch(*path: str) -> Callable[[ProbedNode], Value]:
    """Return a reader of a mode: on or off."""
    words = {True: "on", False: "off", None: None}
    return lambda node: spread((gpu, words[yes(value)]) for gpu, value in _each(node, *path))


def _sum(*path: str) -> Callable[[ProbedNode], Value]:
    """Return a reader of the sum over all GPUs; None if no GPU reports a value."""

    def find(node: ProbedNode) -> Value:
        counts = [count for _, value in _each(node, *path) if (count := number(value)) is not None]
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
    found: dict[str, int] = {}
    known = False
    for probe in ("gpus", "gpuload"):
        for _, reasons in _each(node, "reasons", probe=probe):
            known = known or isinstance(reasons, list)
            for reason in reasons if isinstance(reasons, list) else []:
                if isinstance(reason, str) and reason not in _USUAL_REASONS:
                    found[reason] = found.get(reason, 0) + 1
    return ", ".join(sorted(found)) or ("nothing" if known else None)


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
        for gpu, fabric in _each(node, "fabric")
        if (cluster := text(field(fabric, "cluster"))) is not None
    ]
    return spread(found)


def _xids(node: ProbedNode) -> Value:
    if node.seen("kernel", "readable") != "yes":
        return None
    found = node.seen("kernel", "xids")
    counts = {str(code): number(count) for code, count in found.items()} if isinstance(found, dict) else {}
    return ", ".join(f"{count} x {code}" for code, count in list(counts.items())[:8]) or "none"


GPU_FACTS: tuple[Fact, ...] = (
    Fact("gpus", "GPUs", lambda n: counted(gpu_models(n)), verdict="bad", next="ssh {node} nvidia-smi -L", main=True),
    Fact("gpu_memory", "GPU memory", _gpu_memory, next="ssh {node} nvidia-smi -q -d MEMORY"),
    Fact(
        "gpu_pcie", "PCIe of GPUs", _gpu_pcie, verdict="bad", next="ssh {node} nvidia-smi -q | grep -A9 'GPU Link Info'"
    ),
    Fact("gpu_mig", "MIG", lambda n: spread((g, yes(v)) for g, v in _gpus(n, "mig")), next="ssh {node} nvidia-smi -L"),
    Fact("gpu_nics", "GPU to nearest NIC", _gpu_nics, next="ssh {node} nvidia-smi topo -m"),
    Fact("gpu_users", "GPUs in use by others", _gpu_users, Compare.NONE),
    Fact("nvlinks", "active NVLinks", _nvlinks, verdict="bad", next="ssh {node} nvidia-smi nvlink -s", main=True),
    Fact("nvlink_speed", "NVLink speed", _nvlink_speed, verdict="bad", next="ssh {node} nvidia-smi nvlink -s"),
    Fact("driver", "driver", lambda n: text(n.part("driver")), next="ssh {node} nvidia-smi --version", main=True),
    Fact("cuda", "CUDA of the driver", lambda n: text(n.part("cuda")), verdict="note"),
    Fact("vbios", "VBIOS", _spread("vbios"), next=_QUERY + " | grep VBIOS"),
    Fact("pcie_load", "PCIe under load", _under_load, verdict="bad", next=_QUERY + " | grep -A9 'GPU Link Info'"),
    Fact("gpu_pairs", "GPU to GPU", _pairs, verdict="bad", next="ssh {node} nvidia-smi topo -m", main=True),
    Fact("p2p_read", "P2P reads", _p2p("read"), verdict="bad", next="ssh {node} nvidia-smi topo -p2p r"),
    Fact("p2p_write", "P2P writes", _p2p("write"), verdict="bad", next="ssh {node} nvidia-smi topo -p2p w"),
    Fact("ecc", "ECC", _switch("ecc", "on"), next=_QUERY + " -d ECC"),
    Fact(
        "ecc_errors",
        "uncorrected memory errors",
        _sum("ecc_errors", "uncorrected"),
        Compare.NONE,
        next=_QUERY + " -d ECC",
    ),
    Fact("rows", "remapped rows", _sum("rows", "uncorrectable"), Compare.NONE, next=_QUERY + " -d ROW_REMAPPER"),
    Fact("power_limit", "power limit", _spread("power_limit", unit="W"), next=_QUERY + " -d POWER"),
    Fact("clock_max", "top SM clock", _spread("clocks", "sm_max", unit="MHz"), next=_QUERY + " -d CLOCK"),
    Fact("held_down", "clocks held down by", _held_down, Compare.NONE, next=_QUERY + " -d PERFORMANCE"),
    Fact(
        "persistence",
        "persistence mode",
        _switch("persistence"),
        verdict="note",
        next="ssh {node} sudo nvidia-smi -pm 1",
    ),
    Fact("compute_mode", "compute mode", _spread("compute_mode"), next="ssh {node} sudo nvidia-smi -c DEFAULT"),
    Fact(
        "nvlink_fabric", "NVLink fabric", _spread("fabric", "state"), verdict="bad", next=_QUERY + " | grep -A4 Fabric"
    ),
    Fact("nvlink_clique", "NVLink domain", _clique, Compare.NONE, next=_FABRIC),
    Fact("fabric_manager", "Fabric Manager", _fabric_manager, next="ssh {node} systemctl status nvidia-fabricmanager"),
    Fact("xids", "Xids since boot", _xids, Compare.NONE, next="ssh {node} sudo dmesg | grep -i xid"),
)
