"""The meaning of Xids, and judgements of those in the kernel's log of a node."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.knowledge.toml_data import load
from fabtui.model.facts.node_view import dicts, number
from fabtui_node.probes import kernel_log
from fabtui_node.probes.judgement import some
from fabtui_node.registry import Judgement

#: Actions after which the GPU cannot be trusted until they are taken.
_GRAVE = ("CHECK_MECHANICALS", "RESET_GPU", "RESTART_BM", "RESTART_VM")
_GRAVE_WORKFLOWS = ("WORKFLOW_NVLINK_ERR", "WORKFLOW_NVLINK5_ERR", "WORKFLOW_XID_48")
_HARMLESS = ("program", "result", "note")
_REPORT = re.compile(r"NVRM: Xid \([^()]{1,60}\): (\d{1,4})\b", re.ASCII)


class Xid(NamedTuple):
    """A kind of Xid report, see ``xids.toml``."""

    name: str
    part: str
    mnemonic: str = ""
    action: str = ""
    severity: str = ""

    @property
    def usual(self) -> Severity:
        """Its severity, unless the report states otherwise."""
        if self.severity:
            return Severity(self.severity)
        if self.action in (*_GRAVE, *_GRAVE_WORKFLOWS):
            return Severity.BAD
        return Severity.NOTE if self.part in _HARMLESS else Severity.WARN

    @property
    def advice(self) -> str:
        """NVIDIA's immediate action, explained, or ""."""
        return f"{self.action}: {load('xids')['action'][self.action]}" if self.action else ""


@functools.cache
def xids() -> Mapping[int, Xid]:
    """Return all known Xids by their number."""
    return {int(code): Xid(**row) for code, row in load("xids")["xid"].items()}


def known(entry: Mapping[str, Any]) -> Xid | None:
    """Return the kind of a count of Xid reports, or None if it is unknown."""
    code = entry.get("code")
    return xids().get(code) if isinstance(code, int) else None


#: Programs were ended because of an earlier Xid.
_CLEANUP = "45"


def in_line(line: str) -> tuple[int, Xid] | None:
    """Return number and kind of the Xid that a line of the kernel's log reports, or None if it has none we know."""
    found = _REPORT.search(line)
    number = int(found[1]) if found else -1
    return (number, xids()[number]) if number in xids() else None


def severity(entry: Mapping[str, Any]) -> Severity:
    """Return the severity of a count of Xid reports; some reports state themselves how grave they are."""
    code, found, text = entry.get("code"), known(entry), str(entry.get("text", "")).lower()
    if found is None:
        return Severity.WARN
    if found.action == "WORKFLOW_NVLINK5_ERR" and "nonfatal" in text.replace("-", ""):
        return Severity.WARN
    # "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)".
    return Severity.BAD if code == 154 and "required" in text.rpartition(" to ")[2] else found.usual


def judged(value: Mapping[str, Any]) -> list[Judgement]:
    """Return judgements of the Xids in a value of the probe ``kernel``, one for each number; old ones are notes.

    An Xid that only reports that an earlier one ended programs is a note beside the earlier one.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in dicts(value.get("counts")):
        if entry.get("kind") == "xid":
            verdict = kernel_log.aged(entry, str(severity(entry)))
            groups.setdefault((str(entry.get("code")), verdict), []).append(entry)
    causes = [code for code, verdict in groups if code != _CLEANUP and verdict == "bad"]
    found = []
    for (code, verdict), same in groups.items():
        one = known(same[0])
        name = f"Xid {code}: {one.name}" if one else f"Xid {code}"
        if code == _CLEANUP and causes:
            name, verdict = f"{name} (see Xid {causes[0]})", "note"
        buses = [str(entry["bus"]) for entry in same if entry.get("bus")]
        ages = [age for entry in same if (age := number(entry.get("age"))) is not None]
        times = sum(count if isinstance(count := entry.get("count"), int) else 1 for entry in same)
        whole = {**same[0], "bus": some(buses) or None, "count": times, "age": min(ages, default=None)}
        judgement = kernel_log.report(whole, verdict, "xid", name)
        judgement["devices"] = [f"bus:{bus}" for bus in buses]
        judgement["check"], judgement["action"] = "xid", one.advice if one else ""
        found.append(judgement)
    return found
