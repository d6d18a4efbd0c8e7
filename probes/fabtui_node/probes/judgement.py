"""Judgements of probes on a single node, and access to untyped values."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from fabtui_node.registry import Judgement


def judgement(subject: str, verdict: str, text: str) -> Judgement:
    """Return a judgement; the verdicts are those of `ProbeSpec.judge`."""
    return {"subject": subject, "verdict": verdict, "text": text}


def part(value: Any, name: str) -> Dict[str, Any]:
    """Return an object in an object, an empty one if there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def count(value: Dict[str, Any], name: str) -> Optional[float]:
    """Return a number in an object, None if there is none."""
    found = value.get(name)
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def texts(value: Any) -> List[str]:
    """Return the texts of a list."""
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []
