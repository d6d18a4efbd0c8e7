"""Judgements of probes on a single node, and access to untyped values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

from fabtui_node.parsers.lines import json_object

if TYPE_CHECKING:
    # It reads the source texts of all probes, for which the first frame would wait.
    from fabtui_node.registry import Judgement


#: Return an object in an object, or an empty one.
part = json_object


def judgement(subject: str, verdict: str, text: str, devices: Sequence[str] = (), check: str = "") -> Judgement:
    """Return a judgement; `ProbeSpec.judge` lists the verdicts.

    Args:
        subject: What it is about, in one word, or an RDMA port (``mlx5_0/1``).
        verdict: Its severity.
        text: The problem.
        devices: GPUs it is about: ``gpu:3`` by index, ``bus:0000:18:00.0`` by PCI address; ``nic:eth0`` an interface,
            ``file:/proc/x`` what shows it.
        check: Its name in the catalogue of checks.
    """
    judged: Judgement = {"subject": subject, "verdict": verdict, "text": text}
    if devices:
        judged["devices"] = list(devices)
    if check:
        judged["check"] = check
    return judged


def count(value: Mapping[str, Any], name: str) -> Optional[float]:
    """Return a number in an object, or None."""
    number = value.get(name)
    return number if isinstance(number, (int, float)) and not isinstance(number, bool) else None


def texts(value: Any) -> List[str]:
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def objects(value: Any) -> List[Dict[str, Any]]:
    """Return the objects of a list, at most 1024."""
    return [entry for entry in value if isinstance(entry, dict)][:1024] if isinstance(value, list) else []


def some(names: List[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (" and %d more" % (len(names) - most) if len(names) > most else "")


def seconds_since_boot(text: Optional[str]) -> Optional[float]:
    """Return the seconds since boot from ``/proc/uptime``."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None
