"""Results of a layer as arrays: a row and a column per endpoint, or per node where there are too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fabtui.model.cell_matrix import BY_PATH, FINE, CellMatrix, Level, Levels
from fabtui.model.layers import Layer, Per
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import STYLES, CellStyle
from fabtui.presentation.wording import common_domain, without_domain
from fabtui_node.parsers.nccl.transports import path_of

Slots = np.ndarray[Any, np.dtype[np.uint8]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

#: Maximum number of endpoints with a row and a column each.
MOST_ENDPOINTS = 1024
_RANK = np.zeros(len(CellStyle), dtype=np.uint8)
_RANK[list(STYLES)] = range(len(STYLES))
_SLOT_AT = np.array(STYLES, dtype=np.uint8)
#: Style of each level; pictures of verdicts do not grade good values.
_STYLE_OF = np.array([CellStyle.GOOD if level in FINE else STYLES[level] for level in Level], dtype=np.uint8)


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
    """Results of a layer in the order of rows."""

    names: list[str]  #: Name of each row, without the domain that all nodes share.
    nodes: list[str]  #: Node of each row, likewise.
    numbers: list[int]  #: Number of the endpoint of each row; empty if a row is a whole node.
    slots: Slots  #: `CellStyle` of each cell.
    values: Floats  #: Value of each cell in the unit of ``method``; NaN without one.
    method: Method  #: The way most values were obtained.
    methods: int  #: Number of ways.


def cells_of(model: Model, layer: Layer, numbers: Sequence[int] | None = None) -> Cells:
    """Return the results of a layer.

    Args:
        model: The session.
        layer: The layer.
        numbers: Numbers of the endpoints in the order of the rows; None for all.
    """
    ends = model.rows if numbers is None else [model.endpoints[number] for number in numbers]
    levels = CellMatrix.of_model(model, layer).filled()
    values, counted = _values(model, layer, levels)
    row_of = {end.number: row for row, end in enumerate(model.rows)}
    order = [row_of[end.number] for end in ends]
    slots, values = _STYLE_OF[levels[np.ix_(order, order)]], values[np.ix_(order, order)]
    domain = common_domain(model.nodes)
    nodes = [without_domain(domain, end.node) for end in ends]
    methods = usual_method(counted)
    if len(ends) <= MOST_ENDPOINTS:
        names = [without_domain(domain, str(end)) for end in ends]
        return Cells(names, nodes, [end.number for end in ends], slots, values, *methods)
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


def _values(model: Model, layer: Layer, levels: Levels) -> tuple[Floats, Counter[Method]]:
    """Return the value of each cell, and the number of values by method; slow pairs get the level of their path."""
    numbers = [end.number for end in model.rows]
    values: Floats = np.full(levels.shape, np.nan)
    methods: Counter[Method] = Counter()
    if layer is Layer.TRANSPORT:
        for row, column in np.argwhere(levels == Level.SLOW).tolist():
            if text := model.cell(layer, numbers[row], numbers[column]).text:
                levels[row, column] = BY_PATH[path_of(text)]
    elif layer.spec.per is Per.ENDPOINT_PAIR and not layer.spec.derived:
        table = model.pair_table(layer)
        if len(table):
            by_number = np.full((len(model.endpoints),) * 2, np.nan)
            shapes, shape_of, found = model.results.store.columns()
            of_row = np.array(shape_of)[table.row]
            known = np.array([shape is not None and shape.has_value for shape in shapes])[of_row]
            by_number[table.source, table.target] = np.where(known, np.array(found)[table.row], np.nan)
            values = by_number[np.ix_(numbers, numbers)]
            for number, count in enumerate(np.bincount(of_row, minlength=len(shapes)).tolist()):
                if (shape := shapes[number]) is not None and count:
                    methods[Method(shape.unit if shape.has_value else "", shape.asked, shape.how)] += count
    elif layer is not Layer.HEALTH:
        for row, column in np.argwhere(levels > Level.UNTESTED).tolist():
            cell = model.cell(layer, numbers[row], numbers[column])
            values[row, column] = np.nan if cell.value is None else cell.value
            if layer is not Layer.CHANGE and cell.measurement is not None:
                methods[method_of(cell.measurement)] += 1
        if layer is Layer.CHANGE:
            methods[Method("now / then")] += 1
    return values, methods


def counts(slots: Slots) -> dict[CellStyle, int]:
    found: Iterable[int] = np.bincount(slots.ravel(), minlength=len(CellStyle)).tolist()
    return {slot: count for slot, count in zip(CellStyle, found, strict=True) if count}
