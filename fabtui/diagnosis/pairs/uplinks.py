"""A cut between two groups of nodes across which a part of the pairs is slow: one of several uplinks is degraded.

Each connection keeps the uplink that its addresses and ports choose. Pairs over the others pass, so that no component
predicts which pairs are slow; but all slow ones cross the cut, and none has both ends on one side.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fabtui.diagnosis.finding import Direction, Kind, Reach, Steps, Subject
from fabtui.diagnosis.pairs.blame import Blame
from fabtui.model.pair_table import SAME_DOMAIN, SLOW, Flags, Ints, PairTable, parts, quantile
from fabtui.model.places import Places
from fabtui.nodeset import fold

#: Minimum number of slow pairs, for each node: fewer cross a cut by chance.
_FEWEST, _FEWEST_PER_NODE = 8, 2
#: Minimum and maximum share of slow pairs across the cut, in each direction. Components explain larger ones.
_LEAST, _MOST = 0.08, 0.8
#: Share of the pairs of an endpoint across the cut from which it is slow itself, and minimum number of these.
_OF_END, _FEWEST_OF_END = 0.95, 4
#: Maximum share of slow pairs on one side, which are slow for a reason of their own.
_STRAYS = 0.03


class _Cut(NamedTuple):
    side: Ints  #: Side of each node, 0 or 1.
    names: tuple[str, str]


def partly_slow_cut(table: PairTable, places: Places, left: Flags) -> Steps[Blame | None]:
    """Return the cut between two groups of nodes that all slow pairs cross, if others across it pass; or None.

    Args:
        table: Results of all pairs.
        places: Places of the endpoints.
        left: Which pairs of the table no finding explains yet.
    """
    between = (table.kind > 0) & (table.kind != SAME_DOMAIN)
    slow = np.flatnonzero(left & (table.verdict == SLOW) & between)
    yield
    count = len(places.nodes)
    if count < 4 or len(slow) < max(_FEWEST, _FEWEST_PER_NODE * count):
        return None
    cut = _cut(places, *(places.node[end[slow]] for end in (table.source, table.target)))
    yield
    if cut is None:
        return None
    across = np.empty((2, len(table)), dtype=bool)
    for part in parts(len(table)):
        first, second = (cut.side[places.node[end[part]]] for end in (table.source, table.target))
        for way in (0, 1):
            across[way, part] = between[part] & (first == way) & (second == 1 - way)
        yield
    whole = across[0] | across[1]
    hit = np.zeros(len(table), dtype=bool)
    hit[slow] = True
    hit &= whole
    shares = [int(np.count_nonzero(hit & one)) / max(1, int(np.count_nonzero(one))) for one in across]
    yield
    if not (min(shares) >= _LEAST and max(shares) <= _MOST) or _has_slow_end(table, whole, hit, len(places.node)):
        return None
    bad = np.flatnonzero(hit)
    values = table.share[bad]
    values = values[~np.isnan(values)]
    factor = math.exp(quantile(values)) if len(values) else None
    subject = Subject(Kind.LEAF_CUT, " - ".join(cut.names))
    tested = int(np.count_nonzero(whole))
    return Blame(
        subject, Reach.NETWORK, Direction.BOTH, False, factor, tested, len(places.node), tuple(bad.tolist()), 1.0, ()
    )


def _cut(places: Places, source: Ints, target: Ints) -> _Cut | None:
    """Return two groups of at least two nodes, between which almost all slow pairs are; None if there are none."""
    count = len(places.nodes)
    edges = np.bincount(np.minimum(source, target) * count + np.maximum(source, target), minlength=count * count)
    near = edges.reshape(count, count)
    near = near + near.T
    # A node pair with one slow pair among many with several may be a stray.
    linked = near > (1 if quantile(near[near > 0].astype(float)) > 3 else 0)
    side = np.full(count, -1)
    side[0], todo = 0, [0]
    while todo:
        one = todo.pop()
        for other in np.flatnonzero(linked[one] & (side < 0)).tolist():
            side[other] = 1 - side[one]
            todo.append(other)
    sizes = [int(np.count_nonzero(side == each)) for each in (0, 1)]
    strays = np.count_nonzero(side[source] == side[target])
    if min(sizes) < 2 or sum(sizes) < count or strays > _STRAYS * len(source):
        return None
    first, second = (fold([places.nodes[at] for at in np.flatnonzero(side == each).tolist()]) for each in (0, 1))
    return _Cut(side, (first, second))


def _has_slow_end(table: PairTable, whole: Flags, hit: Flags, ends: int) -> bool:
    """Return True if an endpoint is slow with all others across the cut, as one with a slow NIC would be."""
    tested, slow = np.zeros(ends), np.zeros(ends)
    for column in (table.source, table.target):
        tested += np.bincount(column[whole], minlength=ends)
        slow += np.bincount(column[hit], minlength=ends)
    return bool(((tested >= _FEWEST_OF_END) & (slow >= _OF_END * tested)).any())
