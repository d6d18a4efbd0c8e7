"""Rules about what earlier sessions saw: components that get worse, findings that come back, steps by a new version.

docs/history.md explains the formulas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import ClassVar, NamedTuple

import numpy as np

from fabtui.diagnosis.finding import Domain, Finding, Kind, Rule, Severity, Subject, findings_of, register
from fabtui.history.components import Component, PartKind, date_of
from fabtui.history.file import DAY

#: Minimum number of days with results before a change, and from it on: two sessions are not a trend.
FEWEST = 3
#: A fall is at least this share of what was usual before, and this many standard deviations.
_LEAST_FALL, _DEVIATIONS = 0.05, 4.0
#: Standard deviation below which shares of a day are never taken to be.
_LEAST_NOISE = 0.005
#: Standard deviation of the root of a count (`rise_of`), and by how much that rises at least.
_ROOT_NOISE, _LEAST_ROOT = 1.0, 3.0
#: Square of the t-value from which a slope is one.
_SURE = 30.0
#: A counter rises if it counts this many times as often as before, and this many events more than then.
_RISE, _MORE_EVENTS = 3.0, 10
_NORMAL = 0.6745
#: Number of days that found it before a component was moved, and after.
_BEFORE, _AFTER = 2, 2
#: Days in which changes of components that contain each other are one.
_TOGETHER = 14 * DAY
#: The smallest component is blamed: what it does also shows in what contains it.
_PARTICULAR = (PartKind.NVLINK, PartKind.CABLE, PartKind.PORT, PartKind.GPU, PartKind.NODE)
#: Days within which a finding that comes back is a recurring one, and number of times that it was found then.
RECURRING_DAYS, _TIMES = 90, 3
#: A step of a whole class is at least this share of what was usual; days before and after that are compared.
_LEAST_STEP, _AROUND = 0.03, 15
#: Kinds of subjects of components that findings name; others may count what comes from outside.
_KINDS = {PartKind.GPU: Kind.GPU, PartKind.NODE: Kind.NODE, PartKind.PORT: Kind.NIC, PartKind.CABLE: Kind.NIC}


class Share(NamedTuple):
    """Bandwidth of a component over a day, in one class of pairs: median of its pairs over what is usual there."""

    day: float  #: Start of the day (epoch seconds, UTC).
    first: float  #: Start of the first session of the day (epoch seconds).
    share: float  #: Mean over the sessions of the day; 1.0 is what is usual.
    lowest: float  #: Lowest of these sessions.
    sessions: int  #: Number of sessions.
    bad: int  #: Sessions in which a pair of the component had a bad verdict.


class HourlyRate(NamedTuple):
    """Counter of a component over a day."""

    day: float  #: Start of the day (epoch seconds, UTC).
    first: float  #: Start of the first session of the day (epoch seconds).
    events: int  #: Events counted since the reading before it.
    hours: float  #: Hours in which they were counted.
    sessions: int  #: Number of sessions.

    @property
    def per_hour(self) -> float | None:
        """Events per hour; None if the time is unknown."""
        return self.events / self.hours if self.hours > 0 else None


class FoundOn(NamedTuple):
    """A day on which a rule found something about a component."""

    day: int  #: Days since the epoch.
    time: float  #: Start of the first session of the day (epoch seconds).
    sessions: int  #: Number of sessions that found it.
    place: str  #: Where the component was.
    title: str  #: Title of the finding.
    severity: str  #: Severity of the finding.


@dataclass
class PastEvidence:
    """Observations of earlier sessions about components, by day: the context of the rules."""

    shares: Mapping[tuple[Component, str], Sequence[Share]] = field(default_factory=dict)  #: By layer and class.
    rates: Mapping[tuple[Component, str], Sequence[HourlyRate]] = field(default_factory=dict)  #: By counter.
    #: Usual values of a class with hardware, and size: day, and mean of its sessions.
    usual: Mapping[tuple[str, int], Sequence[tuple[int, float]]] = field(default_factory=dict)
    #: By day and fact: version of its latest session, and start of the first one that had it (epoch seconds).
    versions: Mapping[int, Mapping[str, tuple[str, float]]] = field(default_factory=dict)
    findings: Mapping[tuple[Component, str], Sequence[FoundOn]] = field(default_factory=dict)  #: By rule.
    #: Days that saw a component of `findings`, with the number of sessions.
    probed: Mapping[Component, Mapping[int, int]] = field(default_factory=dict)
    #: Components of a kind that were at one place one after the other, with the first and last time there.
    holders: Mapping[tuple[PartKind, str], Sequence[tuple[Component, float, float]]] = field(default_factory=dict)
    #: GPU of each port, by their keys.
    gpu_of: Mapping[tuple[PartKind, str], tuple[PartKind, str]] = field(default_factory=dict)


class Point(NamedTuple):
    """A day of a course: its time (epoch seconds), its value, and its weight: the inverse of the relative variance."""

    time: float
    value: float
    weight: float = 1.0


class Fall(NamedTuple):
    """A lasting fall of a course."""

    at: int  #: Index of the first day that shows it.
    since: float  #: Start of the first session of that day (epoch seconds).
    before: float  #: Value before it, by the fitted course.
    now: float  #: Value at the end by the fitted course.
    days: int  #: Days with results from it on.
    gain: float  #: Square of the t-value of its slope.


def noise_of(courses: Iterable[Sequence[float]]) -> float:
    """Return the standard deviation of values about their course, from differences of neighbours: no drift moves it."""
    steps = [abs(b - a) for course in courses for a, b in pairwise(course)]
    return max(_LEAST_NOISE, median(steps) / (_NORMAL * 2**0.5)) if steps else _LEAST_NOISE


def fall_of(points: Sequence[Point], noise: float, least: float) -> Fall | None:
    """Return the fall that a course ends in, or None.

    A constant, a line that falls to a later day, and a constant from there on are fitted to it by weighted least
    squares. A step is a line from one day to the next. The slope of the best fit is tested.

    Args:
        points: The days of the course.
        noise: Standard deviation of a value of weight 1.
        least: The least difference of the two constants.
    """
    count = len(points)
    if count < 2 * FEWEST:
        return None
    time, value, weight = np.array(points).T
    # Most courses are flat, and are done here.
    flat = np.median(value) - np.median(value[-FEWEST:]) < least / 2
    if flat and value[:-FEWEST].max() - value[-1] < least:
        return None
    start, end = np.triu_indices(count, 1)
    known = (start >= FEWEST - 1) & (start < count - FEWEST)
    start, end = start[known], end[known]
    ramps = np.clip((time - time[start, None]) / np.maximum(1.0, time[end] - time[start])[:, None], 0.0, 1.0)
    middles, level = ramps @ weight / weight.sum(), value @ weight / weight.sum()
    ramps -= middles[:, None]
    spreads = np.maximum(1e-12, ramps**2 @ weight)
    slopes = ramps @ (weight * (value - level)) / spreads
    gains = np.where(slopes < 0, slopes**2 * spreads, 0.0)
    best = int(gains.argmax())
    before, gain, at = float(level - slopes[best] * middles[best]), float(gains[best]), int(start[best]) + 1
    # Rounded: no text shows more, and halves stay halves.
    before, now = round(before, 9), round(before + float(slopes[best]), 9)
    rest = float(weight @ (value - level) ** 2) - gain
    sureness = gain / max(noise**2, rest / (count - 3))
    low = [bool(day < before - least / 2) for day in value[at:]]
    if before - now < least or sureness <= _SURE or not all(low[-2:]) or sum(low) < FEWEST:
        return None
    # A line through a bend begins before it, and one day may be low by chance.
    at += next(late for late, both in enumerate(pairwise(low)) if all(both))
    return Fall(at, points[at].time, before, now, count - at, sureness)


def rise_of(course: Sequence[HourlyRate]) -> tuple[Fall, float, float] | None:
    """Return the rise that a course of counts ends in, and its events per day before and now; None without one."""
    known = [day for day in course if day.hours > 0]
    if len(known) < 2 * FEWEST or sum(day.events > 0 for day in known[-FEWEST:]) < FEWEST - 1:
        return None
    # Twice the root of events per day has the variance 1 for a day at each rate.
    roots = [Point(day.first, -2 * (24 * day.events / day.hours) ** 0.5, day.hours / 24) for day in known]
    if (fall := fall_of(roots, _ROOT_NOISE, _LEAST_ROOT)) is None:
        return None
    before, now = _per_day(known[: fall.at]), _per_day(known[-FEWEST:])
    more = sum(day.events - before * day.hours / 24 for day in known[fall.at :])
    return (fall, before, now) if now >= _RISE * before and more >= _MORE_EVENTS else None


def _per_day(days: Sequence[HourlyRate]) -> float:
    return 24 * sum(day.events for day in days) / sum(day.hours for day in days)


class Degradation(NamedTuple):
    """A component that gets worse, and in which way."""

    component: Component
    fall: Fall
    words: str  #: What got worse.


class Transfer(NamedTuple):
    """A fault that was there before a component came to its place, and is there again since."""

    rule: str  #: Id of the rule that finds the fault.
    came: float  #: When the component came there (epoch seconds).
    days: list[FoundOn]  #: The days that found it since.
    old: str  #: Where the component was before.


class HistoryContext:
    """Conclusions from the evidence of earlier sessions that several rules need."""

    def __init__(self, evidence: PastEvidence) -> None:
        self.evidence = evidence

    @cached_property
    def degradations(self) -> list[Degradation]:
        """The components that get worse, the most particular ones, each once."""
        changes = [*self._falls(), *self._rises()]
        changes.sort(key=lambda change: (_PARTICULAR.index(change.component.kind), -change.fall.gain))
        kept: list[Degradation] = []
        for change in changes:
            if not any(self._same(change, other) for other in kept):
                kept.append(change)
        # Only now: what a replaced component explains needs no other.
        gone = {
            part
            for (_, place), held in self.evidence.holders.items()
            for part, _, until in held
            if part.place == place and until < max(last for *_, last in held)
        }
        return [change for change in kept if change.component not in gone | self.moves.keys()]

    @cached_property
    def moves(self) -> dict[Component, Transfer]:
        """Faults that moved with a component from one place to another."""
        moves: dict[Component, Transfer] = {}
        for (component, rule), days in self.evidence.findings.items():
            place = days[-1].place
            if component in moves or component.by_name or component.kind is PartKind.NODE or not place:
                continue
            after = [day for day in days if day.place == place]
            before = [day for day in days if day.place not in ("", place) and day.time < after[0].time]
            if len(before) >= _BEFORE and len(after) >= _AFTER:
                # The first session that saw it there may have found no fault.
                held = self.evidence.holders.get((component.kind, place), ())
                came = (since for part, since, _ in held if part == component and since <= after[0].time)
                moves[component] = Transfer(rule, max(came, default=after[0].time), after, before[-1].place)
        return moves

    def _same(self, change: Degradation, other: Degradation) -> bool:
        """Return whether a change shows what the change of a part of it, or of the component itself, is already."""
        a, b = change.component, other.component
        if a == b:
            return True
        if abs(change.fall.since - other.fall.since) > _TOGETHER:
            return False
        if b.kind is PartKind.NVLINK and a.kind is PartKind.GPU:
            return b.identity.rpartition("/")[0] == a.identity
        if a.kind is PartKind.GPU and self.evidence.gpu_of.get(b.key) == a.key:
            return True
        if a.kind in (PartKind.PORT, PartKind.CABLE) and a.kind is not b.kind:
            return bool(a.node) and a.node == b.node
        return a.kind is PartKind.NODE and a.node == b.node

    def _falls(self) -> Iterator[Degradation]:
        by_class: dict[str, list[list[float]]] = {}
        for (_, kind), days in self.evidence.shares.items():
            by_class.setdefault(kind, []).append([day.share for day in days])
        usual = {kind: noise_of(courses) for kind, courses in by_class.items()}
        for (component, kind), days in self.evidence.shares.items():
            values = [day.share for day in days]
            noise = max(usual[kind], noise_of([values[: len(values) // 2]]))
            least = max(_LEAST_FALL * median(values), _DEVIATIONS * noise)
            if fall := fall_of([Point(day.first, day.share) for day in days], noise, least):
                words = f"fell from {100 * fall.before:.0f} % to {100 * fall.now:.0f} % of what is usual"
                yield Degradation(component, fall, f"bandwidth ({kind}) {words}")

    def _rises(self) -> Iterator[Degradation]:
        changes: dict[tuple[PartKind, str], list[Degradation | None]] = {}
        for (component, name), days in self.evidence.rates.items():
            change = None
            if rise := rise_of(days):
                fall, before, now = rise
                change = Degradation(component, fall, f"{name}: {before:.3g} per day before, {now:.3g} per day now")
            changes.setdefault((component.kind, name), []).append(change)
        for each in changes.values():
            rising = [change for change in each if change is not None]
            # What most components do is nobody's fault: a new driver may count more.
            if len(each) < FEWEST or len(rising) <= len(each) / 2:
                yield from rising


def history_findings(evidence: PastEvidence) -> list[Finding]:
    """Return the findings of all rules about earlier sessions, the worst first."""
    return sorted(findings_of(Domain.HISTORY, HistoryContext(evidence)), key=lambda finding: finding.severity.rank)


class HistoryRule(Rule[HistoryContext]):
    """Base of the rules about earlier sessions."""

    domain = Domain.HISTORY
    severity = Severity.WARN

    def about(self, component: Component, since: float, **facts: object) -> Finding:
        kind = _KINDS.get(component.kind)
        name = component.place.partition("/")[0] if kind is Kind.NIC else component.place
        nodes = [component.node] if component.node else []
        part = component.place if component.by_name else f"{component.place} ({component.identity})"
        facts |= {"part": part, "component": component, "since": date_of(since), "since_time": since}
        blames = Subject(kind, name) if kind is not None else None
        return self.finding(component.place, nodes=nodes, facts=facts, blames=blames)


@register
class Degrades(HistoryRule):
    """The bandwidth of a component falls below its own earlier values, or it counts errors faster and faster.

    At least three days with sessions before and after are needed. Bandwidth is a share of what is usual in its class.
    A counter that rises for most components makes none look degraded: a new driver may count more.
    """

    id = "FT401"
    name = "degrades"
    title = "A component is getting worse over sessions"
    message = "{part} has been getting worse since {since}: {words}"
    evidence: ClassVar[tuple[str, ...]] = (
        "{days} days with results since then; fabtui history '{place}' shows its course",
    )
    next_step = "Plan its replacement before it fails; look at the course first."

    def check(self, context: HistoryContext) -> Iterator[Finding]:
        for component, fall, words in context.degradations:
            facts = {"words": words, "days": fall.days, "place": component.place, "degrades": True}
            yield self.about(component, fall.since, **facts)


def _episodes(days: Collection[int], probed: Iterable[int]) -> list[int]:
    """Return the first days of the times that something was found, apart where a session looked and found nothing."""
    known = sorted({*probed, *days})
    return [day for before, day in pairwise([-1, *known]) if day in days and before not in days]


@register
class Recurs(HistoryRule):
    """A finding about a component came back at least twice after sessions that looked and did not find it."""

    id = "FT402"
    name = "recurs"
    title = "A finding comes back"
    message = "{part}: {rule} came back: {times} times in {days} days, first on {since}"
    evidence: ClassVar[tuple[str, ...]] = ("latest on {last}: {words}",)
    next_step = "Do not close it when it disappears: look for what the occurrences have in common."

    def check(self, context: HistoryContext) -> Iterator[Finding]:
        explained = {change.component for change in context.degradations} | context.moves.keys()
        # What comes back about a cable comes back about its port.
        explained |= {part for part, _ in context.evidence.findings if part.kind is PartKind.CABLE}
        probed = context.evidence.probed
        latest = max((day for days in probed.values() for day in days), default=0)
        for (component, rule), days in context.evidence.findings.items():
            recent = [each for each in days if each.day > latest - RECURRING_DAYS]
            starts = _episodes({each.day for each in recent}, probed.get(component, ()))
            if len(starts) < _TIMES or component in explained:
                continue
            last = recent[-1]
            facts: dict[str, object] = {"rule": rule, "times": len(starts), "days": last.day - recent[0].day + 1}
            facts |= {"words": last.title, "last": date_of(last.time), "last_time": last.time}
            yield self.about(component, days[0].time, **facts)


@register
class MovedWithIt(HistoryRule):
    """A component was moved to another place, and the finding about it went with it: the component is the cause."""

    id = "FT404"
    name = "moved-with-component"
    title = "A fault moves with a component"
    message = "{part}: {rule} moved with the {kind} from {old} on {since}"
    evidence: ClassVar[tuple[str, ...]] = ("{sessions} sessions at {place} since then: {words}",)
    next_step = "Replace it: the fault is in the component, not in its place."

    def check(self, context: HistoryContext) -> Iterator[Finding]:
        for component, move in context.moves.items():
            facts: dict[str, object] = {"rule": move.rule, "kind": component.kind.words, "place": component.place}
            facts |= {"old": move.old, "sessions": sum(day.sessions for day in move.days), "words": move.days[-1].title}
            yield self.about(component, move.came, **facts)


@register
class StepOfVersion(HistoryRule):
    """A whole class of pairs changed with a new version of a driver or library: no component is at fault."""

    id = "FT405"
    name = "step-of-version"
    title = "A new version changed what is usual"
    severity = Severity.NOTE
    message = "what is usual changed on {since} with {versions}: {words}"
    evidence: ClassVar[tuple[str, ...]] = ("{days} days compared with {before} before",)
    next_step = "Compare the release notes; go back to the old version on one node to be sure."

    def check(self, context: HistoryContext) -> Iterator[Finding]:
        versions = context.evidence.versions
        for before, day in pairwise(sorted(versions)):
            old = {fact: version for fact, (version, _) in versions[before].items()}
            changed = {fact: new for fact, new in versions[day].items() if old.get(fact, new[0]) != new[0]}
            usual = context.evidence.usual.items() if changed else ()
            steps = [step for (kind, _), course in usual if (step := _step(kind, course, day))]
            if not steps:
                continue
            steps.sort(key=lambda step: -abs(step[1]))
            since = min(first for _, first in changed.values())
            facts = {
                "since": date_of(since),
                "since_time": since,
                "versions": ", ".join(f"{fact} {old[fact]} -> {version}" for fact, (version, _) in changed.items()),
                "words": "; ".join(f"{kind} {100 * step:+.0f} %" for kind, step, *_ in steps[:4]),
                "days": steps[0][3],
                "before": steps[0][2],
            }
            yield self.finding("versions", facts=facts, weight=len(steps))


def _step(kind: str, course: Sequence[tuple[int, float]], day: int) -> tuple[str, float, int, int] | None:
    """Return class, relative step, and the days before and after it; None without a step."""
    before = [value for at, value in course if at < day][-_AROUND:]
    after = [value for at, value in course if at >= day][:_AROUND]
    if min(len(before), len(after)) < FEWEST or not (was := median(before)):
        return None
    noise = noise_of([[value / was for value in each] for each in (before, after)])
    step = median(after) / was - 1
    least = max(_LEAST_STEP, _DEVIATIONS * noise * (1 / len(before) + 1 / len(after)) ** 0.5)
    return (kind, step, len(before), len(after)) if abs(step) >= least else None
