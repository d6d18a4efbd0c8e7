"""Layout of rows and columns on the screen, and the part of them in view."""

from __future__ import annotations

from typing import NamedTuple

from fabtui.screen.grid.axis import Axis, AxisEntry

#: Minimum cell width for a number.
NUMBER_WIDTH = 4
#: Cell width if not even cells of width 1 all fit, so that the grid scrolls.
SCROLLING_WIDTH = 2
_LONGEST_LABEL = 14
#: Part of a row before its first line: the name of the group that begins there.
NAMES_GROUP = -1
#: Minimum lines of cells that are made lower so that blank lines fit between all rows.
_TILE = 3
#: Minimum and maximum number of lines above the rows.
HEADER_LINES, MAX_HEADER_LINES = 2, 5


class CellShape(NamedTuple):
    """Range of cell shapes of a source."""

    #: Maximum cell width, and maximum number of lines per cell.
    widest: int = 6
    tall: int = 1
    #: Minimum width of cells with gaps between all of them, and of cells of several lines.
    apart_from: int = 7
    tall_from: int = 6
    #: Two rows may share a line if the user wants it; if condensed, also if the rows do not fit otherwise.
    halves: bool = True
    condensed: bool = False


#: Cells of endpoints: a value, and below it its share of the usual one. Those of a node lie side by side.
ENDPOINTS = CellShape(widest=18, tall=2, apart_from=99)


class Gaps(NamedTuple):
    """Blanks between the cells of a node, between nodes, and further ones between groups."""

    cells: int = 0
    nodes: int = 0
    groups: int = 0

    def before(self, entry: AxisEntry) -> int:
        return (self.nodes if entry.first else self.cells) + self.groups * entry.opens

    def total(self, axis: Axis) -> int:
        starts, openings = len(axis.starts), len(axis.openings)
        between = self.cells * (axis.size - starts) + self.nodes * max(0, starts - 1)
        return between + self.groups * max(0, openings - 1)


