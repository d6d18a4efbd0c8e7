"""Cells of node pairs; each shows the worst of its endpoint pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabtui.model.layers import Layer
from fabtui.presentation.cell_levels import Slot, cell_text, short_number
from fabtui.screen.grid.cell_source import CellSource
from fabtui.screen.grid.cells_by_endpoint import EndpointCells
from fabtui.screen.grid.layout import NUMBER_WIDTH, Shape
from fabtui.screen.grid.severity import BAD_FROM, NOTHING, RANK, SLOT_OF_RANK

if TYPE_CHECKING:
    from fabtui.screen.grid.severity_index import SeverityIndex

#: Ranks of good cells.
_FINE = frozenset(RANK[slot] for slot in (Slot.GOOD, Slot.FAIR, Slot.LOW))
#: Ranks hidden if a node of the block is gone.
_HIDDEN_WHEN_GONE = frozenset({0, RANK[Slot.DIAGONAL], NOTHING, *_FINE})


class NodeCells(CellSource):
    """Blocks: the cells of two nodes.

    The slot of a block is that of its worst cell, after the number of such cells if not all are that bad. A good block
    with untested cells is `Slot.PARTLY`.

    Args:
        source: Cells of all endpoint pairs.
        index: Severity of these cells.
    """

    shape = Shape(condensed=True)

    def __init__(self, source: EndpointCells, index: SeverityIndex) -> None:
        super().__init__(source.axis.of_nodes())
        self._source = source
        self._index = index

    def row(self, row: int, first: int, last: int, width: int) -> tuple[bytearray, list[str] | None]:
        """Return slots and texts of some blocks of a row."""
        if width > 1:
            return super().row(row, first, last, width)
        a, nodes = self.row_at[row], self.column_at[first:last]
        ranks, tested = self._index.block_ranks[a].tobytes(), self._index.tested[a].tolist()
        gone, seats, expected, whole = self.axis.seats[a].gone, self.axis.seats, self._index.cells, self._whole
        slots = bytearray(last - first)
        for at, b in enumerate(nodes):
            rank = ranks[b]
            slots[at] = SLOT_OF_RANK[rank]
            if rank in _HIDDEN_WHEN_GONE and (gone or seats[b].gone):
                slots[at] = Slot.GONE
            elif whole and rank in _FINE and tested[b] < expected(a, b):
                slots[at] = Slot.PARTLY
        return slots, None

    def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
        """Return slot and text of one block."""
        a, b = self.row_at[row], self.column_at[column]
        index = self._index
        rank = int(index.block_ranks[a, b])
        slot = SLOT_OF_RANK[rank]
        glyphs = self._source.glyphs
        if rank in _HIDDEN_WHEN_GONE and (self.axis.seats[a].gone or self.axis.seats[b].gone):
            return Slot.GONE, cell_text(Slot.GONE, "", width, glyphs)
        if rank in _FINE:
            if index.tested[a, b] < index.cells(a, b) and self._whole:
                slot = Slot.PARTLY
            lowest = index.lowest(a, b) if width >= NUMBER_WIDTH else None
            number = "" if lowest is None else short_number(lowest[0], min(width - 1, 4))
            return slot, cell_text(slot, number, width, glyphs)
        if rank < BAD_FROM or width < 2:
            return slot, cell_text(slot, "", width, glyphs)
        count = index.counts(a, b)[rank]
        if count >= index.cells(a, b):
            return slot, cell_text(slot, "", width, glyphs)
        return slot, _counted(count, glyphs.of_slot[slot], width)

    @property
    def _whole(self) -> bool:
        """True if no cell of a block is hidden."""
        shown = self._source.filter
        return (shown is None or not shown.by_cell) and self._source.layer is not Layer.PING


def _counted(count: int, glyph: str, width: int) -> str:
    """Return a count before a glyph; ``+`` replaces a count that is too long."""
    room = width - 1 if width < NUMBER_WIDTH else width - 2
    number = str(count) if len(str(count)) <= room else "+"
    text = f"{number}{glyph}"
    return f"{text:>{width}}" if width < NUMBER_WIDTH else f"{text:>{width - 1}} "
