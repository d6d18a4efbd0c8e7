"""Causes and consequences of the errors in logs of NCCL and PyTorch, of one rank or of several."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from fabtui.diagnosis.finding import Domain, Finding, Rule, Severity
from fabtui.diagnosis.knowledge import xids
from fabtui.diagnosis.knowledge.error_catalogue import (
    Meaning,
    filled,
    fills,
    general_meaning,
    meaning_named,
    meaning_of,
    meanings,
    of_line,
    programs_in,
    refined,
    refined_beside,
)
from fabtui.diagnosis.knowledge.error_numbers import entry_of_number
from fabtui.diagnosis.knowledge.failing_line import (
    AROUND,
    EXCEPTION,
    Loudness,
    advised,
    in_chain,
    is_code,
    loudness,
    message_of,
    printer,
    reason_of,
    sounds,
)
from fabtui.diagnosis.knowledge.failure_stage import (
    evident_patterns,
    is_general,
    is_stage,
    returned_failure,
    stage_failure,
)
from fabtui.diagnosis.knowledge.pattern_set import PatternSet
from fabtui.diagnosis.knowledge.xids import nvlink_report
from fabtui.sanitize import one_line
from fabtui_node.parsers.lines import unlabelled
from fabtui_node.parsers.nccl.log_lines import NODES, parse_line

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: PyTorch prints the month without a leading zero (``E704`` is 4 July), glog with one (``E0704``). ``dmesg -T`` prints
#: ``Fri Nov 20 10:12:40 2026``, syslog ``Nov 20 10:12:40``, the Fabric Manager ``Nov 20 2026 10:12:40``.
_STAMP = re.compile(
    r"(?P<iso>\d{4}[-/]\d\d[-/]\d\d)[T ](?P<at>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?"
    r"|(?<![A-Za-z0-9_])[IWEF](?P<month>0?[1-9]|1[0-2])(?P<day>[0-3]\d) (?P<clock>\d\d:\d\d:\d\d)"
    r"(?:\.(?P<fraction>\d{1,9}))?"
    rf"|(?<![A-Za-z])(?P<name>{'|'.join(_MONTHS)}) {{1,2}}(?P<number>\d{{1,2}}) (?:(?P<year>\d{{4}}) )?"
    r"(?P<hour>\d\d:\d\d:\d\d)(?:\.(?P<second>\d{1,9}))?(?: (?P<last>(?:19|20)\d\d)\b)?",
    re.ASCII,
)
#: What each stamp has; it is found in half the time.
TIME = re.compile(r"\d\d:\d\d:\d\d", re.ASCII)
#: Length of a line in which its time stamp is looked for.
_STAMP_WITHIN = 200
#: Maximum number of times of day without a date, before a file counts as one without stamps.
_MOST_UNDATED = 2_000
#: Maximum number of characters of a stamp before and after the time of day.
_DATE, _FRACTION = 16, 20
#: Maximum number of lines of a file, and of lines with errors of all files, that are examined.
MOST_LINES = 2_000_000
MOST_ERRORS = 200_000
_LONGEST_LINE = 4_000
#: Maximum number of ranks, hosts and unknown warnings that are kept.
_MOST_KEPT = 4096
#: A failure this long (s) after the first line of its log came after the connections had worked.
_LATER = 60.0
#: Time (s) within which the more specific error of a file comes first.
_MOMENT = 1.0
#: Maximum number of lines below nested errors that may have their reason.
_BELOW = 3
#: Maximum number of lines after "Last error:" that belong to it, and of sentences that are quoted.
_LAST_ERROR, _MOST_QUOTED = 8, 4
_LONGEST_ADVICE = 1_000
_RANK = re.compile(r"\[(?:rank|Rank |default)(\d{1,7})\]|\bRank (\d{1,7})\]")
_RANK_FIRST = re.compile(r"\[\d{1,6},(\d{1,7})\]<| {0,8}(\d{1,6}): ")
_INIT = re.compile(r"\brank (\d{1,9}) nranks \d{1,9} .{0,240}- Init (START|COMPLETE)")
#: What PyTorch's watchdog prints of the work of a rank.
WORK = re.compile(
    r"last enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,18}), last completed (?:NCCL )?work: (?P<completed>-?\d{1,18})",
    re.I,
)
_OWN_ADDRESS = re.compile(r"(?:Bootstrap ?: Using|; OOB) \S{1,64}?:([\w.:]{1,45}?)<\d{1,6}>")
_PEER_ADDRESS = re.compile(r"from peer ([\w.:]{1,45}?)<\d{1,6}>")
#: A node that a launcher names.
_NODE_NAMED = re.compile(r"\bsrun: error: .{0,120}(?:on node ([\w.-]{1,255}\w)|\[\[([\w.-]{1,255})\]:\d{1,5}\])")
#: The ranks and hosts that a line of NCCL's diagnostics is about.
_DIAGNOSED = re.compile(
    r"(srcRank=\d{1,7}) .{0,60}?(dstRank=\d{1,7})|(rank \d{1,7} \([\w.-]{1,255}\)):"
    r"|(server_host=\S{1,255}) .{0,80}?(client_host=\S{1,255})|(rank\(s\) \{[\d,.]{1,200}\})"
    r"|(S?Xid \d{1,6}) .{0,200}?on (host [\w.-]{1,255}?)\. "
)
#: Kinds that a line shows which only reports how a process ended.
_BY_SIGNAL = ("crashed", "was-killed", "program-killed", "shared-memory-short")
#: What differs between the processes that NCCL prints the same for: stamp, host, process, and line of the source.
_NCCL_HEAD = re.compile(
    r"^(?:\d{4}-\d\d-\d\d[T ][\d:.,]{8,18}Z? )?([\w.-]{1,253}):\d{1,10}:\d{1,10} \[(-?\d{1,5})\]"
    r"(?:( [\w./+-]{1,120}:\d)\d{0,6})?",
    re.ASCII,
)
#: How the names of Xids begin.
_XID = "xid-"
_NOTABLE = re.compile(r"\bNCCL (?:WARN|ERROR) .|^(?:\w{1,40}\.){0,6}\w{0,60}(?:Error|Exception)(?:: |$)")
_LAST = re.compile(r"\bLast error:\s*(.*)")
#: The beginning of another message.
_RECORD = re.compile(r"\bNCCL (?:INFO|WARN)\b|\bTraceback\b|\[[IWEF]\d{3,4} \d\d:")
#: A warning of PyTorch about what it tries again. Within this number of lines of the end of a log, it never succeeded.
_RETRIES = re.compile(r"\[W ?(?:\d{3,4} )?[^\]]{0,60}\.cpp:\d{1,7}\]")
_NEAR_END = 20
#: Words with which a program reports that it waits.
_WAITS = re.compile(r"(?i)\b(?:still |is |are )?waiting (?:for|on|to|until)\b")
_RANK_LABEL = re.compile(r"^\[rank\d{1,7}\]: ?")
#: A line of NCCL that reports what it does, and no failure unless a call returned a result.
_INFORMS = r"\bNCCL (?:INFO|TRACE|VERSION|CALL)\b"
#: Lines in which a library gives advice, and a sentence that does.
_ADVISES = re.compile(r"\b[NR]CCL (?:WARN|ERROR)\b|\b(?:NCCL|RCCL|GLOO|FI|UCX)_[A-Z_]{3,40}|\bGloo\b|\bHINT\b")
_ADVICE = re.compile(
    r"\b(?:HINT|[Hh]int):|\b[Ss]et(?:ting)? (?:the )?(?:environment variable )?[A-Z]{2,8}_[A-Z_]{3,40}\b(?! (?:by|to))"
    r"|\b[Ss]et [A-Z]{2,8}_[A-Z_]{3,40} ?(?:=|to)|\b[Dd]isabl(?:e|ing) \w|\bManually set\b|\bMissing .{1,80} from\b"
    r"|\b(?:[Cc]heck|[Vv]erify|[Mm]ake sure|[Ee]nsure) (?:the|that|if|your|whether|[A-Z])"
    r"|\b[Tt]ry (?:to|selecting|with)\b"
    r"|\b[Pp]lease (?:check|update|upgrade|install|set|make|verify|use)\b|\busually caused by\b|\b[Cc]onsider \w+ing\b"
)
_SENTENCE = re.compile(r"(?<=[.!]) +(?=[A-Z])")
#: Entries about what a call of NCCL returned: the line after "Last error:" names the cause.
_RESULTS = frozenset(("invalid-usage",))
#: Values of a line that the commands of an entry name.
_VALUES = {
    "peer": re.compile(
        r"(?:\bfrom peer|[Cc]onnect(?:ing)? to|\bremote[= ]\[?|\bpeer|recv from|send to|\bto) \[?"
        r"([\w.:-]{1,255}?)\]?(?:<\d{1,6}>|:\d{1,5}\b)"
    ),
    "port": re.compile(
        r"\b(?:\d{1,3}\.){3}\d{1,3}:(\d{2,5})\b|\bport:? (\d{2,5})\b|\b[a-z]{2,8}://[^\s/]{1,255}:(\d{2,5})\b|(?<!:\d)[\w.\]](?::|<)(\d{2,5})(?:>|(?![\w.:\]]))"
    ),
    "nic": re.compile(r"\b((?:mlx5|mlx4|bnxt_re|irdma|efa|rdmap|rocep|ibp|roce|ionic)_?\w{0,20}\d)\b"),
    "gid": re.compile(r"\blocalGid ([0-9a-f:.]{2,45})", re.I),
    "remote": re.compile(r"\bremoteGids? ([0-9a-f:.]{2,45})", re.I),
    "pci": re.compile(r"\b((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)(?![.\w]|:\w)", re.I),
}
#: What a line may be: a failure, about ranks or nodes, and others; below 0: an entry of the catalogue, by its place.
_FAILS, _RANKS, _LASTS, _INFORM, _ADVISE, _QUOTES = range(6)
_SEVERITY = {"cause": Severity.BAD, "consequence": Severity.WARN, "notice": Severity.NOTE}
#: Maximum number of ranks or hosts that a title names.
_MOST_NAMED = 4


class LogPlace(NamedTuple):
    """A line of a log."""

    file: int  #: Number of its file.
    line: int  #: Number of the line, from 1 on.
    time: datetime | None  #: Its time stamp, or the one of the line before it; None if the file has none.
    who: str  #: Rank or host that it names, or "".
    text: str  #: Its text, not cleaned.
    node: str = ""  #: Host that it names, or "".
    printer: str = ""  #: What printed it, as far as the lines show, or "".
    advice: str = ""  #: What its message advises, in its own words, or "".
    loud: int = 0  #: How clearly it names a failure (`Loudness`).
    kind: Meaning | None = None  #: The kind of failure that it has by its form; None for an error of the catalogue.

    @property
    def order(self) -> tuple[datetime, int, int]:
        """Position among all lines: by time stamp; files without any come last."""
        return self.time or datetime.max, self.file, self.line


@dataclass(slots=True)
class Occurrences:
    """An error of a log: its earliest line, how often it is there, and on which ranks or hosts."""

    meaning: Meaning
    first: LogPlace
    last: LogPlace  #: Its last line in the last file.
    count: int = 0
    who: dict[str, None] = field(default_factory=dict)
    advice: str = ""  #: What the library itself advises, with its name: ``NCCL advises: ...``; only of the first cause.
    _forms: dict[tuple[str, str], int] = field(default_factory=dict)
    _most: dict[str, int] = field(default_factory=dict)

    def add(self, place: LogPlace) -> None:
        """Count one more line; lines in other words in which a rank reports the same are not counted again."""
        if place.file != self.first.file or place.time != self.first.time or place.line < self.first.line:
            self.first = min(self.first, place, key=lambda one: one.order)
        self.last = place
        if place.who and len(self.who) < _MOST_KEPT:
            self.who.setdefault(place.who)
        if "rank" in place.who and len(self._forms) < _MOST_KEPT:
            form = place.who, _alike(place.text)
            self._forms[form] = lines = self._forms.get(form, 0) + 1
            if lines <= self._most.get(place.who, 0):
                return
            self._most[place.who] = lines
        self.count += 1

    @property
    def order(self) -> tuple[datetime, int, int, int]:
        """Position among errors: by time stamp, then by severity; files without stamps come last."""
        time, file, line = self.first.order
        return time, _mildness(self.meaning, self.first.text), file, line

    beside: str = ""  #: The text beside which its meaning holds, or "".

    @property
    def explained(self) -> Meaning:
        """Its meaning, with the addresses, the NIC and the node of its earliest line in the next step and commands."""
        values, meaning = _values(self.first), of_line(self.meaning, self.first.text, self.beside)
        commands = tuple((end, filled(command, values)) for end, command in meaning.commands if fills(command, values))
        return meaning._replace(text=filled(meaning.text, values), next=filled(meaning.next, values), commands=commands)

    @property
    def peer(self) -> str:
        """Address of the other end that its earliest line names, or ""."""
        return _values(self.first).get("peer", "")


class Causes(NamedTuple):
    """Errors of logs, each list in order of time."""

    causes: list[Occurrences]  #: The earliest cause first; without a cause, the earliest consequence.
    consequences: list[Occurrences]  #: Errors that follow from the first cause.
    notices: list[Occurrences]  #: Lines that are worth knowing and no errors by themselves.
    unknown: list[LogPlace]  #: Warnings and exceptions that are not in the catalogue.
    behind: list[int]  #: Ranks that completed and enqueued least.
    advice: str = ""  #: What a library itself advises, with its name; also part of the first cause.
    several_nodes: bool = False  #: Whether the logs show more than one node.
    failing: LogPlace | None = None  #: The first line that names a failure which no entry explains.
    waits: LogPlace | None = None  #: The last line of a log, near its end, with which the program waits.

    @property
    def named(self) -> bool:
        """True if the first of its errors names a cause."""
        return bool(self.causes) and self.causes[0].meaning.role == "cause" and not self.part

    @property
    def part(self) -> str:
        """The part that failed, where no line names a cause: ``UCX``; or ""."""
        first = self.causes[0].meaning if self.causes else None
        return first.text.partition(" failed")[0] if first is not None and is_stage(first) else ""

    @property
    def matters(self) -> bool:
        """True if a notice is worth knowing without a failure; some are normal on a single node."""
        return any(self.several_nodes or one.meaning.cause_if != "several-nodes" for one in self.notices)

    @property
    def known(self) -> tuple[int, int]:
        """Number of kinds of errors of the catalogue, causes and consequences, and number of their lines."""
        errors = [one for one in (*self.causes, *self.consequences) if not is_stage(one.meaning)]
        return len(errors), sum(one.count for one in errors)


def _shown(line: str) -> str:
    """Return what is examined of a line: after a carriage return it starts again, as on a terminal."""
    return line.rstrip("\r").rpartition("\r")[2][:_LONGEST_LINE]


class LogReader:
    """Finds the errors in logs, which are added one by one."""

    def __init__(self) -> None:
        self.lines = 0
        self.cut = False
        self.informed = False  #: Whether a log shows what NCCL does, so that its silence about failures counts.
        self._files = 0
        self._lengths: list[int] = []  # Number of lines of each file.
        self._examined = 0
        self._found: dict[tuple[str, ...], Occurrences] = {}
        self._unknown: dict[str, LogPlace] = {}
        self._plain: dict[str, bool] = {}  # Lines without an explanation, and whether each is a warning or exception.
        self._sounds: set[str] = set()  # Lines that sound like a failure, which no entry explains.
        self._failing: LogPlace | None = None  # The first of the loudest of them.
        self._waits: LogPlace | None = None
        self._text: list[str] = []  # The lines of the current file.
        # A warning whose stage the calls that return may show: its line and its own stage.
        self._pending: tuple[int, str, Meaning | None] | None = None
        self._returned: tuple[Meaning, LogPlace] | None = None
        self._advice: dict[str, str] = {}
        self._starting: dict[tuple[int, str, str], LogPlace] = {}
        self._completed = False
        self._debugged = False
        self._hosts: set[str] = set()
        self._nodes = 1
        self._programs: frozenset[str] = frozenset()  # Programs that the current file names.
        self._addresses: dict[str, set[str]] = {}
        self._work: dict[int, tuple[int, int]] = {}

    def add(self, text: str) -> None:
        lines = text.split("\n", MOST_LINES)
        self.cut = self.cut or len(lines) > MOST_LINES
        clock = _Clock(text, lines)
        self._text = lines
        self.informed = self.informed or " NCCL INFO " in text or " NCCL DIAG " in text
        self._programs = programs_in(text)
        last_error = 0
        for number, line in enumerate(lines[:MOST_LINES]):
            shown = _shown(line).strip()
            last_error = last_error - 1 if last_error and shown and not _RECORD.search(shown) else 0
            head = _NCCL_HEAD.match(shown) if " NCCL " in shown else None
            alike = f"host:1:1 [0]{head[3] or ''}{shown[head.end() :]}" if head else shown
            marks = _marks_of(alike)
            # What other programs advise is not examined.
            if not last_error and (marks in ([], [_QUOTES], [_INFORM]) or is_code(lines, number)):
                continue
            if line.startswith(" ") and (chained := in_chain(lines, number)) != line:
                shown = chained
                marks = _marks().owners(shown)
            self._examined += 1
            if self._examined > MOST_ERRORS:
                self.cut = True
                break
            self._line(number, shown, alike, clock, last_error > 0)
            if _LASTS in marks and (message := _LAST.search(shown)):
                last_error = _LAST_ERROR
                self._debugged = self._debugged or bool(
                    message[1].strip() or "".join(lines[number + 1 : number + 2]).strip()
                )
        self._settle(clock)
        ends = range(len(lines) - 1, max(-1, len(lines) - _NEAR_END), -1)
        if (at := next((at for at in ends if _WAITS.search(lines[at][:_LONGEST_LINE])), None)) is not None:
            self._waits = LogPlace(self._files, at + 1, None, "", _shown(lines[at]))
        self._beside(text)
        self._text = []
        self._lengths.append(len(lines))
        self.lines += len(lines) - (not lines[-1])
        self._files += 1

    def _line(self, number: int, raw: str, alike: str, clock: _Clock, reported: bool) -> None:
        """Take a line; ``alike`` is it without what differs between processes that print the same."""
        marks = _marks_of(alike)
        if _RANKS in marks:
            self._circumstances(number, raw, clock)
        informs = _INFORM in marks
        advises = _QUOTES in marks and not informs
        if advises and (reported or (_ADVISE in marks and _ADVISES.search(raw[:_LONGEST_ADVICE]))):
            self._quote(raw)
        if informs and _FAILS in marks and returned_failure(raw):
            self._returns(number, raw, clock)
        elif (meaning := _meaning_of_xid(raw) or _known(alike, reported, self._programs)) is not None:
            self._settle(clock)
            meaning, at = self._unwrapped(meaning, number, raw)
            number, raw = (at, self._text[at]) if at > number else (number, raw)
            place = self._place(number, raw, clock)
            if informs or meaning.cause_if:
                meaning = meaning._replace(role="notice")
            elif meaning.role == "cause" and _RETRIES.search(raw):
                meaning = meaning._replace(role="notice", cause_if="alone")
            self._count(self._circumstance(meaning, place, clock), place)
        elif not informs and (_FAILS in marks or reported):
            self._unexplained(number, raw, alike, clock, reported)

    def _unwrapped(self, meaning: Meaning, number: int, raw: str) -> tuple[Meaning, int]:
        """Return what the innermost reason of an error means, where its entry is about what wraps it, and its line.

        The reason of nested errors may be in a line below them, which another program printed.
        """
        if not meaning.follows or " NCCL " in raw:
            return meaning, number
        nested = reason_of(raw)
        texts = [nested or raw, *(self._text[number + 1 : number + 1 + _BELOW] if nested else ())]
        for at, text in enumerate(texts):
            reason = (reason_of(text) or text) if at else text
            own = meaning_of(reason, programs=self._programs), general_meaning(reason)
            if (inner := next((one for one in own if one is not None and one.id in meaning.follows), None)) is not None:
                return inner, number + at
        return meaning, number

    def _unexplained(self, number: int, raw: str, alike: str, clock: _Clock, reported: bool) -> None:
        """Take a line that no entry explains: by a number in it, by its form, by its stage, or as unknown."""
        if (notable := self._plain.get(key := _alike(raw))) is not None:
            # A line that differs in its numbers alone, none of which has a meaning, is not new.
            if notable:
                self._settle(clock)
                self._pending = number, raw, None
            return
        failure = stage_failure(alike, reported, programs=self._programs)
        # A stage that NCCL itself reports stands, however loudly.
        if failure is None or is_general(failure) or " NCCL " not in raw:
            loud = loudness(raw)
            kind = None
            if loud > Loudness.FRAME:
                message, reason = message_of(raw, self._text[max(0, number - AROUND) : number]), reason_of(raw)
                possible = _entries(_marks_of(alike)) if message == raw else None
                kind = (general_meaning(reason) if reason else None) or general_meaning(message, possible)
                of_field = kind if kind is not None and "field" in self._programs else None
                failure = entry_of_number(raw) or of_field or failure
            elif loud and (kind := general_meaning(raw)) is not None and kind.id in _BY_SIGNAL:
                failure = kind if "field" in self._programs else failure
            else:
                kind = None
            if failure is None and loud:
                below = "\n".join(self._text[number + 1 : number + 3])
                if kind is None and below.lstrip().startswith(("Traceback (most recent", "Caused by:")):
                    loud = Loudness.FRAME
                self._sound(key, number, raw, clock, loud, kind)
        if failure is None:
            named = "Error" in raw or "Exception" in raw or "NCCL " in raw
            notable = named and _NOTABLE.search(unlabelled(_RANK_LABEL.sub("", raw))) is not None
            if len(self._plain) < _MOST_KEPT:
                self._plain[key] = notable
            if not notable:
                return
        self._settle(clock)
        if failure is None or is_general(failure):
            self._pending = number, raw, failure
        else:
            self._count(failure, self._place(number, raw, clock))

    def _sound(self, key: str, number: int, raw: str, clock: _Clock, loud: Loudness, kind: Meaning | None) -> None:
        """Keep a line that sounds like a failure, if none before it is louder."""
        if len(self._sounds) < _MOST_KEPT and key not in self._sounds:
            self._sounds.add(key)
            message = EXCEPTION.match(raw)
            # An exception without a message is worth less than a line with one.
            rank = 2 * (kind is not None) + int(loud) - (message is not None and not message[2])
            if (best := self._failing) is not None and rank < best.loud:
                return
            place = self._place(number, raw, clock)._replace(loud=rank, kind=kind)
            # Between equals the earliest counts; of exceptions raised from one another it is the innermost.
            if best is None or rank > best.loud or place.order < best.order:
                self._failing = self._detailed(place)

    def _detailed(self, place: LogPlace) -> LogPlace:
        """Return a line with what printed it and what its message advises."""
        at = place.line - 1
        above, below = self._text[max(0, at - AROUND) : at], self._text[at : at + AROUND]
        ends = (number for number, line in enumerate(below) if number and (not line.strip() or _RECORD.search(line)))
        return place._replace(
            text=message_of(place.text, above),
            printer=printer(place.text, above),
            advice=advised(below[: next(ends, AROUND)]),
        )

    def _place(self, number: int, raw: str, clock: _Clock) -> LogPlace:
        head, nccl, _ = raw.partition(" NCCL ")
        printed = _printed_by(head) if nccl else None
        rank = _rank_of(raw)
        if " NCCL DIAG " in raw and (about := _DIAGNOSED.search(raw)):
            # The line begins with the process that writes the report, which is of all ranks.
            who = ", ".join(part for part in about.groups() if part)
            return LogPlace(self._files, number + 1, clock.at(number), who, raw)
        named = None if printed or "srun" not in raw else _NODE_NAMED.search(raw)
        host = f"{printed[0]} [{printed[1]}]" if printed else named[1] or named[2] if named else ""
        who = ", ".join(part for part in (f"rank {rank}" if rank is not None else "", host) if part)
        return LogPlace(self._files, number + 1, clock.at(number), who, raw, printed[0] if printed else "")

    def _returns(self, number: int, raw: str, clock: _Clock) -> None:
        """Take a call that returned a failure: it shows the stage of the warning before it."""
        warned_at, warned, own = self._pending or (0, "", None)
        failure = stage_failure(warned, returned=raw)
        if failure is None or (own is not None and is_general(failure)):
            return
        pending = self._place(warned_at, warned, clock) if self._pending else None
        place = self._place(number, raw, clock)
        if pending is not None and pending.node in ("", place.node):
            self._count(failure, pending)
            self._pending = None
        elif self._returned is None:
            self._returned = failure, place

    def _settle(self, clock: _Clock) -> None:
        """Count the last warning by its own stage, or as unknown, if no call after it showed its stage."""
        if self._pending is None:
            return
        number, raw, failure = self._pending
        self._pending = None
        if failure is not None:
            self._count(failure, self._place(number, raw, clock))
        elif len(self._unknown) < _MOST_KEPT and (key := _alike(raw)) not in self._unknown:
            self._unknown[key] = self._place(number, raw, clock)

    def _circumstances(self, number: int, raw: str, clock: _Clock) -> None:
        place = self._place(number, raw, clock)
        rank = _rank_of(raw)
        if rank is not None and (work := WORK.search(raw)) and len(self._work) < 1_000_000:
            self._work[rank] = int(work[2]), int(work[1])
        if init := _INIT.search(raw):
            key = self._files, place.who, init[1]
            self._starting.pop(key, None)
            self._completed = self._completed or init[2] == "COMPLETE"
            if init[2] == "START" and len(self._starting) < 1_000_000:
                self._starting[key] = place._replace(who=place.who or f"rank {init[1]}")
        for address in _OWN_ADDRESS.findall(raw):
            if len(self._addresses) < _MOST_KEPT:
                self._addresses.setdefault(place.node, set()).add(address)
        if place.node and len(self._hosts) < _MOST_KEPT:
            self._hosts.add(place.node)
        if nodes := NODES.search(raw):
            self._nodes = max(self._nodes, int(nodes[1]))

    def _quote(self, raw: str) -> None:
        raw = raw[:_LONGEST_ADVICE]
        text = re.sub(r"^.{0,300}?(?:NCCL (?:WARN|ERROR)|[Ww]arning:|HINT:) ", "", raw)
        advice = " ".join(part for part in _SENTENCE.split(text) if _ADVICE.search(part))
        if advice and len(self._advice) < _MOST_QUOTED and "NCCL_DEBUG" not in advice:
            name = next((word for word in ("Gloo", "RCCL") if word.lower() in raw.lower()), "NCCL")
            self._advice.setdefault(one_line(advice, 300), name)

    def _circumstance(self, meaning: Meaning, place: LogPlace, clock: _Clock) -> Meaning:
        peer = _PEER_ADDRESS.search(place.text)
        if peer and place.node and peer[1] in self._addresses.get(place.node, ()):
            return refined(meaning, "same-node")
        if place.time and clock.start and (place.time - clock.start).total_seconds() >= _LATER:
            return refined(meaning, "later")
        return meaning

    def _count(self, meaning: Meaning, place: LogPlace) -> None:
        if place.node and len(self._hosts) < _MOST_KEPT:
            self._hosts.add(place.node)
        # Failures of a stage with other numbers are other errors.
        key = meaning.id, meaning.role, meaning.text
        if key not in self._found:
            place = self._detailed(place) if place.file == self._files and self._text else place
            self._found[key] = Occurrences(meaning, place, place)
        self._found[key].add(place)

    def _beside(self, text: str) -> None:
        """Replace errors by those that they are beside other parts of the text."""
        for one in self._found.values():
            if one.first.file == self._files:
                one.meaning, one.beside = refined_beside(one.meaning, text)
        failing = self._failing
        if failing is not None and failing.kind is not None and failing.file == self._files:
            self._failing = failing._replace(kind=refined_beside(failing.kind, text)[0])

    def result(self) -> Causes:
        for place in self._starting.values():
            self._count(meaning_named("init-incomplete"), place)
        self._starting = {}
        if self._returned is not None and not self._unknown and not any(_fails(one) for one in self._found.values()):
            self._count(*self._returned)
        if self._debugged or self.informed:
            for one in self._found.values():
                one.meaning = refined(one.meaning, "debugged")
        failing = self._failing
        errors = sorted(self._found.values(), key=lambda one: one.order)
        loud = [one for one in errors if not _is_quiet(one)]
        if any(map(_fails, loud)) or (failing is not None and failing.loud >= Loudness.LOUD):
            errors = loud
        self._promote(errors)
        causes: list[Occurrences] = []
        consequences: list[Occurrences] = []
        # An entry of the catalogue names the cause; a stage alone shows where it is, a result of NCCL only its kind.
        for one in _specific_first(errors):
            if one.meaning.role == "cause":
                follows = any(_explains(cause, one) for cause in causes)
                (consequences if follows else causes).append(one)
        consequences += [one for one in errors if one.meaning.role == "consequence"]
        consequences.sort(key=lambda one: one.order)
        if not causes and consequences:
            causes.append(consequences.pop(0))
        unknown = sorted(self._unknown.values(), key=lambda place: place.order)
        notices = [one for one in errors if one.meaning.role == "notice"]
        advice = self._quoted()
        if causes:
            causes[0].advice = advice
        return Causes(
            causes, consequences, notices, unknown, self._behind(), advice, self._several, failing, self._waits
        )

    @property
    def _several(self) -> bool:
        return self._nodes > 1 or len(self._hosts) > 1

    def _promote(self, found: list[Occurrences]) -> None:
        """Make causes of notices that are causes between several nodes, or alone, where nothing else is one."""
        failed = any(one.meaning.role == "consequence" for one in found)
        if self._unknown or any(map(_fails, found)) or (self._completed and not failed):
            return
        for one in found:
            when = one.meaning.cause_if
            near_end = one.last.line + _NEAR_END > self._lengths[one.last.file]
            holds = (when == "alone" and near_end) or (when == "several-nodes" and self._several and failed)
            if holds and meaning_named(one.meaning.id).role == "cause":
                one.meaning = one.meaning._replace(role="cause")

    def _quoted(self) -> str:
        names = list(dict.fromkeys(self._advice.values()))
        return f"{names[0]} advises: {' '.join(self._advice)}" if names else ""

    def _behind(self) -> list[int]:
        least = min(self._work.values(), default=None)
        behind = sorted(rank for rank, work in self._work.items() if work == least)
        return behind if len(behind) < len(self._work) else []


@functools.lru_cache(_MOST_KEPT)
def failure_in(line: str) -> Meaning | None:
    """Return what a line alone reports as a failure: its entry in the catalogue, else its stage; None for notices."""
    marks = _marks().owners(line)
    if not marks or _INFORM in marks:
        return None
    programs = programs_in(line)
    failure = _meaning_of_xid(line) or meaning_of(line, programs=programs)
    if failure is None and _FAILS in marks:
        failure = entry_of_number(line) or stage_failure(line, programs=programs)
    return None if failure is None or failure.role == "notice" or failure.cause_if else failure


def _printed_by(head: str) -> tuple[str, int] | None:
    """Return the host and GPU in the text before the name of NCCL."""
    if match := _NCCL_HEAD.fullmatch(head):
        return match[1], int(match[2])
    line = parse_line(f"{head} NCCL WARN ")
    return (line.host, line.device) if line else None


@functools.cache
def _marks() -> PatternSet[int]:
    patterns = {
        **{~at: (meaning.pattern,) for at, meaning in enumerate(meanings()) if meaning.pattern},
        _FAILS: (*evident_patterns(), *sounds(), "(?i)error|exception|hint|nvrm: xid"),
        _RANKS: ("(?i)init start|init complete|bootstrap|; oob |last completed|nnodes",),
        _LASTS: ("(?i)last error:",),
        _INFORM: (_INFORMS,),
        _ADVISE: (_ADVISES.pattern,),
        _QUOTES: (_ADVICE.pattern,),
    }
    return PatternSet((mark, pattern) for mark, own in patterns.items() for pattern in own)


class _Clock:
    """Time stamps of a file; a line without one has the time of the line before it."""

    def __init__(self, text: str, lines: list[str]) -> None:
        self._text, self._lines = text, lines
        self._read = 0
        self._last: datetime | None = None

    @functools.cached_property
    def start(self) -> datetime | None:
        # Only lines with a time are looked at; none before the first one with a stamp is looked at again.
        place = 0
        for found in islice(TIME.finditer(self._text), _MOST_UNDATED):
            self._read += self._text.count("\n", place, found.start())
            place = found.start()
            if self._read < len(self._lines) and (stamp := stamp_of(self._lines[self._read])) is not None:
                return stamp
        return None

    def at(self, number: int) -> datetime | None:
        """Return the time of a line; lines are asked for in ascending order."""
        if self.start is None:
            return None
        fresh = reversed(self._lines[self._read : number + 1])
        self._last = next((time for line in fresh if (time := stamp_of(line)) is not None), self._last)
        self._read = max(self._read, number + 1)
        return self._last or self.start


@functools.lru_cache(_MOST_KEPT)
def _marks_of(line: str) -> list[int]:
    return _marks().owners(line)


@functools.lru_cache(_MOST_KEPT)
def _known(line: str, reported: bool, programs: frozenset[str]) -> Meaning | None:
    """Return the entry of the catalogue about a line; one after "Last error:" is a warning without its head."""
    if reported:
        return meaning_of(f"NCCL WARN {line}", notices=True, programs=programs)
    entries = _entries(_marks_of(line))
    return meaning_of(line, notices=True, programs=programs, possible=entries) if entries else None


def _entries(marks: Collection[int]) -> list[int]:
    """Return the places of the entries of the catalogue that a line may match."""
    return [~mark for mark in marks if mark < 0]


def _meaning_of_xid(line: str) -> Meaning | None:
    """Return the meaning of the Xid that a line reports; those that follow from others or from programs are notices.

    It has the code of the rule that reports the same Xid where a probe reads the kernel's log.
    """
    if (found := xids.in_line(line)) is None:
        return None
    number, xid = found
    role = "notice" if xid.usual is Severity.NOTE or xids.is_harmless(number, line) else "cause"
    commands = (("node", "sudo dmesg -T | grep -i xid"),)
    advice = f"{xid.advice}." if xid.advice else f"Look up NVIDIA's advice about Xid {number}."
    report = nvlink_report(number, line)
    text = "; ".join([f"Xid {number}: {xids.meaning(number, line)}", *(report.details if report else ())])
    if cause := xids.cause_of(number, line):
        text, advice = f"Xid {number}: a program was ended because of Xid {cause}", f"Look at Xid {cause}."
    return Meaning(f"{_XID}{number}", "FT130", line, None, "", text, advice, commands, "", "", (), role)


def _specific_first(errors: list[Occurrences]) -> list[Occurrences]:
    """Return errors in order of time; within a second of one file, or without stamps, the more specific come first."""
    moments: list[tuple[int, Occurrences]] = []
    start: LogPlace | None = None
    for one in errors:
        near = (
            start is not None
            and start.file == one.first.file
            and (
                start.time == one.first.time
                or (
                    start.time is not None
                    and one.first.time is not None
                    and (one.first.time - start.time).total_seconds() <= _MOMENT
                )
            )
        )
        start = start if near else one.first
        moments.append((moments[-1][0] + (not near) if moments else 0, one))
    names = {one.meaning.id for one in errors}

    def order(item: tuple[int, Occurrences]) -> tuple[bool, bool, int, bool, int]:
        # A stage alone shows where the cause is, a result of NCCL only its kind, and a frame what it wraps.
        moment, meaning = item[0], item[1].meaning
        frame = not names.isdisjoint(meaning.follows)
        # What ended the program goes before other errors that are known by their form alone.
        general = meaning.general + (meaning.general and "fatal" not in item[1].first.text.lower())
        return is_stage(meaning), meaning.id in _RESULTS, moment, frame, general

    return [one for _, one in sorted(moments, key=order)]


def _is_quiet(one: Occurrences) -> bool:
    """Return True for a warning that only has the form of a failure: a program may live with it."""
    return one.meaning.general and loudness(one.first.text) < Loudness.LOUD


def _fails(one: Occurrences) -> bool:
    return one.meaning.role == "cause"


def _explains(cause: Occurrences, error: Occurrences) -> bool:
    """Return True if an error is known to follow from a cause; an Xid explains what a lost GPU does."""
    if is_stage(error.meaning):
        # What fails later, at any stage, may follow.
        return not is_stage(cause.meaning) and cause.order <= error.order
    follows, name = error.meaning.follows, cause.meaning.id
    return name in follows or (name.startswith(_XID) and "gpu-lost" in follows)


def _mildness(meaning: Meaning, line: str) -> int:
    if not meaning.id.startswith(_XID):
        return 0
    entry = {"code": int(meaning.id.removeprefix(_XID)), "text": line}
    return int(xids.severity(entry) is not Severity.BAD)


@functools.lru_cache(maxsize=256)
def _values(place: LogPlace) -> Mapping[str, str]:
    """Return the values of a line for commands: peer, route, NIC, node and others."""
    # Processes, threads and lines of sources before the message look like ports.
    text = place.text[:_LONGEST_LINE].partition(" NCCL ")[2] or place.text[:_LONGEST_LINE]
    found = {name: one[one.lastindex or 0] for name, form in _VALUES.items() if (one := form.search(text))}
    found |= {"node": place.node, "address": found.get("peer", "")}
    # An IPv4 address within a GID is one of the NIC; the peer's is one of its bootstrap.
    here, there = (found.get(name, "").lower().rpartition("::ffff:")[2] for name in ("gid", "remote"))
    there = there if "." in there else found["address"]
    if there:
        found["route"] = f"{there} from {here}" if "." in here and "." in there else there
    return {name: one_line(value, 255) for name, value in found.items() if value}


def _rank_of(line: str) -> int | None:
    match = _RANK_FIRST.match(line) or (_RANK.search(line) if "ank" in line or "[default" in line else None)
    return int(match[match.lastindex or 0]) if match else None


def _alike(line: str) -> str:
    return re.sub(r"[0-9a-fx.:]{2,}|\d", "#", line[:400])


class KnownError(Rule[Occurrences]):
    """Base of the rules of the catalogue; their ids are its codes, such as ``E13``."""

    domain = Domain.LOGS
    message = "{line}[, {times} times][, {who}]"
    evidence = ("{advice}",)

    def check(self, context: Occurrences) -> Iterator[Finding]:
        who, meaning = list(context.who), context.explained
        more = f" and {len(who) - _MOST_NAMED} more" if len(who) > _MOST_NAMED else ""
        facts = {
            "line": context.first.text,
            "times": context.count if context.count > 1 else None,
            "who": "; ".join(who[:_MOST_NAMED]) + more or None,
            "advice": context.advice or None,
            **meaning.facts,
        }
        yield self.finding(meaning.id, facts=facts, commands=dict.fromkeys(command for _, command in meaning.commands))


@functools.lru_cache(maxsize=512)
def error_rule(meaning: Meaning) -> KnownError:
    own = {"id": meaning.code, "name": meaning.id, "title": meaning.prints, "severity": _SEVERITY[meaning.role]}
    own |= {"next_step": meaning.next, "__doc__": meaning.text}
    made: type[KnownError] = type(meaning.id, (KnownError,), own)
    return made()


def error_findings(causes: Causes) -> list[Finding]:
    """Return a finding for each error of logs: causes first, then their consequences, then notices."""
    errors = (*causes.causes, *causes.consequences, *causes.notices)
    return [finding for one in errors for finding in error_rule(one.explained).findings(one)]


def stamp_of(line: str) -> datetime | None:
    """Return the first time stamp of a line, by the clock of this machine's zone; None without a valid one.

    A stamp without a zone is one of this zone. One without a year is of this year or, if it were in the future, of the
    last year that has its day.
    """
    head = line[:_STAMP_WITHIN]
    near = (
        match
        for time in TIME.finditer(head)
        if (match := _STAMP.search(head, max(0, time.start() - _DATE), time.end() + _FRACTION))
        and match.start() <= time.start()
    )
    if (match := next(near, None)) is None:
        return None
    part = (match["part"] or match["fraction"] or match["second"] or "0")[:6].ljust(6, "0")
    if match["iso"]:
        zone = (match["zone"] or "").replace("Z", "+00:00")
        time = _valid(f"{match['iso'].replace('/', '-')}T{match['at']}.{part}{zone}")
        return None if time is None else time.astimezone().replace(tzinfo=None) if zone else time
    month = _MONTHS.index(match["name"]) + 1 if match["name"] else int(match["month"])
    day = f"{month:02}-{int(match['day'] or match['number']):02}T{match['clock'] or match['hour']}.{part}"
    if year := match["year"] or match["last"]:
        return _valid(f"{year}-{day}")
    now = datetime.now()
    # A 29th of February may lie up to eight years back.
    times = (_valid(f"{now.year - back}-{day}") for back in range(9))
    return next((time for time in times if time is not None and time <= now + timedelta(days=1)), None)


def seconds_of(line: str) -> float | None:
    """Return the first time stamp of a line in s since the epoch, or None."""
    time = stamp_of(line)
    try:
        return None if time is None else time.timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _valid(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return None
