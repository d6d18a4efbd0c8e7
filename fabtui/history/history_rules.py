"""Rules about what earlier sessions saw: parts that get worse, findings that come back, steps by a new version."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Any, ClassVar

from fabtui.diagnosis.finding import Domain, Finding, Kind, Rule, Severity, Subject, register, rules_of
from fabtui.history.component import Component, PartKind
from fabtui.history.history_context import HistoryContext, Transfer
from fabtui.history.past_evidence import PastEvidence, UsualOn
from fabtui.history.trend import FEWEST, noise_of

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
    context = HistoryContext(evidence)
    found = [one for rule in rules_of(Domain.HISTORY) for one in rule.findings(context)]
    return sorted(found, key=lambda one: one.severity.rank)


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
    next_step = "Do not close it when it is gone: look at what the times have in common."

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
    message = "{place}: {rule} again after the {kind} was replaced on {since}: it stayed with the place"
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
    """Step of a whole class of pairs with a new version of a driver or library: no component is at fault."""

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
