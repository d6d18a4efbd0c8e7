"""Heatmaps: labelled rows and columns, cells by verdict or by value, and a legend. All matrices are drawn with this.

A row is an endpoint, a node where there are too many, or an address of a node: connectivity, as pings found it.
"""

from __future__ import annotations

import ipaddress
import json
import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from fabtui.errors import InputError
from fabtui.model.cell_level import BY_PATH, FINE, Level
from fabtui.model.cell_matrix import CellMatrix, Levels
from fabtui.model.facts.node_view import dicts
from fabtui.model.layers import Layer, Per
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.pictures.scene import CHARACTER, LINE, SCALE, STEPS, Anchor, Box, Item, Line, Scene, Text, Tiles, label
from fabtui.presentation.cell_levels import BAD, MARKED, STYLES, UNICODE, CellStyle, style_of, transport_style
from fabtui.presentation.legends import layer_title, meanings
from fabtui.presentation.numbers import brief_text, short_value, spoken_text
from fabtui.presentation.wording import common_domain, verdict_words, without_domain
from fabtui.sanitize import one_line
from fabtui_node.parsers.lines import bytes_text
from fabtui_node.parsers.nccl.transports import path_of

Slots = np.ndarray[Any, np.dtype[np.uint8]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Mode = Literal["verdict", "value"]
MODES: tuple[Mode, ...] = ("verdict", "value")

#: Width (pixels) that all columns together should not exceed, and largest pitch.
_GRID, _MOST_PITCH = 1024, 30
#: Smallest pitch at which each row has its own label, and at which cells show numbers.
_LABELS_FROM, _NUMBERS_FROM = 11, 26
#: Maximum number of cells with a text of their own.
_MOST_TITLES = 512
_MARGIN = 16
_LEAST_WIDTH = 480
#: Marks of cells, drawn as shapes; of a node that is gone, a fence.
_MARKS = {int(slot): UNICODE.of_style[slot] for slot in MARKED if slot is not CellStyle.RUNNING}
_MARKS |= {CellStyle.SKIPPED: UNICODE.of_style[CellStyle.SKIPPED], CellStyle.GONE: "#"}
#: Ratio of the highest to the lowest value from which the scale is logarithmic.
_LOG_FROM = 8.0
#: Prefix lengths of segments whose networks are not known, of IPv4 and IPv6.
_USUAL_PREFIX = {4: 24, 6: 64}
#: A row: node and address.
_Seat = tuple[str, str]
#: Maximum number of endpoints with a row and a column each.
MOST_ENDPOINTS = 1024


class Room(NamedTuple):
    """Room for a matrix on a page, which has its title and method beside it."""

    width: int  #: Width (pixels).
    most: int  #: Maximum number of endpoints with a row and a column each.


#: Room on a page as wide as a desk or a sheet, and on a telephone.
PAGE_WIDTH, NARROW_WIDTH = Room(1120, 540), Room(350, 40)
#: Largest pitch on a page, size that a matrix has if its pitch is not less than the last one.
_PAGE_PITCH, _PAGE_SIZE, _PAGE_LEAST = 64, 640, 14
#: Width of a character on a page, whose rules of style give pictures larger texts.
_PAGE_CHARACTER = 7.4
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

    names: list[str]  #: Name of each row and column, without the domain that all nodes share.
    groups: list[str]  #: Group of each row and column, such as its node; lines separate the groups.
    numbers: list[int]  #: Number of the endpoint of each row; empty if a row is a whole node, or an address.
    slots: Slots  #: `CellStyle` of each cell.
    values: Floats  #: Value of each cell in the unit of ``method``; NaN without one.
    method: Method  #: The way most values were obtained.
    methods: int  #: Number of ways.


def cells_of(model: Model, layer: Layer, numbers: Sequence[int] | None = None, most: int = MOST_ENDPOINTS) -> Cells:
    """Return the results of a layer for endpoint ``numbers`` (None: all), by node from ``most`` endpoints on."""
    ends = model.rows if numbers is None else [model.endpoints[number] for number in numbers]
    levels = CellMatrix.of_model(model, layer).filled()
    values, counted = _values(model, layer, levels)
    row_of = {end.number: row for row, end in enumerate(model.rows)}
    order = [row_of[end.number] for end in ends]
    slots, values = _STYLE_OF[levels[np.ix_(order, order)]], values[np.ix_(order, order)]
    domain = common_domain(model.nodes)
    nodes = [without_domain(domain, end.node) for end in ends]
    methods = usual_method(counted)
    if len(ends) <= most:
        names = [without_domain(domain, str(end)) for end in ends]
        return Cells(names, nodes, [end.number for end in ends], slots, values, *methods)
    slots, values, nodes = by_node(slots, values, nodes, layer.spec.less_is_better)
    return Cells(nodes, nodes, [], slots, values, *methods)


def by_node(slots: Slots, values: Floats, nodes: list[str], less_is_better: bool) -> tuple[Slots, Floats, list[str]]:
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
            shapes, shape_of, stored = model.results.store.columns()
            of_row = np.array(shape_of)[table.row]
            known = np.array([shape is not None and shape.has_value for shape in shapes])[of_row]
            by_number[table.source, table.target] = np.where(known, np.array(stored)[table.row], np.nan)
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


@dataclass(frozen=True, slots=True)
class Heatmap:
    """A matrix to be drawn."""

    title: str  #: What is shown.
    cells: Cells  #: The results.
    notes: Sequence[str]  #: Lines below the title.
    words: Sequence[tuple[CellStyle, str]]  #: Slots and their meanings in the order of the legend.
    describe: Callable[[int, int], str]  #: Returns the text of a cell, by row and column.
    room: Room | None = None  #: Room on a page, which has title and notes of its own.

    def scene(self, mode: Mode) -> Scene:
        """Return the picture; in mode ``value`` cells with a value are coloured by it, if any has one."""
        size = len(self.cells.names)
        names = [label(name) for name in self.cells.names]
        pitch = self._pitch(names)
        shown = list(self._labels(names, pitch))
        longest = math.ceil(self._character * max((len(text) for _, text in shown), default=0))
        edge = _MARGIN if self.room is None else 0
        margin = edge + longest
        width = max(_LEAST_WIDTH if self.room is None else 0, margin + size * pitch + _MARGIN)
        room = (width - 2 * _MARGIN) // CHARACTER
        notes = [piece for note in self.notes for piece in textwrap.wrap(one_line(note, 400), room)]
        turned = self.room is None or longest + _PAGE_CHARACTER > pitch
        top = edge + (margin if turned else LINE) + (LINE * (len(notes) + 2) if self.room is None else 8)
        left = margin + 8
        scene = Scene(max(width, left + size * pitch + _MARGIN), 0, "")
        if self.room is None:
            scene.items.append(Text(_MARGIN, _MARGIN + 8, one_line(self.title, room), bold=True))
            lines = enumerate([*notes, "a row sends, a column receives"], 1)
            scene.items += [Text(_MARGIN, _MARGIN + 8 + at * LINE, note, "muted") for at, note in lines]
        for centre, text in shown:
            scene.items.append(Text(left - 6, top + centre * pitch + 3.5, text, anchor="end"))
            x = left + centre * pitch + (3.5 if turned else 0)
            scene.items.append(Text(x, top - 6, text, anchor="start" if turned else "middle", turned=turned))
        scale = _Scale.of(self.cells.values) if mode == "value" and np.isfinite(self.cells.values).any() else None
        tiles = self._tiles(scale, left, top, pitch)
        scene.items += [tiles, *self._edges(left, top, pitch)]
        y = top + size * pitch + LINE
        if scale is not None:
            y = self._scale_legend(scene, scale, y)
        scene.height = self._legend(scene, scale, y, scene.width - 2 * _MARGIN)
        if self.room is not None and not self.cells.numbers:
            scene.height += LINE
            scene.items.append(Text(edge, scene.height - 6, "a cell is the worst pair of two nodes", "muted"))
        counted = counts(self.cells.slots)
        parts = ", ".join(f"{counted[slot]} {word}" for slot, word in self.words if slot in counted)
        scene.label = f"{self.title}: {size} rows and {size} columns; {parts}"
        scene.data = {"origin": f"{left} {top} {pitch} {size}", "names": json.dumps(names, ensure_ascii=False)}
        return scene

    @property
    def _character(self) -> float:
        return CHARACTER if self.room is None else _PAGE_CHARACTER

    def _pitch(self, names: list[str]) -> int:
        size = max(len(names), 1)
        if self.room is None:
            return min(_MOST_PITCH, max(1, _GRID // size))
        # Large matrices have labels of groups, which are shorter.
        widest = max(map(len, names if size < self.room.width // _LABELS_FROM else self.cells.groups), default=0)
        side = self.room.width - math.ceil(_PAGE_CHARACTER * widest) - 8 - _MARGIN
        return max(1, min(_PAGE_PITCH, side // size, max(_PAGE_SIZE // size, _PAGE_LEAST)))

    def _labels(self, names: list[str], pitch: int) -> Iterator[tuple[float, str]]:
        """Yield centres (in rows) and labels: each row, or each group with room for it."""
        if pitch >= _LABELS_FROM:
            yield from ((at + 0.5, name) for at, name in enumerate(names))
            return
        free, least = -math.inf, _LABELS_FROM if self.room is None else _PAGE_LEAST
        for first, last in self._spans():
            centre = (first + last) / 2
            if (centre - free) * pitch >= least / 2:
                yield centre, label(self.cells.groups[first])
                free = centre + least / 2 / pitch

    def _spans(self) -> list[tuple[int, int]]:
        edges = [at for at, (a, b) in enumerate(pairwise(self.cells.groups), 1) if a != b]
        return list(pairwise([0, *edges, len(self.cells.groups)])) if self.cells.groups else []

    def _edges(self, left: int, top: int, pitch: int) -> Iterator[Item]:
        size, spans = len(self.cells.groups), self._spans()
        wide = len(spans) > 1 and size * pitch >= 16 * len(spans) and any(last - first > 1 for first, last in spans)
        for at in [0, *((first for first, _ in spans[1:]) if wide else ()), size]:
            yield Line(((left + at * pitch, top), (left + at * pitch, top + size * pitch)), "muted", 0.5)
            yield Line(((left, top + at * pitch), (left + size * pitch, top + at * pitch)), "muted", 0.5)

    def _tiles(self, scale: _Scale | None, left: int, top: int, pitch: int) -> Tiles:
        codes = self.cells.slots.copy()
        colors = ["" if slot in (CellStyle.PAD, CellStyle.UNTESTED) else slot.key for slot in CellStyle]
        numbers: dict[tuple[int, int], str] = {}
        if scale is not None:
            valued = np.isfinite(self.cells.values)
            # Bad cells keep the colour of their verdict.
            scaled = valued & ~np.isin(self.cells.slots, list(BAD))
            codes[scaled] = len(colors) + scale.steps(self.cells.values)[scaled]
            colors += SCALE
        if pitch >= _NUMBERS_FROM and (scale is not None or self.room is not None):
            valued = np.isfinite(self.cells.values)
            valued &= ~np.isin(self.cells.slots, (CellStyle.FAILED, CellStyle.TIMEOUT, CellStyle.WRONG))
            for row, column in np.argwhere(valued).tolist():
                value = float(self.cells.values[row, column])
                slow = bool(self.cells.slots[row, column] == CellStyle.SLOW)
                number = short_value(value, self.cells.method.unit, 3 if slow else 4)
                numbers[row, column] = number + _MARKS[CellStyle.SLOW] * slow
        return Tiles(left, top, pitch, codes, colors, _MARKS, numbers, self._titles())

    def _titles(self) -> dict[tuple[int, int], str]:
        """Return texts for all tested cells, or for the bad ones alone if there are too many."""
        quiet = (CellStyle.UNTESTED, CellStyle.DIAGONAL, CellStyle.PAD)
        chosen = ~np.isin(self.cells.slots, quiet)
        if np.count_nonzero(chosen) > _MOST_TITLES:
            chosen = np.isin(self.cells.slots, list(BAD))
        cells = np.argwhere(chosen)[:_MOST_TITLES].tolist()
        return {(row, column): self.describe(row, column) for row, column in cells}

    def _scale_legend(self, scene: Scene, scale: _Scale, y: int) -> int:
        step = 14
        scene.items += [Box(_MARGIN + at * step, y, step, 12, name) for at, name in enumerate(SCALE)]
        anchors: tuple[Anchor, ...] = ("start", "middle", "end")
        for place, anchor in zip((0, STEPS // 2, STEPS), anchors, strict=True):
            text = brief_text(scale.at(place / STEPS), self.cells.method.unit)
            scene.items.append(Text(_MARGIN + place * step, y + 24, text, anchor=anchor))
        kind = "logarithmic" if scale.logarithmic else "linear"
        scene.items.append(Text(_MARGIN, y + 24 + LINE, f"{_unit_text(self.cells.method)}, {kind} scale", "muted"))
        return y + 24 + 2 * LINE

    def _legend(self, scene: Scene, scale: _Scale | None, y: int, room: int) -> int:
        counted = counts(self.cells.slots)
        x = _MARGIN
        for slot, word in self.words:
            if not counted.get(slot) or (scale is not None and slot is CellStyle.GOOD):
                continue
            text = f"{word} {counted[slot]}"
            wide = math.ceil(len(text) * self._character)
            if x + 24 + wide > _MARGIN + room and x > _MARGIN:
                x, y = _MARGIN, y + 20
            code = np.array([[slot]], dtype=np.uint8)
            mark = _MARKS.get(slot, "")
            scene.items += [
                Box(x - 1, y - 1, 14, 14, "muted"),
                Box(x, y, 12, 12, slot.key),
                Tiles(x, y, 12, code * 0, [slot.key], {0: mark} if mark else {}),
                Text(x + 18, y + 10, text),
            ]
            x += 18 + wide + 18
        return y + 12 + _MARGIN


@dataclass(frozen=True, slots=True)
class _Scale:
    """Mapping of values to steps of colour."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, values: Floats) -> _Scale:
        known = values[np.isfinite(values)]
        low, high = float(known.min()), float(known.max())
        return cls(low, high, low > 0 and high >= _LOG_FROM * low) if high > low else cls(0.0, high or 1.0, False)

    def steps(self, values: Floats) -> Slots:
        """Return the step of each value; 0 where there is none."""
        known = np.clip(np.nan_to_num(values, nan=self.low), self.low, self.high)
        if self.logarithmic:
            low, high = math.log(self.low), math.log(self.high)
            share = (np.log(known) - low) / (high - low)
        else:
            share = (known - self.low) / (self.high - self.low)
        found: Slots = np.clip(share * STEPS, 0, STEPS - 1).astype(np.uint8)
        return found

    def at(self, share: float) -> float:
        if self.logarithmic:
            return math.exp((1 - share) * math.log(self.low) + share * math.log(self.high))
        return self.low + share * (self.high - self.low)


def _unit_text(method: Method) -> str:
    unit = one_line(method.unit, 20)
    return " at ".join(part for part in (unit, bytes_text(method.bytes)) if part)


def method_text(method: Method, methods: int) -> str:
    how = one_line(method.how, 160)
    more = f" (and {methods - 1} more methods or sizes)" if methods > 1 and how else ""
    return "; ".join(part for part in (_unit_text(method), how + more) if part)


def matrix_scene(model: Model, layer: str, mode: Mode = "verdict", ends: Sequence[int] | None = None) -> Scene:
    """Return the matrix of a layer for endpoint numbers (None: all); InputError without values."""
    try:
        known = Layer(layer)
    except ValueError:
        raise InputError(f"there is no layer {str(layer)[:40]!r}") from None
    if mode not in MODES:
        raise InputError(f"there is no mode {str(mode)[:40]!r}; modes: {', '.join(MODES)}")
    if mode == "value" and known.spec.better is None:
        raise InputError(f"the layer {known} has no values; use the mode verdict")
    return _heatmap(model, known, cells_of(model, known, ends)).scene(mode)


def page_scene(model: Model, layer: Layer, room: Room) -> Scene:
    """Return the verdicts of a layer with its values for a page."""
    return replace(_heatmap(model, layer, cells_of(model, layer, most=room.most)), room=room).scene("verdict")


def _heatmap(model: Model, layer: Layer, cells: Cells) -> Heatmap:
    notes = [method_text(cells.method, cells.methods)]
    if not cells.numbers and cells.names:
        notes.append(f"{len(model.rows)} endpoints: a cell is the worst pair of two nodes")
    if model.synthetic or model.lab:
        notes.append("synthetic results, no GPU was tested" if model.synthetic else "from a lab on one machine")
    title, shown = f"{layer}: {layer_title(layer)}", [note for note in notes if note]
    return Heatmap(title, cells, shown, words_of(layer), partial(_describe, model, layer, cells))


def words_of(layer: Layer) -> list[tuple[CellStyle, str]]:
    marked = [row for row in meanings(layer) if row[0] not in (CellStyle.GOOD, CellStyle.FAIR, CellStyle.LOW)]
    good = [] if layer is Layer.TRANSPORT else [(CellStyle.GOOD, "ok")]
    return [*good, *marked, (CellStyle.UNTESTED, "not tested")]


def _describe(model: Model, layer: Layer, cells: Cells, row: int, column: int) -> str:
    pair = f"{label(cells.names[row])} > {label(cells.names[column])}"
    if not cells.numbers:
        return f"{pair}: worst pair {CellStyle(cells.slots[row, column]).key}"
    cell = model.cell(layer, cells.numbers[row], cells.numbers[column])
    slot = CellStyle(cells.slots[row, column])
    word = slot.key if cell.verdict is Verdict.UNTESTED else verdict_words(cell.verdict)
    parts = [word, "" if cell.value is None else spoken_text(cell.value, one_line(cell.unit, 20))]
    if layer is Layer.TRANSPORT and cell.text:
        parts.append(transport_style(cell.text)[1] + f" ({one_line(cell.text, 40)})")
    elif cell.text:
        parts.append(one_line(cell.text, 80))
    if cell.measurement is not None and cell.measurement.error:
        parts.append(one_line(cell.measurement.error, 120))
    return f"{pair}: {', '.join(part for part in parts if part)}"


def connectivity_scene(model: Model, layer: Layer = Layer.PING, mode: Mode = "verdict") -> Scene:
    pairs = list(model.addresses.pairs(layer))
    seats = _seats(model, pairs)
    domain = common_domain(model.nodes)
    names = list(dict.fromkeys(f"{without_domain(domain, node)} {segment}" for (node, _), segment in seats.items()))
    if len(names) < len(seats):
        names = [f"{without_domain(domain, node)} {address}" for node, address in seats]
    place = {seat: at for at, seat in enumerate(seats)}
    slots = np.full((len(seats), len(seats)), CellStyle.UNTESTED, dtype=np.uint8)
    np.fill_diagonal(slots, CellStyle.DIAGONAL)
    values = np.full(slots.shape, np.nan)
    cells: dict[tuple[int, int], Measurement] = {}
    for one in pairs:
        where = place[one.src, one.src_addr or ""], place[one.dst, one.dst_addr or ""]
        slots[where], cells[where] = style_of(model.verdict(one), None), one
        values[where] = np.nan if one.value is None else one.value
    groups = list(seats.values())
    method, methods = usual_method(Counter(map(method_of, pairs)))
    notes = [method_text(method, methods), f"rows and columns by network segment: {len(set(groups))}"]
    if len(names) > MOST_ENDPOINTS:
        nodes = [without_domain(domain, node) for node, _ in seats]
        slots, values, names = by_node(slots, values, nodes, layer.spec.less_is_better)
        groups, cells = names, {}
        notes[1] = f"{len(seats)} addresses: a cell is the worst pair of addresses of two nodes"

    def describe(row: int, column: int) -> str:
        pair = f"{label(names[row])} > {label(names[column])}"
        measured = cells.get((row, column))
        if measured is None:
            return f"{pair}: {CellStyle(slots[row, column]).key}"
        value = "" if measured.value is None else spoken_text(measured.value, one_line(measured.unit, 20))
        why = one_line(measured.error, 120) if measured.error else ""
        return f"{pair}: {', '.join(part for part in (verdict_words(model.verdict(measured)), value, why) if part)}"

    title = f"{layer} by network segment: {layer_title(layer)}"
    shown = Cells(names, groups, [], slots, values, method, methods)
    return Heatmap(title, shown, notes, words_of(layer), describe).scene(mode)


def _seats(model: Model, measured: list[Measurement]) -> dict[_Seat, str]:
    prefixes = {
        (node, str(entry.get("address"))): entry["prefix"]
        for node, record in model.nodes.items()
        for nic in dicts((record.inventory or {}).get("nics"))
        for entry in dicts(nic.get("addresses"))
        if isinstance(entry.get("prefix"), int)
    }
    nodes = {name: at for at, name in enumerate(model.nodes)}
    ends = {(node, at or "") for m in measured for node, at in ((m.src, m.src_addr), (m.dst, m.dst_addr))}
    segments = {seat: _segment(model, seat, prefixes.get(seat)) for seat in ends}
    order = sorted(ends, key=lambda seat: (segments[seat][0], nodes.get(seat[0], len(nodes)), *seat))
    return {seat: segments[seat][1] for seat in order}


def _segment(model: Model, seat: _Seat, prefix: int | None) -> tuple[tuple[int, int, str], str]:
    """Return a sort key and the name of the segment of an address: its network, or the rail of an RDMA port."""
    node, address = seat
    try:
        ip = ipaddress.ip_address(address)
        network = ipaddress.ip_network((ip, _USUAL_PREFIX[ip.version] if prefix is None else prefix), strict=False)
    except ValueError:
        rail = model.addresses.seat(node, address).rail
        name = address if rail is None else f"rail {rail}"
        return (0, -1 if rail is None else rail, name), name
    return (network.version, int(network.network_address), str(network)), str(network)
