"""Class statistics: what is slow among the values of a class, and which pairs flap.

There is no table of absolute limits, because such tables differ by a factor of two for the same GPU.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from fabtui.model.measurement import Verdict

#: Minimum number of values in a class before one can be called slow.
FEWEST = 3
#: A slow value is at least this many standard deviations from the reference of its class.
DEVIATIONS = 4.5
#: A value below this share of the reference is slow however widely its class spreads.
SURELY_SLOW = 0.2
#: Where values spread widely by nature, as with ranks that share cores, a second cluster is one if it lies
#: below this share of the reference: a few values that are close by chance are not a reference for the others.
_CLEARLY_APART = 0.5
#: Minimum standard deviation (of logarithms) of a second mode of a class, and maximum factor between both.
_MODE_SPREAD, _MODE_FACTOR = 0.25, 20.0
#: The reference is found again when one of this number of values has changed.
_STALE = 64
#: Maximum number of values that are inserted one by one; more are sorted in, which takes longer for a few.
_MOST_INSERTED = 64
#: Number of latest attempts considered for flapping.
ATTEMPTS = 10
#: Minimum number of turns, from good to bad or back, of a flapping pair.
TURNS = 2

#: Minimum number of values of a cluster that others are compared with.
_FEWEST_OF_CLUSTER = 3
#: Number of values of which the noise is taken for twice as large.
_FEW = 4
#: Minimum share of the values of a class in the cluster that is its reference.
LEAST_CLUSTER = 0.1
#: Standard deviation that is assumed at least: measurements of equal paths differ by this much.
LEAST_SPREAD = 0.02
#: Standard deviation that is expected of a class, and how many values that is worth.
USUAL_SPREAD, _WORTH = 0.06, 3
#: Number of values that stand for a larger class: evenly spaced in sorted ones, they have the same quantiles.
_ENOUGH = 1 << 10
#: Values within this distance (of logarithms) of the reference belong to the noise of its cluster.
_NEAR = 0.5
#: Minimum distance of two clusters, in logarithms (a fifth), and in standard deviations within them.
CLUSTER_GAP, CLUSTER_DEVIATIONS = 0.22, 4.0
#: Minimum number of values in the better part of a class without two clusters, from which on it is split again.
_MANY = 12
#: Half of a normal distribution lies within this many standard deviations of its median.
QUARTILE = 0.6745
_INDECISIVE = (Verdict.UNTESTED, Verdict.SKIPPED, Verdict.INCONCLUSIVE)


class Reference(NamedTuple):
    """Usual value of a class, with its noise."""

    value: float  #: Median of the best cluster of values.
    spread: float  #: Robust standard deviation of the logarithm of its values.
    gap: float | None  #: Value between this cluster and the next worse one; None if there is one cluster only.


def reference_of(values: array[float], less_is_better: bool) -> Reference:
    """Return the reference of sorted values, which are split into two clusters as long as these lie far apart.

    The split is the one with the largest variance between both parts (Otsu 1979) of the logarithms.
    """
    known = list(values[:: -(-len(values) // _ENOUGH)])
    if known[0] <= 0:
        return Reference(_middle(known), 0.0, None)
    logs = [math.log(value) for value in known]
    if less_is_better:
        # From the worst to the best; of these, the places from `first` to `last` are the cluster.
        known.reverse()
        logs = [-value for value in reversed(logs)]
    least = max(2, math.ceil(LEAST_CLUSTER * len(logs)))
    first, last, gap = 0, len(logs), None
    while last - first > _FEWEST_OF_CLUSTER and (split := _split(logs[first:last])):
        if last - first - split < least:
            # A few values far above all others are not a reference.
            last = first + split
        else:
            first += split
            gap = math.sqrt(known[first - 1] * known[first]) if first >= _FEWEST_OF_CLUSTER else None
    return Reference(_middle(known[first:last]), _spread(logs[first:last]), gap)


def _spread(best: list[float]) -> float:
    """Return the noise of ascending logarithms of one cluster, as a standard deviation."""
    count = len(best)
    if count == 1:
        return USUAL_SPREAD
    middle = _middle(best)
    away = sorted([abs(value - middle) for value in best])
    # Half of a few values may lie close together by chance.
    near = [value for value in best if abs(value - middle) < _NEAR]
    wide = 0.0
    if len(near) > 1:
        mean = sum(near) / len(near)
        wide = math.sqrt(sum([(value - mean) ** 2 for value in near]) / len(near))
    spread = max(LEAST_SPREAD, _middle(away) / QUARTILE, wide)
    # A few values do not show the deviation well: the usual deviation of links counts as much as some more values.
    return math.sqrt((count * spread**2 + _WORTH * USUAL_SPREAD**2) / (count + _WORTH))


def _middle(values: list[float]) -> float:
    count = len(values)
    return (values[(count - 1) // 2] + values[count // 2]) / 2


def _split(logs: list[float]) -> int:
    """Return the place at which ascending logarithms fall into two clusters, or 0 if they are one."""
    if logs[-1] - logs[0] < CLUSTER_GAP:
        return 0
    count = len(logs)
    sums = list(accumulate(logs))
    mean = sums[-1] / count
    # The variance between both parts, times a number that is the same for all places.
    between = [
        (total - low_count * mean) ** 2 / (low_count * (count - low_count))
        for low_count, total in enumerate(sums[:-1], 1)
    ]
    low_count = between.index(max(between)) + 1
    low, high = logs[:low_count], logs[low_count:]
    low_mean, high_mean = sums[low_count - 1] / low_count, (sums[-1] - sums[low_count - 1]) / len(high)
    variance = sum([(value - low_mean) ** 2 for value in low]) + sum([(value - high_mean) ** 2 for value in high])
    # The best split of a few values finds two clusters in noise, too.
    deviation = math.sqrt(variance / (count - 2)) * (1 + _FEW / count)
    if high_mean - low_mean >= max(CLUSTER_GAP, CLUSTER_DEVIATIONS * deviation):
        return low_count
    # The lower part may be several clusters, as where two nodes are slow, and wide: a gap shows the better one then.
    deviation = _spread(high) * (1 + _FEW / len(high))
    if high[0] - low[-1] >= max(CLUSTER_GAP, CLUSTER_DEVIATIONS * deviation):
        return low_count
    higher = _split(high) if len(high) >= _MANY else 0
    return low_count + higher if higher else 0


class ClassValues:
    """Good values of one class of one layer: sorted floats, eight bytes each.

    Args:
        values: Initial values, in any order.
        less_is_better: Whether a value far above the usual one is the slow one, rather than one far below.
    """

    __slots__ = ("_changes", "_less_is_better", "_limits", "_reference", "_sorted", "_waiting")

    def __init__(self, values: Iterable[float] = (), less_is_better: bool = False) -> None:
        self._sorted = array("d")
        #: New values wait until a reader asks, so that a million load in one sort.
        self._waiting = array("d", values)
        self._less_is_better = less_is_better
        self._reference: Reference | None = None
        self._limits: dict[float, float | None] = {}
        self._changes = 0

    def __len__(self) -> int:
        return len(self._sorted) + len(self._waiting)

    def sorted(self) -> array[float]:
        """Return all values in ascending order, to be read only."""
        if len(self._waiting) > _MOST_INSERTED:
            self._sorted = array("d", np.sort(np.concatenate((self._sorted, self._waiting))).tobytes())
        else:
            for value in self._waiting:
                insort(self._sorted, value)
        if self._waiting:
            self._waiting = array("d")
        return self._sorted

    def add(self, *values: float) -> None:
        before = len(self)
        self._waiting.extend(values)
        for count in range(before + 1, before + len(values) + 1):
            self._change(count)

    def remove(self, value: float) -> bool:
        """Remove a value that a newer attempt replaces; return True if there was one."""
        known = self.sorted()
        at = bisect_left(known, value)
        if at == len(known) or known[at] != value:
            return False
        del known[at]
        self._change(len(known))
        return True

    def _change(self, count: int) -> None:
        self._changes += 1
        # Among very many values, a few more change the reference by less than the noise.
        if self._changes * _STALE > count:
            self.settle()

    def settle(self) -> bool:
        """Take all values into account from now on; return True if there are new ones."""
        if not self._changes:
            return False
        self._changes, self._reference = 0, None
        self._limits.clear()
        return True

    @property
    def median(self) -> float | None:
        """The median of the best cluster, or None when there is no value."""
        reference = self.reference
        return None if reference is None else reference.value

    @property
    def reference(self) -> Reference | None:
        """Reference of this class, or None when there is no value."""
        if self._reference is None and len(self):
            self._reference = reference_of(self.sorted(), self._less_is_better)
        return self._reference

    @property
    def lowest(self) -> float | None:
        """The lowest value, or None when there is none."""
        return self.sorted()[0] if len(self) else None

    @property
    def highest(self) -> float | None:
        """The highest value, or None when there is none."""
        return self.sorted()[-1] if len(self) else None

    def limit(self, slow_below: float) -> float | None:
        """Return the value beyond which one is slow, or None where there are too few values.

        It is ``slow_below`` times the reference, and farther away where the best cluster spreads widely by itself, as
        TCP over shared cores does. Where there is a second, worse cluster, the limit lies between the two at least.
        """
        # Read for every cell that is drawn; the values change far less often.
        if slow_below in self._limits:
            return self._limits[slow_below]
        usual, limit = self.reference, None
        if usual is not None and len(self) >= FEWEST:
            wide = math.exp(-DEVIATIONS * usual.spread)
            share = max(SURELY_SLOW, min(slow_below, wide))
            if usual.gap is not None:
                gap = usual.value / usual.gap if self._less_is_better else usual.gap / usual.value
                if slow_below > SURELY_SLOW or gap <= _CLEARLY_APART:
                    share = max(share, gap)
            value = usual.value
            if slow_below <= SURELY_SLOW and (mode := self._mode(usual)) is not None:
                # Values of both modes are usual.
                value, share = mode, min(SURELY_SLOW, wide)
            limit = value / share if self._less_is_better else share * value
        self._limits[slow_below] = limit
        return limit

    def _mode(self, usual: Reference) -> float | None:
        """Return the median of the values that are worse than the best cluster, if they are another mode of the class.

        Ranks that share cores are fast or slow as they get these, and most may be slow. A faulty link slows its pairs
        down to about one value, or to a small share of what is usual.
        """
        if usual.gap is None or usual.gap <= 0:
            return None
        known = list(self.sorted())
        at = bisect_left(known, usual.gap)
        worse = known[at:] if self._less_is_better else known[:at]
        if 2 * len(worse) <= len(known) or worse[0] <= 0 or _spread(list(map(math.log, worse))) < _MODE_SPREAD:
            return None
        middle = _middle(worse)
        return middle if max(middle / usual.value, usual.value / middle) <= _MODE_FACTOR else None

    def is_slow(self, value: float, slow_below: float) -> bool:
        """Return True if a value is slow among the values of its class; see `limit`."""
        limit = self.limit(slow_below)
        return limit is not None and (value > limit if self._less_is_better else value < limit)


def turns(verdicts: Iterable[Verdict]) -> int:
    """Return the number of turns from good to bad or back, oldest attempt first; indecisive attempts are left out."""
    decisive = [verdict.bad for verdict in verdicts if verdict not in _INDECISIVE]
    return sum(a != b for a, b in pairwise(decisive))


def lasting(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the verdicts of a pair's attempts without slow ones that neither the attempt before nor the next confirms.

    A value that is low once, beside others or by chance, is not a change of the pair.
    """
    decisive = [verdict for verdict in verdicts if verdict not in _INDECISIVE]
    around = zip([None, *decisive], decisive, [*decisive[1:], None], strict=False)
    return [
        now
        for before, now, after in around
        if now is not Verdict.SLOW or any(one and one.bad for one in (before, after))
    ]


def flapping(verdicts: Iterable[Verdict]) -> int:
    """Return the number of turns of a pair's latest attempts if it flaps, else 0.

    One turn is not flapping: the pair failed beside others and passes alone, or it broke and stays broken.
    """
    number = turns(list(verdicts)[-ATTEMPTS:])
    return number if number >= TURNS else 0
