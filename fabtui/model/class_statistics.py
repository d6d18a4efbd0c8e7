"""Judging values by the distribution of their class.

A bandwidth far below the median of its class is ``slow``; there is no table of absolute values here, because such
tables differ by a factor of two for the same GPU.
"""

from __future__ import annotations

from collections.abc import Iterable

from fabtui.model.sortedfloats import SortedFloats

#: Fewer values than this in a class say nothing about what is normal.
FEWEST = 3
#: How many times the usual deviation a value must be below the median of its class to be slow.
DEVIATIONS = 4.0
#: A value below this share of the median is slow however widely its class spreads.
SURELY_SLOW = 0.2
#: Half of a normal distribution lies within this many standard deviations of its median.
_QUARTILE = 0.6745


class ClassValues:
    """The good values of one class of one layer, kept sorted so that the median is at hand.

    Args:
        values: Those there are from the start.
    """

    __slots__ = ("_limits", "_sorted")

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._sorted = SortedFloats(values)
        self._limits: dict[float, float | None] = {}

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, value: float) -> None:
        """Take a value in."""
        self._sorted.add(value)
        self._limits.clear()

    def remove(self, value: float) -> None:
        """Take a value out that a newer attempt replaces; one that is not there is passed over."""
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
        """Return the value below which one is slow, or None where there are too few values to tell.

        It is ``slow_below`` times the median, and lower where the class spreads widely by itself, as TCP over shared
        cores does. The spread is read off the middle half of the values, so that broken paths, as long as they are
        fewer than the good ones, cannot hide themselves in it.
        """
        if slow_below not in self._limits:
            # Asked for every cell that is drawn; the values change far less often.
            self._limits[slow_below] = self._find_limit(slow_below)
        return self._limits[slow_below]

    def _find_limit(self, slow_below: float) -> float | None:
        median = self.median
        if median is None or len(self._sorted) < FEWEST:
            return None
        deviation = self._middle_deviation(median) / _QUARTILE
        return max(SURELY_SLOW * median, min(slow_below * median, median - DEVIATIONS * deviation))

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
        """Say whether a value is slow among the values of its class; see `limit`."""
        limit = self.limit(slow_below)
        return limit is not None and value < limit
