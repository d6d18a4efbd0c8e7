"""Class statistics: what is slow among the values of a class, and which pairs flap.

There is no table of absolute limits, because such tables differ by a factor of two for the same GPU.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from fabtui.model.measurement import Verdict

if TYPE_CHECKING:
    import numpy as np

#: Minimum number of values in a class before one can be called slow.
FEWEST = 3
#: A slow value is at least this many standard deviations from the reference of its class.
DEVIATIONS = 4.5
#: A value below this share of the reference is slow however widely its class spreads.
SURELY_SLOW = 0.2
#: Minimum distance of two clusters, in logarithms (a fifth), and in standard deviations within them.
CLUSTER_GAP, CLUSTER_DEVIATIONS = 0.22, 4.0
#: Minimum share of the values of a class in the cluster that is its reference.
LEAST_CLUSTER = 0.05
#: Standard deviation that is assumed at least: measurements of equal paths differ by this much.
LEAST_SPREAD = 0.02
#: Standard deviation that is expected of a class, and how many values that is worth.
USUAL_SPREAD, _WORTH = 0.06, 3
#: Values within this distance (of logarithms) of the reference belong to the noise of its cluster.
_NEAR = 0.5
#: The reference is found again when this share (one in so many) of the values has changed.
_STALE = 64
#: Half of a normal distribution lies within this many standard deviations of its median.
_QUARTILE = 0.6745
#: Maximum number of values that are inserted one by one; more are sorted in, which takes longer for a few.
_MOST_INSERTED = 64
#: Number of latest attempts considered for flapping.
ATTEMPTS = 10
#: Minimum number of turns, from good to bad or back, of a flapping pair.
TURNS = 2

_INDECISIVE = (Verdict.UNTESTED, Verdict.SKIPPED, Verdict.INCONCLUSIVE)


class SortedFloats:
    """Sorted floats, eight bytes each. New ones wait until a reader asks, so that a million load in one sort.

    Args:
        values: Initial values, in any order.
    """

    __slots__ = ("_sorted", "_waiting")

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._sorted = array("d", sorted(values))
        self._waiting = array("d")

    def _settled(self) -> array[float]:
        if len(self._waiting) > _MOST_INSERTED:
            self._sorted.extend(self._waiting)
            self._sorted = array("d", sorted(self._sorted))
        else:
            for value in self._waiting:
                insort(self._sorted, value)
        if self._waiting:
            self._waiting = array("d")
        return self._sorted

    def __len__(self) -> int:
        return len(self._sorted) + len(self._waiting)

    def __iter__(self) -> Iterator[float]:
        return iter(self._settled())

    def __getitem__(self, at: int) -> float:
        return self._settled()[at]

    def buffer(self) -> array[float]:
        """Return all numbers in ascending order, to be read only."""
        return self._settled()

    def add(self, value: float) -> None:
        """Insert a number."""
        self._waiting.append(value)

    def remove(self, value: float) -> bool:
        """Remove one number of this value; return True if there was one."""
        known = self._settled()
        at = bisect_left(known, value)
        if at == len(known) or known[at] != value:
            return False
        del known[at]
        return True


class Reference(NamedTuple):
    """What is usual among the values of a class.

    Attributes:
        value: Median of the best cluster of values.
        spread: Robust standard deviation of the logarithm of its values.
        gap: Value between this cluster and the next worse one; None if there is one cluster only.
    """

    value: float
    spread: float
    gap: float | None


class ClassValues:
    """Good values of one class of one layer.

    Args:
        values: Initial values, in any order.
        less_is_better: Whether a value far above the usual one is the slow one, rather than one far below.
    """

    __slots__ = ("_changes", "_less_is_better", "_limits", "_reference", "_sorted")

    def __init__(self, values: Iterable[float] = (), less_is_better: bool = False) -> None:
        self._sorted = SortedFloats(values)
        self._less_is_better = less_is_better
        self._reference: Reference | None = None
        self._limits: dict[float, float | None] = {}
        self._changes = 0

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, value: float) -> None:
        """Add a value."""
        self._sorted.add(value)
        self._change()

    def remove(self, value: float) -> None:
        """Remove a value that a newer attempt replaces; an unknown one is ignored."""
        if self._sorted.remove(value):
            self._change()

    def _change(self) -> None:
        self._changes += 1
        # Of very many values, a few more change the reference by less than the noise.
        if self._changes * _STALE > len(self._sorted):
            self.settle()

    def settle(self) -> None:
        """Take all values into account from now on."""
        if self._changes:
            self._changes, self._reference = 0, None
            self._limits.clear()

    @property
    def median(self) -> float | None:
        """The median of the best cluster, or None when there is no value."""
        found = self.reference
        return None if found is None else found.value

    @property
    def reference(self) -> Reference | None:
        """What is usual in this class, or None when there is no value."""
        if self._reference is None and len(self._sorted):
            self._reference = _reference(self._sorted, self._less_is_better)
        return self._reference

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

        It is ``slow_below`` times the reference, and farther away where the best cluster spreads widely by itself, as
        TCP over shared cores does. Where there is a second, worse cluster, the limit lies between the two at least.
        """
        if slow_below not in self._limits:
            # Read for every cell that is drawn; the values change far less often.
            self._limits[slow_below] = self._find_limit(slow_below)
        return self._limits[slow_below]

    def _find_limit(self, slow_below: float) -> float | None:
        usual = self.reference
        if usual is None or len(self._sorted) < FEWEST:
            return None
        wide = math.exp(-DEVIATIONS * usual.spread)
        share = max(SURELY_SLOW, min(slow_below, wide))
        if self._less_is_better:
            return usual.value / share if usual.gap is None else min(usual.gap, usual.value / share)
        return share * usual.value if usual.gap is None else max(usual.gap, share * usual.value)

    def is_slow(self, value: float, slow_below: float) -> bool:
        """Return True if a value is slow among the values of its class; see `limit`."""
        limit = self.limit(slow_below)
        return limit is not None and (value > limit if self._less_is_better else value < limit)


