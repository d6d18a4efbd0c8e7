"""Panels of layers: picture, classes, and the values behind the picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.model.layers import Layer, Per, grid_layers
from fabtui.model.session_model import Model
from fabtui.pictures.connectivity import connectivity_svg
from fabtui.pictures.heatmap import matrix_svg
from fabtui.presentation.legends import class_rows, layer_title
from fabtui.presentation.wording import CLASS_WORDS, failure_text, measured_text
from fabtui.report.document import Block, Lines, Panel, Picture, Table
from fabtui.report.grid import LEGEND, MOST_ENDPOINTS, cell_text, grid, has_values, unit_text

#: Maximum number of rows of a table of address pairs.
_MOST_ADDRESSES = 400
#: Width of a grid of nodes: unlimited.
_UNLIMITED = 10_000
_ROWS = "a row sends, a column receives"


def layer_panels(one: Diagnosis) -> Iterator[Panel]:
    """Yield a panel for each layer with values."""
    model = one.model
    for layer in grid_layers():
        if has_values(model, layer) and model.rows:
            yield Panel(str(layer), [*_picture(model, layer), *_classes(one, layer), _values(model, layer)])


def _picture(model: Model, layer: Layer) -> Iterator[Block]:
    if layer.spec.by_address:
        yield Picture(layer_title(layer), connectivity_svg(model, layer))
    else:
        yield Picture(layer_title(layer), matrix_svg(model, layer, "value" if layer.spec.better else "verdict"))


def _classes(one: Diagnosis, layer: Layer) -> Iterator[Block]:
    if layer.spec.derived or not any(one.model.values(layer, kind) for kind in CLASS_WORDS):
        return
    headings, rows = class_rows(one.model, layer, Counter(one.tally.kinds.values()), one.tally.of_class)
    at = len(headings) if headings[-1] else -1
    table = [row[:at] for row in (headings, *rows)]
    yield Table(f"classes of {layer}, {unit_text(one.model, layer)}", table)


def _values(model: Model, layer: Layer) -> Block:
    if layer.spec.per is Per.ADDRESS_PAIR:
        return _addresses(model, layer)
    ends = model.rows
    if len(ends) > MOST_ENDPOINTS:
        head, *lines = grid(model, layer, "·", _UNLIMITED)
        return Lines(head, lines, folded=True)
    title = f"{layer}, {unit_text(model, layer)}; {_ROWS}"
    rows = [[str(a), *(_cell(model, layer, a.number, b.number) for b in ends)] for a in ends]
    used = {cell[-1:] for row in rows for cell in row[1:]}
    notes = "   ".join(f"{sign} {word}" for sign, word in LEGEND.items() if sign in used)
    head_row = ["", *map(str, ends)]
    return Table(title, [head_row, *rows], notes=[notes] if notes else [], folded=True, grid=True)


def _cell(model: Model, layer: Layer, src: int, dst: int) -> str:
    if layer is Layer.HEALTH and src != dst:
        return str(model.cell(layer, src, dst).verdict)
    return cell_text(model, layer, src, dst, "·")


def _addresses(model: Model, layer: Layer) -> Table:
    found = list(model.addresses.pairs(layer))
    rows = [["from", "address", "to", "address", "verdict", "value", ""]]
    for m in islice(sorted(found, key=lambda m: not model.verdict(m).bad), _MOST_ADDRESSES):
        ends = [m.src, m.src_addr or "", m.dst, m.dst_addr or ""]
        rows.append([*ends, str(model.verdict(m)), measured_text(m), failure_text(m)])
    left = len(found) - _MOST_ADDRESSES
    more = [f"and {left} more address pairs; --csv and --json have them all"] if left > 0 else []
    return Table(f"address pairs of {layer}", rows, (0, 1, 2, 3, 4, 6), more, folded=True)
