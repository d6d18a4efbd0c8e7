"""The grid of a layer of pairs in text."""

from __future__ import annotations

from fabtui.model.endpoints import Endpoint
from fabtui.model.measurement import Layer, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import transport_of
from fabtui.presentation.numbers import value_text
from fabtui.sanitize import one_line

#: What stands in a cell instead of a number, or after it.
GLYPHS = {
    Verdict.FAILED: "x",
    Verdict.TIMEOUT: "T",
    Verdict.INCONCLUSIVE: "?",
    Verdict.SKIPPED: "s",
    Verdict.UNTESTED: "-",
}
SLOW_MARK = "!"
#: What the signs mean.
LEGEND = {
    "x": "x failed",
    "T": "T timed out",
    "!": "! slow",
    "?": "? inconclusive",
    "s": "s skipped",
    "-": "- not tested",
}


def matrix(model: Model, diagonal: str, layer: Layer = Layer.P2P) -> list[str]:
    """Return the lines of the grid: a head of two lines, a row an endpoint, and what the signs in it mean.

    Args:
        model: All that is known.
        diagonal: What stands where an endpoint meets itself.
        layer: Whose values it shows.
    """
    ends = model.endpoints
    cells = [[_cell(model, layer, src.number, dst.number, diagonal) for dst in ends] for src in ends]
    width = max(3, *(len(cell.removesuffix(SLOW_MARK)) for row in cells for cell in row))
    label = max(len(one_line(str(end))) for end in ends)
    # The mark of a slow value stands in the gap after its column, so that the digits line up.
    slow = any(cell.endswith(SLOW_MARK) for row in cells for cell in row)
    heads = _heads(ends, width, width + (2 if slow else 1))
    lines = [f"  {'':{label}} {head}".rstrip() for head in heads]
    for end, row in zip(ends, cells, strict=True):
        shown = (" " if slow else "").join(_padded(cell, width) for cell in row)
        lines.append(f"  {one_line(str(end)):{label}} {shown}".rstrip())
    shown_signs = {cell[-1] for row in cells for cell in row}
    used = [text for sign, text in LEGEND.items() if sign in shown_signs]
    return lines + (["  " + "   ".join(used)] if used else [])


def _cell(model: Model, layer: Layer, src: int, dst: int, diagonal: str) -> str:
    cell = model.cell(layer, src, dst)
    if src == dst and cell.measurement is None:
        return diagonal
    if cell.verdict in GLYPHS:
        return GLYPHS[cell.verdict]
    if layer is Layer.TRANSPORT:
        return transport_of(cell.text)[1] if cell.text else "-"
    # A change that has no ratio is told in a word.
    text = cell.text if cell.value is None and cell.text else value_text(cell.value)
    return text + (SLOW_MARK if cell.verdict is Verdict.SLOW else "")


def _padded(cell: str, width: int) -> str:
    mark = SLOW_MARK if cell.endswith(SLOW_MARK) else " "
    return f"{cell.removesuffix(SLOW_MARK):>{width}}{mark}"


def _heads(ends: list[Endpoint], width: int, pitch: int) -> list[str]:
    """Return the line of node names over the first column of each, and the line of indexes.

    Args:
        ends: The endpoints.
        width: The width of a column.
        pitch: How many characters from one column to the next.
    """
    names = ""
    indexes = ""
    before = None
    for at, end in enumerate(ends):
        if end.node != before:
            # A long name runs over its columns; the next one then begins a little later rather than being lost.
            names += " " * max(at * pitch - len(names), 1 if names else 0) + one_line(end.node)
            before = end.node
        indexes += f"{'-' if end.kind == 'none' else end.index:>{width}}{'':{pitch - width}}"
    return [names, indexes]
