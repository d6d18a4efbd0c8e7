"""Causes and consequences of the errors in logs of NCCL and PyTorch, of one rank or of several."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from fabtui.diagnosis.finding import Domain, Finding, Rule, Severity
from fabtui.diagnosis.knowledge.error_catalogue import Meaning, meaning_named, meaning_of, refined
from fabtui.diagnosis.knowledge.log_stamps import stamp_of
from fabtui.diagnosis.knowledge.xids import in_line as xid_in_line
from fabtui_node.parsers.lines import unlabelled
from fabtui_node.parsers.nccl.log_lines import parse_line

#: Maximum number of lines of a file, and of lines with errors of all files, that are examined.
MOST_LINES = 2_000_000
MOST_ERRORS = 200_000
_LONGEST_LINE = 4_000
#: Maximum number of ranks, hosts and unknown warnings that are kept.
_MOST_KEPT = 4096
#: A failure this long (s) after the first line of its log came after the connections had worked.
_LATER = 60.0
#: A line without any of these has no error: 40 patterns on each line of a large log would take minutes.
_WORDS = (
    *("error", "fail", "warn", "got completion", "no device", "wrong", "mismatch", "magic", "interface", "async"),
    *("gid table", "speed change", "incompatible", "duplicate gpu", "multiple ranks", "mixed", "not yet initialized"),
    *("out of memory", "no space", "no such file", "no route", "ehostunreach", "refused", "timed out", "abort"),
    *("closed by", "proxy call", "network socket", "gpu direct rdma", "init start", "init complete", "bootstrap"),
    *("watchdog", "timeout", "sigbus", "sigkill", "killed", "exitcode", "oom", "frozen", "signal", "exception"),
    *("last completed", "fallen off", "is lost", "device handle", "illegal memory", "assert", "oob ", "message type"),
    *("float", "double", "nccl_p2p_", "half", "not permitted", "int32", "int64", "int8", "xid", "communicate with"),
    "of_memory",
)
_RANK = re.compile(r"\[(?:rank|Rank |default)(\d{1,7})\]|\bRank (\d{1,7})\]|^\[\d{1,6},(\d{1,7})\]<|^ {0,8}(\d{1,6}): ")
_INIT = re.compile(r"\brank (\d{1,9}) nranks \d{1,9} .{0,240}- Init (START|COMPLETE)")
_WORK = re.compile(r"last enqueued (?:NCCL )?work: (-?\d{1,18}), last completed (?:NCCL )?work: (-?\d{1,18})", re.I)
_OWN_ADDRESS = re.compile(r"(?:Bootstrap ?: Using|; OOB) \S{1,64}?:([\w.:]{1,45}?)<\d{1,6}>")
_PEER_ADDRESS = re.compile(r"from peer ([\w.:]{1,45}?)<\d{1,6}>")
#: How the names of Xids begin.
_XID = "xid-"
_NOTABLE = re.compile(r"\bNCCL (?:WARN|ERROR) .|^(?:\w{1,40}\.){0,6}\w{0,60}(?:Error|Exception)(?:: |$)")


class LogPlace(NamedTuple):
    """A line of a log."""

    file: int  #: Number of its file.
    line: int  #: Number of the line, from 1 on.
    time: datetime | None  #: Its time stamp, or the one of the line before it; None if the file has none.
    who: str  #: Rank or host that it names, or "".
    text: str  #: Its text, not cleaned.

    @property
    def order(self) -> tuple[datetime, int, int]:
        """Position among all lines: by time stamp; files without any come last."""
        return self.time or datetime.max, self.file, self.line


@dataclass(slots=True)
class Occurrences:
    """An error of a log: its earliest line, how often it is there, and on which ranks or hosts."""

    meaning: Meaning
    first: LogPlace
    count: int = 0
    who: dict[str, None] = field(default_factory=dict)

    def add(self, place: LogPlace) -> None:
        """Count one more line."""
        self.count += 1
        self.first = min(self.first, place, key=lambda one: one.order)
        if place.who and len(self.who) < _MOST_KEPT:
            self.who.setdefault(place.who)


class Causes(NamedTuple):
    """Errors of logs, each list in order of time."""

    causes: list[Occurrences]  #: The earliest cause first; without a cause, the earliest consequence.
    consequences: list[Occurrences]  #: Errors that follow from the first cause.
    notices: list[Occurrences]  #: Lines that are worth knowing and no errors by themselves.
    unknown: list[LogPlace]  #: Warnings and exceptions that are not in the catalogue.
    behind: list[int]  #: Ranks that completed and enqueued least.

    @property
    def known(self) -> tuple[int, int]:
        """Number of kinds of errors that are known, causes and consequences, and number of their lines."""
        errors = [*self.causes, *self.consequences]
        return len(errors), sum(one.count for one in errors)


class LogReader:
    """Finds the errors in logs, which are added one by one."""

    def __init__(self) -> None:
        self.lines = 0
        self.cut = False
        self._files = 0
        self._examined = 0
        self._found: dict[str, Occurrences] = {}
        self._unknown: dict[str, LogPlace] = {}
        self._starting: dict[tuple[int, str, str], LogPlace] = {}
        self._addresses: dict[str, set[str]] = {}
        self._work: dict[int, tuple[int, int]] = {}

    def add(self, text: str) -> None:
        """Read the log of one file."""
        lines = text.split("\n", MOST_LINES)
        self.cut = self.cut or len(lines) > MOST_LINES
        clock = _Clock(lines)
        for number, line in enumerate(lines[:MOST_LINES]):
            # After a carriage return a line starts again, as on a terminal.
            shown = line.rstrip("\r").rpartition("\r")[2][:_LONGEST_LINE]
            lower = shown.lower()
            if not any(word in lower for word in _WORDS):
                continue
            self._examined += 1
            if self._examined > MOST_ERRORS:
                self.cut = True
                break
            self._line(number, shown.strip(), clock)
        self.lines += len(lines) - (not lines[-1])
        self._files += 1

    def _line(self, number: int, raw: str, clock: _Clock) -> None:
        printed = parse_line(raw)
        rank = _rank_of(raw)
        host = f"{printed.host} [{printed.device}]" if printed else ""
        who = ", ".join(part for part in (f"rank {rank}" if rank is not None else "", host) if part)
        place = LogPlace(self._files, number + 1, None, who, raw)
        node = printed.host if printed else ""
        for address in _OWN_ADDRESS.findall(raw):
            if len(self._addresses) < _MOST_KEPT:
                self._addresses.setdefault(node, set()).add(address)
        if rank is not None and (work := _WORK.search(raw)) and len(self._work) < 1_000_000:
            self._work[rank] = int(work[2]), int(work[1])
        if init := _INIT.search(raw):
            key = self._files, host, init[1]
            self._starting.pop(key, None)
            if init[2] == "START" and len(self._starting) < 1_000_000:
                self._starting[key] = place._replace(time=clock.at(number), who=who or f"rank {init[1]}")
        elif (meaning := _meaning_of_xid(raw) or meaning_of(raw, notices=True)) is not None:
            time = clock.at(number)
            self._count(self._circumstance(meaning, node, raw, time, clock), place._replace(time=time))
        elif len(self._unknown) < _MOST_KEPT and _NOTABLE.search(unlabelled(re.sub(r"^\[rank\d{1,7}\]: ?", "", raw))):
            self._unknown.setdefault(_alike(raw), place._replace(time=clock.at(number)))

    def _circumstance(self, meaning: Meaning, node: str, raw: str, time: datetime | None, clock: _Clock) -> Meaning:
        """Return the meaning that takes into account who the peer is, and how long the job had run."""
        peer = _PEER_ADDRESS.search(raw)
        if peer and node and peer[1] in self._addresses.get(node, ()):
            return refined(meaning, "same-node")
        if time and clock.start and (time - clock.start).total_seconds() >= _LATER:
            return refined(meaning, "later")
        return meaning

    def _count(self, meaning: Meaning, place: LogPlace) -> None:
        self._found.setdefault(meaning.id, Occurrences(meaning, place)).add(place)

    def result(self) -> Causes:
        """Return the errors of all logs so far."""
        for place in self._starting.values():
            self._count(meaning_named("init-incomplete"), place)
        self._starting = {}
        found = sorted(self._found.values(), key=lambda one: one.first.order)
        causes: list[Occurrences] = []
        consequences: list[Occurrences] = []
        for one in found:
            if one.meaning.role == "cause":
                follows = any(_explains(cause.meaning, one.meaning) for cause in causes)
                (consequences if follows else causes).append(one)
        consequences += [one for one in found if one.meaning.role == "consequence"]
        consequences.sort(key=lambda one: one.first.order)
        if not causes and consequences:
            causes.append(consequences.pop(0))
        unknown = sorted(self._unknown.values(), key=lambda place: place.order)
        notices = [one for one in found if one.meaning.role == "notice"]
        return Causes(causes, consequences, notices, unknown, self._behind())

    def _behind(self) -> list[int]:
        least = min(self._work.values(), default=None)
        behind = sorted(rank for rank, work in self._work.items() if work == least)
        return behind if len(behind) < len(self._work) else []


class _Clock:
    """Time stamps of a file; a line without one has the time of the line before it."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._read = 0
        self._last: datetime | None = None
        self._start: datetime | None = None
        self._started = False

    @property
    def start(self) -> datetime | None:
        """The first time stamp of the file."""
        if not self._started:
            self._started = True
            self._start = next(_stamps(self._lines), None)
        return self._start

    def at(self, number: int) -> datetime | None:
        """Return the time of a line; lines are asked for in ascending order."""
        if self.start is None:
            return None
        fresh = self._lines[self._read : number + 1]
        self._last = next(_stamps(reversed(fresh)), self._last)
        self._read = number + 1
        return self._last or self.start


