"""Rules about what earlier sessions saw: parts that get worse, findings that come back, steps by a new version."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any, ClassVar

from fabtui.diagnosis.finding import Domain, Finding, Kind, Rule, Severity, Subject, register, rules_of
from fabtui.history.component import Component, PartKind
from fabtui.history.course import DAY, HourlyRate
from fabtui.history.past_evidence import FoundOn, PastEvidence, UsualOn
from fabtui.history.trend import FEWEST, CourseChange, Point, fall_of, noise_of, rise_of

#: Days within which a finding that comes back is a recurring one.
RECURRING_DAYS = 90
#: Number of times that it was found, after it was gone each time.
_TIMES = 3
#: Number of days that found it before a part was moved or replaced, and after.
_BEFORE, _AFTER = 2, 2
#: A step of a whole class is at least this share of what was usual, and this many standard deviations.
_LEAST_STEP, _DEVIATIONS = 0.03, 4.0
#: Days before and after a new version that are compared.
_AROUND = 15
#: Days in which changes of parts of each other are one.
_TOGETHER = 14 * DAY
#: Counters that count on a link by themselves; others may come from outside.
_KINDS = {PartKind.GPU: Kind.GPU, PartKind.NODE: Kind.NODE, PartKind.PORT: Kind.NIC, PartKind.CABLE: Kind.NIC}
#: The most particular part is blamed: what it does shows in what it is a part of as well.
_PARTICULAR = (PartKind.NVLINK, PartKind.CABLE, PartKind.SWITCH_PORT, PartKind.PORT, PartKind.GPU, PartKind.NODE)


def date_of(seconds: float) -> str:
    """Return a time (epoch seconds) as a date in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def history_findings(evidence: PastEvidence) -> list[Finding]:
    """Return the findings of all rules about earlier sessions, the worst first."""
    found = [one for rule in rules_of(Domain.HISTORY) for one in rule.findings(evidence)]
    return sorted(found, key=lambda one: one.severity.rank)


class HistoryRule(Rule[PastEvidence]):
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


class _Degradation:
    """A component that gets worse, and in which way."""

    def __init__(self, component: Component, what: str, change: CourseChange, *, counted: bool) -> None:
        self.component, self.what, self.change, self.counted = component, what, change, counted

    def words(self) -> str:
        """Return what got worse."""
        change = self.change
        if self.counted:
            day = 24 * change.now
            return f"{self.what}: {24 * change.before:.3g} per day before, {day:.3g} per day now"
        how = "falls" if change.gradual else "fell"
        return f"{self.what} {how} from {100 * change.before:.0f} % to {100 * change.now:.0f} % of what is usual"


def degradations(evidence: PastEvidence) -> list[_Degradation]:
    """Return the components that get worse, the most particular ones, each once."""
    left_out = _gone(evidence) | {one for one, *_ in _moves(evidence)} | {one for one, *_ in _replacements(evidence)}
    found = [*_falls(evidence), *_rises(evidence)]
    found.sort(key=lambda one: (_PARTICULAR.index(one.component.kind), -one.change.gain))
    kept: list[_Degradation] = []
    for one in found:
        if not any(_same(evidence, one, other) for other in kept):
            kept.append(one)
    # Only now: what a replaced part explains needs no other.
    return [one for one in kept if one.component not in left_out]


def _gone(evidence: PastEvidence) -> set[Component]:
    """Return the components that were replaced: their place has a different one, and they are at no other."""
    latest: dict[Component, float] = {}
    for held in evidence.holders.values():
        for one, _, until in held:
            latest[one] = max(until, latest.get(one, until))
    replaced = set[Component]()
    for held in evidence.holders.values():
        last = max(until for _, _, until in held)
        replaced |= {one for one, _, until in held if until < last and latest[one] <= until and _ended(evidence, one)}
    return replaced


def _ended(evidence: PastEvidence, component: Component) -> bool:
    """Return whether a component with a part in its place was in no session since: one that moved has another place."""
    key = component.kind, component.place
    return any(one == component for one, *_ in evidence.holders.get(key, ()))


