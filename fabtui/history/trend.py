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

#: Minimum number of days with results before a change, and from it on: two sessions are not a trend.
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
    sums = _Sums.of(points)
    fits = (sums.fitted(at, noise) for at in range(FEWEST, len(points) - FEWEST + 1))
    falls = [one for one in fits if one.before - one.now >= least and one.gain > _GAIN]
    best = max(falls, key=lambda one: one.gain, default=None)
    if best is None:
        return None
    low = [one < best.before - least / 2 for one in values[-best.points :]]
    return sums.dated(best, noise) if all(low[-2:]) and sum(low) >= FEWEST else None


class _Sums(NamedTuple):
    """Sums of a course up to each day, from which least squares of its parts need no loop; times are in days."""

    points: Sequence[Point]
    times: list[float]  #: Days since the first one.
    t: list[float]
    tt: list[float]
    y: list[float]
    yy: list[float]
    ty: list[float]

    @classmethod
    def of(cls, points: Sequence[Point]) -> _Sums:
        """Return the sums of a course."""
        origin = points[0].time
        times, values = [(one.time - origin) / DAY for one in points], [one.value for one in points]
        terms = (
            times,
            [time * time for time in times],
            values,
            [value * value for value in values],
            [time * value for time, value in zip(times, values, strict=True)],
        )
        return cls(points, times, *([0.0, *accumulate(each)] for each in terms))

    def fitted(self, at: int, noise: float) -> CourseChange:
        """Return the change from a day on that fits best: a lower constant, or a falling line from the day before."""
        count, start = len(self.points) - at, self.times[at - 1]
        before, after = self.y[at] / at, (self.y[-1] - self.y[at]) / count
        head = self.yy[at] - at * before * before
        tail_y, tail_yy = self.y[-1] - self.y[at], self.yy[-1] - self.yy[at]
        step = head + tail_yy - count * after * after
        tail_t, tail_tt = self.t[-1] - self.t[at], self.tt[-1] - self.tt[at]
        spans, squares = tail_t - count * start, tail_tt - 2 * start * tail_t + count * start * start
        slope = (before * spans - (self.ty[-1] - self.ty[at] - start * tail_y)) / squares
        line = head + tail_yy - 2 * before * tail_y + count * before * before - slope * slope * squares
        gradual = line < step
        now = before - slope * (self.times[-1] - start) if gradual else after
        whole = self.yy[-1] - self.y[-1] ** 2 / len(self.points)
        gain = (whole - min(line, step)) / noise**2
        return CourseChange(self.points[at].time, before, now, count, gradual, gain)

    def dated(self, change: CourseChange, noise: float) -> CourseChange:
        """Return a fall with the date that fits best: it is a step, or falls to a value that it keeps from some day on.

        A line to the end of the course would begin too early if the fall has ended.
        """
        gains = [(start, self._ramps(start)) for start in range(FEWEST - 1, len(self.points) - FEWEST)]
        step, best_step = max(((start, ramps[0]) for start, ramps in gains), key=lambda one: one[1])
        ramp, best_ramp = max(((start, max(ramps)) for start, ramps in gains), key=lambda one: one[1])
        gradual = best_ramp - best_step > _RAMP * noise**2
        at = (ramp if gradual else step) + 1
        return change._replace(since=self.points[at].time, points=len(self.points) - at, gradual=gradual)

    def _ramps(self, start: int) -> list[float]:
        """Return by how much (sum of squares) ramps from a day to each later one fit better than a constant."""
        count, first, gains = len(self.points), self.times[start], []
        t0, tt0, y0, ty0 = (each[start + 1] for each in (self.t, self.tt, self.y, self.ty))
        whole = self.y[-1]
        for end in range(start + 1, count):
            length, after, within = self.times[end] - first, count - end, end - start - 1
            t, y = self.t[end] - t0, self.y[end] - y0
            x = (t - within * first) / length + after
            xx = (self.tt[end] - tt0 - 2 * first * t + within * first * first) / length**2 + after
            xy = (self.ty[end] - ty0 - first * y) / length + whole - self.y[end]
            slope, spread = xy - x * whole / count, xx - x * x / count
            gains.append(slope * slope / spread if slope < 0 < spread else 0.0)
        return gains


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
