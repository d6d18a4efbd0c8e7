"""Judgements of single nodes by their probes: each probe's own ``judge``, applied to its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.knowledge import xids
from fabtui.model.facts.node_view import ProbedNode, dicts
from fabtui.sanitize import one_line
from fabtui_node import registry

_FIELDS = ("subject", "verdict", "text")
#: Maximum number of judgements per probe and node.
_MOST = 200


def judgements(node: ProbedNode) -> list[dict[str, str]]:
    """Return the judgements of a node by its probes.

    ``[{"probe", "subject", "verdict", "text", "devices", "check", "action"}]``.
    """
    found: list[dict[str, str]] = []
    for probe, value in [("inventory", node.inventory), *node.probe_results.items()]:
        spec = registry.PROBES.get(probe)
        judged: Any = _user_probe(probe, value)
        if spec is not None and spec.judge is not None and value and value.keys() != {"error"}:
            try:
                judged = spec.judge(dict(value)) + (xids.judged(value) if probe == "kernel" else [])
            except Exception as error:
                # A malformed result of one probe must not hide those of the others.
                text = f"cannot interpret the result of {probe}: {type(error).__name__}: {error}"
                judged = [{"subject": probe, "verdict": "note", "text": text}]
        for one in dicts(judged)[:_MOST]:
            known = {name: one_line(str(one.get(name, "")), 300) for name in _FIELDS}
            # A user probe has no place in the catalogue.
            ours = one if spec is not None else {}
            known |= {name: one_line(str(ours.get(name, "")), 300) for name in ("check", "action")}
            devices = one.get("devices")
            known["devices"] = " ".join(map(str, devices))[:300] if isinstance(devices, list) else ""
            found.append({"probe": probe, **known})
    return found


def _user_probe(probe: str, value: Mapping[str, Any]) -> list[Any]:
    """Return the judgements of a user probe, and the reason if it did not work."""
    if value.get("own") is not True:
        return []
    found: list[Any] = dicts(value.get("judged"))
    if problem := value.get("problem"):
        found.append({"subject": probe, "verdict": "note", "text": f"your probe {probe} did not work: {problem}"})
    return found


def severity_of(verdict: str) -> Severity:
    """Return the severity for the verdict of a judge."""
    if verdict in list(Severity):
        return Severity(verdict)
    if verdict in ("failed", "error", "timeout", "fatal"):
        return Severity.BAD
    return Severity.WARN if verdict in ("warning", "slow", "inconclusive") else Severity.NOTE
