"""Where on the screen each row and column of the grid goes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fabtui.screen.grid.axis import Axis

#: The widest cell; wider ones would only spread the grid.
WIDEST = 6
#: A cell of this width or more holds a number.
NUMBER_WIDTH = 4
#: Where not even cells of width 1 all fit, this width is used and the grid scrolls.
SCROLLING_WIDTH = 2
_LONGEST_LABEL = 14
HEADER_LINES = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """What cells of a source may look like.

    Attributes:
        widest: The widest cell that is of use.
        tall: How many lines a cell has where there is room.
        apart: Whether every cell stands by itself.
        halves: Whether two rows may share a line, if the user wants it.
        condensed: Whether they do so by themselves, where the rows do not fit otherwise.
    """

    widest: int = WIDEST
    tall: int = 1
    apart: bool = False
    halves: bool = True
    condensed: bool = False


ENDPOINTS = Shape()


@dataclass(frozen=True, slots=True)
class GridLayout:
    """A layout of a grid.

    Attributes:
        width: Cells of the terminal, across.
        height: Lines.
        cell: The width of a cell.
        tall: The lines of a cell.
        halves: Whether two rows share a line.
        label: The width of a node's name before a row.
        header: The width of everything before a row's cells.
        column_gap: Whether a blank column stands between nodes.
        row_gap: Whether a blank line stands between nodes.
        apart: Whether those gaps stand between all cells.
        rows: How many rows fit.
        columns: How many columns fit from the one that is first, at least.
    """

    width: int
    height: int
    cell: int
    tall: int
    halves: bool
    label: int
    header: int
    column_gap: bool
    row_gap: bool
    apart: bool
    rows: int
    columns: int

    def shown(self, axis: Axis, left: int) -> list[tuple[int, int]]:
        """Return each column that fits when ``left`` is the first, with where it begins."""
        found = []
        at = self.header
        for column in range(left, axis.size):
            if self.column_gap and column != left and (self.apart or axis.seats[column].first):
                at += 1
            if at + self.cell > self.width:
                break
            found.append((column, at))
            at += self.cell
        return found

    def lines(self, axis: Axis, top: int) -> list[tuple[int, int] | None]:
        """Return for each line below the headers its row, when ``top`` is the first, and which of the row's it is.

        None is a blank line. Where two rows share a line it is the upper one's.
        """
        found: list[tuple[int, int] | None] = []
        for row in range(top, axis.size, 2 if self.halves else 1):
            if self.row_gap and row != top and (self.apart or axis.seats[row].first):
                found.append(None)
            if len(found) >= self.height - HEADER_LINES:
                break
            found.extend((row, part) for part in range(self.tall))
        return found[: max(0, self.height - HEADER_LINES)]


def lay_out(
    axis: Axis, width: int, height: int, cell: int | None = None, rows: Axis | None = None, shape: Shape = ENDPOINTS
) -> GridLayout:
    """Return the layout of rows and columns in a space.

    Args:
        axis: The columns.
        width: The space across.
        height: The space down, the headers' lines included.
        cell: The width of a cell, 0 for two rows a line, or None for the widest at which all columns fit.
        rows: The rows, where they are others than the columns.
        shape: What cells may look like.
    """
    down = axis if rows is None else rows
    label = min(down.label_width, _LONGEST_LABEL, max(4, width // 5))
    header = label + 1 + down.index_width + 1
    room = max(0, width - header)
    lines = max(0, height - HEADER_LINES)
    between = axis.size - 1 if shape.apart else max(0, len(axis.starts) - 1) if axis.together else 0
    halves = cell == 0 and shape.halves
    if cell is None:
        fits = [w for w in range(shape.widest, 0, -1) if axis.size * w + (between if w >= NUMBER_WIDTH else 0) <= room]
        cell = fits[0] if fits else SCROLLING_WIDTH
        halves = shape.halves and shape.condensed and (not fits or (cell == 1 and down.size > lines))
    cell = 1 if halves else max(1, cell)
    grouped = shape.apart or (axis.together and len(axis.starts) < axis.size)
    column_gap = cell >= NUMBER_WIDTH and grouped
    gaps = (down.size - 1 if shape.apart else len(down.starts) - 1) if down.together else 0
    tall = next((t for t in range(shape.tall, 1, -1) if down.size * t <= lines), 1)
    row_gap = column_gap and down.together and down.size * tall + gaps <= lines
    fit = lines * 2 if halves else lines // tall
    return GridLayout(
        width, height, cell, tall, halves, label, header, column_gap, row_gap, shape.apart, fit, room // cell
    )


def scrolled(first: int, cursor: int, fit: int, size: int, step: int = 1) -> int:
    """Return what to show first, a multiple of ``step``, so that the cursor is in view, moving as little as can be."""
    if fit <= 0 or size <= fit:
        return 0
    if cursor < first:
        first = cursor
    elif cursor >= first + fit:
        first = min(cursor - fit + step, size - 1)
    else:
        first = min(first, max(0, size - fit) + step - 1)
    return first - first % step


def squeeze(text: str, width: int, ellipsis: str) -> str:
    """Return a name in at most ``width`` characters; its end is kept, as names of nodes differ there."""
    if len(text) <= width:
        return text
    return text[-width:] if width < 4 else ellipsis + text[-(width - 1) :]
