"""Results of all pairs of a layer as arrays, for what looks at all of them at once.

A fabric of 1,024 endpoints has hundreds of thousands of pairs: as objects they take seconds, as arrays milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from fabtui.model.endpoints import ClassKey, EndpointTable, PairClass
from fabtui.model.layers import Layer
from fabtui.model.measurement import SEVERITY, Verdict
from fabtui.model.pair_results import PairResults

if TYPE_CHECKING:
    Ints = np.ndarray[Any, np.dtype[np.int64]]
    Floats = np.ndarray[Any, np.dtype[np.float64]]

_CODE = {verdict: code for code, verdict in enumerate(SEVERITY)}
OK, SLOW = _CODE[Verdict.OK], _CODE[Verdict.SLOW]
DEAD = (_CODE[Verdict.TIMEOUT], _CODE[Verdict.FAILED])
#: Transports by what they mean for a pair; the first is "unknown".
PATHS = ("", "P2P", "SHM", "Socket", "IB", "IB/GDRDMA")
_KINDS = (PairClass.SAME_NODE, PairClass.SAME_RAIL, PairClass.CROSS_LEAF, PairClass.CROSS_RAIL)


@dataclass(slots=True)
class Places:
    """Places of endpoints, by number: node, rail, leaf switch, NUMA half and hardware; -1 where unknown.

    Attributes:
        nodes: Names of the nodes, by the numbers in ``node``.
    """

    nodes: list[str]
    node: Ints
    rail: Ints
    leaf: Ints
    half: Ints
    hardware: Ints

    @classmethod
    def of(cls, table: EndpointTable) -> Places:
        """Return the places of all endpoints of a table."""
        nodes: dict[str, int] = {}
        leaves: dict[str, int] = {}
        node = [nodes.setdefault(end.node, len(nodes)) for end in table.endpoints]
        rail = [end.index if end.rail is None else end.rail for end in table.endpoints]
        leaf = [
            -1 if (name := table.leaves.get(end.number)) is None else leaves.setdefault(name, len(leaves))
            for end in table.endpoints
        ]
        half = [table.halves.get(end.number, -1) for end in table.endpoints]
        columns = (node, rail, leaf, half, table.hardware)
        return cls(list(nodes), *(np.array(column, dtype=np.int64) for column in columns))


@dataclass(slots=True)
class PairTable:
    """Results of a layer, one element per ordered pair of endpoints.

    Attributes:
        source: Number of the source.
        target: Number of the destination.
        verdict: Place of the verdict in `SEVERITY`, slowness included.
        share: Logarithm of the value over what is usual in its class, positive where it is better; NaN without a value.
        spread: Standard deviation of that in its class.
        limit: Share below which a pair is slow; minus infinity without a limit.
        kind: Relation: 0 same node, 1 same rail, 2 cross leaf, 3 cross rail.
        row: Row in the store of measurements.
        path: Place of the transport in `PATHS`.
    """

    source: Ints
    target: Ints
    verdict: Ints
    share: Floats
    spread: Floats
    limit: Floats
    kind: Ints
    row: Ints
    path: Ints

    def __len__(self) -> int:
        return len(self.source)

    @property
    def code(self) -> Ints:
        """One number per ordered pair."""
        return self.source * (1 << 32) + self.target


def joined(first: PairTable, second: PairTable) -> PairTable:
    """Return all pairs of two layers; pairs that both have are those of the first."""
    if not len(first) or not len(second):
        return first if len(first) else second
    more = ~np.isin(second.code, first.code)
    columns = (field.name for field in fields(PairTable))
    return PairTable(*(np.concatenate((getattr(first, name), getattr(second, name)[more])) for name in columns))


def pair_table(results: PairResults, table: EndpointTable, layer: Layer) -> PairTable:
    """Return the results of a layer as arrays."""
    *_, found = in_steps(results, table, layer)
    assert found is not None
    return found


def in_steps(results: PairResults, table: EndpointTable, layer: Layer) -> Iterator[PairTable | None]:
    """Yield None after each small step, and the results of a layer as arrays at the end."""
    numbers: list[Ints] = []
    for src, targets, rows in results.rows_by_source(layer):
        source = table.number(src)
        if source is not None:
            known = [
                (number, row)
                for dst, row in zip(targets, rows, strict=True)
                if (number := table.number(dst)) is not None
            ]
            block = np.array(known, dtype=np.int64).reshape(-1, 2)
            numbers.append(np.column_stack((np.full(len(block), source), block)))
            yield None
    source, target, row = (np.concatenate(numbers) if numbers else np.empty((0, 3), dtype=np.int64)).T
    shapes, shape_of, values = results.store.columns()
    codes = np.array([-1 if shape is None else _CODE[shape.verdict] for shape in shapes])
    has_value = np.array([shape is not None and shape.has_value for shape in shapes])
    # A view of an array that may still grow would prevent that: what is needed is copied.
    shape_of_row = np.array(shape_of, dtype=np.int64)[row]
    verdict = codes[shape_of_row]
    value = np.where(has_value[shape_of_row], np.array(values, dtype=np.float64)[row], np.nan)
    yield None
    places = Places.of(table)
    kind, apart = relations(places, source, target)
    yield None
    share, spread, lowest = (np.full(len(row), one) for one in (np.nan, np.nan, -np.inf))
    sign = -1.0 if layer.spec.less_is_better else 1.0
    size = int(places.hardware.max(initial=0)) + 1
    low = np.minimum(places.hardware[source], places.hardware[target])
    high = np.maximum(places.hardware[source], places.hardware[target])
    code = ((kind * 2 + apart) * size + low) * size + high
    for one in np.unique(code):
        mine = code == one
        rest, second = divmod(int(one), size)
        rest, first = divmod(rest, size)
        known_kind, is_apart = divmod(rest, 2)
        class_values = results.values(layer, ClassKey(_KINDS[known_kind], bool(is_apart), (first, second)))
        usual = None if class_values is None else class_values.reference
        if class_values is None or usual is None or usual.value <= 0:
            continue
        good = value[mine]
        share[mine] = sign * np.log(np.where(good > 0, good, np.nan) / usual.value)
        spread[mine] = usual.spread
        limit = class_values.limit(results.slow_below) if layer.spec.judged else None
        if limit is not None:
            lowest[mine] = sign * np.log(limit / usual.value)
            slow = (good > limit) if layer.spec.less_is_better else (good < limit)
            verdict[mine] = np.where(slow & (verdict[mine] == OK), SLOW, verdict[mine])
        yield None
    paths = np.array([0 if shape is None else path_of(shape.transport) for shape in shapes])
    yield PairTable(source, target, verdict, share, spread, lowest, kind, row, paths[shape_of_row])


def relations(places: Places, source: Ints, target: Ints) -> tuple[Ints, Ints]:
    """Return the relation of pairs, as in `PairTable`, and whether they are apart, as in `ClassKey`."""
    same_node = places.node[source] == places.node[target]
    same_rail = places.rail[source] == places.rail[target]
    leaf, other_leaf = places.leaf[source], places.leaf[target]
    half, other_half = places.half[source], places.half[target]
    apart_leaf = (leaf >= 0) & (other_leaf >= 0) & (leaf != other_leaf)
    apart_half = (half >= 0) & (other_half >= 0) & (half != other_half)
    kind = np.where(same_node, 0, np.where(~same_rail, 3, np.where(apart_leaf, 2, 1)))
    return kind, np.where(same_node, apart_half, apart_leaf).astype(np.int64)


def path_of(transport: str | None) -> int:
    """Return the place of a transport, as NCCL names it, in `PATHS`."""
    parts = (transport or "").upper().split("/")
    if "SOCKET" in parts:
        return 3
    if "IB" in parts or "UCX" in parts or "OFI" in parts:
        return 5 if "GDRDMA" in parts else 4
    return 2 if parts[0] == "SHM" else 1 if parts[0] in ("P2P", "CUMEM", "IPC") else 0