class GridLayout(NamedTuple):
    """A layout of a grid; sizes in terminal cells and lines."""

    width: int
    height: int
    #: Cell width, and lines per cell.
    cell: int
    tall: int
    halves: bool  #: Two rows share a line.
    #: Width of node names before rows, and of whole row headers.
    label: int
    header: int
    #: Blank columns, and blank lines.
    column_gaps: Gaps
    row_gaps: Gaps
    heads: int  #: Lines above the rows.
    #: Number of rows that fit, and minimum number of columns.
    rows: int
    columns: int

    def used(self, rows: Axis) -> int:
        """Return the number of lines that the headers and all rows take, at most its height."""
        lines = -(-rows.size // 2) if self.halves else rows.size * self.tall + self.row_gaps.total(rows)
        # Each group of rows has a line with its name.
        return min(self.height, self.heads + lines + len(rows.openings))

    def shown(self, axis: Axis, left: int) -> list[tuple[int, int]]:
        """Return the columns that fit from ``left`` on, each with its x coordinate."""
        found = []
        at = self.header
        for column in range(left, axis.size):
            if column != left:
                at += self.column_gaps.before(axis.entries[column])
            if at + self.cell > self.width:
                break
            found.append((column, at))
            at += self.cell
        return found

    def lines(self, axis: Axis, top: int) -> list[tuple[int, int] | None]:
        """Return row and line within the row for each line below the headers, with ``top`` as the first row.

        None is a blank line; part `NAMES_GROUP` is the line with the name of the row's group. If two rows share a
        line, the upper row is returned.
        """
        found: list[tuple[int, int] | None] = []
        for row in range(top, axis.size, 2 if self.halves else 1):
            entry = axis.entries[row]
            # The lower of two rows on one line may begin a group as well.
            opening = row + (self.halves and not entry.opens and row + 1 < axis.size and axis.entries[row + 1].opens)
            if entry.group and (axis.entries[opening].opens or row == top):
                found.append((opening, NAMES_GROUP))
            elif row != top:
                found.extend([None] * self.row_gaps.before(entry))
            if len(found) >= self.height - self.heads:
                break
            found.extend((row, part) for part in range(self.tall))
        return found[: max(0, self.height - self.heads)]


def lay_out(
    axis: Axis, width: int, height: int, cell: int | None = None, rows: Axis | None = None, shape: CellShape = ENDPOINTS
) -> GridLayout:
    """Return the layout of ``rows`` (those of the columns by default) and of columns, given by ``axis``.

    ``cell`` is the cell width; 0 for two rows per line; None for the maximum at which all columns fit. ``height``
    includes the header lines.
    """
    down = axis if rows is None else rows
    label = min(down.label_width, _LONGEST_LABEL, max(4, width // 5))
    header = label + 1 + down.index_width + 1
    room = max(0, width - header)
    halves = cell == 0 and shape.halves
    fitted = cell is None
    if cell is None:
        widths = range(shape.widest, 0, -1)
        fits = [w for w in widths if axis.size * w + _column_gaps(axis, w, shape).total(axis) <= room]
        cell = fits[0] if fits else SCROLLING_WIDTH
    heads = header_lines(axis, cell, height) + bool(axis.openings)
    # Each group of rows has a line with its name.
    lines = max(0, height - heads - len(down.openings))
    if fitted:
        halves = shape.halves and shape.condensed and (not fits or (cell == 1 and down.size > lines))
    cell = 1 if halves else max(1, cell)
    tall, row_gaps = _rows(down, cell, lines, shape)
    fit = lines * 2 if halves else max(1, lines // tall)
    column_gaps = _column_gaps(axis, cell, shape)
    return GridLayout(width, height, cell, tall, halves, label, header, column_gaps, row_gaps, heads, fit, room // cell)


def _grouped(axis: Axis) -> bool:
    return axis.together and len(axis.starts) < axis.size


def _column_gaps(axis: Axis, cell: int, shape: CellShape) -> Gaps:
    between = int(cell >= shape.apart_from)
    return Gaps(between, between + int(cell >= NUMBER_WIDTH and _grouped(axis)), int(bool(axis.openings)))


def _rows(axis: Axis, cell: int, lines: int, shape: CellShape) -> tuple[int, Gaps]:
    """Return the lines per cell, and the blank lines: all that fit, and none if the rows scroll."""
    of_nodes = Gaps(0, int(cell >= NUMBER_WIDTH and _grouped(axis)))
    most = shape.tall if cell >= shape.tall_from else 1
    tiles = Gaps(1, of_nodes.nodes + 1)
    if cell >= shape.apart_from:
        # A line between rows shows more than a fourth line of a cell does.
        tall = next((t for t in range(most, _TILE - 1, -1) if axis.size * t + tiles.total(axis) <= lines), 0)
        if tall:
            return tall, tiles
    tall = next((t for t in range(most, 1, -1) if axis.size * t + of_nodes.total(axis) <= lines), 1)
    wanted = [tiles, of_nodes, Gaps()] if cell >= shape.apart_from and tall > 1 else [of_nodes, Gaps()]
    return tall, next((gaps for gaps in wanted if axis.size * tall + gaps.total(axis) <= lines), Gaps())


def name_room(cell: int) -> int:
    """Return the number of characters of a name on one line above a column."""
    return max(1, cell - 1)


def header_lines(axis: Axis, cell: int, height: int) -> int:
    """Return the number of lines that the names of the columns need to differ, with the line of the indices."""
    if not axis.stacked:
        return HEADER_LINES
    wanted = -(-axis.tail // name_room(cell)) + (not axis.of_nodes_alone)
    return max(HEADER_LINES, min(wanted, MAX_HEADER_LINES, height // 4))


def scrolled(first: int, cursor: int, fit: int, size: int, step: int = 1) -> int:
    """Return the first row or column to show, a multiple of ``step``, with the cursor in view and minimal scrolling."""
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
    """Return a name in at most ``width`` characters; the end is kept, because node names differ there."""
    if len(text) <= width:
        return text
    return text[-width:] if width < 4 else ellipsis + text[-(width - 1) :]


class Viewport:
    """Rows and columns in view, with their places on the terminal."""

    def __init__(self) -> None:
        self.top = 0
        self.left = 0
        self.columns: list[tuple[int, int]] = []  #: Columns in view, each with its x coordinate.
        #: Row and line within the row for each line below the headers; None for a blank line.
        self.lines: list[tuple[int, int] | None] = []
        self.line_of_row: dict[int, int] = {}  #: First line of each row, headers included.

    def place(self, layout: GridLayout, rows: Axis, columns: Axis, row: int, column: int) -> bool:
        """Scroll a cell into view; return True if the columns changed."""
        # There are gaps between rows only if all rows are in view.
        fit = rows.size if any(layout.row_gaps) else max(1, layout.rows)
        self.top = scrolled(self.top, row, fit, rows.size, 2 if layout.halves else 1)
        before = self.columns
        left = scrolled(self.left, column, layout.columns, columns.size)
        shown = layout.shown(columns, left)
        # With gaps between nodes fewer columns may fit than the layout assumes.
        while shown and shown[-1][0] < column:
            left += 1
            shown = layout.shown(columns, left)
        self.left = left
        if shown != before:
            self.columns = shown
        self._place_rows(layout, rows)
        # With names of groups fewer rows may fit than the layout assumes.
        while rows.openings and self.line_of_row and row > max(self.line_of_row):
            self.top += 2 if layout.halves else 1
            self._place_rows(layout, rows)
        return self.columns is not before

    def _place_rows(self, layout: GridLayout, rows: Axis) -> None:
        self.lines = layout.lines(rows, self.top)
        self.line_of_row = {}
        for at, here in enumerate(self.lines):
            if here is not None and not here[1]:
                self.line_of_row[here[0]] = at + layout.heads
                if layout.halves and here[0] + 1 < rows.size:
                    self.line_of_row[here[0] + 1] = at + layout.heads

    @property
    def window(self) -> tuple[range, range]:
        return range(min(self.line_of_row), max(self.line_of_row) + 1), range(
            self.columns[0][0], self.columns[-1][0] + 1
        )

    def text(self, down: int, across: int) -> str:
        if not self.columns or not self.line_of_row:
            return ""
        if len(self.columns) == across and len(self.line_of_row) == down:
            return ""
        rows, shown = self.window
        columns = f"columns {shown.start + 1}-{shown.stop}"
        if down == across:
            return f"rows {rows.start + 1}-{rows.stop}, {columns} of {across}"
        return f"rows {rows.start + 1}-{rows.stop} of {down}, {columns} of {across}"

    def lines_of(self, layout: GridLayout, *rows: int) -> list[int]:
        first = {line for row in rows if (line := self.line_of_row.get(row)) is not None}
        return [line + part for line in first for part in range(layout.tall) if line + part < layout.height]

    def cell_at(self, layout: GridLayout, x: int, y: int) -> tuple[int, int] | None:
        at = y - layout.heads
        here = self.lines[at] if 0 <= at < len(self.lines) else None
        column = next((c for c, begin in self.columns if begin <= x < begin + layout.cell), None)
        return None if here is None or here[1] == NAMES_GROUP or column is None else (here[0], column)
