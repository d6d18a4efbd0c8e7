"""The running job for the front ends: ranks with their states, who waits for whom, traffic, evidence and rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from math import floor
from typing import NamedTuple

from fabtui.diagnosis.job.job_verdict import JobState, JobVerdict, RankRow, RankState, SourceReading
from fabtui.diagnosis.job.who_is_behind import JobPlace, ranks_of
from fabtui.model.endpoints import node_of
from fabtui.model.job_evidence import JobEvidenceLog, JobSource
from fabtui.model.job_sample import JobSample
from fabtui.nodeset import count, fold, ranges
from fabtui.presentation.cell_levels import CellStyle, Glyphs
from fabtui.presentation.numbers import value_text
from fabtui.presentation.wording import CELL, MUTED, Part, clock_text, plain, time_text
from fabtui.presentation.wrapping import Line, Lines, clipped, stacked, wrapped
from fabtui.sanitize import one_line
from fabtui_node.parsers.lines import json_number

_JOB_STYLES: dict[JobState, CellStyle] = {
    JobState.HANGS: CellStyle.FAILED,
    JobState.SLOW: CellStyle.SLOW,
    JobState.DIVERGES: CellStyle.FAILED,
    JobState.MOVES: CellStyle.GOOD,
    JobState.PAUSED: CellStyle.RUNNING,
    JobState.STARTING: CellStyle.RUNNING,
    JobState.ENDED: CellStyle.SKIPPED,
    JobState.UNKNOWN: CellStyle.INCONCLUSIVE,
}
#: Style of a rank that others wait for, by the state of the job: only what is wrong is loud.
_AWAITED = {state: _JOB_STYLES[state] for state in (JobState.HANGS, JobState.SLOW, JobState.DIVERGES)}
#: Glyph of each state, the same in ASCII, style and meaning, the calm ones first.
_STATES: dict[RankState, tuple[str, str, CellStyle, str]] = {
    RankState.COMPUTING: ("▸", ">", CellStyle.GOOD, "computes"),
    RankState.WAITING: ("~", "~", CellStyle.SKIPPED, "waits in a collective"),
    RankState.AWAITED: ("!", "!", CellStyle.RUNNING, "others wait for it"),
    RankState.STOPPED: ("■", "#", CellStyle.FAILED, "stopped"),
    RankState.DEAD: ("x", "x", CellStyle.FAILED, "dead"),
    RankState.NOT_STARTED: ("○", "o", CellStyle.TIMEOUT, "not started"),
    RankState.IDLE: ("·", ".", CellStyle.UNTESTED, "idle"),
    RankState.UNKNOWN: ("?", "?", CellStyle.INCONCLUSIVE, "unknown"),
}
_BAD = frozenset({CellStyle.FAILED, CellStyle.SLOW, CellStyle.TIMEOUT})
#: Maximum number of nodes whose rates are added up.
_MOST_NODES = 32
#: Time (s) of the rate now; two samples at least.
_NOW = 2.0
#: Maximum number of groups of ranks, of ranks that are behind, and of commands that are listed.
_MOST_GROUPS, _MOST_BEHIND, _MOST_STEPS = 8, 3, 3
#: Maximum number of branches of the stacks while these are folded.
_MOST_BRANCHES = 8
_TEXT = 300
#: Age (s) from which a verdict, and from which the evidence of a source, is marked with its age.
_FRESH, _OLD = 4.0, 2.0
#: Share of the highest rate below which the job is taken to pause.
_PAUSED = 0.05
_NO_TRAFFIC = "no counter separates pairs: NVLinks and NICs count a GPU's traffic with all others; no ring is known"


def state_glyph(state: RankState, glyphs: Glyphs) -> str:
    unicode, plain, *_ = _STATES[state]
    return plain if glyphs.plain else unicode


class Quantity(NamedTuple):
    """Quantity of ranks, in the words of all front ends."""

    name: str  #: Name of its line in a cell.
    heading: str  #: Heading of its column.
    label: str  #: Word before its value in a text.
    unit: str
    read: Callable[[RankRow], float | None]
    text: Callable[[float], str]

    def span(self, rows: Iterable[RankRow]) -> str:
        """Return its value, or range of values, without the unit; "" if it is unknown."""
        known = [value for row in rows if (value := self.read(row)) is not None]
        low, high = (self.text(min(known)), self.text(max(known))) if known else ("", "")
        return low if low == high else f"{low}-{high}"

    def words(self, rows: Iterable[RankRow]) -> str:
        """Return its values with label and unit: ``NIC 18-46 GB/s``."""
        values = self.span(rows)
        return f"{self.label} {values} {self.unit}".strip() if values else ""


def rate_text(value: float | None) -> str:
    """Return bytes per second as GB/s without the unit, or ``-``."""
    return "-" if value is None else "0" if value < 5e5 else value_text(value / 1e9)


QUANTITIES = (
    Quantity("util", "GPU %", "", "%", lambda row: row.utilization, "{:.0f}".format),
    Quantity("power", "W", "", "W", lambda row: row.power, "{:.0f}".format),
    # The NIC beside it has its unit.
    Quantity("NVLink", "NVLink GB/s", "NVLink", "", lambda row: row.nvlink, rate_text),
    Quantity("NIC", "NIC GB/s", "NIC", "GB/s", lambda row: row.nic, rate_text),
    Quantity("CPU", "CPU %", "CPU", "%", lambda row: row.cpu, lambda value: f"{100 * value:.0f}"),
)


def _brief(rows: Sequence[RankRow]) -> tuple[Quantity, ...]:
    """Return the quantities that show at a glance what ranks do: the processor where they have no GPU."""
    return QUANTITIES[:-1] if any(row.utilization is not None for row in rows) else QUANTITIES


def state_meanings(glyphs: Glyphs) -> list[tuple[str, str]]:
    return [(state_glyph(state, glyphs), meaning) for state, (*_, meaning) in _STATES.items()]


class PairTraffic(NamedTuple):
    """Traffic of a pair of endpoints or nodes that counters prove (bytes/s, both directions)."""

    ends: tuple[str, str]
    rate: float
    proof: str


class Rate(NamedTuple):
    """A rate of the whole job over time: values of equal steps, the oldest first, None where it is unknown."""

    name: str
    values: tuple[float | None, ...]
    usual: float | None
    latest: float | None = None  #: Latest value, where it is known for a shorter time than a step.

    @property
    def now(self) -> float | None:
        known = (self.latest, *reversed(self.values))
        return next((value for value in known if value is not None), None)


class JobBoard:
    """A verdict about the running job, arranged by nodes; the evidence is for rates over time."""

    def __init__(self, verdict: JobVerdict, log: JobEvidenceLog | None = None) -> None:
        self.verdict = verdict
        self._log = log
        self.rated = (0, 0)  #: Number of nodes whose rates are added up, of all.
        self._rates: dict[tuple[int, float], list[Rate]] = {}

    @property
    def style(self) -> CellStyle:
        if self.verdict.struck and not self.verdict.bad:
            return CellStyle.SLOW
        return _JOB_STYLES[self.verdict.state]

    def style_of(self, row: RankRow) -> CellStyle:
        style = _STATES[row.state][2]
        return _AWAITED.get(self.verdict.state, style) if row.state is RankState.AWAITED else style

    def legend(self, glyphs: Glyphs) -> tuple[tuple[CellStyle, str, str], ...]:
        """Return style, glyph and meaning of the states: first those that ranks are in, then the others."""
        here = {row.state for row in self.verdict.ranks}
        awaited = _AWAITED.get(self.verdict.state, CellStyle.FAILED)
        rows = [
            (awaited if state is RankState.AWAITED else style, state_glyph(state, glyphs), meaning)
            for state, (*_, style, meaning) in sorted(_STATES.items(), key=lambda item: item[0] not in here)
        ]
        return tuple(rows)

    @cached_property
    def places(self) -> dict[tuple[str, int], list[RankRow]]:
        """Ranks by node and column, which is the index of the GPU, else the place among the ranks of the node."""
        found: dict[tuple[str, int], list[RankRow]] = {}
        used: dict[str, int] = {}
        for row in self.verdict.ranks:
            node, _, index = row.endpoint.rpartition(":")
            if not node or not index.isdecimal():
                node, index = row.place.node, str(used.get(row.place.node, 0))
            used[node] = max(used.get(node, 0), int(index) + 1)
            found.setdefault((node, min(int(index), 255)), []).append(row)
        return found

    @cached_property
    def nodes(self) -> list[str]:
        return list(dict.fromkeys((*self.verdict.nodes, *(node for node, _ in self.places))))

    @cached_property
    def columns(self) -> int:
        return max((column + 1 for _, column in self.places), default=0)

    def at(self, node: str, column: int) -> RankRow | None:
        """Return the rank at a place: of several the worst one."""
        ranks = self.places.get((node, column), ())
        return max(ranks, key=lambda row: (self.style_of(row) in _BAD, row.state is RankState.WAITING), default=None)

    @cached_property
    def bad(self) -> list[tuple[str, int]]:
        """Places of the ranks at fault: those that the others wait for first."""
        behind = {place.rank for place in self.verdict.behind}
        faults = [
            (row.rank not in behind, place)
            for place, rows in self.places.items()
            for row in rows
            if row.rank in behind or self.style_of(row) in _BAD
        ]
        return list(dict.fromkeys(place for _, place in sorted(faults, key=lambda one: one[0])))

    def row_of(self, place: JobPlace) -> RankRow | None:
        return next((row for row in self.verdict.ranks if row.rank == place.rank), None)

    @cached_property
    def line_names(self) -> tuple[str, ...]:
        """Names of the lines of a rank's cell below its first one, if their value is known."""
        return tuple(one.name for one in _brief(self.verdict.ranks) if one.span(self.verdict.ranks))

    def cell_lines(self, row: RankRow, width: int, glyphs: Glyphs) -> list[str]:
        """Return the lines of the cell of a rank in a width: its number and state, then those of `line_names`."""
        glyph = state_glyph(row.state, glyphs)
        head = next(text for text in (f"{row.rank} {glyph}", f"{row.rank}{glyph}", glyph) if len(text) <= width)
        shown = [(one.span([row]), one.unit) for one in QUANTITIES if one.name in self.line_names]
        # The legend has the unit of rates.
        texts = [f"{text} {unit}" if text and unit in ("%", "W") else text or "-" for text, unit in shown]
        return [head, *(text if len(text) <= width else text.split()[0][:width] for text in texts)]

    def pair_text(self, src: str, dst: str) -> str:
        known = next((one for one in self.traffic if src != dst and {src, dst} == set(one.ends)), None)
        return "" if known is None else rate_text(known.rate)

    @cached_property
    def traffic(self) -> list[PairTraffic]:
        """Traffic that counters prove: of two GPUs that have a node for themselves, and of two nodes."""
        pairs = []
        of_node: dict[str, list[RankRow]] = {}
        for row in self.verdict.ranks:
            of_node.setdefault(node_of(row.endpoint) if row.endpoint else row.place.node, []).append(row)
        for rows in of_node.values():
            ends = sorted({row.endpoint for row in rows if row.endpoint})
            rates = [row.nvlink for row in rows if row.nvlink is not None]
            if len(ends) == 2 and len(rates) == 2:
                proof = "NVLink: no other GPU of the node is in the job"
                pairs.append(PairTraffic((ends[0], ends[1]), max(rates), proof))
        if len(of_node) == 2:
            nics = [max((row.nic for row in rows if row.nic is not None), default=None) for rows in of_node.values()]
            known = [rate for rate in nics if rate is not None]
            if known:
                first, second = of_node
                pairs.append(PairTraffic((first, second), max(known), "NICs: the job has no other node"))
        return pairs

    def rates(self, steps: int, seconds: float) -> list[Rate]:
        if (steps, seconds) not in self._rates:
            self._rates[steps, seconds] = [] if self._log is None else self._rates_of(self._log, steps, seconds)
        return self._rates[steps, seconds]

    def _rates_of(self, log: JobEvidenceLog, steps: int, seconds: float) -> list[Rate]:
        verdict = self.verdict
        start = verdict.at - steps * seconds
        # In a long step, the rate of a job that has just stopped would be that of before.
        moments = (start, seconds, steps), (verdict.at - _NOW, _NOW, 1)
        nvlink, nvlink_now = (_Timeline(*moment) for moment in moments)
        nic, nic_now = (_Timeline(*moment) for moment in moments)
        # No node has a sample where files alone show the job.
        nodes = log.nodes[:: max(1, -(-len(log.nodes) // _MOST_NODES))]
        for node in nodes:
            samples = log.samples(node)
            for line in (nvlink, nvlink_now):
                line.add(samples, lambda one: _total((gpu.tx, gpu.rx) for gpu in one.gpus))
            for line in (nic, nic_now):
                line.add(samples, lambda one: _total((port.tx, port.rx) for port in one.nics))
        self.rated = len(nodes), len(log.nodes)
        before = int((verdict.since - start) / seconds) if verdict.bad else steps
        rates = [Rate("iterations/min", *_iterations(log, _Timeline(start, seconds, steps), before))]
        rates += [
            Rate(name, _scaled(line.values), _usual(line.values, before, 1e9), *_scaled(now.values))
            for name, line, now in (("NVLink GB/s", nvlink, nvlink_now), ("NIC GB/s", nic, nic_now))
        ]
        return [one for one in rates if one.now is not None]


class _Timeline:
    """Sums of rates by steps of time."""

    def __init__(self, start: float, seconds: float, steps: int) -> None:
        self._start, self._seconds = start, seconds
        self.values: list[float | None] = [None] * steps

    def put(self, begin: float, end: float, rate: float) -> None:
        first, last = ((when - self._start) / self._seconds - 0.5 for when in (begin, end))
        for at in range(max(0, floor(first) + 1), min(len(self.values) - 1, floor(last)) + 1):
            self.values[at] = rate + (self.values[at] or 0.0)

    def add(self, samples: Sequence[JobSample], read: Callable[[JobSample], int | None]) -> None:
        begin = self._start - self._seconds
        readings = [(one.time, one.clock, read(one)) for one in samples if one.time >= begin]
        for (time, clock, before), (end, later, after) in pairwise(readings):
            if before is not None and after is not None and after >= before and later > clock:
                self.put(time, end, (after - before) / (later - clock))


def _scaled(values: Sequence[float | None]) -> tuple[float | None, ...]:
    return tuple(None if one is None else one / 1e9 for one in values)


def _total(pairs: Iterable[tuple[int | None, int | None]]) -> int | None:
    known = [value for pair in pairs for value in pair if value is not None]
    return sum(known) if known else None


def _usual(values: Sequence[float | None], before: int, scale: float = 1.0) -> float | None:
    known = [value for value in values[: max(0, before)] if value is not None]
    # A pause is not usual.
    known = [value for value in known if value >= _PAUSED * max(known)]
    return sorted(known)[len(known) // 2] / scale if known else None


def _iterations(log: JobEvidenceLog, line: _Timeline, before: int) -> tuple[tuple[float | None, ...], float | None]:
    usual = None
    for _, readings in log.readings(JobSource.LOG):
        numbers = [(one.time, json_number(one.value.get("iteration"))) for one in readings]
        for (begin, first), (end, last) in pairwise(numbers):
            if first is not None and last is not None and last >= first and end > begin:
                line.put(begin, end, 60 * (last - first) / (end - begin))
        interval = json_number(readings[-1].value.get("interval")) if readings else None
        usual = 60 / interval if interval else usual
    return tuple(line.values), usual if usual is not None else _usual(line.values, before)


def rank_parts(board: JobBoard, row: RankRow, glyphs: Glyphs) -> Line:
    where = one_line(row.endpoint or row.place.node, 80)
    return [
        (f"rank {row.rank} ", "bold"),
        (f"{where}  ", ""),
        (f" {state_glyph(row.state, glyphs)} {row.state} ", f"{CELL}{board.style_of(row).key}"),
        # How its state shows has the use of its GPU.
        (f"  {_numbers([row], QUANTITIES[2:] if row.why.startswith('GPU') else QUANTITIES)}", ""),
        (f"  {one_line(row.why, _TEXT)}" if row.why else "", MUTED),
    ]


class JoinedRanks(NamedTuple):
    """Ranks of one state, joined."""

    state: RankState
    rows: tuple[RankRow, ...]

    @property
    def places(self) -> str:
        """Their endpoints: ``n060:0-7 n061:0,2-7``; nodes whose endpoints have the same numbers are folded."""
        indices: dict[str, list[int]] = {}
        for row in self.rows:
            node, _, index = row.endpoint.rpartition(":")
            indices.setdefault(node or row.place.node, []).extend([int(index)] if index.isdecimal() else [])
        alike: dict[str, list[str]] = {}
        for node, numbers in indices.items():
            alike.setdefault(ranges(numbers), []).append(node)
        return " ".join(one_line(f"{fold(nodes)}:{text}".rstrip(":"), 120) for text, nodes in alike.items())


def joined(board: JobBoard) -> list[JoinedRanks]:
    groups: dict[RankState, list[RankRow]] = {}
    for row in board.verdict.ranks:
        groups.setdefault(row.state, []).append(row)
    states = [JoinedRanks(state, tuple(rows)) for state, rows in groups.items()]
    return sorted(states, key=lambda group: (board.style_of(group.rows[0]) not in _BAD, len(group.rows)))


def _numbers(rows: Sequence[RankRow], quantities: Iterable[Quantity]) -> str:
    return "  ".join(filter(None, (one.words(rows) for one in quantities)))


def group_lines(board: JobBoard, width: int, glyphs: Glyphs) -> Lines:
    lines: Lines = []
    behind = board.verdict.behind
    groups = joined(board)
    for group in groups[:_MOST_GROUPS]:
        verb = "waits" if len(group.rows) == 1 else "wait"
        target = f" {verb} for {ranks_of(behind)}" if behind and group.state is RankState.WAITING else ""
        numbers = _numbers(group.rows, _brief(group.rows))
        head: Line = [
            (f" {state_glyph(group.state, glyphs)} ", f"{CELL}{board.style_of(group.rows[0]).key}"),
            (f" {group.places}", "bold" if board.style_of(group.rows[0]) in _BAD else ""),
            (target or f" {group.state}", ""),
        ]
        line = [*head, (f"  {numbers}", MUTED)]
        apart = [*wrapped(head, width, 4), *wrapped([("    ", ""), (numbers, MUTED)], width, 4)]
        lines += [line] if len(plain(line)) <= width else apart
    left = sum(len(group.rows) for group in groups[_MOST_GROUPS:])
    return [*lines, [(f"    and {count(left, 'rank')} more", MUTED)]] if left else lines


def behind_lines(board: JobBoard, width: int, glyphs: Glyphs) -> Lines:
    verdict, tone = board.verdict, f"$tone-{board.style.key}"
    edge: Part = ("| " if glyphs.plain else "▌", tone)
    since = f", since {time_text(verdict.since)}" if verdict.since else ""
    lines: Lines = []
    for place in verdict.behind[:_MOST_BEHIND]:
        row = board.row_of(place)
        gpu = f", GPU {one_line(place.gpu, 20)}" if place.gpu else ""
        pid = f", pid {place.pid}" if place.pid is not None else ""
        node = one_line(place.node or (node_of(row.endpoint) if row is not None else ""), 80)
        where = f" on {node}" if node else ""
        lines.append([(f"rank {place.rank}", f"bold {tone}"), (f"{where}{gpu}{pid}", "bold")])
    if verdict.where:
        lines.append([(f"{one_line(verdict.where, _TEXT)}{since}", "")])
    if (left := len(verdict.behind) - _MOST_BEHIND) > 0:
        lines.append([(f"and {count(left, 'more rank')}", MUTED)])
    numbers = {place.rank for place in verdict.behind}
    others = [one for one in verdict.sources if one.suspects and not numbers & {place.rank for place in one.suspects}]
    if verdict.behind and others:
        names = (f"{one_line(one.name, 20)} names {ranks_of(one.suspects)}" for one in others)
        lines.append([(f"but {', '.join(names)}", "$warning")])
    if verdict.needs:
        lines.append([(f"not enough evidence: {one_line(verdict.needs, _TEXT)}", "$warning")])
    return [[edge, *line] for line in stacked(lines, width - len(edge[0]), 2)]


def stack_lines(board: JobBoard, width: int, glyphs: Glyphs, *, whole: bool = False) -> Lines:
    """Return the prefix tree of the stacks, a line for each branch or, if ``whole``, for each function."""
    behind = {place.rank for place in board.verdict.behind}
    lines: Lines = []
    for branch in board.verdict.stacks:
        style = f"$tone-{board.style.key}" if behind and set(branch.ranks) <= behind else ""
        # The innermost functions are those that count.
        brief = (branch.lines(most) for most in range(4, 0, -1))
        texts = branch.lines(None) if whole else min(brief, key=lambda lines: max(0, len(lines[0]) - width))
        lines += [clipped([(text, style)], width, glyphs.ellipsis) for text in texts]
    most = len(lines) if whole else _MOST_BRANCHES
    return [*lines[:most], *([[(f"and {len(lines) - most} more", MUTED)]] if len(lines) > most else [])]


def steps_of(board: JobBoard) -> list[str]:
    return list(board.verdict.next[:_MOST_STEPS])


def evidence_lines(board: JobBoard, width: int, *, blind: bool = True) -> Lines:
    """Return what each source shows; the name of one that names the rank at fault is bold, what is old is dim."""
    verdict = board.verdict
    numbers = {place.rank for place in verdict.behind}
    # The stacks are a tree of their own.
    sources = [one for one in verdict.sources if not (verdict.stacks and one.name == "stacks")]
    if verdict.fabric and verdict.bad and not any(verdict.fabric in one.text for one in sources):
        sources.append(SourceReading("fabric", verdict.fabric, "", 0.0))
    label = min(16, max((len(one.name) for one in sources), default=0) + 2)
    lines: Lines = []
    for one in sources:
        age = verdict.at - one.at if one.at else 0.0
        old = age > _OLD
        names = numbers & {place.rank for place in one.suspects}
        name, text = f"{one_line(one.name, 20):<{label}}", one_line(one.text, _TEXT) or "-"
        parts: Line = [(name, "bold" if names else MUTED), (text, MUTED if old else "")]
        lines += wrapped([*parts, (f"  {clock_text(age)} ago" if old else "", MUTED)], width, label)
        if blind and one.blind:
            lines += wrapped([(" " * label, ""), (f"but {one_line(one.blind, _TEXT)}", MUTED)], width, label)
    return lines


def traffic_lines(board: JobBoard, width: int) -> Lines:
    lines: Lines = [traffic_of(board, *one.ends) for one in board.traffic]
    return stacked(lines, width, 2)


def rate_lines(board: JobBoard, width: int, glyphs: Glyphs, seconds: float = 60.0) -> Lines:
    label, tail = 15, 17
    steps = max(8, min(60, width - label - tail))
    blocks = glyphs.blocks
    lines: Lines = []
    for rate in board.rates(steps, seconds / steps):
        most = max([rate.usual or 0.0, *(value for value in rate.values if value is not None)])
        parts: Line = [(f"{rate.name:<{label}}", MUTED)]
        for value in rate.values:
            share = 0.0 if value is None or not most else value / most
            low = board.verdict.bad and value is not None and rate.usual and value < 0.5 * rate.usual
            style = f"$tone-{board.style.key}" if low else f"$tone-{CellStyle.GOOD.key}"
            glyph = " " if value is None else blocks[min(len(blocks) - 1, round(share * (len(blocks) - 1)))]
            if len(parts) > 1 and parts[-1][1] == style:
                parts[-1] = (parts[-1][0] + glyph, style)
            else:
                parts.append((glyph, style))
        usual = "" if rate.usual is None else f", usual {_rounded(rate.usual)}"
        parts += [(f" {_rounded(rate.now or 0.0)}", "bold"), (usual, MUTED)]
        lines.append(clipped(parts, width, glyphs.ellipsis))
    if lines and board.rated[0] < board.rated[1]:
        lines.append([(f"rates of {board.rated[0]} of {board.rated[1]} nodes", MUTED)])
    return lines


def _rounded(value: float) -> str:
    return "0" if value < 0.0005 else value_text(value)


def sentence_line(board: JobBoard, width: int, glyphs: Glyphs, now: float | None = None) -> Line:
    """Return the verdict in its colour, in the longest form that fits; its age if it is old at the time ``now``."""
    verdict, style = board.verdict, f"{CELL}{board.style.key}"
    mark = {CellStyle.FAILED: "x ", CellStyle.SLOW: "! "}.get(board.style, "")
    age = 0.0 if now is None else now - verdict.at
    seen = f" (seen {clock_text(age)} ago)" if age > _FRESH else ""
    short = f"job {verdict.job} {verdict.statement}" if verdict.job else f"the job {verdict.statement}"
    brief = short.removeprefix("the job ").replace("has been hanging for", "hangs", 1)
    forms = [verdict.sentence, verdict.sentence.split("; next: ")[0], short, brief]
    texts = [f" {mark}{one_line(form, 2 * _TEXT)}{seen} " for form in forms]
    fitting = next((text for text in texts if len(text) <= width), texts[-1])
    return clipped([(fitting, style)], width, glyphs.ellipsis)


def traffic_of(board: JobBoard, src: str, dst: str) -> Line:
    name = (f"{one_line(src, 80)} and {one_line(dst, 80)}  ", "bold")
    for ends, head in (((src, dst), ""), ((node_of(src), node_of(dst)), "their nodes: ")):
        known = next((one for one in board.traffic if ends[0] != ends[1] and set(ends) == set(one.ends)), None)
        if known is not None:
            return [name, (head, MUTED), (f"{rate_text(known.rate)} GB/s", "bold"), (f"  {known.proof}", MUTED)]
    return [name, (_NO_TRAFFIC, MUTED)]


def board_parts(
    board: JobBoard, width: int, glyphs: Glyphs, steps: Lines, *, blind: bool = True, whole: bool = False
) -> list[tuple[str, Lines]]:
    """Return the parts of the text about a job, each with its heading; ``steps`` are its next steps."""
    behind = behind_lines(board, width, glyphs) + steps
    if board.verdict.bad:
        behind += wrapped([("save this before you kill it: ", MUTED), ("e", "bold $primary")], width, 2)
    return [
        ("who is behind", behind or [[("nobody: no rank holds the others up", MUTED)]]),
        ("stacks", stack_lines(board, width, glyphs, whole=whole)),
        ("ranks", group_lines(board, width, glyphs)),
        ("evidence", evidence_lines(board, width, blind=blind)),
        ("rates", rate_lines(board, width, glyphs)),
        ("traffic of pairs", traffic_lines(board, width)),
    ]


def board_text(board: JobBoard, width: int, glyphs: Glyphs) -> str:
    steps: Lines = [[(f"next: {one_line(step, _TEXT)}", "")] for step in steps_of(board)]
    lines = wrapped([(one_line(board.verdict.sentence, 2 * _TEXT), "")], width, 2)
    lines += [line for _, part in board_parts(board, width, glyphs, steps, whole=True) for line in part]
    return "\n".join(plain(line).rstrip() for line in lines) + "\n"
