"""The meaning of Xids and of their reports about NVLinks, and judgements of those in the kernel's log of a node."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.knowledge import load
from fabtui.model.facts.node_view import dicts, number
from fabtui_node.probes import kernel_log
from fabtui_node.probes.judgement import some
from fabtui_node.registry import Judgement

#: Numbers of the reports of NVLink5.
NVLINK5 = range(144, 151)
_HOPPER = 74
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]{1,40})\s{1,8}(?P<fatal>Fatal|Non-?fatal)\s{1,8}XC ?[0-9]{1,2}\s{1,8}i ?[0-9]{1,2}\s{1,8}"
    r"Link (?P<link>-?[0-9]{1,3})(?: ?[(\[](?P<words>0x[0-9a-f]{1,8}(?:\s{1,4}0x[0-9a-f]{1,8}){0,7})[)\]])?",
    re.ASCII | re.IGNORECASE,
)
_REGISTERS = re.compile(
    r"NVLink: (?P<fatal>fatal|non-?fatal)?.{0,60}? link (?P<link>[0-9]{1,3}) ?"
    r"\((?P<words>0x[0-9a-f]{1,8}(?:, ?0x[0-9a-f]{1,8}){0,7})\)",
    re.ASCII | re.IGNORECASE,
)
_WORD = re.compile(r"0x[0-9a-f]{1,8}", re.ASCII | re.IGNORECASE)
#: Actions after which the GPU cannot be trusted until they are taken.
_GRAVE = ("CHECK_MECHANICALS", "RESET_GPU", "RESTART_BM", "RESTART_VM")
_GRAVE_WORKFLOWS = ("WORKFLOW_NVLINK_ERR", "WORKFLOW_NVLINK5_ERR", "WORKFLOW_XID_48")
_HARMLESS = ("program", "result", "note")
_REPORT = re.compile(r"NVRM: Xid \([^()]{1,60}\): (\d{1,4})\b", re.ASCII)
#: Programs were ended because of an earlier Xid.
_CLEANUP = "45"
_CAUSE = re.compile(r"caused by previous Xid (\d{1,4})", re.ASCII | re.IGNORECASE)
#: Reports that follow from an earlier one on the same GPU: programs ended, another recovery is needed.
_FOLLOWING = (45, 154)
#: Time (s) within which reports follow from one another.
_TOGETHER = 120.0


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
        return f"{self.action}: {load('xids')['action'][self.action]}" if self.action else ""


@functools.cache
def xids() -> Mapping[int, Xid]:
    return {int(code): Xid(**row) for code, row in load("xids")["xid"].items()}


def known(entry: Mapping[str, Any]) -> Xid | None:
    code = entry.get("code")
    return xids().get(code) if isinstance(code, int) else None


def in_line(line: str) -> tuple[int, Xid] | None:
    """Return number and kind of the Xid that a line of the kernel's log reports, or None if it has none we know."""
    match = _REPORT.search(line)
    number = int(match[1]) if match else -1
    return (number, xids()[number]) if number in xids() else None


def meaning(code: Any, text: str) -> str:
    """Return what a report means: the NVLink it is about, or the name of its number; "" if it is unknown."""
    if report := nvlink_report(code, text):
        return f"NVLink {report.link}: {report.what}" if report.link is not None else report.what
    xid = known({"code": code})
    return xid.name if xid else ""


def severity(entry: Mapping[str, Any]) -> Severity:
    """Return the severity of a count of Xid reports; some reports state themselves how grave they are."""
    code, found, text = entry.get("code"), known(entry), str(entry.get("text", "")).lower()
    if found is None:
        return Severity.WARN
    if found.action == "WORKFLOW_NVLINK5_ERR" and "nonfatal" in text.replace("-", ""):
        return Severity.WARN
    # "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)".
    changed = text.rpartition(" to 0x")[2]
    return Severity.BAD if code == 154 and changed != text and "(none)" not in changed else found.usual


