"""Rows and columns in view, with their places on the terminal."""

from __future__ import annotations

from fabtui.screen.grid.axis import Axis
from fabtui.screen.grid.layout import HEADER_LINES, GridLayout, scrolled


class Viewport:
    """Rows and columns in view.

    Attributes:
        top: First row.
        left: First column.
        columns: Columns in view, each with its x coordinate.
        lines: Row and line within the row for each line below the headers; None for a blank line.
        line_of_row: First line of each row, headers included.
    """

    def __init__(self) -> None:
        self.top = 0
        self.left = 0
        self.columns: list[tuple[int, int]] = []
        self.lines: list[tuple[int, int] | None] = []
        self.line_of_row: dict[int, int] = {}

    def place(self, layout: GridLayout, rows: Axis, columns: Axis, row: int, column: int) -> bool:
        """Scroll a cell into view; return True if the columns changed."""
        # There are gaps between rows only if all rows are in view.
        fit = rows.size if layout.row_gap else max(1, layout.rows)
        self.top = scrolled(self.top, row, fit, rows.size, 2 if layout.halves else 1)
        before = self.columns
        shown = self._columns_from(layout, columns, column)
        if shown != before:
            self.columns = shown
        self.lines = layout.lines(rows, self.top)
        self.line_of_row = {}
        for at, here in enumerate(self.lines):
            if here is not None and not here[1]:
                self.line_of_row[here[0]] = at + HEADER_LINES
                if layout.halves and here[0] + 1 < rows.size:
                    self.line_of_row[here[0] + 1] = at + HEADER_LINES
        return self.columns is not before

    def _columns_from(self, layout: GridLayout, axis: Axis, column: int) -> list[tuple[int, int]]:
        left = scrolled(self.left, column, layout.columns, axis.size)
        columns = layout.shown(axis, left)
        # With gaps between nodes fewer columns may fit than the layout assumes.
        while columns and columns[-1][0] < column:
            left += 1
            columns = layout.shown(axis, left)
        self.left = left
        return columns

    def whole(self, down: int, across: int) -> bool:
        """Return True if all rows and columns are in view, or none."""
        if not self.columns or not self.line_of_row:
            return True
        return len(self.columns) == across and len(self.line_of_row) == down

    @property
    def window(self) -> tuple[range, range]:
        """Ranges of rows and columns in view; there must be some."""
        return range(min(self.line_of_row), max(self.line_of_row) + 1), range(
            self.columns[0][0], self.columns[-1][0] + 1
        )

    def text(self, down: int, across: int) -> str:
        """Return the rows and columns in view as text, or "" if all are."""
        if self.whole(down, across):
            return ""
        rows, shown = self.window
        columns = f"columns {shown.start + 1}-{shown.stop}"
        if down == across:
            return f"rows {rows.start + 1}-{rows.stop}, {columns} of {across}"
        return f"rows {rows.start + 1}-{rows.stop} of {down}, {columns} of {across}"

    def lines_of(self, layout: GridLayout, *rows: int) -> list[int]:
        """Return the lines of some rows that are in view."""
        first = {line for row in rows if (line := self.line_of_row.get(row)) is not None}
        return [line + part for line in first for part in range(layout.tall) if line + part < layout.height]

    def cell_at(self, layout: GridLayout, x: int, y: int) -> tuple[int, int] | None:
        """Return the row and column at a point of the grid, or None."""
        at = y - HEADER_LINES
        here = self.lines[at] if 0 <= at < len(self.lines) else None
        column = next((c for c, begin in self.columns if begin <= x < begin + layout.cell), None)
        return None if here is None or column is None else (here[0], column)
