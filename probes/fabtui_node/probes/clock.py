"""Probe ``clock``: the time of day on the node, read quickly, as the round trip limits the accuracy."""

from __future__ import annotations

import ctypes
import time
from typing import Any, Dict, List, NamedTuple, Optional

from fabtui_node.probes.judgement import judgement
from fabtui_node.registry import Judgement, ProbeSpec

_UNSYNCHRONISED = 0x40


class Kernel(NamedTuple):
    """The clock as the kernel keeps it."""

    synchronised: bool  #: Whether NTP or PTP synchronises it.
    rate: float  #: Correction of its rate (ppm).
    tick: int  #: Length of a tick (us).


def kernel() -> Optional[Kernel]:
    """Return the kernel's clock, or None if unknown."""
    try:
        # struct timex: the modes (0: read only), padded to a long, then four longs, of which the second is the
        # frequency, then the status; the tick follows five words, a timeval and more.
        buffer = (ctypes.c_long * 64)()
        if ctypes.CDLL(None).adjtimex(ctypes.byref(buffer)) < 0:
            return None
        status = ctypes.c_int.from_buffer(buffer, 5 * ctypes.sizeof(ctypes.c_long))
        return Kernel(not status.value & _UNSYNCHRONISED, buffer[2] / 65536, buffer[11])
    except (AttributeError, OSError, ValueError):
        return None


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Return ``{"time", "synchronised"}``: seconds since the epoch; whether NTP or PTP synchronises the clock."""
    kept = kernel()
    return {"time": time.time(), "synchronised": None if kept is None else kept.synchronised}


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
