"""Base class of the sources that the grid reads its cells from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from fabtui.screen.grid.axis import Axis
from fabtui.screen.grid.layout import ENDPOINTS, Shape


class CellSource(ABC):
    """Cells of an axis against itself, each with a ramp slot and a text.

    Args:
        axis: All rows and columns in their own order; a position is an index into it.

    Attributes:
        shape: Range of cell shapes.
        rows: Rows shown.
        columns: Columns shown.
        row_at: Position of each row.
        column_at: Position of each column.
    """

    shape: Shape = ENDPOINTS

    def __init__(self, axis: Axis) -> None:
        self.axis = axis
        self.show_in()

    def show_in(self, rows: Sequence[int] | None = None, columns: Sequence[int] | None = None) -> None:
        """Show some rows and columns by their positions; None means all, in their own order."""
        self.row_at = range(self.axis.size) if rows is None else rows
        self.column_at = range(self.axis.size) if columns is None else columns
        self.rows = self.axis if rows is None else self.axis.in_order(rows)
        self.columns = self.axis if columns is None else self.axis.in_order(columns)
        self._row_of = {position: row for row, position in enumerate(self.row_at)}
        self._column_of = {position: column for column, position in enumerate(self.column_at)}

    def row_of(self, position: int) -> int | None:
        """Return the row of a position, or None if it is not shown."""
        return self._row_of.get(position)

    def column_of(self, position: int) -> int | None:
        """Return the column of a position, or None if it is not shown."""
        return self._column_of.get(position)

    def shown_at(self, positions: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return rows and columns of those of the given positions that are shown."""
        rows, columns = self._row_of, self._column_of
        return [(rows[a], columns[b]) for a, b in positions if a in rows and b in columns]

    @abstractmethod
    def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
        """Return slot and text of one cell; the text is ignored if `row` returns none."""

    def row(self, row: int, first: int, last: int, width: int) -> tuple[bytearray, list[str] | None]:
        """Return slots and texts of the cells ``first`` to ``last`` (exclusive) of a row.

        Each text is exactly ``width`` cells wide. There are none if cells show only the glyph of their slot.
        """
        cells = [self.cell(row, column, width) for column in range(first, last)]
        return bytearray(slot for slot, _ in cells), [text for _, text in cells]

    def below(self, row: int, column: int, width: int) -> list[str]:
        """Return the texts of the second and later lines of a tall cell, each exactly ``width`` cells wide."""
        return []
