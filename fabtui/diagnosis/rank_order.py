"""Order of nodes in which the slowest pair of neighbours is as fast as possible: a ring or a path."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from fabtui.model.pair_table import Floats, Ints

#: Minimum factor that a different order of the nodes has to gain.
_LEAST_GAIN = 1.02
#: Number of nodes that the greedy search starts from.
_STARTS = 16


class Hop(NamedTuple):
    """Two neighbours, and the bandwidth between them in the slower direction (GB/s)."""

    source: str
    destination: str
    value: float


class RankOrder(NamedTuple):
    """An order of nodes."""

    nodes: list[str]  #: The nodes in that order.
    before: Hop | None  #: Slowest neighbours in the given order; None if no bandwidth of neighbours is known.
    after: Hop | None  #: Slowest neighbours in the order found; the same object if that changes nothing.
    unknown: int  #: Number of neighbours with an unknown bandwidth.


def rank_order(nodes: Sequence[str], hops: Floats, kinds: Sequence[Hashable], *, ring: bool = True) -> RankOrder:
    def neighbours(order: Ints) -> Floats:
        return around(hops, order)[: None if ring else -1]

    def slowest(order: Ints) -> Hop | None:
        values = neighbours(order)
        if np.isnan(values).all():
            return None
        at = int(np.nanargmin(values))
        return Hop(nodes[order[at]], nodes[np.roll(order, -1)[at]], float(values[at]))

    order = best_order(hops, kinds, ring=ring)
    before, after = slowest(np.arange(len(nodes))), slowest(order)
    if before is not None and after is not None and before.value == after.value:
        after = before
    return RankOrder([nodes[at] for at in order.tolist()], before, after, int(np.isnan(neighbours(order)).sum()))


def best_order(hops: Floats, kinds: Sequence[Hashable] | None = None, *, ring: bool = True) -> Ints:
    """Return the order of nodes whose slowest hop is fastest: greedy orders, improved by 2-opt.

    The given order stays unless another gains two percent; a ring begins at the first node, or with its kind.

    Args:
        hops: Bandwidth between any two nodes, symmetric; NaN if unknown: such hops are neither sought nor avoided.
        kinds: The hardware of each node; nodes of a kind follow each other. None: one kind.
        ring: Whether the last node is a neighbour of the first one, as in a data-parallel ring; else a pipeline.
    """
    count = len(hops)
    kind = np.zeros(count, dtype=np.int64) if kinds is None else _numbered(kinds)
    given: Ints = np.argsort(kind, kind="stable")
    if count < 3 or np.isnan(hops).all():
        return given
    known = np.where(np.isnan(hops), np.nanmedian(hops), hops)
    np.fill_diagonal(known, -np.inf)
    changes = (kind[:, None] != kind).astype(np.int64)
    starts = np.unique(np.linspace(0, count - 1, _STARTS).astype(np.int64)).tolist()
    orders = [given, *(_nearest(known, changes, start) for start in starts)]
    if not ring:
        # A path is a ring through a place that is next to all others for free.
        known, changes = np.pad(known, (0, 1), constant_values=np.inf), np.pad(changes, (0, 1))
        known[-1, -1] = -np.inf
        orders = [np.append(order, count) for order in orders]
    given = orders[0]
    orders = [_two_opt(order.copy(), known, changes) for order in orders]
    found = max(orders, key=lambda order: float(around(known, order).min()))
    if around(known, found).min() < _LEAST_GAIN * around(known, given).min():
        found = given
    if not ring:
        found = np.roll(found, -1 - int(np.argmax(found)))[:-1]
        return found if found[0] <= found[-1] else found[::-1]
    found = np.roll(found, -int(np.argmin(found)))
    # The kind of the first node may have begun before it.
    before = int(np.argmax(kind[found[::-1]] != kind[found[0]]))
    return np.roll(found, before)


def around(hops: Floats, order: Ints) -> Floats:
    """Return the values of the hops of a ring, from each node to the next."""
    found: Floats = hops[order, np.roll(order, -1)]
    return found


def _numbered(kinds: Sequence[Hashable]) -> Ints:
    numbers = {kind: at for at, kind in enumerate(dict.fromkeys(kinds))}
    return np.array([numbers[kind] for kind in kinds], dtype=np.int64)


def _nearest(hops: Floats, changes: Ints, start: int) -> Ints:
    order, left = [start], np.arange(len(hops)) != start
    while left.any():
        mine = left & (changes[order[-1]] == 0)
        order.append(int(np.argmax(np.where(mine if mine.any() else left, hops[order[-1]], -np.inf))))
        left[order[-1]] = False
    return np.array(order)


def _two_opt(order: Ints, hops: Floats, changes: Ints) -> Ints:
    """Return an order in which no exchange of two hops replaces the slowest one by faster ones.

    Exchanges that would separate nodes of a kind are left out.
    """
    for _ in range(4 * len(order)):
        after, values = np.roll(order, -1), around(hops, order)
        at = int(np.argmin(values))
        gain = np.minimum(hops[order[at], order], hops[after[at], after])
        more = changes[order[at], order] + changes[after[at], after] - changes[order[at], after[at]]
        gain[more > changes[order, after]] = -np.inf
        # Hops beside it share a node with it.
        gain[[at - 1, at, (at + 1) % len(order)]] = -np.inf
        other = int(np.argmax(gain))
        if gain[other] <= values[at]:
            break
        low, high = sorted((at, other))
        order[low + 1 : high + 1] = order[low + 1 : high + 1][::-1].copy()
    return order