def _same(evidence: PastEvidence, one: _Degradation, other: _Degradation) -> bool:
    """Return whether a change shows what the change of a part of it, or of the component itself, is already."""
    a, b = one.component, other.component
    if a == b:
        return True
    if abs(one.change.since - other.change.since) > _TOGETHER:
        return False
    gpu_of_b = evidence.gpu_of.get(b.key)
    if b.kind is PartKind.NVLINK and a.kind is PartKind.GPU:
        return b.identity.rpartition("/")[0] == a.identity
    if a.kind is PartKind.GPU and gpu_of_b == a.key:
        return True
    if a.kind in (PartKind.PORT, PartKind.CABLE, PartKind.SWITCH_PORT) and a.kind is not b.kind:
        return bool(a.node) and a.node == b.node
    return a.kind is PartKind.NODE and a.node == b.node


def _falls(evidence: PastEvidence) -> Iterator[_Degradation]:
    by_kind: dict[str, list[list[float]]] = {}
    for (_, kind), days in evidence.shares.items():
        by_kind.setdefault(kind, []).append([day.share for day in days])
    noise = {kind: noise_of(courses) for kind, courses in by_kind.items()}
    for (component, kind), days in evidence.shares.items():
        change = fall_of([Point(day.first, day.share) for day in days], noise[kind])
        if change is not None:
            yield _Degradation(component, f"bandwidth ({kind})", change, counted=False)


def _rises(evidence: PastEvidence) -> Iterator[_Degradation]:
    by_counter: dict[tuple[PartKind, str], list[list[HourlyRate]]] = {}
    for (component, name), days in evidence.rates.items():
        by_counter.setdefault((component.kind, name), []).append(days)
    usual = {key: _usual_rates(courses) for key, courses in by_counter.items()}
    for (component, name), days in evidence.rates.items():
        fleet = usual[component.kind, name]
        points = [Point(day.first, day.events, day.hours * fleet.get(day.day, 1.0)) for day in days]
        if (change := rise_of(points)) is not None:
            yield _Degradation(component, name, change, counted=True)


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


@register
class Degrades(HistoryRule):
    """The bandwidth of a component falls below its own earlier values, or it counts errors ever faster.

    At least three days with sessions before and after are needed. Bandwidth is a share of what is usual in its class.
    Counters are compared with other components, so that a new driver makes none degrade.
    """

    id = "FT401"
    name = "degrades"
    title = "A component gets worse over sessions"
    message = "{part} gets worse since {since}: {words}"
    evidence: ClassVar[tuple[str, ...]] = (
        "{days} days with results since then; fabtui history '{place}' shows its course",
    )
    next_step = "Plan its replacement before it fails; look at the course first."

    def check(self, context: PastEvidence) -> Iterator[Finding]:
        for one in degradations(context):
            facts = {
                "since": date_of(one.change.since),
                "since_time": one.change.since,
                "words": one.words(),
                "days": one.change.points,
                "place": one.component.place,
                "degrades": True,
            }
            yield self.about(one.component, facts)


def _episodes(found: Iterable[int], probed: Sequence[int]) -> list[int]:
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
    next_step = "Do not close it when it is gone: look at what the times have in common."

    def check(self, context: PastEvidence) -> Iterator[Finding]:
        worse = {one.component for one in degradations(context)}
        latest = max((day for days in context.probed.values() for day in days), default=0)
        moved = {one for each in (*_moves(context), *_replacements(context)) for one in each[:1]}
        for (component, rule), days in context.findings.items():
            recent = [one for one in days if one.day > latest - RECURRING_DAYS]
            starts = _episodes((one.day for one in recent), context.probed.get(component, ()))
            if len(starts) < _TIMES or component in worse or component in moved:
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


def _replacements(context: PastEvidence) -> Iterator[tuple[Component, Component, str, str, list[FoundOn]]]:
    """Yield the component of now, the one before it at its place, the place, the rule, and the days since then."""
    for (_, place), held in context.holders.items():
        for (old, _, until), (new, since, _) in itertools.pairwise(held):
            if since < until:
                continue
            for (component, rule), days in context.findings.items():
                before = [one for one in days if one.place == place and one.time <= until]
                again = context.findings.get((new, rule), [])
                after = [one for one in again if one.place == place and one.time >= since]
                fresh = not any(one.time < since for one in again)
                if component == old and len(before) >= _BEFORE and len(after) >= _AFTER and fresh:
                    yield new, old, place, rule, after


