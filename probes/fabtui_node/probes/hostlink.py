"""Probes ``hostlink`` and ``soak``: each GPU alone, and what came to light while links and GPUs were loaded for a time.

The ranks measure them (`fabtui_node.ranks.measure.host_link`), one GPU of a node at a time; here they are judged.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from fabtui_node.probes.judgement import count, judgement, objects
from fabtui_node.probes.nvidia.gpu_rules import Judgements
from fabtui_node.registry import Judgement, ProbeSpec

#: Share of the rate of its PCIe link below which copies are slow; healthy ones reach 0.8 to 0.9.
OF_LINK = 0.6
#: Share of the median of the GPUs of its kind on the node, by the value.
OF_PEERS = {"h2d": 0.85, "d2h": 0.85, "own": 0.9, "product": 0.92}
#: Minimum number of GPUs that are compared.
_FEWEST = 3
_TITLES = {
    "h2d": "copies from the host",
    "d2h": "copies to the host",
    "own": "copies within its memory",
    "product": "the product of matrices",
}
_UNITS = {"product": "TFLOP/s"}


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Raise: it needs ranks, which a session starts."""
    raise ValueError("the ranks of a session measure it: fabtui run --probes all,hostlink, --soak SECONDS")


def summary(gpus: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return the value of a node: ``gpus``, and of each quantity the worst, in GB/s (TFLOP/s, us)."""
    worst: Dict[str, Tuple[Callable[[List[float]], float], float]] = {
        **dict.fromkeys(("h2d", "d2h", "both", "own"), (min, 1000000000.0)),
        **{"product": (min, 1e12), "h2d_lag": (max, 1e-6), "d2h_lag": (max, 1e-6)},
    }
    value: Dict[str, Any] = {"gpus": gpus}
    for name, (choose, unit) in worst.items():
        known = [number for gpu in gpus if (number := count(gpu, name)) is not None]
        if known:
            value[name] = round(choose(known) / unit, 3)
    return value


def judge(value: Dict[str, Any]) -> List[Judgement]:
    """Return what is bad on this node alone: wrong results, and what is below links or peers."""
    gpus = objects(value.get("gpus"))
    judged = Judgements()
    for gpu in gpus:
        if count(gpu, "wrong"):
            text = "%d values that it copied or computed are wrong" % gpu["wrong"]
            judged.add(gpu, "hostlink", "bad", text)
        _link(gpu, judged)
    for name, least in OF_PEERS.items():
        _peers(gpus, name, least, judged)
    errors = [(gpu, str(gpu["error"])) for gpu in gpus if gpu.get("error") and not count(gpu, "wrong")]
    for gpu, error in errors:
        judged.add(gpu, "hostlink", "warn", "not measured: %s" % error[:200])
    return judged.all() or _nothing(gpus)


def _nothing(gpus: List[Dict[str, Any]]) -> List[Judgement]:
    return [] if gpus else [judgement("hostlink", "note", "no GPU of this node was measured")]


def _link(gpu: Dict[str, Any], judged: Judgements) -> None:
    now, most = (_bytes(count(gpu, name)) for name in ("link", "link_most"))
    if now is not None and most is not None and now < 0.99 * most:
        text = "its PCIe link passes %.0f of %.0f GB/s under load" % (now, most)
        judged.add(gpu, "hostlink", "bad", text, "gpu-pcie")
    slow = [name for name in ("h2d", "d2h") if now is not None and 0 < (count(gpu, name) or 0) / 1e9 < OF_LINK * now]
    for name in slow:
        text = "%s at %.1f GB/s, and its PCIe link passes %.0f" % (_TITLES[name], gpu[name] / 1e9, now or 0)
        judged.add(gpu, "hostlink", "bad", text)


def _bytes(gigabits: Optional[float]) -> Optional[float]:
    return None if gigabits is None else gigabits / 8


def _peers(gpus: List[Dict[str, Any]], name: str, least: float, judged: Judgements) -> None:
    known = [(number, gpu) for gpu in gpus if (number := count(gpu, name)) is not None]
    if len(known) < _FEWEST:
        return
    middle = sorted(number for number, _ in known)[len(known) // 2]
    for number, gpu in known:
        if number < least * middle:
            unit, of = _UNITS.get(name, "GB/s"), 1e12 if name in _UNITS else 1e9
            text = "%s at %.1f %s, and %.1f are usual on this node" % (_TITLES[name], number / of, unit, middle / of)
            judged.add(gpu, "hostlink", "bad", text)


def judge_soak(value: Dict[str, Any]) -> List[Judgement]:
    judged = Judgements()
    for gpu in objects(value.get("wrong")):
        text = "wrong data in %d of its %d tests: what was wrong has it in common" % (gpu["wrong"], gpu["tests"])
        judged.add(gpu, "soak", "bad", text)
    for gpu in objects(value.get("slower")):
        text = "%.1f %% slower than its peers at %s, in %d sweeps" % (
            100 * (count(gpu, "share") or 0.0),
            gpu.get("what"),
            count(gpu, "sweeps") or 0,
        )
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
