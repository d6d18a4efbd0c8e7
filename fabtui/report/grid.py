"""Grids of a session as text: endpoint by endpoint, or node by node beyond 64 endpoints."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from fabtui.model.cell_level import BY_PATH, FINE, Level
from fabtui.model.cell_matrix import CellMatrix
from fabtui.model.endpoints import Endpoint
from fabtui.model.layers import Layer, grid_layers
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import STYLES, Glyphs, transport_style
from fabtui.presentation.legends import meanings
from fabtui.presentation.numbers import brief_text, scales_text, size_text
from fabtui.report.document import Lines
from fabtui.sanitize import one_line

#: Maximum number of endpoints with a row and a column each.
MOST_ENDPOINTS = 64
#: Maximum number of nodes with a row and a column each.
MOST_NODES = 256
_ROWS = "a row sends, a column receives"
#: Levels of cells that show their value if there is room.
_VALUED = FINE | {*BY_PATH.values(), Level.SLOW, Level.FLAPPING, Level.GONE}
#: Levels among them with a mark behind the value.
_MARKED = (Level.SLOW, Level.FLAPPING, Level.GONE)
_NOT_TESTED = "-"


def grids(model: Model, layers: Sequence[Layer] | None, signs: Glyphs, width: int) -> Iterator[Lines]:
    shown = layers if layers is not None else [layer for layer in grid_layers() if has_values(model, layer)]
    for layer in shown:
        head, *lines = grid(model, layer, signs, width)
        yield Lines(head, lines)


def has_values(model: Model, layer: Layer) -> bool:
    if layer is Layer.CHANGE:
        return model.comparable
    if layer is Layer.TRANSPORT:
        return any(m.transport for m in model.measurements(Layer.P2P))
    # The first verdict is enough: a large fabric has hundreds of thousands.
    return bool(model.endpoints) if layer is Layer.HEALTH else any(True for _ in model.verdicts_in(layer))


def grid(model: Model, layer: Layer, signs: Glyphs, width: int) -> list[str]:
    """Return the grid of a layer: by endpoint up to 64 endpoints, else by node, as detailed as the width allows."""
    ends = model.rows
    if not ends:
        return [f"{layer}: no endpoints to test"]
    if layer is Layer.CHANGE and not model.comparable:
        return [f"{layer}: nothing to compare with: there is no earlier session or sweep"]
    if len(ends) > MOST_ENDPOINTS:
        return _of_nodes(model, layer, signs, width)
    if layer is not Layer.HEALTH:
        lines = matrix(model, signs, layer)
        if max(map(len, lines)) <= width:
            return [f"{layer}, {unit_text(model, layer)}; {_ROWS}", *lines]
    levels = CellMatrix.of_model(model, layer).filled().tolist()
    label = max(len(one_line(str(end))) for end in ends)
    pitch = 2 if 2 * len(ends) + len(model.nodes) + label + 3 <= width else 1
    cells = [[" " if level == Level.DIAGONAL else sign_of(level, signs) for level in row] for row in levels]
    used = {sign for row in cells for sign in row}
    head = f"{layer}, {layer.spec.title}; {_ROWS}"
    return [head, *_signs(ends, cells, pitch), *_meanings(used, layer, signs, width)]


def unit_text(model: Model, layer: Layer) -> str:
    """Return the unit and the message size of a layer, or its title."""
    if layer is Layer.CHANGE:
        return "current value / earlier value"
    units = (m.unit for m in model.measurements(layer) if m.value is not None and m.unit)
    # The first one is enough: a large fabric has hundreds of thousands.
    unit = one_line(next(units, ""), 20)
    if not unit:
        return layer.spec.title
    if layer.spec.less_is_better:
        return f"{unit}, less is better"
    if layer.spec.by_address:
        return unit
    sizes = model.results.sizes(layer)
    return unit + (f" at {size_text(sizes[-1])}" if sizes else "")


def sign_of(level: int, signs: Glyphs) -> str:
    if level == Level.DIAGONAL:
        return signs.dot
    return _NOT_TESTED if level <= Level.UNTESTED else signs.of_style[STYLES[level]]


def sign_words(layer: Layer, signs: Glyphs) -> dict[str, str]:
    return {signs.of_style[style]: word for style, word in meanings(layer)} | {_NOT_TESTED: "not tested"}


def _signs(ends: Sequence[Endpoint], cells: list[list[str]], pitch: int) -> list[str]:
    gaps = [one.node != before.node for before, one in itertools.pairwise([ends[0], *ends])]
    columns = [at * pitch + gap for at, gap in enumerate(itertools.accumulate(gaps))]
    rows = ["".join(" " * gap + f"{sign:<{pitch}}" for gap, sign in zip(gaps, row, strict=True)) for row in cells]
    return _labelled(ends, [_names(ends, columns)], rows)


def _names(ends: Sequence[Endpoint], columns: Sequence[int]) -> str:
    """Return the names of the nodes, each over its first column; a long name overlaps others and shifts the next."""
    text = ""
    before: str | None = None
    for end, column in zip(ends, columns, strict=True):
        if end.node != before:
            text += " " * max(column - len(text), 1 if text else 0) + one_line(end.node)
            before = end.node
    return text


def _labelled(ends: Sequence[Endpoint], heads: list[str], rows: list[str]) -> list[str]:
    names = [""] * len(heads) + [one_line(str(end)) for end in ends]
    label = max(map(len, names))
    return [f"  {name:{label}} {text}".rstrip() for name, text in zip(names, [*heads, *rows], strict=True)]


def _meanings(used: Collection[str], layer: Layer, signs: Glyphs, width: int) -> list[str]:
    lines: list[str] = []
    for sign, word in sign_words(layer, signs).items():
        text = f"{sign} {word}"
        if sign in used and lines and len(lines[-1]) + 3 + len(text) <= width:
            lines[-1] += f"   {text}"
        elif sign in used:
            lines.append(f"  {text}")
    return lines


def _of_nodes(model: Model, layer: Layer, signs: Glyphs, width: int) -> list[str]:
    """Return the grid of nodes; a cell is the worst pair from one node to the other."""
    names = list(dict.fromkeys(end.node for end in model.rows))
    count = len(names)
    if count > MOST_NODES:
        return [f"{layer}: {count} x {count} nodes, too many to print; --csv has all pairs, the app shows them"]
    label = max(len(one_line(name)) for name in names)
    valued = layer is Layer.CHANGE or (layer.spec.better is not None and not layer.spec.derived)
    wide = valued and 5 * count + label + 3 <= width
    cells = _node_cells(CellMatrix.of_model(model, layer), signs, wide)
    numbers = [f"{at:03d}" for at in range(count)]
    what = f"{len(model.rows)} endpoints, a cell is the worst pair of two nodes"
    lines = [f"{layer}, {layer.spec.title}; {what}; {_ROWS}"]
    if wide:
        lines.append(f"  {'':{label}} " + "".join(f"{number:>4} " for number in numbers).rstrip())
    else:
        lines += [f"  {'':{label}} " + "".join(number[place] for number in numbers) for place in range(3)]
    for name, row in zip(names, cells, strict=True):
        text = "".join(f"{number or mark:>4}{mark if number else ' '}" if wide else mark for number, mark in row)
        lines.append(f"  {one_line(name):{label}} {text}".rstrip())
    lines.append("  columns: the nodes in the order of the rows, from 000")
    used = {mark for row in cells for _, mark in row}
    if wide:
        of = "the earlier value" if layer is Layer.CHANGE else "the usual value of its class"
        lines.append(f"  numbers: percent of {of}")
    return lines + _meanings(used, layer, signs, width)


def _node_cells(found: CellMatrix, signs: Glyphs, wide: bool) -> list[list[tuple[str, str]]]:
    """Return the percentage, if there is one and it is ``wide``, and the sign of the worst cell of each two nodes."""
    worst, slowest = found.filled(), found.slowness
    for axis in (0, 1):
        worst = np.maximum.reduceat(worst, found.starts, axis)
        slowest = np.maximum.reduceat(slowest, found.starts, axis)

    def cell(level: int, slowness: float) -> tuple[str, str]:
        sign = sign_of(level, signs)
        if not wide or level not in _VALUED or not slowness:
            return "", sign
        return f"{min(999, round(100 / slowness))}", sign if level in _MARKED else " "

    return [
        [cell(*pair) for pair in zip(levels, values, strict=True)]
        for levels, values in zip(worst.tolist(), slowest.tolist(), strict=True)
    ]


def matrix(model: Model, signs: Glyphs, layer: Layer = Layer.P2P) -> list[str]:
    ends = model.rows
    cells = cell_rows(model, layer, signs)
    width = max(3, *(len(text) for row in cells for text, _ in row))
    # The mark of a value is in the gap after its column, so that the digits are aligned.
    marked = any(mark for row in cells for _, mark in row)
    gap = "  " if marked else " "
    names = _names(ends, [at * (width + len(gap)) for at in range(len(ends))])
    indexes = gap.join(f"{'-' if end.kind == 'none' else end.index:>{width}}" for end in ends)
    rows = [" ".join(f"{text:>{width}}{mark or ' ' if marked else ''}" for text, mark in row) for row in cells]
    used = used_signs(cells, layer, signs)
    scales = scales_text(model.results.lowest(layer), layer.spec.unit)
    used += [scales] if scales else []
    return _labelled(ends, [names, indexes], rows) + (["  " + "   ".join(used)] if used else [])


def cell_rows(model: Model, layer: Layer, signs: Glyphs) -> list[list[tuple[str, str]]]:
    """Return the text of each cell, a value or the character of its level, and the mark behind it."""
    numbers = [end.number for end in model.rows]

    def shown(level: int, src: int, dst: int) -> tuple[str, str]:
        cell = model.cell(layer, src, dst) if level in _VALUED and layer is not Layer.HEALTH else None
        if cell is None or cell.measurement is None:
            return sign_of(level, signs), ""
        mark = signs.of_style[STYLES[level]] if level in _MARKED else ""
        if layer is Layer.TRANSPORT:
            return (transport_style(cell.text)[1] if cell.text else _NOT_TESTED), mark
        # A change without a ratio is shown as a word.
        return (cell.text if cell.value is None and cell.text else brief_text(cell.value, cell.unit)), mark

    levels = CellMatrix.of_model(model, layer).filled().tolist()
    return [
        [shown(level, src, dst) for level, dst in zip(row, numbers, strict=True)]
        for row, src in zip(levels, numbers, strict=True)
    ]


def used_signs(cells: Sequence[Sequence[tuple[str, str]]], layer: Layer, signs: Glyphs) -> list[str]:
    """Return the meanings of the characters and marks of cells with values, which show how good they are."""
    used = {mark or text for row in cells for text, mark in row} - {signs.of_style[STYLES[level]] for level in FINE}
    return [f"{sign} {word}" for sign, word in sign_words(layer, signs).items() if sign in used]
