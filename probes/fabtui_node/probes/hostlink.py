"""Probes ``hostlink`` and ``soak``: each GPU alone, and what came to light while links and GPUs were loaded for a time.

The ranks measure them (`fabtui_node.ranks.measure.host_link`), one GPU of a node at a time; here they are judged.
"""

from __future__ import annotations

from typing import Any, Dict, List

from fabtui_node.probes.judgement import count, objects
from fabtui_node.probes.nvidia.gpu_rules import Judgements
from fabtui_node.registry import Judgement, ProbeSpec

#: Share of the rate of its PCIe link below which copies are slow; healthy ones reach 0.8 to 0.9.
OF_LINK = 0.6
#: What a GPU is measured by, and how much of it (bytes/s, operations/s, s) makes its unit.
SCALES = {"h2d": 1e9, "d2h": 1e9, "both": 1e9, "own": 1e9, "product": 1e12, "h2d_lag": 1e-6, "d2h_lag": 1e-6}
#: Quantities that GPUs of a node are compared by: title, least share of the median, and unit.
QUANTITIES = {
    "h2d": ("copies from the host", 0.85, "GB/s"),
    "d2h": ("copies to the host", 0.85, "GB/s"),
    "own": ("copies within its memory", 0.9, "GB/s"),
    "product": ("the product of matrices", 0.92, "TFLOP/s"),
}
#: Minimum number of GPUs that are compared.
_FEWEST = 3


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Raise: it needs ranks, which a session starts."""
    raise ValueError("the ranks of a session measure it: fabtui run --probes all,hostlink, --soak SECONDS")


def summary(gpus: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return the value of a node: ``gpus``, and of each quantity the worst, in GB/s (TFLOP/s, us)."""
    value: Dict[str, Any] = {"gpus": gpus}
    for name, unit in SCALES.items():
        known = [number for gpu in gpus if (number := count(gpu, name)) is not None]
        if known:
            value[name] = round((max if name.endswith("_lag") else min)(known) / unit, 3)
    return value


def judge(value: Dict[str, Any]) -> List[Judgement]:
    """Return what is bad on this node alone: wrong results, and what is below links or peers."""
    gpus = objects(value.get("gpus"))
    judged = Judgements()
    for gpu in gpus:
        if count(gpu, "wrong"):
            judged.add(gpu, "hostlink", "bad", "%d values that it copied or computed are wrong" % gpu["wrong"])
        elif gpu.get("error"):
            judged.add(gpu, "hostlink", "warn", "not measured: %s" % str(gpu["error"])[:200])
        _link(gpu, judged)
    for name, (title, least, unit) in QUANTITIES.items():
        known = [(number, gpu) for gpu in gpus if (number := count(gpu, name)) is not None]
        middle = sorted(number for number, _ in known)[len(known) // 2] if len(known) >= _FEWEST else 0.0
        for number, gpu in known:
            if number < least * middle:
                shown = number / SCALES[name], unit, middle / SCALES[name]
                text = "%s at %.1f %s, and %.1f are usual on this node" % (title, *shown)
                judged.add(gpu, "hostlink", "bad", text)
    return judged.all()


def _link(gpu: Dict[str, Any], judged: Judgements) -> None:
    now, most = (count(gpu, name) for name in ("link", "link_most"))
    if now is None:
        return
    if most is not None and now < 0.99 * most:
        text = "its PCIe link passes %.0f of %.0f GB/s under load" % (now / 8, most / 8)
        judged.add(gpu, "hostlink", "bad", text, "gpu-pcie")
    for name in ("h2d", "d2h"):
        rate = (count(gpu, name) or 0.0) / 1e9
        if 0 < rate < OF_LINK * now / 8:
            text = "%s at %.1f GB/s, and its PCIe link passes %.0f" % (QUANTITIES[name][0], rate, now / 8)
            judged.add(gpu, "hostlink", "bad", text)


def judge_soak(value: Dict[str, Any]) -> List[Judgement]:
    judged = Judgements()
    for gpu in objects(value.get("wrong")):
        text = "wrong data in %d of its %d tests: what was wrong has it in common" % (gpu["wrong"], gpu["tests"])
        judged.add(gpu, "soak", "bad", text)
    for gpu in objects(value.get("slower")):
        share, sweeps = (count(gpu, name) or 0.0 for name in ("share", "sweeps"))
        text = "%.1f %% slower than its peers at %s, in %d sweeps" % (100 * share, gpu.get("what"), sweeps)
        judged.add(gpu, "soak", "warn", text)
    return judged.all()


PROBE = ProbeSpec(
    name="hostlink",
    title="each GPU alone: copies from and to the host, its memory, a product with a known result",
    phase="request",
    needs="ranks: NCCL for GPUs, PyTorch for CPU ranks; at most 3 s and 1 GiB of a node",
    gives="GB/s of copies in, out, both at once and within its memory; latency in us; TFLOP/s; results checked",
    run=run,
    judge=judge,
    units={"h2d": "GB/s", "d2h": "GB/s", "both": "GB/s", "own": "GB/s", "h2d_lag": "us", "d2h_lag": "us"},
    compare={"h2d": "near", "d2h": "near", "own": "near", "product": "near"},
    view=(
        ("from the host, slowest GPU", "h2d"),
        ("to the host, slowest GPU", "d2h"),
        ("both at once, slowest GPU", "both"),
        ("within its memory, slowest GPU", "own"),
        ("small copy from the host", "h2d_lag"),
        ("small copy to the host", "d2h_lag"),
        ("product of matrices, TFLOP/s", "product"),
    ),
    next="ssh {node} nvidia-smi -q -d PERFORMANCE,PCI",
)

PROBE_SOAK = ProbeSpec(
    name="soak",
    title="load of links and GPUs for the time of --soak: pairs, collectives and products in turn, data checked",
    phase="asked",
    needs="ranks: NCCL for GPUs, PyTorch for CPU ranks",
    gives="time, sweeps, bytes, who brought wrong data, and who is a little slower than its peers",
    run=run,
    judge=judge_soak,
    units={"seconds": "s", "bytes": "B"},
    view=(("time", "seconds"), ("sweeps", "sweeps"), ("bytes moved", "bytes"), ("GPUs with wrong data", "bad")),
    next="ssh {node} nvidia-smi -q -d ECC,PERFORMANCE",
)
