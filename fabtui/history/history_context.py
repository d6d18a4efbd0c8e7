"""Conclusions from earlier sessions that several rules need: parts that got worse, moved or were replaced."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property
from statistics import median
from typing import NamedTuple

from fabtui.history.component import Component, PartKind
from fabtui.history.course import DAY, HourlyRate
from fabtui.history.past_evidence import FoundOn, PastEvidence
from fabtui.history.trend import FEWEST, CourseChange, Point, fall_of, noise_of, rise_of

#: Number of days that found it before a part was moved or replaced, and after.
_BEFORE, _AFTER = 2, 2
#: Days in which changes of parts of each other are one.
_TOGETHER = 14 * DAY
#: The most particular part is blamed: what it does shows in what it is a part of as well.
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
        # Only now: what a replaced part explains needs no other.
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
