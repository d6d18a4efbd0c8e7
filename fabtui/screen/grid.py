"""The grid: every endpoint against every endpoint, drawn from ready lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.color import ColorSystem
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from fabtui.screen.axis import Seat
from fabtui.screen.gridlayout import (
    HEADER_LINES,
    WIDEST,
    GridLayout,
    lay_out,
    scrolled,
)
from fabtui.screen.gridlines import Scene
from fabtui.screen.levels import Glyphs, Slot
from fabtui.screen.source import CellSource
from fabtui.screen.strips import Palette, ReadyStrip

#: Read rows that are kept beyond those in sight, as a multiple of them.
_KEPT_SCREENS = 4


class _Row:
    """A row as it was read for the columns in sight, and its line once it was drawn."""

    __slots__ = ("slots", "strip", "texts")

    def __init__(self, slots: bytearray, texts: list[str] | None) -> None:
        self.slots = slots
        self.texts = texts
        self.strip: ReadyStrip | None = None


class GridView(Widget, can_focus=True):
    """Shows a `CellSource`, scrolls it under headers that stay, and has a cursor.

    Lines are kept per row, so that a frame costs what has changed in it, and scrolling down costs the new rows.

    Args:
        source: The cells.
        glyphs: The characters to draw with.
    """

    DEFAULT_CSS = """
    GridView { width: 1fr; height: 1fr; }
    """
    ALLOW_SELECT = False
    BINDING_GROUP_TITLE = "Grid"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1, 0)", id="grid.up", show=False, tooltip="a row up"),
        Binding("down,j", "move(1, 0)", id="grid.down", show=False, tooltip="a row down"),
        Binding("left,h", "move(0, -1)", id="grid.left", show=False, tooltip="a column to the left"),
        Binding("right,l", "move(0, 1)", id="grid.right", show=False, tooltip="a column to the right"),
        Binding("home,0", "edge('left')", id="grid.first-column", show=False, tooltip="the first column"),
        Binding("end,dollar_sign", "edge('right')", id="grid.last-column", show=False, tooltip="the last column"),
        Binding("g,ctrl+home", "edge('top')", id="grid.first-row", show=False, tooltip="the first row"),
        Binding("G,ctrl+end", "edge('bottom')", id="grid.last-row", show=False, tooltip="the last row"),
        Binding("pageup,ctrl+u", "page(-1)", id="grid.page-up", show=False, tooltip="a screen up"),
        Binding("pagedown,ctrl+d", "page(1)", id="grid.page-down", show=False, tooltip="a screen down"),
        Binding("plus,equals_sign", "zoom(1)", id="grid.wider", show=False, tooltip="wider cells"),
        Binding("minus", "zoom(-1)", id="grid.narrower", show=False, tooltip="narrower cells"),
    ]

    class Moved(Message):
        """The cursor is on another cell."""

    class Chosen(Message):
        """The cell under the cursor was clicked once more, to be looked into."""

    def __init__(self, source: CellSource, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.source = source
        self.glyphs = glyphs
        self.row = 0
        self.column = min(1, max(0, source.axis.size - 1))
        self._moved = False
        self._seats: tuple[Seat, Seat] | None = None
        self.cell_width: int | None = None
        self.top = 0
        self.left = 0
        self._ramp: dict[str, str] = {}
        self._system: ColorSystem | None = None
        self._palette: Palette | None = None
        self._layout: GridLayout | None = None
        self._lines: list[ReadyStrip | None] = []
        self._rows: dict[int, _Row] = {}
        self._columns: list[tuple[int, int]] = []
        self._row_of_line: list[int | None] = []
        self._line_of_row: dict[int, int] = {}

    # -- what is drawn, and how ---------------------------------------------------------------------------------------

    def paint_with(self, ramp: dict[str, str], system: ColorSystem | None) -> None:
        """Draw with a ramp and a number of colours from now on."""
        self._ramp, self._system = ramp, system
        self._palette = None
        self.redraw()

    def show(self, source: CellSource) -> None:
        """Show another source, or the same one after everything in it may have changed, its axis too."""
        seats = self._seats
        self.source = source
        size = source.axis.size
        if not self._moved:
            # On the first cell that can hold something.
            self.row, self.column = 0, min(1, max(0, size - 1))
        elif seats is not None and seats != self._cursor_seats():
            # The same pair may stand elsewhere now.
            find = source.axis.find
            self.row, self.column = find(seats[0]) or 0, find(seats[1]) or 0
        self.row, self.column = max(0, min(self.row, size - 1)), max(0, min(self.column, size - 1))
        self._seats = self._cursor_seats()
        self._layout = None
        self.reread()

    def _cursor_seats(self) -> tuple[Seat, Seat] | None:
        seats = self.source.axis.seats
        if self.row >= len(seats) or self.column >= len(seats):
            return None
        return seats[self.row], seats[self.column]

    def reread(self) -> None:
        """Read every cell anew when it is drawn next."""
        self._rows.clear()
        self.redraw()

    def redraw(self) -> None:
        """Draw every line anew, cells as they were read."""
        for row in self._rows.values():
            row.strip = None
        self._lines = []
        self.refresh()

    def update_cells(self, changed: Iterable[tuple[int, int]]) -> None:
        """Read some cells anew, by row and column; those out of sight cost nothing."""
        rows = self._rows
        if not rows or not self._columns:
            return
        changed = changed if isinstance(changed, (list, set)) else list(changed)
        if len(changed) > len(self._line_of_row) * len(self._columns):
            self.reread()
            return
        first, last = self._columns[0][0], self._columns[-1][0]
        width = self.layout_now().cell
        read = self.source.cell
        touched = set()
        for at, column in changed:
            row = rows.get(at)
            if row is None or not first <= column <= last:
                continue
            slot, text = read(at, column, width)
            here = column - first
            if slot != row.slots[here] or (row.texts is not None and text != row.texts[here]):
                row.slots[here] = slot
                if row.texts is not None:
                    row.texts[here] = text
                row.strip = None
                touched.add(at)
        self._mark_rows(touched)

    def _mark_rows(self, rows: Iterable[int]) -> None:
        lines = [line for row in rows if (line := self._line_of_row.get(row)) is not None]
        self._mark_lines(lines)

    def _mark_lines(self, lines: Iterable[int]) -> None:
        """Have some lines drawn anew, neighbours as one region."""
        if not self._lines:
            return
        regions: list[Region] = []
        width = self.size.width
        for line in sorted(lines):
            self._lines[line] = None
            if regions and regions[-1].bottom == line:
                regions[-1] = regions[-1].grow((0, 0, 1, 0))
            else:
                regions.append(Region(0, line, width, 1))
        if regions:
            self.refresh(*regions)

    # -- layout -------------------------------------------------------------------------------------------------------

    def layout_now(self) -> GridLayout:
        """Return the layout for the size of now."""
        width, height = self.size
        layout = self._layout
        if layout is None or (layout.width, layout.height) != (width, height):
            layout = self._layout = lay_out(self.source.axis, width, height, self.cell_width)
            self._rows.clear()
            self._lines = []
            self._place()
        return layout

    def _place(self) -> None:
        """Scroll so that the cursor is in sight, and note which row and column stands where."""
        layout, axis = self._layout, self.source.axis
        if layout is None:
            return
        gaps = len(axis.starts) - 1 if layout.row_gap else 0
        self.top = scrolled(self.top, self.row, max(1, layout.rows - gaps), axis.size)
        columns = self._columns_from(layout, self.left)
        if columns != self._columns:
            self._columns = columns
            self._rows.clear()
        self._row_of_line = layout.lines(axis, self.top)
        self._line_of_row = {row: at + HEADER_LINES for at, row in enumerate(self._row_of_line) if row is not None}
        if len(self._rows) > _KEPT_SCREENS * max(1, len(self._line_of_row)):
            self._rows = {row: kept for row, kept in self._rows.items() if row in self._line_of_row}

    def _columns_from(self, layout: GridLayout, left: int) -> list[tuple[int, int]]:
        axis = self.source.axis
        left = scrolled(left, self.column, layout.columns, axis.size)
        columns = layout.shown(axis, left)
        # Gaps between nodes make fewer columns fit than the layout hopes for.
        while columns and columns[-1][0] < self.column:
            left += 1
            columns = layout.shown(axis, left)
        self.left = left
        return columns

    @property
    def scrolled_text(self) -> str:
        """Which rows and columns are in sight, or "" when all are."""
        if not self._columns or not self._line_of_row:
            return ""
        size = self.source.axis.size
        if len(self._columns) == size == len(self._line_of_row):
            return ""
        rows = sorted(self._line_of_row)
        return (
            f"rows {rows[0] + 1}-{rows[-1] + 1}, columns {self._columns[0][0] + 1}-{self._columns[-1][0] + 1} of {size}"
        )

    # -- drawing ------------------------------------------------------------------------------------------------------

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines in sight; those that did not change are handed out as they are."""
        layout = self.layout_now()
        lines = self._lines
        if len(lines) != layout.height:
            lines = self._lines = [None] * layout.height
        scene: Scene | None = None
        strips: list[Strip] = []
        for y in range(crop.y, crop.bottom):
            strip = lines[y] if y < len(lines) else None
            if strip is None:
                scene = scene or self._scene
                strip = self._line(y, layout, scene)
                if y < len(lines):
                    lines[y] = strip
            strips.append(strip if crop.width == layout.width else strip.crop(crop.x, crop.right))
        return strips

    def render_line(self, y: int) -> Strip:
        """Return one line."""
        return self.render_lines(Region(0, y, self.size.width, 1))[0]

    def _colors(self) -> Palette:
        if self._palette is None:
            self._palette = Palette(self.rich_style, self._ramp, self._system)
        return self._palette

    def _line(self, y: int, layout: GridLayout, scene: Scene) -> ReadyStrip:
        palette = self._colors()
        if y < HEADER_LINES:
            runs = scene.names() if y == 0 else scene.indices()
            return ReadyStrip.of_runs(runs, layout.width, palette)
        at = y - HEADER_LINES
        row = self._row_of_line[at] if at < len(self._row_of_line) else None
        if row is None:
            return ReadyStrip.of_runs([(Slot.PAD, " " * layout.width)], layout.width, palette)
        read = self._rows.get(row)
        if read is None:
            read = self._rows[row] = self._read(row, scene)
        if read.strip is None:
            read.strip = scene.row_strip(row, read.slots, read.texts, palette)
        return read.strip

    def _read(self, row: int, scene: Scene) -> _Row:
        first, last = scene.span()
        return _Row(*self.source.row(row, first, last, scene.layout.cell))

    @property
    def _scene(self) -> Scene:
        assert self._layout is not None
        return Scene(self.source.axis, self._layout, self._columns, self.top, self.row, self.column, self.glyphs)

    # -- the cursor ---------------------------------------------------------------------------------------------------

    def move_to(self, row: int, column: int) -> None:
        """Put the cursor on a cell; one beyond the edges is taken to the edge."""
        size = self.source.axis.size
        row, column = max(0, min(row, size - 1)), max(0, min(column, size - 1))
        if size == 0 or (row, column) == (self.row, self.column):
            return
        before = self.row
        self._moved = True
        self.row, self.column = row, column
        self._seats = self._cursor_seats()
        self._after_move(before)
        self.post_message(self.Moved())

    def _after_move(self, row_before: int) -> None:
        top, left, columns = self.top, self.left, self._columns
        self.layout_now()
        self._place()
        if (top, left) != (self.top, self.left) or columns is not self._columns:
            old_top_row, new_top_row = self._rows.get(top), self._rows.get(self.top)
            for touched in (old_top_row, new_top_row):
                if touched is not None:
                    touched.strip = None
            self._forget_lines(row_before, self.row)
            self._lines = []
            self.refresh()
            return
        self._forget_lines(row_before, self.row)
        self._mark_lines({0, 1, *self._lines_of(row_before, self.row)})

    def _forget_lines(self, *rows: int) -> None:
        for row in rows:
            read = self._rows.get(row)
            if read is not None:
                read.strip = None

    def _lines_of(self, *rows: int) -> list[int]:
        return [line for row in rows if (line := self._line_of_row.get(row)) is not None]

    def action_move(self, down: int, right: int) -> None:
        """Move the cursor by rows and columns."""
        self.move_to(self.row + down, self.column + right)

    def action_edge(self, edge: str) -> None:
        """Move the cursor to an edge."""
        last = self.source.axis.size - 1
        row = {"top": 0, "bottom": last}.get(edge, self.row)
        column = {"left": 0, "right": last}.get(edge, self.column)
        self.move_to(row, column)

    def action_page(self, pages: int) -> None:
        """Move the cursor by screens."""
        self.move_to(self.row + pages * max(1, len(self._line_of_row) - 1), self.column)

    def action_zoom(self, by: int) -> None:
        """Make cells wider or narrower; as wide as they were to fit, when that is what comes out."""
        width = max(1, min(WIDEST, self.layout_now().cell + by))
        self.cell_width = width
        self._layout = None
        self.reread()
        self.post_message(self.Moved())

    # -- the mouse ----------------------------------------------------------------------------------------------------

    def cell_at(self, x: int, y: int) -> tuple[int, int] | None:
        """Return the row and column at a place on the widget, or None."""
        at = y - HEADER_LINES
        if not 0 <= at < len(self._row_of_line):
            return None
        row = self._row_of_line[at]
        width = self.layout_now().cell
        column = next((c for c, begin in self._columns if begin <= x < begin + width), None)
        return None if row is None or column is None else (row, column)

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to where was clicked; look into the cell at a double click."""
        found = self.cell_at(event.x, event.y)
        if found is None:
            return
        self.move_to(*found)
        if event.chain == 2:
            self.post_message(self.Chosen())

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move on by a few rows."""
        event.stop()
        self.action_move(3, 0)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move back by a few rows."""
        event.stop()
        self.action_move(-3, 0)
