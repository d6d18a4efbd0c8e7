"""Judging values by the distribution of their class.

A bandwidth far below the median of its class is ``slow``; there is no table of absolute values here, because such
tables differ by a factor of two for the same GPU.
"""

from __future__ import annotations

from bisect import bisect_left, insort

#: Fewer values than this in a class say nothing about what is normal.
FEWEST = 3


class ClassValues:
    """The good values of one class of one layer, kept sorted so that the median is at hand."""

    __slots__ = ("_sorted",)

    def __init__(self) -> None:
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, value: float) -> None:
        """Take a value in."""
        insort(self._sorted, value)

    def remove(self, value: float) -> None:
        """Take a value out that a newer attempt replaces; one that is not there is passed over."""
        at = bisect_left(self._sorted, value)
        if at < len(self._sorted) and self._sorted[at] == value:
            del self._sorted[at]

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

    def is_slow(self, value: float, slow_below: float) -> bool:
        """Say whether a value is below ``slow_below`` times the median of enough values."""
        median = self.median
        return median is not None and len(self._sorted) >= FEWEST and value < slow_below * median