def _meaning_of_xid(line: str) -> Meaning | None:
    """Return the meaning of the Xid that a line reports; those that follow from others or from programs are notices.

    It has the code of the rule that reports the same Xid where a probe reads the kernel's log.
    """
    if (found := xid_in_line(line)) is None:
        return None
    number, xid = found
    role = "notice" if xid.usual is Severity.NOTE else "cause"
    commands = tuple((end, "sudo dmesg | grep -i xid") for end in ("src", "dst"))
    advice = f"{xid.advice}." if xid.advice else f"Look up NVIDIA's advice about Xid {number}."
    text = f"Xid {number}: {xid.name}"
    return Meaning(f"{_XID}{number}", "FT130", line, None, "", text, advice, commands, "", "", (), role)


def _explains(cause: Meaning, error: Meaning) -> bool:
    """Return True if an error is known to follow from a cause; an Xid explains what a lost GPU does."""
    return cause.id in error.follows or (cause.id.startswith(_XID) and "gpu-lost" in error.follows)


def _stamps(lines: Iterator[str] | list[str]) -> Iterator[datetime]:
    for line in lines:
        if (time := stamp_of(line)) is not None:
            yield time


def _rank_of(line: str) -> int | None:
    found = _RANK.search(line)
    return int(found[found.lastindex or 0]) if found else None


