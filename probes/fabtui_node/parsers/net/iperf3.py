"""``iperf3 -J``: the rate of one TCP stream or several, as the receiver counted it."""

from __future__ import annotations

import json
import math
from typing import Any, Dict, Optional

from fabtui_node.parsers.base import Format, Notes, Reading


def _number(value: Any) -> Optional[float]:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if good and math.isfinite(value) and value >= 0 else None


def _summary(end: Any, name: str) -> Dict[str, Any]:
    found = end.get(name) if isinstance(end, dict) else None
    return found if isinstance(found, dict) else {}


def parse(text: str) -> Reading:
    """Return ``version``, ``received`` and ``sent`` (bits a second), ``seconds``, ``retransmits``, ``error``."""
    notes = Notes()
    start = text.find("{")
    try:
        value = json.loads(text[start:]) if start >= 0 else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        for line in text.splitlines():
            notes.puzzled(line)
        notes.warn("not a whole JSON object")
        return notes.reading({"received": None, "sent": None, "error": None})
    end = value.get("end")
    sent, received = _summary(end, "sum_sent"), _summary(end, "sum_received")
    error = value.get("error")
    began = value.get("start")
    version = began.get("version") if isinstance(began, dict) else None
    if isinstance(error, str):
        notes.warn(error)
    return notes.reading(
        {
            "version": version if isinstance(version, str) else None,
            "received": _number(received.get("bits_per_second")),
            "sent": _number(sent.get("bits_per_second")),
            "seconds": _number(received.get("seconds")),
            "retransmits": _number(sent.get("retransmits")),
            "error": error[:500] if isinstance(error, str) else None,
        }
    )


def likely(text: str) -> float:
    """Return how sure one can be that a text is of iperf3."""
    return 0.95 if text.lstrip().startswith("{") and '"iperf' in text[:2000] and '"intervals"' in text else 0.0


UNITS = {"received": "bit/s", "sent": "bit/s", "seconds": "s"}

FORMATS = [Format("iperf3", "iperf3 with -J", ("iperf3", "-J"), UNITS, likely, parse)]
