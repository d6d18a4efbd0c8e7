"""Results of a layer as arrays: a row and a column per endpoint, or per node where there are too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fabtui.model.address_log import badness
from fabtui.model.layers import Layer, Per, health_layers
from fabtui.model.measurement import SEVERITY, Measurement
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import STYLES, CellStyle, style_of, transport_style
from fabtui.presentation.wording import common_domain, without_domain

Slots = np.ndarray[Any, np.dtype[np.uint8]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

#: Maximum number of endpoints with a row and a column each.
MOST_ENDPOINTS = 1024
_RANK = np.zeros(len(CellStyle), dtype=np.uint8)
_RANK[list(STYLES)] = range(len(STYLES))
_SLOT_AT = np.array(STYLES, dtype=np.uint8)
_OF_VERDICT = np.array([style_of(verdict, None) for verdict in SEVERITY], dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Method:
    """The way values were obtained: unit, requested message size (None: none) and method."""

    unit: str = ""
    bytes: int | None = None
    how: str = ""


def method_of(m: Measurement) -> Method:
    """Return the way a value was obtained; without a value there is no unit."""
    return Method("" if m.value is None else m.unit, m.asked_bytes, m.how)


def usual_method(methods: Counter[Method]) -> tuple[Method, int]:
    """Return the most frequent method, of values if there are any, and the number of methods."""
    valued = Counter({method: count for method, count in methods.items() if method.unit}) or methods
    (found, _), *_ = valued.most_common(1) or [(Method(), 0)]
    return found, len(valued)


@dataclass(frozen=True, slots=True)
class Cells:
    """Results of a layer in the order of rows.

    Attributes:
        names: Name of each row, without the domain that all nodes share.
        nodes: Node of each row, likewise.
        numbers: Number of the endpoint of each row; empty if a row is a whole node.
        slots: `CellStyle` of each cell.
        values: Value of each cell in the unit of ``method``; NaN without one.
        method: The way most values were obtained.
        methods: Number of ways.
    """

    names: list[str]
    nodes: list[str]
    numbers: list[int]
    slots: Slots
    values: Floats
    method: Method
    methods: int


def cells_of(model: Model, layer: Layer, numbers: Sequence[int] | None = None) -> Cells:
    """Return the results of a layer.

    Args:
        model: The session.
        layer: The layer.
        numbers: Numbers of the endpoints in the order of the rows; None for all.
    """
    ends = model.rows if numbers is None else [model.endpoints[number] for number in numbers]
    order = np.array([end.number for end in ends], dtype=np.intp)
    whole = _Whole(model)
    whole.fill(layer)
    slots, values = whole.slots[np.ix_(order, order)], whole.values[np.ix_(order, order)]
    domain = common_domain(model.nodes)
    nodes = [without_domain(domain, end.node) for end in ends]
    methods = usual_method(whole.methods)
    if len(ends) <= MOST_ENDPOINTS:
        names = [without_domain(domain, str(end)) for end in ends]
        return Cells(names, nodes, order.tolist(), slots, values, *methods)
    slots, values, nodes = by_node(slots, values, nodes, layer.spec.less_is_better)
    return Cells(nodes, nodes, [], slots, values, *methods)


def by_node(slots: Slots, values: Floats, nodes: list[str], less_is_better: bool) -> tuple[Slots, Floats, list[str]]:
    """Return the worst cell and the worst value of each two nodes."""
    places: dict[str, list[int]] = {}
    for at, node in enumerate(nodes):
        places.setdefault(node, []).append(at)
    order = [at for found in places.values() for at in found]
    starts = np.cumsum([0, *(len(found) for found in places.values())])[:-1]
    ranks, sorted_values = _RANK[slots[np.ix_(order, order)]], values[np.ix_(order, order)]
    pick = np.fmax if less_is_better else np.fmin
    for axis in (0, 1):
        ranks, sorted_values = np.maximum.reduceat(ranks, starts, axis), pick.reduceat(sorted_values, starts, axis)
    return _SLOT_AT[ranks], sorted_values, list(places)


class _Whole:
    """Results of all endpoints by number."""

    def __init__(self, model: Model) -> None:
        self._model = model
        size = len(model.endpoints)
        self.slots: Slots = np.full((size, size), CellStyle.UNTESTED, dtype=np.uint8)
        self.values: Floats = np.full((size, size), np.nan)
        self.methods: Counter[Method] = Counter()

    def fill(self, layer: Layer) -> None:
        """Take all results of a layer."""
        if layer is Layer.HEALTH:
            for part in health_layers():
                self._measured(part, diagonal=False)
            self.values[:] = np.nan
            self.methods.clear()
        elif layer is Layer.CHANGE:
            self._changes()
        else:
            self._measured(layer, diagonal=layer.spec.per is Per.NODE_PAIR)
        self._untested(layer)

    def _measured(self, layer: Layer, diagonal: bool) -> None:
        if layer.spec.by_address:
            self._by_address(layer)
        elif layer.spec.per is Per.NODE_PAIR:
            self._by_node_pair(layer, diagonal)
        else:
            self._by_pair(layer)

    def _put(self, where: Any, slots: Any) -> None:
        """Set slots of cells where they are worse than those that are there."""
        self.slots[where] = _SLOT_AT[np.maximum(_RANK[self.slots[where]], _RANK[slots])]

    def _by_pair(self, layer: Layer) -> None:
        *_, table = self._model.pair_tables(Layer(layer.spec.shows or layer))
        if table is None or not len(table):
            return
        shapes, shape_of, values = self._model.columns()
        of_row = np.array(shape_of)[table.row]
        slots = _OF_VERDICT[table.verdict]
        if layer is Layer.TRANSPORT:
            texts = ["" if shape is None else shape.transport or "" for shape in shapes]
            paths = np.array(
                [transport_style(text)[0] if text else CellStyle.UNTESTED for text in texts], dtype=np.uint8
            )
            slots = np.where(np.isin(slots, (CellStyle.GOOD, CellStyle.SLOW)), paths[of_row], slots)
        else:
            known = np.array([shape is not None and shape.has_value for shape in shapes])[of_row]
            self.values[table.source, table.target] = np.where(known, np.array(values)[table.row], np.nan)
            for number, count in enumerate(np.bincount(of_row, minlength=len(shapes)).tolist()):
                if (shape := shapes[number]) is not None and count:
                    self.methods[Method(shape.unit if shape.has_value else "", shape.asked, shape.how)] += count
        self._put((table.source, table.target), slots)
        self._flapping(layer)

    def _flapping(self, layer: Layer) -> None:
        for of_layer, src, dst in self._model.flapping:
            source, target = self._model.number(src), self._model.number(dst)
            if of_layer is layer and source is not None and target is not None:
                self._put((source, target), CellStyle.FLAPPING)

    def _by_address(self, layer: Layer) -> None:
        for src, dst in self._model.addresses.node_pairs(layer):
            found = self._model.by_address(layer, src, dst)
            own: dict[tuple[str | None, str | None], list[Measurement]] = {}
            for one in found:
                own.setdefault((one.src_addr, one.dst_addr), []).append(one)
            for source in self._model.endpoints_of(src):
                for target in self._model.endpoints_of(dst):
                    shown = max(own.get((source.address, target.address), found), key=badness)
                    self._one((source.number, target.number), shown)

    def _by_node_pair(self, layer: Layer, diagonal: bool) -> None:
        places = {node: [end.number for end in self._model.endpoints_of(node)] for node in self._model.nodes}
        for src, dst in self._model.pairs_in({layer}):
            if src not in places or dst not in places or (src == dst and not diagonal):
                continue
            latest = self._model.latest(layer, src, dst)
            for a, b in ((src, dst), (dst, src)):
                shown = self._model.latest(layer, a, b) or latest
                for source in places[a]:
                    for target in places[b]:
                        if shown is not None:
                            self._one((source, target), shown)

    def _one(self, where: tuple[int, int], m: Measurement) -> None:
        self._put(where, style_of(self._model.verdict(m), None))
        self.values[where] = np.nan if m.value is None else m.value
        self.methods[method_of(m)] += 1

    def _changes(self) -> None:
        for source, target in _pairs(self._model, self._model.compared_layer):
            changed = self._model.change(source, target)
            if changed is not None:
                self._put((source, target), style_of(changed.verdict, None))
                self.values[source, target] = np.nan if changed.ratio is None else changed.ratio
        self.methods[Method("now / then")] += 1

    def _untested(self, layer: Layer) -> None:
        """Mark the diagonal, the nodes that are gone, and the pairs that are known not to be testable."""
        if layer.spec.per is Per.ENDPOINT_PAIR:
            for names in self._model.untested:
                where = tuple(map(self._model.number, names))
                if None not in where and self.slots[where] == CellStyle.UNTESTED:
                    self.slots[where] = CellStyle.SKIPPED
        gone = np.array([self._model.gone(end.node) is not None for end in self._model.endpoints], dtype=bool)
        empty = np.isin(self.slots, (CellStyle.UNTESTED, CellStyle.SKIPPED))
        self.slots[empty & (gone[:, None] | gone[None, :])] = CellStyle.GONE
        at = np.arange(len(self.slots))
        here = at[np.isin(self.slots[at, at], (CellStyle.UNTESTED, CellStyle.GONE))] if len(at) else at
        self.slots[here, here] = CellStyle.DIAGONAL


def _pairs(model: Model, layer: Layer) -> Iterator[tuple[int, int]]:
    *_, table = model.pair_tables(layer)
    if table is not None:
        yield from zip(table.source.tolist(), table.target.tolist(), strict=True)


def counts(slots: Slots) -> dict[CellStyle, int]:
    """Return the number of cells of each slot."""
    found: Iterable[int] = np.bincount(slots.ravel(), minlength=len(CellStyle)).tolist()
    return {slot: count for slot, count in zip(CellStyle, found, strict=True) if count}
