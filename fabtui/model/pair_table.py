"""Results of all pairs of a layer as arrays, for what looks at all of them at once.

A fabric of 1,024 endpoints has hundreds of thousands of pairs: as objects they take seconds, as arrays milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from fabtui.model.endpoints import PAIR_CLASSES, EndpointTable, PairClass
from fabtui.model.layers import Layer
from fabtui.model.measurement import DEAD as DEAD_VERDICTS
from fabtui.model.measurement import SEVERITY, Verdict
from fabtui.model.pair_results import PairResults
from fabtui.model.places import endpoints_of_ends, picked_ends
from fabtui_node.parsers.nccl.transports import Path, path_of

if TYPE_CHECKING:
    from fabtui.model.class_statistics import ClassValues

Ints = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]
Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

_CODE = {verdict: code for code, verdict in enumerate(SEVERITY)}
OK, SLOW, WRONG = _CODE[Verdict.OK], _CODE[Verdict.SLOW], _CODE[Verdict.WRONG]
DEAD = tuple(_CODE[verdict] for verdict in DEAD_VERDICTS)
#: Places in `PAIR_CLASSES`, which `PairTable.kind` holds.
SAME_NODE, CROSS_RAIL, SAME_DOMAIN = (
    PAIR_CLASSES.index(kind) for kind in (PairClass.SAME_NODE, PairClass.CROSS_RAIL, PairClass.SAME_DOMAIN)
)
_BAD = np.array([verdict.bad for verdict in SEVERITY])
_DEAD = np.isin(np.arange(len(SEVERITY)), DEAD)
#: Number of pairs per step.
_STEP = 1 << 12
#: Minimum difference of two kinds of paths (logarithm), and in standard deviations of single values.
_LEAST, _DEVIATIONS = 0.1, 2.0
#: Quantile that stands for the best values of a kind of hardware.
_BEST = 0.85
#: Minimum share of the nodes that must show a pattern.
_MOST_NODES = 0.7
_FEWEST_OF_GROUP = 2
#: Maximum share of node pairs that may differ from a pattern by chance.
_CHANCE = 0.05


def parts(count: int) -> Iterator[slice]:
    """Yield the parts of a number of pairs that can be handled in one short step; one empty part if there are none."""
    return (slice(at, min(at + _STEP, count)) for at in range(0, max(1, count), _STEP))


def quantile(values: Floats, share: float = 0.5) -> float:
    """Return a quantile of some numbers, their median by default.

    The first call of numpy's own loads its masked arrays, which takes 6 ms and 1.3 MB.
    """
    place = share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    ordered = np.partition(values, (low, high))
    return float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))


@dataclass(slots=True)
class PairTable:
    """Results of a layer, one element per ordered pair of endpoints."""

    source: Ints  #: Number of the source.
    target: Ints  #: Number of the destination.
    verdict: Ints  #: Place of the verdict in `SEVERITY`, slowness included.
    #: Logarithm of the value over what is usual in its class, positive where it is better; NaN without a value.
    share: Floats
    spread: Floats  #: Standard deviation of that in its class.
    limit: Floats  #: Share below which a pair is slow; minus infinity without a limit.
    kind: Ints  #: Relation, its place in `PAIR_CLASSES`.
    row: Ints  #: Row in the store of measurements.
    path: Ints  #: `Path` of the transport.
    value: Floats  #: Value in the unit of the layer; NaN without one.

    def __len__(self) -> int:
        return len(self.source)

    def among(self, other: PairTable, ends: int) -> Flags:
        """Return for each pair whether another table has it; ``ends`` is the number of endpoints."""
        return np.isin(self.code(ends), other.code(ends))

    def code(self, ends: int) -> Ints:
        """Return a number for each ordered pair; ``ends`` is the number of endpoints."""
        return self.source * np.int64(ends) + self.target

    def where(self, chosen: Flags | slice) -> PairTable:
        """Return the table of some of the pairs; of a slice without a copy."""
        return PairTable(*(getattr(self, one.name)[chosen] for one in fields(PairTable)))

    def alike(self, node: Ints, apart: Sequence[bool], shape: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield rows, and the number of pairs that each stands for: pairs of the same nodes and shape are alike.

        Args:
            node: Number of the node of each endpoint.
            apart: For each node whether its pairs stand for themselves, where the other node's do.
            shape: Number of the shape of each row of the store.
        """
        first, second = node[self.source], node[self.target]
        counted, shapes = np.array(apart, dtype=bool), np.asarray(shape)
        each = counted[first] & counted[second]
        code = (first * np.int64(len(apart)) + second) * (int(shapes.max(initial=0)) + 1) + shapes[self.row]
        _, chosen, numbers = np.unique(code[~each], return_index=True, return_counts=True)
        yield from zip(self.row[~each][chosen].tolist(), numbers.tolist(), strict=True)
        yield from ((row, 1) for row in self.row[each].tolist())

    def pairs_with(self, verdicts: Sequence[Verdict]) -> list[tuple[int, int]]:
        """Return the numbers of the ends of the ordered pairs with one of some verdicts."""
        chosen = np.isin(np.arange(len(SEVERITY)), [_CODE[verdict] for verdict in verdicts])[self.verdict]
        return list(zip(self.source[chosen].tolist(), self.target[chosen].tolist(), strict=True))

    @property
    def bad(self) -> Flags:
        flags: Flags = _BAD[self.verdict]
        return flags

    @property
    def dead(self) -> Flags:
        """True for each pair without a usable result: it failed, timed out or delivered wrong data."""
        flags: Flags = _DEAD[self.verdict]
        return flags

    def each_size(self, results: PairResults, table: EndpointTable, layer: Layer) -> tuple[PairTable, bool]:
        """Return the results at each message size, in any order, of a table of those at the size that counts of a pair.

        Also return whether these are all: files of other tools may have pairs of unknown endpoints. Only results at the
        size that counts of a pair are judged by their class.

        Args:
            results: Results of all layers.
            table: Endpoints of the session.
            layer: The layer of this table.
        """
        rows = results.rows((layer,))
        if len(rows) == len(self):
            return self, True
        *_, found = in_steps(results, table, layer, rows)
        assert found is not None
        if len(results.sizes(layer)) > 1:
            counting = np.array([row for some in results.counting_rows(layer) for row in some], dtype=np.int32)
            others = np.flatnonzero(np.isin(found.row, counting, invert=True))
            own = [_CODE[results.store.shape(row).verdict] for row in found.row[others].tolist()]
            found.verdict[others] = np.array(own, dtype=np.int8)
        return found, len(found) == len(rows)

    def medians(self, results: PairResults, size: int | None) -> dict[PairClass, float]:
        """Return the median for each class of the good values, at a message size (None: at all)."""
        shapes, shape_of, _ = results.store.columns()
        good_shapes = [
            shape is not None and shape.verdict is Verdict.OK and shape.has_value and size in (None, shape.asked)
            for shape in shapes
        ]
        good = np.array(good_shapes)[np.asarray(shape_of)[self.row]]
        values = {kind: self.value[good & (self.kind == number)] for number, kind in enumerate(PAIR_CLASSES)}
        return {kind: quantile(each) for kind, each in values.items() if len(each)}

    def verdict_counts(self) -> Counter[Verdict]:
        counts = np.bincount(self.verdict, minlength=len(SEVERITY))
        return Counter({SEVERITY[code]: number for code, number in enumerate(counts.tolist()) if number})


