"""Probe ``soak``: what came to light while links and GPUs were loaded for a time; the session measures it."""

from __future__ import annotations

from typing import Any, Dict, List

from fabtui_node.probes.judgement import count, objects
from fabtui_node.probes.nvidia.gpu_rules import Judgements
from fabtui_node.registry import Judgement, ProbeSpec


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Raise: it needs ranks, which a session starts."""
    raise ValueError("a soak is a part of a session: fabtui run --soak 600")


def judge(value: Dict[str, Any]) -> List[Judgement]:
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
    name="soak",
    title="load of links and GPUs for the time of --soak: pairs, collectives and products in turn, data checked",
    phase="asked",
    needs="ranks: NCCL for GPUs, PyTorch for CPU ranks",
    gives="time, sweeps, bytes, who brought wrong data, and who is a little slower than its peers",
    run=run,
    judge=judge,
    units={"seconds": "s", "bytes": "B"},
    view=(("time", "seconds"), ("sweeps", "sweeps"), ("bytes moved", "bytes"), ("GPUs with wrong data", "bad")),
    next="ssh {node} nvidia-smi -q -d ECC,PERFORMANCE",
)