def _alike(line: str) -> str:
    """Return a line without its numbers."""
    return re.sub(r"[0-9a-fx.:]{2,}|\d", "#", line[:400])


_SEVERITY = {"cause": Severity.BAD, "consequence": Severity.WARN, "notice": Severity.NOTE}
_ROUTE = "RECEIVER_ADDRESS from SENDER_ADDRESS"
#: Maximum number of ranks or hosts that a title names.
_MOST_NAMED = 4


class KnownError(Rule[Occurrences]):
    """Base of the rules of the catalogue; their ids are its codes, such as ``E13``."""

    domain = Domain.LOGS
    message = "{line}[, {times} times][, {who}]"

    def check(self, context: Occurrences) -> Iterator[Finding]:
        who, meaning = list(context.who), context.meaning
        more = f" and {len(who) - _MOST_NAMED} more" if len(who) > _MOST_NAMED else ""
        facts = {
            "line": context.first.text,
            "times": context.count if context.count > 1 else None,
            "who": "; ".join(who[:_MOST_NAMED]) + more or None,
            **meaning.facts,
        }
        commands = (command.replace("{route}", _ROUTE) for _, command in meaning.commands)
        yield self.finding(meaning.id, facts=facts, commands=dict.fromkeys(commands))


@functools.lru_cache(maxsize=512)
def error_rule(meaning: Meaning) -> KnownError:
    """Return the rule of an entry of the catalogue."""
    own = {"id": meaning.code, "name": meaning.id, "title": meaning.prints, "severity": _SEVERITY[meaning.role]}
    own |= {"next_step": meaning.next, "__doc__": meaning.text}
    made: type[KnownError] = type(meaning.id, (KnownError,), own)
    return made()


def error_findings(causes: Causes) -> list[Finding]:
    """Return a finding for each error of logs: causes first, then their consequences, then notices."""
    found = (*causes.causes, *causes.consequences, *causes.notices)
    return [finding for one in found for finding in error_rule(one.meaning).findings(one)]