def cause_of(code: Any, text: str) -> int | None:
    """Return the number of the Xid that caused programs to be ended, if a report names it."""
    match = _CAUSE.search(text) if str(code) == _CLEANUP else None
    return int(match[1]) if match else None


def is_harmless(code: int, text: str) -> bool:
    report = nvlink_report(code, text)
    return report is not None and report.fatal is False and not report.ends_programs


class LinkReports(NamedTuple):
    """Reports of a GPU about one of its NVLinks, and what follows from them on the node."""

    bus: str
    report: NvlinkReport
    entry: Mapping[str, Any]  #: The count of the reports.
    followed: list[Mapping[str, Any]]  #: Counts of reports that follow from it.

    @property
    def severity(self) -> Severity:
        """Severity of the reports; old ones are notes."""
        return Severity(kernel_log.aged(self.entry, str(severity(self.entry))))


def together(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if reports may follow from one another: they are near in time, or their times are unknown."""
    ages, spans = [number(entry.get("age")) for entry in (one, other)], []
    for entry, age in zip((one, other), ages, strict=True):
        first, last = number(entry.get("first")), number(entry.get("last"))
        if age is None and None in ages:
            age = -last if last is not None else None
        if age is None:
            return True
        spans.append((age, age + (last - first if first is not None and last is not None else 0.0)))
    (start, end), (other_start, other_end) = spans
    return start - other_end <= _TOGETHER and other_start - end <= _TOGETHER


def sorted_out(value: Mapping[str, Any]) -> tuple[list[LinkReports], list[Mapping[str, Any]]]:
    """Return the reports about NVLinks in a value of the probe ``kernel``, and the other counts of Xids.

    That programs were ended, and that the GPU wants another recovery, follows from a report about a link.
    """
    counts = [entry for entry in dicts(value.get("counts")) if entry.get("kind") == "xid"]
    links: list[LinkReports] = []
    rest: list[Mapping[str, Any]] = []
    for entry in counts:
        report = nvlink_report(entry.get("code"), str(entry.get("text", "")))
        if report:
            links.append(LinkReports(str(entry.get("bus") or ""), report, entry, []))
    for entry in counts:
        if any(entry is one.entry for one in links):
            continue
        cause = _link_behind(entry, links)
        (cause.followed if cause else rest).append(entry)
    return links, rest


def _link_behind(entry: Mapping[str, Any], links: list[LinkReports]) -> LinkReports | None:
    """Return the report about a link that a report follows from: by its number, else the gravest of the same GPU."""
    if entry.get("code") not in _FOLLOWING:
        return None
    near = [one for one in links if together(one.entry, entry)]
    bus = str(entry.get("bus") or "")
    if (named := cause_of(entry.get("code"), str(entry.get("text", "")))) is not None:
        same = [one for one in near if one.report.code == named]
        return next((one for one in same if one.bus == bus), same[0] if same else None)
    mine = [one for one in near if one.bus == bus]
    return next((one for one in mine if one.report.fatal), mine[0] if mine else None)


def times_of(entry: Mapping[str, Any]) -> int:
    count = entry.get("count")
    return count if isinstance(count, int) else 1


def judged(value: Mapping[str, Any]) -> list[Judgement]:
    """Return judgements of the Xids in a value of the probe ``kernel``, one for each number; old ones are notes.

    An Xid that only reports that an earlier one ended programs is part of that one if it names it, else a note.
    Reports about NVLinks are left out (`sorted_out`): several nodes may report one fault.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    _, rest = sorted_out(value)
    codes = {str(entry.get("code")) for entry in rest}
    ended: dict[str, int] = {}
    for entry in rest:
        cause = str(cause_of(entry.get("code"), str(entry.get("text", ""))))
        if cause in codes:
            ended[cause] = ended.get(cause, 0) + times_of(entry)
            continue
        verdict = kernel_log.aged(entry, str(severity(entry)))
        groups.setdefault((str(entry.get("code")), verdict), []).append(entry)
    causes = [code for code, verdict in groups if code != _CLEANUP and verdict == "bad"]
    judgements = []
    for (code, verdict), same in groups.items():
        xid = known(same[0])
        name = f"Xid {code}: {xid.name}" if xid else f"Xid {code}"
        if code == _CLEANUP and causes:
            name, verdict = f"{name} (see Xid {causes[0]})", "note"
        buses = [str(entry["bus"]) for entry in same if entry.get("bus")]
        ages = [age for entry in same if (age := number(entry.get("age"))) is not None]
        times = sum(map(times_of, same))
        whole = {**same[0], "bus": some(buses) or None, "count": times, "age": min(ages, default=None)}
        judgement = kernel_log.report({**whole, "interface": None}, verdict, "xid", name)
        if code in ended:
            judgement["text"] += f"; it ended programs (Xid {_CLEANUP}, {ended[code]} times)"
        judgement["devices"] = [f"bus:{bus}" for bus in buses]
        judgement["check"], judgement["action"] = "xid", xid.advice if xid else ""
        judgements.append(judgement)
    return judgements


class NvlinkReport(NamedTuple):
    """A report about an NVLink."""

    code: int  #: Number of the Xid.
    link: int | None  #: Number of the NVLink on its GPU; None if it is about no single one.
    fatal: bool | None  #: Whether it is fatal; None if that is unknown.
    unit: str  #: Part of the GPU that reports, such as ``NETIR_LINK_EVT``; "" for Xid 74.
    words: tuple[int, ...]  #: Numbers in parentheses, see ``xids.toml``.

    @property
    def subcode(self) -> int | None:
        return self.words[0] >> 20 & 0x3F if self.words and self.code in NVLINK5 else None

    @property
    def status(self) -> int | None:
        return self.words[1] if len(self.words) > 1 and self.code in NVLINK5 else None

    @property
    def ends_programs(self) -> bool:
        """True if it ends programs without being fatal."""
        ends = load("xids")["nvlink5_unit"].get(self.unit, {}).get("ends", 0)
        return bool(self.fatal is False and ends & (self.status or 0))

    @property
    def what(self) -> str:
        """The event: ``the link went down (NETIR_LINK_EVT, fatal)``."""
        words = [self.unit] if self.unit else []
        if self.status:
            words.append(f"status {self.status:#x}")
        if self.fatal is not None:
            words.append("fatal" if self.fatal else "not fatal")
        text: str = load("xids")["nvlink5_unit"].get(self.unit, {}).get("text", "error")
        return f"{text} ({', '.join(words)})" if words else text

    @property
    def details(self) -> list[str]:
        """Meanings of sub-code or registers in NVIDIA's tables."""
        if self.code == _HOPPER:
            rows = [
                (row, [bit for bit in row["bits"] if self._has(row["register"], bit)]) for row in load("xids")["xid74"]
            ]
            return [
                f"register {row['register']}, bit {', '.join(map(str, bits))}: {row['text']}"
                for row, bits in rows
                if bits
            ]
        subcode = load("xids")["nvlink5_subcode"].get(str(self.subcode)) if self.unit.startswith("NETIR_LINK") else None
        return [f"sub-code {self.subcode}: {subcode}"] if subcode and self.words else []

    def _has(self, register: int, bit: int) -> bool:
        return register <= len(self.words) and bool(self.words[register - 1] >> bit & 1)


def nvlink_report(code: Any, text: str) -> NvlinkReport | None:
    """Return the report about an NVLink in the text of an Xid; None if there is none, or its form is another."""
    pattern = _REGISTERS if code == _HOPPER else _NVLINK5 if code in NVLINK5 else None
    match = pattern.search(text[:1000]) if pattern else None
    if not match:
        return None
    values = match.groupdict()
    link = int(values["link"])
    word = (values["fatal"] or "").lower()
    numbers = tuple(int(one, 16) for one in _WORD.findall(values["words"] or ""))
    unit = (values.get("unit") or "").upper()
    return NvlinkReport(int(code), link if link >= 0 else None, word == "fatal" if word else None, unit, numbers)
