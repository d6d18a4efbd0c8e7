"""Class statistics: what is slow among the values of a class, and which pairs flap.

There is no table of absolute limits, because such tables differ by a factor of two for the same GPU.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, pairwise

from fabtui.model.measurement import Verdict

#: Minimum number of values in a class before one can be called slow.
FEWEST = 3
#: A slow value is at least this many standard deviations from the median of its class.
DEVIATIONS = 4.0
#: A value below this share of the median is slow however widely its class spreads.
SURELY_SLOW = 0.2
#: Half of a normal distribution lies within this many standard deviations of its median.
_QUARTILE = 0.6745
#: Numbers of a part of `SortedFloats`; it is split at twice as many.
_PART = 512
#: Number of latest attempts considered for flapping.
ATTEMPTS = 10
#: Minimum number of turns, from good to bad or back, of a flapping pair.
TURNS = 2

_INDECISIVE = (Verdict.UNTESTED, Verdict.SKIPPED, Verdict.INCONCLUSIVE)


class SortedFloats:
    """Sorted floats in parts of bounded size, so that insertion stays fast among a million of them.

    Args:
        values: Initial values, in any order.
    """

    __slots__ = ("_befores", "_count", "_lasts", "_parts")

    def __init__(self, values: Iterable[float] = ()) -> None:
        known = array("d", sorted(values))
        self._count = len(known)
        self._parts = [known[at : at + _PART] for at in range(0, len(known), _PART)] or [array("d")]
        #: The last number of each part except the final one, which takes everything larger.
        self._lasts = [part[-1] for part in self._parts[:-1]]
        #: Count of numbers before each part; None: to be recomputed.
        self._befores: list[int] | None = None

    def __len__(self) -> int:
        return self._count

    def _begin(self, part: int) -> int:
        if self._befores is None:
            self._befores = list(accumulate((len(one) for one in self._parts), initial=0))
        return self._befores[part]

    def __iter__(self) -> Iterator[float]:
        return chain.from_iterable(self._parts)

    def __getitem__(self, at: int) -> float:
        at = range(self._count)[at]
        self._begin(0)
        assert self._befores is not None
        part = bisect_right(self._befores, at) - 1
        return self._parts[part][at - self._befores[part]]

    def below(self, value: float) -> int:
        """Return the count of numbers below a value."""
        part = bisect_left(self._lasts, value)
        return self._begin(part) + bisect_left(self._parts[part], value)

    def until(self, value: float) -> int:
        """Return the count of numbers not above a value."""
        part = bisect_right(self._lasts, value)
        return self._begin(part) + bisect_right(self._parts[part], value)

    def add(self, value: float) -> None:
        """Insert a number."""
        at = bisect_left(self._lasts, value)
        part = self._parts[at]
        insort(part, value)
        self._count += 1
        self._befores = None
        if len(part) > 2 * _PART:
            self._parts[at : at + 1] = [part[:_PART], part[_PART:]]
            self._lasts.insert(at, part[_PART - 1])

    def remove(self, value: float) -> bool:
        """Remove one number of this value; return True if there was one."""
        number = bisect_left(self._lasts, value)
        # Equal numbers may lie on both sides of a boundary.
        while not self._remove_from(number, value):
            if number == len(self._lasts) or self._lasts[number] != value:
                return False
            number += 1
        return True

    def _remove_from(self, number: int, value: float) -> bool:
        part = self._parts[number]
        at = bisect_left(part, value)
        if at == len(part) or part[at] != value:
            return False
        del part[at]
        self._count -= 1
        self._befores = None
        if not part and number < len(self._lasts):
            del self._parts[number], self._lasts[number]
        return True


class ClassValues:
    """Good values of one class of one layer.

    Args:
        values: Initial values.
        less_is_better: Whether a value far above the median is the slow one, rather than one far below.
    """

    __slots__ = ("_less_is_better", "_limits", "_sorted")

    def __init__(self, values: Iterable[float] = (), less_is_better: bool = False) -> None:
        self._sorted = SortedFloats(values)
        self._less_is_better = less_is_better
        self._limits: dict[float, float | None] = {}

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, value: float) -> None:
        """Add a value."""
        self._sorted.add(value)
        self._limits.clear()

    def remove(self, value: float) -> None:
        """Remove a value that a newer attempt replaces; an unknown one is ignored."""
        if self._sorted.remove(value):
            self._limits.clear()

    @property
    def median(self) -> float | None:
        """The median, or None when there is no value."""
        count = len(self._sorted)
        if not count:
            return None
        middle = count // 2
        if count % 2:
            return self._sorted[middle]
        return (self._sorted[middle - 1] + self._sorted[middle]) / 2

    @property
    def lowest(self) -> float | None:
        """The lowest value, or None when there is none."""
        return self._sorted[0] if len(self._sorted) else None

    @property
    def highest(self) -> float | None:
        """The highest value, or None when there is none."""
        return self._sorted[-1] if len(self._sorted) else None

    def limit(self, slow_below: float) -> float | None:
        """Return the value beyond which one is slow, or None where there are too few values.

        It is ``slow_below`` times the median, and farther away where the class spreads widely by itself, as TCP over
        shared cores does. Where less is better, the median is divided by ``slow_below`` instead. The spread is that of
        the middle half of the values: broken paths cannot widen it while they are a minority.
        """
        if slow_below not in self._limits:
            # Read for every cell that is drawn; the values change far less often.
            self._limits[slow_below] = self._find_limit(slow_below)
        return self._limits[slow_below]

    def _find_limit(self, slow_below: float) -> float | None:
        median = self.median
        if median is None or len(self._sorted) < FEWEST:
            return None
        spread = DEVIATIONS * self._middle_deviation(median) / _QUARTILE
        if self._less_is_better:
            return min(median / SURELY_SLOW, max(median / slow_below, median + spread))
        return max(SURELY_SLOW * median, min(slow_below * median, median - spread))

    def _middle_deviation(self, median: float) -> float:
        """Return the distance from the median within which half of the values lie."""
        values = self._sorted
        near, far = 0.0, max(median - values[0], values[-1] - median)
        for _ in range(40):
            middle = (near + far) / 2
            if 2 * (values.until(median + middle) - values.below(median - middle)) < len(values):
                near = middle
            else:
                far = middle
        return far

    def is_slow(self, value: float, slow_below: float) -> bool:
        """Return True if a value is slow among the values of its class; see `limit`."""
        limit = self.limit(slow_below)
        return limit is not None and (value > limit if self._less_is_better else value < limit)


def turns(verdicts: Iterable[Verdict]) -> int:
    """Return the number of turns from good to bad or back, oldest attempt first; indecisive attempts are left out."""
    found = [verdict.bad for verdict in verdicts if verdict not in _INDECISIVE]
    return sum(a != b for a, b in pairwise(found))


def flapping(verdicts: Iterable[Verdict]) -> int:
    """Return the number of turns of a pair's latest attempts if it flaps, else 0.

    One turn is not flapping: the pair failed beside others and passes alone, or it broke and stays broken.
    """
    found = turns(list(verdicts)[-ATTEMPTS:])
    return found if found >= TURNS else 0
