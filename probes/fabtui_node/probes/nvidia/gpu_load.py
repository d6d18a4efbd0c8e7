"""Probe ``gpuload``: PCIe, clocks and power of GPUs at the moment, quick enough to run under load."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional

from fabtui_node.probes.nvidia import gpu_rules, nvml, nvml_state
from fabtui_node.registry import Judgement, ProbeSpec

UNITS = nvml_state.UNITS

#: Maximum time and interval (s) of samples until every GPU was seen under load.
SECONDS = 4.0
EVERY = 0.5


def busiest(samples: List[List[Dict[str, Any]]]) -> List[Dict[str, Any]]:
    """Return each GPU as it was when it had most to do."""
    best: Dict[Any, Dict[str, Any]] = {}
    for sample in samples:
        for gpu in sample:
            known = best.get(gpu["index"])
            if known is None or (gpu.get("utilization") or 0) > (known.get("utilization") or 0):
                best[gpu["index"]] = gpu
    return list(best.values())


def _watch(library: Any, setting: Optional[str], seconds: float) -> Dict[str, Any]:
    """Sample until every GPU was seen under load, or the time is over."""
    end = time.monotonic() + seconds
    samples: List[List[Dict[str, Any]]] = []
    took = 0.0
    while True:
        began = time.monotonic()
        samples.append(nvml_state.read(library, setting, all_values=False)["gpus"])
        took = max(took, time.monotonic() - began)
        found = busiest(samples)
        if all(gpu["busy"] for gpu in found) or time.monotonic() + EVERY + took > end:
            return {"gpus": found, "samples": len(samples), "seconds": round(took, 3)}
        time.sleep(EVERY)


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Sample the GPUs under load.

    Args:
        args: ``seconds``: duration, 0 for one sample.
        emit: Not used.
        deadline: Seconds.

    Returns:
        ``{"gpus": [...], "busy" (how many GPUs were seen at work), "samples", "seconds" (the longest time that asking
        once took), "error"}``; of each GPU what changes with its work (`nvml_state`), at its busiest moment.
    """
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    wanted = args.get("seconds", SECONDS)
    seconds = min(float(wanted) if isinstance(wanted, (int, float)) else SECONDS, deadline * 0.8)
    task = nvml.Task(lambda library: _watch(library, setting, seconds))
    known, error = task.result(deadline * 0.95)
    value: Dict[str, Any] = known or {"gpus": [], "samples": 0, "seconds": None}
    return dict(value, busy=sum(1 for gpu in value["gpus"] if gpu["busy"]), error=error)


def judge(value: Dict[str, Any]) -> List[Judgement]:
    """Return problems under load, of the GPUs that had any."""
    found = value.get("gpus")
    gpus = [gpu for gpu in found if isinstance(gpu, dict)][:1024] if isinstance(found, list) else []
    return gpu_rules.judge_load([gpu for gpu in gpus if gpu.get("busy") is True])


PROBE = ProbeSpec(
    name="gpuload",
    title="PCIe links and clocks of GPUs under load",
    phase="load",
    needs="the NVIDIA driver's NVML",
    gives="per GPU at its busiest: PCIe generation and width, clocks in MHz and throttle reasons",
    run=run,
    judge=judge,
    requires="gpus",
    next="ssh {node} nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE",
)
