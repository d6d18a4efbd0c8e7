"""Reference of a class of values: the usual value of its best cluster."""

from __future__ import annotations

import math
from array import array
from typing import Any, NamedTuple

import numpy as np

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
_ENOUGH = 1 << 14
#: Values within this distance (of logarithms) of the reference belong to the noise of its cluster.
_NEAR = 0.5
#: Minimum distance of two clusters, in logarithms (a fifth), and in standard deviations within them.
CLUSTER_GAP, CLUSTER_DEVIATIONS = 0.22, 4.0
#: Half of a normal distribution lies within this many standard deviations of its median.
QUARTILE = 0.6745


class Reference(NamedTuple):
    """Usual value of a class, with its noise.

    Attributes:
        value: Median of the best cluster of values.
        spread: Robust standard deviation of the logarithm of its values.
        gap: Value between this cluster and the next worse one; None if there is one cluster only.
    """

    value: float
    spread: float
    gap: float | None


def sort(values: array[float]) -> None:
    """Sort numbers in place; as a list they would take four times the memory meanwhile."""
    np.frombuffer(values, dtype=float).sort(kind="stable")


def reference_of(values: array[float], less_is_better: bool) -> Reference:
    """Return the reference of sorted values, which are split into two clusters as long as these lie far apart.

    The split is the one with the largest variance between both parts (Otsu 1979) of the logarithms.
    """
    known = np.frombuffer(values, dtype=float)
    known = known[:: -(-len(known) // _ENOUGH)]
    if known[0] <= 0:
        return Reference(_middle(known), 0.0, None)
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
    away = np.sort(np.abs(best - _middle(best)))
    # Half of a few values may lie close together by chance.
    near = best[away < _NEAR]
    wide = np.std(near) if len(near) > 1 else 0.0
    spread = max(LEAST_SPREAD, _middle(away) / QUARTILE, float(wide))
    # Of a few values the deviation is not known well: what links usually have counts as much as some more values.
    count = len(best)
    spread = math.sqrt((count * spread**2 + _WORTH * USUAL_SPREAD**2) / (count + _WORTH)) if count > 1 else USUAL_SPREAD
    return Reference(_middle(known[first:last]), spread, gap)


def _middle(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Return the median of sorted values; numpy's own takes ten times as long for a few, as it does not know that."""
    count = len(values)
    return float((values[(count - 1) // 2] + values[count // 2]) / 2)


def _split(logs: np.ndarray[Any, np.dtype[np.float64]]) -> int:
    """Return the place at which ascending logarithms fall into two clusters, or 0 if they are one."""
    sums, squares = np.cumsum(logs), np.cumsum(logs * logs)
    low_count = np.arange(1, len(logs))
    high_count = len(logs) - low_count
    low, high = sums[:-1] / low_count, (sums[-1] - sums[:-1]) / high_count
    at = int(np.argmax(low_count * high_count * (high - low) ** 2))
    variance = (squares[-1] - low_count[at] * low[at] ** 2 - high_count[at] * high[at] ** 2) / (len(logs) - 2)
    # The best split of a few values finds two clusters in noise, too.
    deviation = math.sqrt(max(variance, 0.0)) * (1 + _FEW / len(logs))
    apart = float(high[at] - low[at])
    return at + 1 if apart >= max(CLUSTER_GAP, CLUSTER_DEVIATIONS * deviation) else 0
