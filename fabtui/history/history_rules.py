"""Rules about what earlier sessions saw: components that get worse, findings that come back, steps by a new version."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from statistics import median
from typing import Any, ClassVar, NamedTuple

from fabtui.diagnosis.finding import Domain, Finding, Kind, Rule, Severity, Subject, findings_of, register
from fabtui.history.component import Component, PartKind
from fabtui.history.course import DAY, HourlyRate
from fabtui.history.past_evidence import FoundOn, PastEvidence, UsualOn
from fabtui.history.trend import FEWEST, CourseChange, Point, fall_of, noise_of, rise_of

#: Number of days that found it before a component was moved or replaced, and after.
_BEFORE, _AFTER = 2, 2
#: Days in which changes of components that contain each other are one.
_TOGETHER = 14 * DAY
#: The smallest component is blamed: what it does also shows in what contains it.
_PARTICULAR = (PartKind.NVLINK, PartKind.CABLE, PartKind.SWITCH_PORT, PartKind.PORT, PartKind.GPU, PartKind.NODE)


class Degradation(NamedTuple):
    """A component that gets worse, and in which way."""

    component: Component
    what: str  #: The bandwidth with its class, or the counter.
    change: CourseChange
    counted: bool  #: Whether it is a counter.

    def words(self) -> str:
        """Return what got worse."""
        change = self.change
        if self.counted:
            day = 24 * change.now
            return f"{self.what}: {24 * change.before:.3g} per day before, {day:.3g} per day now"
        how = "falls" if change.gradual else "fell"
        return f"{self.what} {how} from {100 * change.before:.0f} % to {100 * change.now:.0f} % of what is usual"


class Transfer(NamedTuple):
    """A fault that was there before a component came to its place, and is there again since."""

    component: Component  #: The component that has it now.
    rule: str  #: Id of the rule that finds the fault.
    place: str  #: Where it is found now.
    came: float  #: When the component came there (epoch seconds).
    days: list[FoundOn]  #: The days that found it since.
    old: str  #: Where the component was before if it moved, else the identity of the one that it replaced.


class HistoryContext:
    """Conclusions from the evidence of earlier sessions that several rules need.

    Args:
        evidence: The evidence.
    """

    def __init__(self, evidence: PastEvidence) -> None:
        self.evidence = evidence

    @cached_property
    def degradations(self) -> list[Degradation]:
        """The components that get worse, the most particular ones, each once."""
        left_out = self._gone() | {one.component for one in (*self.moves, *self.replacements)}
        found = [*self._falls(), *self._rises()]
        found.sort(key=lambda one: (_PARTICULAR.index(one.component.kind), -one.change.gain))
        kept: list[Degradation] = []
        for one in found:
            if not any(self._same(one, other) for other in kept):
                kept.append(one)
        # Only now: what a replaced component explains needs no other.
        return [one for one in kept if one.component not in left_out]

    @cached_property
    def moves(self) -> list[Transfer]:
        """Faults that moved with a component from one place to another."""
        return [*self._moves()]

    @cached_property
    def replacements(self) -> list[Transfer]:
        """Faults that stayed with a place when its component was replaced."""
        return [*self._replacements()]

    def _moves(self) -> Iterator[Transfer]:
        for (component, rule), days in self.evidence.findings.items():
            place = days[-1].place
            if component.by_name or component.kind is PartKind.NODE or not place:
                continue
            after = [one for one in days if one.place == place]
            before = [one for one in days if one.place not in ("", place) and one.time < after[0].time]
            if len(before) >= _BEFORE and len(after) >= _AFTER:
                came = self._came(component, place, after)
                yield Transfer(component, rule, component.place, came, after, before[-1].place)

    def _replacements(self) -> Iterator[Transfer]:
        for (_, place), held in self.evidence.holders.items():
            for (old, _, until), (new, since, _) in itertools.pairwise(held):
                if since < until:
                    continue
                for (component, rule), days in self.evidence.findings.items():
                    if component != old:
                        continue
                    before = [one for one in days if one.place == place and one.time <= until]
                    again = self.evidence.findings.get((new, rule), [])
                    after = [one for one in again if one.place == place and one.time >= since]
                    fresh = not any(one.time < since for one in again)
                    if len(before) >= _BEFORE and len(after) >= _AFTER and fresh:
                        yield Transfer(new, rule, place, self._came(new, place, after), after, old.identity)

    def _came(self, component: Component, place: str, after: Sequence[FoundOn]) -> float:
        """Return when a component came to a place: the first session that saw it there, else that found fault."""
        held = self.evidence.holders.get((component.kind, place), ())
        times = (since for one, since, _ in held if one == component and since <= after[0].time)
        return max(times, default=after[0].time)

    def _gone(self) -> set[Component]:
        """Return the components that were replaced: their place has a different one, and they are at no other."""
        holders = self.evidence.holders.values()
        latest: dict[Component, float] = {}
        for held in holders:
            for one, _, until in held:
                latest[one] = max(until, latest.get(one, until))
        replaced = set[Component]()
        for held in holders:
            last = max(until for _, _, until in held)
            replaced |= {one for one, _, until in held if until < last and latest[one] <= until and self._ended(one)}
        return replaced

    def _ended(self, component: Component) -> bool:
        """Return whether no session saw a component after another had its place: one that moved has another place."""
        key = component.kind, component.place
        return any(one == component for one, *_ in self.evidence.holders.get(key, ()))

    def _same(self, one: Degradation, other: Degradation) -> bool:
        """Return whether a change shows what the change of a part of it, or of the component itself, is already."""
        a, b = one.component, other.component
        if a == b:
            return True
        if abs(one.change.since - other.change.since) > _TOGETHER:
            return False
        if b.kind is PartKind.NVLINK and a.kind is PartKind.GPU:
            return b.identity.rpartition("/")[0] == a.identity
        if a.kind is PartKind.GPU and self.evidence.gpu_of.get(b.key) == a.key:
            return True
        if a.kind in (PartKind.PORT, PartKind.CABLE, PartKind.SWITCH_PORT) and a.kind is not b.kind:
            return bool(a.node) and a.node == b.node
        return a.kind is PartKind.NODE and a.node == b.node

    def _falls(self) -> Iterator[Degradation]:
        by_kind: dict[str, list[list[float]]] = {}
        for (_, kind), days in self.evidence.shares.items():
            by_kind.setdefault(kind, []).append([day.share for day in days])
        noise = {kind: noise_of(courses) for kind, courses in by_kind.items()}
        for (component, kind), days in self.evidence.shares.items():
            change = fall_of([Point(day.first, day.share) for day in days], noise[kind])
            if change is not None:
                yield Degradation(component, f"bandwidth ({kind})", change, counted=False)

    def _rises(self) -> Iterator[Degradation]:
        by_counter: dict[tuple[PartKind, str], list[list[HourlyRate]]] = {}
        for (component, name), days in self.evidence.rates.items():
            by_counter.setdefault((component.kind, name), []).append(days)
        usual = {key: _usual_rates(courses) for key, courses in by_counter.items()}
        for (component, name), days in self.evidence.rates.items():
            fleet = usual[component.kind, name]
            points = [Point(day.first, day.events, day.hours * fleet.get(day.day, 1.0)) for day in days]
            if (change := rise_of(points)) is not None:
                yield Degradation(component, name, change, counted=True)


def _usual_rates(courses: Sequence[Sequence[HourlyRate]]) -> dict[float, float]:
    """Return by day how much faster than over all days most components of a kind count: a new driver may count more."""
    if len(courses) < FEWEST:
        return {}
    rates: dict[float, list[float]] = {}
    for course in courses:
        for day in course:
            if (rate := day.per_hour) is not None:
                rates.setdefault(day.day, []).append(rate)
    middle = {day: median(each) for day, each in rates.items() if len(each) >= FEWEST}
    known = [one for one in middle.values() if one > 0]
    if not known or len(known) < len(middle) / 2:
        return {}
    whole = median(known)
    return {day: max(one / whole, 0.1) for day, one in middle.items()}


#: Days within which a finding that comes back is a recurring one.
RECURRING_DAYS = 90
#: Number of times that it was found, after it was gone each time.
_TIMES = 3
#: A step of a whole class is at least this share of what was usual, and this many standard deviations.
_LEAST_STEP, _DEVIATIONS = 0.03, 4.0
#: Days before and after a new version that are compared.
_AROUND = 15
#: Counters that count on a link by themselves; others may come from outside.
_KINDS = {PartKind.GPU: Kind.GPU, PartKind.NODE: Kind.NODE, PartKind.PORT: Kind.NIC, PartKind.CABLE: Kind.NIC}


def date_of(seconds: float) -> str:
    """Return a time (epoch seconds) as a date in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def history_findings(evidence: PastEvidence) -> list[Finding]:
    """Return the findings of all rules about earlier sessions, the worst first."""
    return sorted(findings_of(Domain.HISTORY, HistoryContext(evidence)), key=lambda one: one.severity.rank)


