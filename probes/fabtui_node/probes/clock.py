"""Probe ``clock``: the time of day on the node, read quickly, as the round trip limits the accuracy."""

from __future__ import annotations

import ctypes
import time
from typing import Any, Dict, List, Optional

from fabtui_node.probes.judgement import judgement
from fabtui_node.registry import Judgement, ProbeSpec

_UNSYNCHRONISED = 0x40


def synchronised() -> Optional[bool]:
    """Return True if the kernel reports a synchronised clock, or None if unknown."""
    try:
        # struct timex: the modes (0: read only), padded to a long, then four longs, then the status.
        buffer = (ctypes.c_long * 64)()
        if ctypes.CDLL(None).adjtimex(ctypes.byref(buffer)) < 0:
            return None
        status = ctypes.c_int.from_buffer(buffer, 5 * ctypes.sizeof(ctypes.c_long))
        return not status.value & _UNSYNCHRONISED
    except (AttributeError, OSError, ValueError):
        return None


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Return ``{"time", "synchronised"}``: seconds since the epoch; whether NTP or PTP synchronises the clock."""
    kept = synchronised()
    return {"time": time.time(), "synchronised": kept}


def judge(value: Dict[str, Any]) -> List[Judgement]:
    """Return what is bad on this node alone."""
    if value.get("synchronised") is not False:
        return []
    return [judgement("clock", "note", "the clock is not synchronised (no NTP, no PTP)")]


PROBE = ProbeSpec(
    name="clock",
    title="time of day on the node",
    phase="inspect",
    passive=True,
    needs="nothing",
    gives="seconds since the epoch, and whether the clock is synchronised",
    run=run,
    judge=judge,
    next="ssh {node} chronyc tracking",
)