def stacked(tables: Sequence[PairTable]) -> Generator[None, None, PairTable]:
    """Yield after each small step, and return the pairs of all tables."""
    columns = []
    for field in fields(PairTable):
        columns.append(np.concatenate([getattr(table, field.name) for table in tables]))
        yield
    return PairTable(*columns)


def joined(first: PairTable, second: PairTable, ends: int) -> Iterator[PairTable | None]:
    """Yield None after each small step, and all pairs of two layers at the end; pairs that both have are the first's.

    Args:
        first: Results of a layer.
        second: Those of the other layer.
        ends: Number of endpoints.
    """
    if len(first) and len(second):
        yield (yield from stacked((first, second.where(~second.among(first, ends)))))
    else:
        yield first if len(first) else second


def without_same(
    then: PairTable, now: PairTable, ends: int, low: float, high: float
) -> tuple[int, list[int], list[int]]:
    """Return the number of pairs of equal results in two sessions, and the rows of all others in each.

    Args:
        then: Results of the earlier session.
        now: Results of the later one, between the same endpoints.
        ends: Number of endpoints.
        low: Minimum ratio of the later value to the earlier one of equal results.
        high: Maximum ratio.
    """
    _, first, second = np.intersect1d(then.code(ends), now.code(ends), assume_unique=True, return_indices=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = now.value[second] / then.value[first]
    same = (then.verdict[first] == now.verdict[second]) & np.isin(then.verdict[first], (OK, SLOW, *DEAD))
    same &= ~((ratio < low) | (ratio > high))
    rows = [np.delete(table.row, at[same]).tolist() for table, at in ((then, first), (now, second))]
    return int(same.sum()), rows[0], rows[1]


def in_steps(
    results: PairResults, table: EndpointTable, layer: Layer, rows: Sequence[int] | None = None
) -> Iterator[PairTable | None]:
    """Yield None after each small step, and the results of a layer as arrays at the end, without unknown endpoints.

    Args:
        results: Results of all layers.
        table: Endpoints of the session.
        layer: The layer.
        rows: Rows of the store; by default those that count.
    """
    by_source = results.counting_rows(layer) if rows is None else (rows,)
    chosen = np.concatenate([np.zeros(0, np.int32), *(np.asarray(some, np.int32) for some in by_source)])
    yield None
    shapes, shape_of, values = results.store.columns()
    codes = np.array([-1 if shape is None else _CODE[shape.verdict] for shape in shapes], dtype=np.int8)
    has_value = np.array([shape is not None and shape.has_value for shape in shapes])
    paths = np.array([Path.UNKNOWN if shape is None else path_of(shape.transport) for shape in shapes], dtype=np.int8)
    endpoints = endpoints_of_ends(results.store, table)
    classes = _Classes(results, layer)
    tables = []
    for part in parts(len(chosen)):
        source, target = picked_ends(results.store, endpoints, chosen[part])
        known = (source >= 0) & (target >= 0)
        source, target, row = source[known], target[known], chosen[part][known]
        # A lasting view of an array that may still grow would prevent that; picking copies.
        shape = np.frombuffer(shape_of, shape_of.typecode)[row]
        value = np.where(has_value[shape], np.frombuffer(values)[row], np.nan)
        verdict, share, spread, limit, kind = classes.judged(source, target, value, codes[shape])
        tables.append(PairTable(source, target, verdict, share, spread, limit, kind, row, paths[shape], value))
        yield None
    yield (yield from stacked(tables))


class _Classes:
    """Judges pairs by their classes.

    Args:
        results: All results.
        layer: The layer of the table.
    """

    def __init__(self, results: PairResults, layer: Layer) -> None:
        self._results, self._layer, self._places = results, layer, results.places()
        self._values: dict[int, ClassValues | None] = {}

    def judged(
        self, source: Ints, target: Ints, value: Floats, verdict: Ints
    ) -> tuple[Ints, Floats, Floats, Floats, Ints]:
        """Return verdict, share, spread, limit and kind of pairs, as `PairTable` has them."""
        kind, code = self._places.classes(source, target)
        sign = -1.0 if self._layer.spec.less_is_better else 1.0
        share, spread, limit = (np.full(len(value), empty, np.float32) for empty in (np.nan, np.nan, -np.inf))
        for number in np.flatnonzero(np.bincount(code)).tolist():
            if number not in self._values:
                self._values[number] = self._results.values(self._layer, self._places.key(number))
            values = self._values[number]
            usual = None if values is None else values.reference
            if values is None or usual is None or usual.value <= 0:
                continue
            mine = code == number
            good = value[mine]
            share[mine] = sign * np.log(np.where(good > 0, good, np.nan) / usual.value)
            spread[mine] = usual.spread
            least = values.limit(self._results.slow_below) if self._layer.spec.judged else None
            if least is not None:
                limit[mine] = sign * np.log(least / usual.value)
                slow = (good > least) if self._layer.spec.less_is_better else (good < least)
                verdict[mine] = np.where(slow & (verdict[mine] == OK), SLOW, verdict[mine])
        return verdict, share, spread, limit, kind.astype(np.int8)


# Structure of a fabric, inferred from results: halves of nodes and groups of nodes that are slower by design.
#
# A class of pairs that holds two kinds of paths has two clusters of values. Where the slower cluster has the same
# pattern on all nodes, or splits the nodes into groups, it is a property of the machines: such pairs are compared among
# themselves.


def halves(results: PairTable, table: EndpointTable) -> dict[int, int]:
    """Return the NUMA half of each endpoint on nodes of a hardware kind whose halves are slower between each other."""
    half_of: dict[int, int] = {}
    kinds: dict[tuple[str, int], list[str]] = {}
    for node in dict.fromkeys(end.node for end in table.endpoints):
        mine = table.of_node(node)
        kinds.setdefault((mine[0].name, len(mine)), []).append(node)
    within = results.kind == 0
    source, target, share = results.source[within], results.target[within], results.share[within]
    for (_, count), nodes in kinds.items():
        if count < 4 or count % 2:
            continue
        votes = 0
        for node in nodes:
            numbers = [end.number for end in table.of_node(node)]
            first = numbers[0]
            mine = (source >= first) & (source <= numbers[-1])
            half = (source[mine] - first >= count // 2) != (target[mine] - first >= count // 2)
            votes += _are_apart(share[mine][half], share[mine][~half])
        if votes >= _MOST_NODES * len(nodes):
            half_of.update(
                (end.number, int(at >= count // 2)) for n in nodes for at, end in enumerate(table.of_node(n))
            )
    return half_of


def _are_apart(across: Floats, inside: Floats) -> bool:
    """Return True if values across are clearly and evenly lower than those inside."""
    across, inside = across[~np.isnan(across)], inside[~np.isnan(inside)]
    if len(across) < 4 or len(inside) < 2:
        return False
    low, high = quantile(across), quantile(inside)
    noise = quantile(np.abs(np.concatenate((across - low, inside - high)))) / 0.6745
    even = np.abs(across - low) <= max(4.5 * noise, 0.1)
    return high - low > max(_LEAST, _DEVIATIONS * noise) and bool(even.mean() > 0.9)


def node_groups(results: PairTable, table: EndpointTable) -> dict[int, str]:
    """Return a group for each endpoint where the nodes fall into groups between which all pairs are slower."""
    names = list(dict.fromkeys(end.node for end in table.endpoints))
    if len(names) < 2 * _FEWEST_OF_GROUP:
        return {}
    place = {name: at for at, name in enumerate(names)}
    of = np.array([place[end.node] for end in table.endpoints])
    known = (results.kind > 0) & ~np.isnan(results.share)
    a, b, share = of[results.source[known]], of[results.target[known]], results.share[known]
    if _too_few(a, b, len(names), len(set(table.hardware))):
        return {}
    noise = quantile(results.spread[known]) if known.any() else 0.0
    limit = -max(_LEAST, _DEVIATIONS * noise)
    hardware = np.array(table.hardware)
    share = _from_the_best(share, hardware, results.source[known], results.target[known], -limit)
    middle = _medians_between(a, b, share, len(names))
    middle = np.fmin(middle, middle.T)
    # Two nodes whose hardware no other two have are compared with themselves alone.
    alone = _alone(hardware[[table.of_node(name)[0].number for name in names]])
    middle[alone] = np.nan
    # Single pairs may be near the others by chance: two nodes are of one group if they agree about most others.
    near = np.where(np.isnan(middle), False, middle > limit)
    np.fill_diagonal(near, val=True)
    # Counts below 2^24 are exact in single precision, and a product of integers takes 30 times as long.
    close, far = (near & ~alone).astype(np.float32), (~near & ~alone).astype(np.float32)
    near = close @ close.T + far @ far.T > 0.8 * ((close + far) @ (close + far).T)
    groups = _components(near)
    if len(groups) < 2 or min(map(len, groups)) < _FEWEST_OF_GROUP:
        return {}
    member = np.zeros(len(names), dtype=int)
    for number, group in enumerate(groups):
        member[group] = number
    same = member[:, np.newaxis] == member
    between = middle[~same & ~alone]
    counts = ~alone & ~np.eye(len(names), dtype=bool)
    inside = [middle[np.ix_(group, group)][counts[np.ix_(group, group)]] for group in groups]
    if not len(between) or np.isnan(between).any():
        return {}
    low = min(limit, quantile(between) / 2)
    # Within the groups, all is usual; between them, all is evenly slower.
    if any(np.mean(values <= low) > _CHANCE for values in inside if len(values)):
        return {}
    if np.mean(np.abs(between - quantile(between)) > max(0.12, 3.5 * noise)) > _CHANCE:
        return {}
    group_of = {at: f"group of {names[group[0]]}" for group in groups for at in group}
    return {end.number: group_of[place[end.node]] for end in table.endpoints}


def _too_few(a: Any, b: Any, nodes: int, kinds: int) -> bool:
    """Return True if fewer node pairs have values than any two groups have between each other.

    All of these need one, but those whose two kinds of hardware no other pair has: a sparse sweep shows no groups, and
    whether thousands of nodes agree takes seconds to find out.
    """
    known = np.zeros(nodes * nodes, dtype=bool)
    known[np.minimum(a, b) * nodes + np.maximum(a, b)] = True
    return int(np.count_nonzero(known)) + kinds * (kinds + 1) // 2 < _FEWEST_OF_GROUP * (nodes - _FEWEST_OF_GROUP)


def _from_the_best(share: Floats, hardware: Any, source: Any, target: Any, least: float) -> Floats:
    """Return shares in which the best sixth of each kind of hardware is usual, where noise does not account for it.

    Where most pairs of two GPU models cross the groups, what is usual for them is what is slower by design.
    """
    low, high = np.minimum(hardware[source], hardware[target]), np.maximum(hardware[source], hardware[target])
    code = low * (int(hardware.max(initial=0)) + 1) + high
    shares = np.array(share)
    for one in np.flatnonzero(np.bincount(code)):
        best = quantile(shares[code == one], _BEST)
        if best > least:
            shares[code == one] -= best
    return shares


def _alone(hardware: Any) -> Any:
    size = int(hardware.max(initial=0)) + 1
    low, high = np.minimum.outer(hardware, hardware), np.maximum.outer(hardware, hardware)
    code = low * size + high
    pairs = np.bincount(code[np.triu_indices(len(hardware), 1)], minlength=size * size)
    alone = pairs[code] == 1
    np.fill_diagonal(alone, val=False)
    return alone


def _medians_between(a: Any, b: Any, share: Floats, count: int) -> Floats:
    """Return the median share of each ordered pair of nodes; NaN without values."""
    medians = np.full((count, count), np.nan)
    order = np.lexsort((share, a * count + b))
    code, values = (a * count + b)[order], share[order]
    cuts = np.flatnonzero(np.diff(code)) + 1
    starts, ends = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(code)]))
    if len(code):
        medians.flat[code[starts]] = values[(starts + ends - 1) // 2]
    return medians


def _components(near: Any) -> list[list[int]]:
    left, groups = set(range(len(near))), []
    while left:
        group, todo = [], [left.pop()]
        while todo:
            node = todo.pop()
            group.append(node)
            more = [other for other in np.flatnonzero(near[node]).tolist() if other in left]
            left.difference_update(more)
            todo += more
        groups.append(sorted(group))
    return sorted(groups)