class HistoryRule(Rule[HistoryContext]):
    """Base of the rules about earlier sessions."""

    domain = Domain.HISTORY
    severity = Severity.WARN

    def about(self, component: Component, facts: dict[str, Any], *, severity: Severity | None = None) -> Finding:
        """Return a finding about a component."""
        kind = _KINDS.get(component.kind)
        name = component.place.partition("/")[0] if kind is Kind.NIC else component.place
        nodes = [component.node] if component.node else []
        given = {"part": _named(component), "component": component, **facts}
        blames = Subject(kind, name) if kind is not None else None
        return self.finding(component.place, severity=severity, nodes=nodes, facts=given, blames=blames)


def _named(component: Component) -> str:
    """Return a component with its identity, where one is known."""
    return component.place if component.by_name else f"{component.place} ({component.identity})"


@register
class Degrades(HistoryRule):
    """The bandwidth of a component falls below its own earlier values, or it counts errors faster and faster.

    At least three days with sessions before and after are needed. Bandwidth is a share of what is usual in its class.
    Counters are compared with other components, so a new driver makes none look degraded.
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
        for one in context.degradations:
            facts = {
                "since": date_of(one.change.since),
                "since_time": one.change.since,
                "words": one.words(),
                "days": one.change.points,
                "place": one.component.place,
                "degrades": True,
            }
            yield self.about(one.component, facts)


def _episodes(found: Iterable[int], probed: Iterable[int]) -> list[int]:
    """Return the first days of the times that something was found, apart where a session looked and found nothing."""
    days, starts, was = set(found), list[int](), False
    for day in sorted({*probed, *days}):
        now = day in days
        if now and not was:
            starts.append(day)
        was = now
    return starts


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
        explained = {one.component for one in context.degradations}
        explained |= {one.component for one in (*context.moves, *context.replacements)}
        # What comes back about a cable comes back about its port.
        explained |= {one for one, _ in context.evidence.findings if one.kind is PartKind.CABLE}
        probed = context.evidence.probed
        latest = max((day for days in probed.values() for day in days), default=0)
        for (component, rule), days in context.evidence.findings.items():
            recent = [one for one in days if one.day > latest - RECURRING_DAYS]
            starts = _episodes((one.day for one in recent), probed.get(component, ()))
            if len(starts) < _TIMES or component in explained:
                continue
            last = recent[-1]
            facts = {
                "rule": rule,
                "times": len(starts),
                "days": last.day - recent[0].day + 1,
                "since": date_of(days[0].time),
                "since_time": days[0].time,
                "last": date_of(last.time),
                "last_time": last.time,
                "words": last.title,
            }
            yield self.about(component, facts)


class _TransferRule(HistoryRule):
    """Base of the rules about faults that stayed with a place, or moved with a component."""

    def about_transfer(self, one: Transfer, **facts: str) -> Finding:
        """Return a finding about the component that has a fault now."""
        given = {
            "rule": one.rule,
            "kind": one.component.kind.words,
            "place": one.place,
            "since": date_of(one.came),
            "since_time": one.came,
            "sessions": sum(day.sessions for day in one.days),
            "words": one.days[-1].title,
        }
        return self.about(one.component, given | facts)


@register
class ReplacedAndFailsAgain(_TransferRule):
    """A component was replaced, and the finding about it is there again with the new one.

    What stayed is more likely to be the cause: the slot, the cable, the port at the other end.
    """

    id = "FT403"
    name = "replaced-fails-again"
    title = "A replaced component fails again"
    message = "{place}: {rule} again after the {kind} was replaced on {since}: the fault stayed with the place"
    evidence: ClassVar[tuple[str, ...]] = ("{old} before, {new} now", "{sessions} sessions since then: {words}")
    next_step = "Look at what was not replaced: slot, cable, the port at the other end."

    def check(self, context: HistoryContext) -> Iterator[Finding]:
        for one in _each(context.replacements, lambda one: (one.place, one.rule)):
            yield self.about_transfer(one, old=one.old, new=one.component.identity)


@register
class MovedWithIt(_TransferRule):
    """A component was moved to another place, and the finding about it went with it: the component is the cause."""

    id = "FT404"
    name = "moved-with-component"
    title = "A fault moves with a component"
    message = "{part}: {rule} moved with the {kind} from {old} on {since}"
    evidence: ClassVar[tuple[str, ...]] = ("{sessions} sessions at {place} since then: {words}",)
    next_step = "Replace it: the fault is in the component, not in its place."

    def check(self, context: HistoryContext) -> Iterator[Finding]:
        for one in _each(context.moves, lambda one: one.component):
            yield self.about_transfer(one, old=one.old)


def _each(found: Iterable[Transfer], key: Callable[[Transfer], object]) -> Iterable[Transfer]:
    """Return the first one of each key."""
    kept: dict[object, Transfer] = {}
    for one in found:
        kept.setdefault(key(one), one)
    return kept.values()


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
        for before, day in itertools.pairwise(sorted(versions)):
            old, new = versions[before].most, versions[day].most
            changed = {fact: version for fact, version in new.items() if old.get(fact, version) != version}
            usual = context.evidence.usual.items() if changed else ()
            steps = [step for (kind, _), course in usual if (step := _step(kind, course, day))]
            if not steps:
                continue
            # The day before may have had it in its last sessions.
            seen = (versions[one].first for one in (before, day))
            since = min(first[one] for first in seen for one in changed.items() if one in first)
            steps.sort(key=lambda one: -abs(one[1]))
            largest = steps[0]
            facts = {
                "since": date_of(since),
                "since_time": since,
                "versions": ", ".join(f"{fact} {old[fact]} -> {version}" for fact, version in changed.items()),
                "words": "; ".join(f"{kind} {100 * step:+.0f} %" for kind, step, *_ in steps[:4]),
                "days": largest[3],
                "before": largest[2],
            }
            yield self.finding("versions", facts=facts, weight=len(steps))


def _step(kind: str, course: Sequence[UsualOn], day: int) -> tuple[str, float, int, int] | None:
    """Return class, relative step, and the days before and after it; None without a step."""
    before = [one for one in course if one.day < day][-_AROUND:]
    after = [one for one in course if one.day >= day][:_AROUND]
    if min(len(before), len(after)) < FEWEST:
        return None
    was, now = median(one.value for one in before), median(one.value for one in after)
    if not was:
        return None
    noise = noise_of([[one.value / was for one in before], [one.value / was for one in after]])
    step = now / was - 1
    least = max(_LEAST_STEP, _DEVIATIONS * noise * (1 / len(before) + 1 / len(after)) ** 0.5)
    return (kind, step, len(before), len(after)) if abs(step) >= least else None