def _reference(values: SortedFloats, less_is_better: bool) -> Reference:
    """Return the reference of a class: its values are split into two clusters as long as these lie far apart.

    The split is the one with the largest variance between both parts (Otsu 1979) of the logarithms.
    """
    import numpy as np

    known = np.frombuffer(values.buffer(), dtype=float)
    if known[0] <= 0:
        return Reference(float(np.median(known)), 0.0, None)
    # From the worst to the best; of these, the places from `first` to `last` are the cluster.
    known = known[::-1] if less_is_better else known
    logs = -np.log(known) if less_is_better else np.log(known)
    least = max(2, math.ceil(LEAST_CLUSTER * len(logs)))
    first, last, gap = 0, len(logs), None
    while last - first > FEWEST and (split := _split(logs[first:last])):
        if last - first - split < least:
            # A few values far above all others are no reference.
            last = first + split
        else:
            first += split
            gap = math.sqrt(known[first - 1] * known[first]) if first >= FEWEST else None
    best = logs[first:last]
    away = np.abs(best - np.median(best))
    # Half of a few values may lie close together by chance.
    wide = np.std(best[away < _NEAR]) if len(best) > 1 else 0.0
    spread = max(LEAST_SPREAD, float(np.median(away)) / _QUARTILE, float(wide))
    # Of a few values the deviation is not known well: what links usually have counts as much as some more values.
    count = len(best)
    spread = math.sqrt((count * spread**2 + _WORTH * USUAL_SPREAD**2) / (count + _WORTH)) if count > 1 else USUAL_SPREAD
    return Reference(float(np.median(known[first:last])), spread, gap)


def _split(logs: np.ndarray[Any, np.dtype[np.float64]]) -> int:
    """Return the place at which ascending logarithms fall into two clusters, or 0 if they are one."""
    import numpy as np

    sums, squares = np.cumsum(logs), np.cumsum(logs * logs)
    low_count = np.arange(1, len(logs))
    high_count = len(logs) - low_count
    low, high = sums[:-1] / low_count, (sums[-1] - sums[:-1]) / high_count
    at = int(np.argmax(low_count * high_count * (high - low) ** 2))
    variance = (squares[-1] - low_count[at] * low[at] ** 2 - high_count[at] * high[at] ** 2) / len(logs)
    apart = float(high[at] - low[at])
    return at + 1 if apart >= max(CLUSTER_GAP, CLUSTER_DEVIATIONS * math.sqrt(max(variance, 0.0))) else 0


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
