"""Facts of GPUs: how each is found in what the probes gave."""

from __future__ import annotations

from typing import Any

from fabtui.model.facts.compare import Compare, Fact
from fabtui.model.facts.hardware_kind import gpu_models
from fabtui.model.facts.node_view import Looked, Value, counted, dicts, field, number, spread, text, yes

_GIB = 1 << 30


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
)