def _moves(context: PastEvidence) -> Iterator[tuple[Component, str, str, list[FoundOn], list[FoundOn]]]:
    """Yield a component, the rule, its place before, and the days that found it there and at its place of now."""
    for (component, rule), days in context.findings.items():
        last = days[-1]
        if component.by_name or component.kind is PartKind.NODE or not last.place:
            continue
        after = [one for one in days if one.place == last.place]
        before = [one for one in days if one.place not in ("", last.place) and one.time < after[0].time]
        if len(before) >= _BEFORE and len(after) >= _AFTER:
            yield component, rule, before[-1].place, before, after


def _came(context: PastEvidence, component: Component, place: str, after: Sequence[FoundOn]) -> float:
    """Return when a component came to a place: the first session that saw it there, else the first that found fault."""
    held = context.holders.get((component.kind, place), ())
    return max((since for one, since, _ in held if one == component and since <= after[0].time), default=after[0].time)


@register
class ReplacedAndFailsAgain(HistoryRule):
    """A component was replaced, and the finding about it is there again with the new one.

    What stayed is more likely to be the cause: the slot, the cable, the port at the other end.
    """

    id = "FT403"
    name = "replaced-fails-again"
    title = "A replaced component fails again"
    message = "{place}: {rule} again after the {kind} was replaced on {since}: it stayed with the place"
    evidence: ClassVar[tuple[str, ...]] = ("{old} before, {new} now", "{sessions} sessions since then: {words}")
    next_step = "Look at what was not replaced: slot, cable, the port at the other end."

    def check(self, context: PastEvidence) -> Iterator[Finding]:
        reported = set()
        for new, old, place, rule, after in _replacements(context):
            if (place, rule) in reported:
                continue
            reported.add((place, rule))
            came = _came(context, new, place, after)
            facts = {
                "place": place,
                "rule": rule,
                "kind": str(new.kind),
                "since": date_of(came),
                "since_time": came,
                "old": old.identity,
                "new": new.identity,
                "sessions": sum(one.sessions for one in after),
                "words": after[-1].title,
            }
            yield self.about(new, facts)


@register
class MovedWithIt(HistoryRule):
    """A component was moved to another place, and the finding about it went with it: the component is the cause."""

    id = "FT404"
    name = "moved-with-component"
    title = "A fault moves with a component"
    message = "{part}: {rule} moved with the {kind} from {old} on {since}"
    evidence: ClassVar[tuple[str, ...]] = ("{sessions} sessions at {place} since then: {words}",)
    next_step = "Replace it: the fault is in the component, not in its place."

    def check(self, context: PastEvidence) -> Iterator[Finding]:
        reported = set()
        for component, rule, old, _, after in _moves(context):
            if component in reported:
                continue
            reported.add(component)
            came = _came(context, component, after[0].place, after)
            facts = {
                "rule": rule,
                "kind": str(component.kind),
                "old": old,
                "place": component.place,
                "since": date_of(came),
                "since_time": came,
                "sessions": sum(one.sessions for one in after),
                "words": after[-1].title,
            }
            yield self.about(component, facts)


@register
class StepOfVersion(HistoryRule):
    """Step of a whole class of pairs with a new version of a driver or library: no component is at fault."""

    id = "FT405"
    name = "step-of-version"
    title = "A new version changed what is usual"
    severity = Severity.NOTE
    message = "what is usual changed on {since} with {versions}: {words}"
    evidence: ClassVar[tuple[str, ...]] = ("{days} days compared with {before} before",)
    next_step = "Compare the release notes; go back to the old version on one node to be sure."

    def check(self, context: PastEvidence) -> Iterator[Finding]:
        days = sorted(context.versions)
        for before, day in itertools.pairwise(days):
            old, new = context.versions[before].most, context.versions[day].most
            changed = {fact: version for fact, version in new.items() if old.get(fact, version) != version}
            steps = [step for (kind, _), course in context.usual.items() if (step := _step(kind, course, day))]
            if not changed or not steps:
                continue
            # The day before may have had it in its last sessions.
            seen = (context.versions[one].first for one in (before, day))
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
