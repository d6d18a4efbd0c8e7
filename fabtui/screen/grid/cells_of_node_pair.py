"""Cells of the pairs of two nodes, large enough for unit and share of the class median."""

from __future__ import annotations

from fabtui.model.layers import Layer
from fabtui.model.session_model import Cell
from fabtui.presentation.cell_levels import BAD, Slot, cell_text, full_number
from fabtui.presentation.wording import CLASS_WORDS
from fabtui.screen.grid.cell_source import CellSource
from fabtui.screen.grid.cells_by_endpoint import EndpointCells
from fabtui.screen.grid.layout import Shape

_WORDS = {
    Slot.SLOW: "slow",
    Slot.TIMEOUT: "timeout",
    Slot.FAILED: "failed",
    Slot.INCONCLUSIVE: "unclear",
    Slot.SKIPPED: "skipped",
    Slot.RUNNING: "running",
    Slot.GONE: "gone",
    Slot.UNTESTED: "untested",
}
#: Minimum width for a value with its unit.
_UNIT_FROM = 10


class NodePairCells(CellSource):
    """Cells with rows of one node and columns of another.

    Args:
        source: Cells of all endpoint pairs.
        a: Index of the node of the rows.
        b: Index of the node of the columns.

    Attributes:
        nodes: Both nodes.
    """

    shape = Shape(widest=14, tall=3, apart=True, halves=False)

    def __init__(self, source: EndpointCells, a: int, b: int) -> None:
        super().__init__(source.axis)
        self._source = source
        self.nodes = (a, b)
        at = source.axis.node_at
        self.show_in(
            [position for position in source.row_at if at[position] == a],
            [position for position in source.column_at if at[position] == b],
        )

    def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
        """Return slot and first line of one cell: its value with the unit, or its verdict."""
        a, b = self.row_at[row], self.column_at[column]
        slot, cell, _ = self._source.judge(a, b)
        glyphs = self._source.glyphs
        if cell is None:
            return slot, " " * width
        if self._source.highlighted and (a, b) in self._source.highlighted:
            slot = Slot.FLASH
        text = _value_text(self._source.layer, cell, width)
        if not text:
            word = _WORDS.get(slot, str(cell.verdict))
            glyph = glyphs.of_slot[slot]
            text = f"{glyph} {word}" if glyph.strip() and len(word) + 2 <= width else word
            if len(text) > width:
                text = glyph
        elif slot in BAD or slot is Slot.RUNNING:
            text = f"{text}{glyphs.of_slot[slot]}" if len(text) < width else text
        if len(text) > width:
            return slot, cell_text(slot, self._source.display(a, b, width)[1], width, glyphs)
        return slot, f"{text:^{width}}"

    def below(self, row: int, column: int, width: int) -> list[str]:
        """Return the lines below the value of a cell: share of the class median, unit, attempts."""
        _, cell, share = self._source.judge(self.row_at[row], self.column_at[column])
        if cell is None:
            return []
        lines = []
        if share is not None and cell.measurement is not None:
            model, measured = self._source.model, cell.measurement
            kind = CLASS_WORDS[model.class_of(measured)]
            text = f"{share:.0%} of {kind}"
            lines.append(text if len(text) <= width else f"{share:.0%}")
        if cell.value is not None and width < _UNIT_FROM and len(cell.unit) <= width:
            lines.append(cell.unit)
        if cell.measurement is not None and cell.measurement.attempts > 1:
            text = f"{cell.measurement.attempts} attempts"
            lines.append(text if len(text) <= width else f"{cell.measurement.attempts} tries"[:width])
        return [f"{line[:width]:^{width}}" for line in lines]


def _value_text(layer: Layer, cell: Cell, width: int) -> str:
    """Return the value of a cell, with its unit if there is room."""
    if layer is Layer.TRANSPORT:
        path = "".join(c for c in cell.text if " " <= c <= "~")
        return path if len(path) <= width else path.rsplit("/", 1)[-1][:width]
    if cell.value is None:
        return ""
    number = full_number(cell.value)
    return f"{number} {cell.unit}" if width >= _UNIT_FROM and len(number) + len(cell.unit) + 1 < width else number
