"""Where on the screen each row and column of the grid goes. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from fabtui.screen.axis import Axis

#: The widest cell; wider ones would only spread the grid.
WIDEST = 6
#: A cell of this width or more holds a number.
NUMBER_WIDTH = 4
#: Where not even cells of width 1 all fit, this width is used and the grid scrolls.
SCROLLING_WIDTH = 2
_LONGEST_LABEL = 14
HEADER_LINES = 2


@dataclass(frozen=True, slots=True)
class GridLayout:
    """A layout of a grid.

    Attributes:
        width: Cells of the terminal, across.
        height: Lines.
        cell: The width of a cell.
        label: The width of a node's name before a row.
        header: The width of everything before a row's cells.
        column_gap: Whether a blank column stands between nodes.
        row_gap: Whether a blank line stands between nodes.
        rows: How many rows fit.
        columns: How many columns fit from the one that is first, at least.
    """

    width: int
    height: int
    cell: int
    label: int
    header: int
    column_gap: bool
    row_gap: bool
    rows: int
    columns: int

    def shown(self, axis: Axis, left: int) -> list[tuple[int, int]]:
        """Return each column that fits when ``left`` is the first, with where it begins."""
        found = []
        at = self.header
        for column in range(left, axis.size):
            if self.column_gap and column != left and axis.seats[column].first:
                at += 1
            if at + self.cell > self.width:
                break
            found.append((column, at))
            at += self.cell
        return found

    def lines(self, axis: Axis, top: int) -> list[int | None]:
        """Return for each line below the headers its row when ``top`` is the first, or None for a blank line."""
        found: list[int | None] = []
        for row in range(top, axis.size):
            if self.row_gap and row != top and axis.seats[row].first:
                found.append(None)
            if len(found) >= self.height - HEADER_LINES:
                break
            found.append(row)
        return found[: max(0, self.height - HEADER_LINES)]


def lay_out(axis: Axis, width: int, height: int, cell: int | None = None) -> GridLayout:
    """Return the layout of an axis in a space.

    Args:
        axis: The rows and columns.
        width: The space across.
        height: The space down, the headers' lines included.
        cell: The width of a cell, or None for the widest at which all columns fit.
    """
    label = min(axis.label_width, _LONGEST_LABEL, max(4, width // 5))
    header = label + 1 + axis.index_width + 1
    room = max(0, width - header)
    rows = max(0, height - HEADER_LINES)
    between = max(0, len(axis.starts) - 1)
    if cell is None:
        cell = next(
            (w for w in range(WIDEST, 0, -1) if axis.size * w + (between if w >= NUMBER_WIDTH else 0) <= room),
            SCROLLING_WIDTH,
        )
    column_gap = cell >= NUMBER_WIDTH and len(axis.starts) < axis.size
    row_gap = column_gap and axis.size + between <= rows
    return GridLayout(width, height, cell, label, header, column_gap, row_gap, rows, room // cell)


def scrolled(first: int, cursor: int, fit: int, size: int) -> int:
    """Return what to show first so that the cursor is in sight, moving as little as can be."""
    if fit <= 0 or size <= fit:
        return 0
    if cursor < first:
        return cursor
    if cursor >= first + fit:
        return min(cursor - fit + 1, size - 1)
    return min(first, max(0, size - fit))


def block_of(axis: Axis, position: int) -> tuple[int, int]:
    """Return the first seat of a position's node and the one after its last."""
    at = bisect_right(axis.starts, position) - 1
    start = axis.starts[at]
    return start, axis.starts[at + 1] if at + 1 < len(axis.starts) else axis.size


def squeeze(text: str, width: int, ellipsis: str) -> str:
    """Return a name in at most ``width`` characters; its end is kept, as names of nodes differ there."""
    if len(text) <= width:
        return text
    return text[-width:] if width < 4 else ellipsis + text[-(width - 1) :]
