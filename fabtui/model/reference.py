"""Reference of a class of values: the usual value of its best cluster.

In plain Python: most classes have a few dozen values, for which it is faster than numpy.
"""

from __future__ import annotations

import math
from array import array
from itertools import accumulate
from typing import NamedTuple

#: Minimum number of values of a cluster that others are compared with.
FEWEST = 3
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
    while last - first > FEWEST and (split := _split(logs[first:last])):
        if last - first - split < least:
            # A few values far above all others are not a reference.
            last = first + split
        else:
            first += split
            gap = math.sqrt(known[first - 1] * known[first]) if first >= FEWEST else None
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
