"""Changes in the course of a component: when its values fell, or its counters began to rise.

docs/history.md explains the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from statistics import median
from typing import NamedTuple

from fabtui.history.course import DAY

#: Minimum number of days with results before a change, and from it on: two sessions are no trend.
FEWEST = 3
#: A fall is at least this share of what was usual before, and this many standard deviations.
LEAST_FALL, _DEVIATIONS = 0.05, 4.0
#: Standard deviation below which values of a day are never taken to be.
_LEAST_NOISE = 0.005
#: How much better (in units of variance, like a likelihood ratio) a course with a change has to fit than one without.
_GAIN = 30.0
#: By how much better (in the same units) a ramp has to fit than a step: three standard deviations.
_RAMP = 9.0
#: A counter rises if it counts this many times as often as before, and this many events more than then.
RISE, _MORE_EVENTS = 3.0, 10
_NORMAL = 0.6745


class CourseChange(NamedTuple):
    """A lasting change of a course."""

    since: float  #: First session that shows it (epoch seconds).
    before: float  #: Mean before it.
    now: float  #: Value at the end by the fitted course.
    points: int  #: Days with results from the change on.
    gradual: bool  #: Whether it grows from day to day, rather than having happened at once.
    gain: float  #: How much better a course with the change fits.


class Point(NamedTuple):
    """A day of a course: its time (epoch seconds) and value; of a counter, the count and the events expected of one."""

    time: float
    value: float
    weight: float = 1.0


def noise_of(courses: Iterable[Sequence[float]]) -> float:
    """Return the standard deviation of values about their course, from differences of neighbours: no drift moves it."""
    steps = [abs(b - a) for values in courses for a, b in pairwise(values)]
    return max(_LEAST_NOISE, median(steps) / (_NORMAL * math.sqrt(2))) if steps else _LEAST_NOISE


def fall_of(points: Sequence[Point], noise: float) -> CourseChange | None:
    """Return the fall that a course of shares ends in, or None.

    Two courses are fitted from each day on: a constant that is lower, and a line that falls. The best of all explains
    the values far better than a constant, and its end is below what was usual before.
    """
    if len(points) < 2 * FEWEST:
        return None
    values = [one.value for one in points]
    noise = max(noise, noise_of([values[: len(values) // 2]]))
    least = max(LEAST_FALL * median(values), _DEVIATIONS * noise)
    # Most courses are flat, and are done here.
    if median(values) - median(values[-FEWEST:]) < least / 2 and max(values[:-FEWEST]) - values[-1] < least:
        return None
    whole = _spread(values)
    best: CourseChange | None = None
    for at in range(FEWEST, len(points) - FEWEST + 1):
        found = _fitted(points, at, whole, noise)
        if found.before - found.now >= least and found.gain > _GAIN and (best is None or found.gain > best.gain):
            best = found
    if best is None:
        return None
    low = [one < best.before - least / 2 for one in values[-best.points :]]
    return _dated(points, best, noise) if all(low[-2:]) and sum(low) >= FEWEST else None


def _spread(values: Sequence[float]) -> float:
    middle = sum(values) / len(values)
    return sum((one - middle) ** 2 for one in values)


def _fitted(points: Sequence[Point], at: int, whole: float, noise: float) -> CourseChange:
    head, tail = points[:at], points[at:]
    before = sum(one.value for one in head) / at
    rest = sum((one.value - before) ** 2 for one in head)
    after = sum(one.value for one in tail) / len(tail)
    step = rest + sum((one.value - after) ** 2 for one in tail)
    start = head[-1].time
    spans = [one.time - start for one in tail]
    slope = sum(span * (before - one.value) for span, one in zip(spans, tail, strict=True)) / sum(x * x for x in spans)
    line = rest + sum((one.value - before + slope * span) ** 2 for span, one in zip(spans, tail, strict=True))
    gradual = line < step
    now = before - slope * spans[-1] if gradual else after
    gain = (whole - min(line, step)) / noise**2
    return CourseChange(tail[0].time, before, now, len(tail), gradual, gain)


def _dated(points: Sequence[Point], change: CourseChange, noise: float) -> CourseChange:
    """Return a fall with the date that fits best: it is a step, or falls to a value that it keeps from some day on.

    A line to the end of the course would begin too early if the fall has ended. Least squares of all starts and ends
    need the sums up to each day only.
    """
    count, origin = len(points), points[0].time
    days, values = [(one.time - origin) / DAY for one in points], [one.value for one in points]
    sum_t, sum_tt, sum_y, sum_ty = (
        [0.0, *accumulate(each)]
        for each in (days, [t * t for t in days], values, [t * y for t, y in zip(days, values, strict=True)])
    )

    def better(start: int, end: int) -> float:
        """Return by how much (sum of squares) a ramp from one day to another fits better than a constant."""
        first, length, after = days[start], days[end] - days[start], count - end
        within = end - start - 1
        t, tt = sum_t[end] - sum_t[start + 1], sum_tt[end] - sum_tt[start + 1]
        y, ty = sum_y[end] - sum_y[start + 1], sum_ty[end] - sum_ty[start + 1]
        x = (t - within * first) / length + after
        xx = (tt - 2 * first * t + within * first * first) / length**2 + after
        xy = (ty - first * y) / length + sum_y[-1] - sum_y[end]
        slope, spread = xy - x * sum_y[-1] / count, xx - x * x / count
        return slope * slope / spread if slope < 0 < spread else 0.0

    starts = range(FEWEST - 1, count - FEWEST)
    step = max(starts, key=lambda start: better(start, start + 1))
    ramp, end = max(((a, b) for a in starts for b in range(a + 1, count)), key=lambda pair: better(*pair))
    gradual = better(ramp, end) - better(step, step + 1) > _RAMP * noise**2
    at = (ramp if gradual else step) + 1
    return change._replace(since=points[at].time, points=count - at, gradual=gradual)


def rise_of(points: Sequence[Point]) -> CourseChange | None:
    """Return the rise that a course of counts ends in, or None; the weight of a point is the hours it was counted in.

    Two Poisson processes, with the variance that the counts have by themselves, explain them far better than one from
    the best split on. The rise begins at the first day of the run above the low rate.
    """
    known = [one for one in points if one.weight > 0]
    if len(known) < 2 * FEWEST or sum(one.value > 0 for one in known[-FEWEST:]) < FEWEST - 1:
        return None
    best: tuple[float, int] | None = None
    for at in range(FEWEST, len(known) - FEWEST + 1):
        gain = _poisson_gain(known, at)
        if best is None or gain > best[0]:
            best = gain, at
    assert best is not None
    gain, at = best
    before, after = _rate(known[:at]), _rate(known[at:])
    hours = sum(one.weight for one in known[at:])
    more = sum(one.value for one in known[at:]) - before * hours
    if gain < _GAIN or after < RISE * before or more < _MORE_EVENTS or sum(x.value > 0 for x in known[at:]) < FEWEST:
        return None
    at = next((early for early in range(FEWEST, at) if _begins(known, early, at)), at)
    return CourseChange(known[at].time, _rate(known[:at]), _rate(known[-FEWEST:]), len(known) - at, True, gain)


def _rate(points: Sequence[Point]) -> float:
    hours = sum(one.weight for one in points)
    return sum(one.value for one in points) / hours if hours else 0.0


def _begins(points: Sequence[Point], early: int, at: int) -> bool:
    """Return whether a rise that is sure from ``at`` on began earlier: counts are above the rate before since then."""
    hours = sum(one.weight for one in points[:early])
    before = (sum(one.value for one in points[:early]) + 1) / hours
    expected = before * points[early].weight
    above = points[early].value > expected + 3 * math.sqrt(expected) + 1
    # Not a burst of that day alone.
    return above and (early + 1 == at or _rate(points[early + 1 : at]) >= RISE * before)


def _poisson_gain(points: Sequence[Point], at: int) -> float:
    parts = (points[:at], points[at:])
    if _rate(parts[1]) <= _rate(parts[0]):
        return 0.0
    gain, scatter = 0.0, 0.0
    whole = _rate(points)
    for part in parts:
        count, rate = sum(one.value for one in part), _rate(part)
        gain += 2 * count * math.log(rate / whole) if count else 0.0
        scatter += sum((one.value - rate * one.weight) ** 2 / max(1.0, rate * one.weight) for one in part)
    # Errors come in bursts: they vary more than counts of independent events.
    return gain / max(1.0, scatter / max(1, len(points) - 2))
