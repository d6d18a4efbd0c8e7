"""Grid widget with cached lines, a cursor and fixed headers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import ClassVar

from rich.color import ColorSystem
from textual import events
from textual.binding import BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from fabtui.model.endpoints import node_of
from fabtui.presentation.cell_levels import CellStyle, Glyphs
from fabtui.screen.grid.axis import Axis, AxisEntry
from fabtui.screen.grid.cells import CellSource
from fabtui.screen.grid.layout import (
    HEADER_LINES,
    NAMES_GROUP,
    NUMBER_WIDTH,
    GridLayout,
    Viewport,
    lay_out,
    name_room,
    squeeze,
)
from fabtui.screen.keys import shortcut
from fabtui.screen.terminal.ansi_strips import PaintedWidget, Palette, Runs, half_style


class GridView(PaintedWidget, can_focus=True):
    """Shows a `CellSource` with a cursor, and scrolls it under fixed headers.

    Cells in view are kept, so that a frame reads only what changed, and scrolling only the new rows.
    """

    DEFAULT_CSS = "GridView { width: 1fr; height: 1fr; }"
    BINDING_GROUP_TITLE = "Grid"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("up,k", "move(-1, 0)", "grid.up", "one row up"),
        shortcut("down,j", "move(1, 0)", "grid.down", "one row down"),
        shortcut("left,h", "move(0, -1)", "grid.left", "one column left"),
        shortcut("right,l", "move(0, 1)", "grid.right", "one column right"),
        shortcut("home,0", "edge('left')", "grid.first-column", "first column"),
        shortcut("end,dollar_sign", "edge('right')", "grid.last-column", "last column"),
        shortcut("ctrl+home", "edge('top')", "grid.first-row", "first row"),
        shortcut("G,ctrl+end", "edge('bottom')", "grid.last-row", "last row"),
        shortcut("pageup,ctrl+u", "page(-1)", "grid.page-up", "one screen up"),
        shortcut("pagedown,ctrl+d", "page(1)", "grid.page-down", "one screen down"),
        shortcut("greater_than_sign", "widen(1)", "grid.wider", "wider cells"),
        shortcut("less_than_sign", "widen(-1)", "grid.narrower", "narrower cells or half rows"),
    ]

    class Moved(Message):
        """The cursor moved."""

    class Chosen(Message):
        """The cell under the cursor was clicked."""

    def __init__(self, source: CellSource, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self.source = source
        self.row = 0
        self.column = min(1, max(0, source.columns.size - 1))
        #: Row and column that the cursor follows; they may be hidden for a time.
        self.aim: tuple[AxisEntry, AxisEntry] | None = None
        self.cell_width: int | None = None
        self.corner = ("", "")
        self.viewport = Viewport()
        self._layout: GridLayout | None = None
        #: Cells of rows for the columns in view: style and text of each, for each line of the row.
        self._rows: dict[int, list[Runs]] = {}
        self._outline: Collection[tuple[str, str]] = ()
        self._outlined: Outlined = {}

    def outline(self, pairs: Collection[tuple[str, str]]) -> None:
        self._outline = pairs
        self._outlined = outlined(pairs, self.source.rows, self.source.columns)
        self.refresh()

    def paint_with(self, ramp: dict[str, str], system: ColorSystem | None) -> None:
        self._layout = None
        super().paint_with(ramp, system)

    def show(self, source: CellSource) -> None:
        viewport = self.viewport
        down, across = self.row - viewport.top, self.column - viewport.left
        self.source = source
        rows, columns = source.rows, source.columns
        self._outlined = outlined(self._outline, rows, columns)
        if self.aim is None:
            # The first cell that can have a value.
            self.row, self.column = 0, min(1, max(0, columns.size - 1))
        else:
            # If the same pair moved in the order, it stays at the same place on the screen.
            row, column = rows.find(self.aim[0]), columns.find(self.aim[1])
            if row is not None and row != self.row:
                self.row, viewport.top = row, max(0, row - down)
            if column is not None and column != self.column:
                self.column, viewport.left = column, max(0, column - across)
        self.row, self.column = max(0, min(self.row, rows.size - 1)), max(0, min(self.column, columns.size - 1))
        self._layout = None
        self.reread()

    @property
    def entries(self) -> tuple[AxisEntry, AxisEntry] | None:
        rows, columns = self.source.rows.entries, self.source.columns.entries
        if self.row >= len(rows) or self.column >= len(columns):
            return None
        return rows[self.row], columns[self.column]

    def reread(self) -> None:
        self._rows.clear()
        self.refresh()

    def in_view(self, source: CellSource, positions: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        lines, columns = self.viewport.line_of_row, {column for column, _ in self.viewport.columns}
        rows, across = source.row_of, source.column_of
        return [(a, b) for a, b in positions if rows.get(a) in lines and across.get(b) in columns]

    def update_cells(self, changed: Collection[tuple[int, int]]) -> None:
        """Read some cells again, by row and column; those out of view cost nothing."""
        rows, viewport, layout = self._rows, self.viewport, self.layout_now()
        if not rows or not viewport.columns:
            return
        if len(changed) > len(viewport.line_of_row) * len(viewport.columns):
            self.reread()
            return
        (first, end), read = self._span, self.source.cell
        touched = set()
        for at, column in changed:
            if (row := rows.get(at)) is None or not first <= column < end:
                continue
            if layout.tall > 1:
                touched.add(at)
                continue
            cell = read(at, column, layout.cell)
            if cell != row[0][column - first]:
                row[0][column - first] = cell
                touched.add(at)
        if layout.tall > 1:
            self._rows = {at: row for at, row in rows.items() if at not in touched}
        self._mark_lines(self._lines_of(*touched))

    def _mark_lines(self, lines: Iterable[int]) -> None:
        regions: list[Region] = []
        for line in sorted(lines):
            if regions and regions[-1].bottom == line:
                regions[-1] = regions[-1].grow((0, 0, 1, 0))
            else:
                regions.append(Region(0, line, self.size.width, 1))
        if regions:
            self.refresh(*regions)

    def layout_now(self) -> GridLayout:
        width, height = self.size
        layout = self._layout
        if layout is None or (layout.width, layout.height) != (width, height):
            layout = self._layout = self.fitted(width, height)
            self._rows.clear()
            self._place()
        return layout

    def fitted(self, width: int, height: int) -> GridLayout:
        source, shape = self.source, self.source.shape
        if shape.halves and (self.glyphs.plain or not self.palette.halves):
            # Half a character can only show a colour.
            shape = shape._replace(halves=False)
        return lay_out(source.columns, width, height, self.cell_width, source.rows, shape)

    def _place(self) -> None:
        layout, source = self._layout, self.source
        if layout is None:
            return
        if self.viewport.place(layout, source.rows, source.columns, self.row, self.column):
            self._rows.clear()
        self._rows = {row: kept for row, kept in self._rows.items() if row in self.viewport.line_of_row}

    @property
    def scrolled_text(self) -> str:
        if self._layout is None and self.size.width:
            # The content changed since the last frame.
            self.layout_now()
        return self.viewport.text(self.source.rows.size, self.source.columns.size)

    @property
    def window(self) -> tuple[range, range] | None:
        return self.viewport.window if self.scrolled_text else None

    def render_lines(self, crop: Region) -> list[Strip]:
        layout, palette, source, viewport = self.layout_now(), self.palette, self.source, self.viewport
        scene = LineRenderer(
            *(source.columns, layout, viewport.columns, viewport.top, self.row, self.column),
            *(self.glyphs, source.rows, self.corner, self._outlined, source.line_names),
        )
        strips = [palette.strip(self._runs(y, scene), layout.width) for y in range(crop.y, crop.bottom)]
        return strips if crop.width == layout.width else [strip.crop(crop.x, crop.right) for strip in strips]

    def show_from_start(self) -> None:
        self.viewport.top = self.viewport.left = 0
        self._layout = None
        self.reread()

    def styles_in_view(self) -> set[int]:
        """Return the styles of the cells in view, and of the mark at values that are being tested again."""
        self.layout_now()
        mark, rows = self.glyphs.of_style[CellStyle.RUNNING], [self._row(row) for row in self.viewport.line_of_row]
        styles = {style for row in rows for style, _ in row[0]}
        return styles | ({CellStyle.RUNNING} if any(mark in text for row in rows for _, text in row[0]) else set())

    def render_line(self, y: int) -> Strip:
        return self.render_lines(Region(0, y, self.size.width, 1))[0]

    def _runs(self, y: int, scene: LineRenderer) -> Runs:
        layout = scene.layout
        if y < layout.heads:
            return scene.heading(y)
        at = y - layout.heads
        here = self.viewport.lines[at] if at < len(self.viewport.lines) else None
        if here is None:
            return [(CellStyle.PAD, " " * layout.width)]
        row, part = here
        if part == NAMES_GROUP:
            return scene.group(row)
        read = self._row(row)
        if layout.halves:
            lower = self._row(row + 1)[0] if row + 1 < self.source.rows.size else None
            return scene.halves(row, read[0], lower, self.palette)
        return scene.cells(row, read[part], part, colored=self.palette.system is not None)

    @property
    def _span(self) -> tuple[int, int]:
        columns = self.viewport.columns
        return (columns[0][0], columns[-1][0] + 1) if columns else (0, 0)

    def _row(self, row: int) -> list[Runs]:
        if row not in self._rows:
            layout, source, span = self._layout or self.layout_now(), self.source, self._span
            cells, more = source.row(row, *span, layout.cell), layout.tall - 1
            below = [source.below(row, column, layout.cell, more) for column in range(*span)] if more else []
            blank = " " * layout.cell
            texts = [[lines[part] if part < len(lines) else blank for lines in below] for part in range(more)]
            rest = [[(slot, text) for (slot, _), text in zip(cells, line, strict=True)] for line in texts]
            self._rows[row] = [cells, *rest]
        return self._rows[row]

    def move_to(self, row: int, column: int) -> None:
        down, across = self.source.rows.size, self.source.columns.size
        row, column = max(0, min(row, down - 1)), max(0, min(column, across - 1))
        if not down or not across or (row, column) == (self.row, self.column):
            return
        before = self.row
        self.row, self.column = row, column
        self.aim = self.entries
        self._after_move(before)
        self.post_message(self.Moved())

    def _after_move(self, row_before: int) -> None:
        viewport = self.viewport
        top, left, columns = viewport.top, viewport.left, viewport.columns
        self.layout_now()
        self._place()
        if (top, left) != (viewport.top, viewport.left) or columns is not viewport.columns:
            self.refresh()
        else:
            self._mark_lines({*range(self.layout_now().heads), *self._lines_of(row_before, self.row)})

    def _lines_of(self, *rows: int) -> list[int]:
        return self.viewport.lines_of(self._layout, *rows) if self._layout is not None else []

    def action_move(self, down: int, right: int) -> None:
        self.move_to(self.row + down, self.column + right)

    def action_edge(self, edge: str) -> None:
        row = {"top": 0, "bottom": self.source.rows.size - 1}.get(edge, self.row)
        column = {"left": 0, "right": self.source.columns.size - 1}.get(edge, self.column)
        self.move_to(row, column)

    def action_page(self, pages: int) -> None:
        self.move_to(self.row + pages * max(1, len(self.viewport.line_of_row) - 1), self.column)

    def action_widen(self, by: int) -> None:
        layout = self.layout_now()
        self.cell_width = max(0, min(self.source.shape.widest, (0 if layout.halves else layout.cell) + by))
        self._layout = None
        self.reread()
        self.post_message(self.Moved())

    def cell_at(self, x: int, y: int) -> tuple[int, int] | None:
        return self.viewport.cell_at(self.layout_now(), x, y)

    def on_click(self, event: events.Click) -> None:
        found = self.cell_at(event.x, event.y)
        if found is None:
            return
        again = found == (self.row, self.column)
        self.move_to(*found)
        if again:
            self.post_message(self.Chosen())

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(3, 0)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-3, 0)


@dataclass
class LineRenderer:
    """Renders the lines of one frame."""

    #: Columns, their layout, and those in view, each with its x coordinate.
    axis: Axis
    layout: GridLayout
    columns: list[tuple[int, int]]
    top: int  #: First row in view.
    row: int  #: Cell of the cursor.
    column: int
    glyphs: Glyphs
    rows: Axis | None = None  #: Rows, if they differ from the columns.
    #: Texts of the two lines in the top left corner.
    corner: tuple[str, str] = ("", "")
    outlined: Outlined = field(default_factory=dict)
    line_names: Sequence[str] = ()  #: Names of the lines of a row below its first one.

    def __post_init__(self) -> None:
        #: First column in view and the one after the last.
        self.span = first, last = (self.columns[0][0], self.columns[-1][0] + 1) if self.columns else (0, 0)
        self._down = self.axis if self.rows is None else self.rows
        cell, entries = self.layout.cell, self.axis.entries
        #: Columns with a gap before them, counted from the first in view, and its width, last first.
        gaps = [(later - first, b - a - cell) for (_, a), (later, b) in pairwise(self.columns)]
        self._gaps = [(at, blank) for at, blank in reversed(gaps) if blank]
        used = self.columns[-1][1] + cell if self.columns else self.layout.header
        self._padding: Runs = [(CellStyle.PAD, " " * (self.layout.width - used))] if used < self.layout.width else []
        #: Columns in view node by node, as ranges.
        starts = [column for column in range(first + 1, last) if entries[column].first]
        self._blocks = list(pairwise([first, *starts, last])) if last > first else []
        self._marked: list[int] = []  #: First columns of nodes; marked if there is no room for a gap.
        if cell in (2, 3) and self.axis.together and len(self.axis.starts) < self.axis.size:
            self._marked = [at - first for at, _ in self._blocks if at and entries[at].first]

    def cells(self, row: int, cells: Runs, part: int = 0, *, colored: bool = True) -> Runs:
        first, last = self.span
        cells, at_cursor = cells.copy(), self.column - first
        framed = row == self.row and first <= self.column < last and not part
        if framed and self.layout.cell == 1 and not colored:
            # Neither brackets nor a colour of its own.
            framed, cells[at_cursor] = False, (CellStyle.CURSOR, cells[at_cursor][1])
        for at in self._marked:
            cells[at] = cells[at][0], self.glyphs.node_edge + cells[at][1][1:]
        for at in (column - first for column in self.outlined.get(row, ()) if first <= column < last):
            cells[at] = cells[at][0], bracketed(cells[at][1])
        runs = self._spaced(self._row_header(row, part), cells)
        if framed:
            frame(runs, 1 + at_cursor + sum(gap <= at_cursor for gap, _ in self._gaps), self.glyphs)
        return runs

    def halves(self, row: int, upper: Runs, lower: Runs | None, palette: Palette) -> Runs:
        first, last = self.span
        below = [(0, "")] * len(upper) if lower is None else lower
        slots = [half_style(one, other) for (one, _), (other, _) in zip(upper, below, strict=True)]
        cells: Runs = [(slot, palette.half_text(slot)) for slot in slots]
        if self.row in (row, row + 1) and first <= self.column < last:
            # Half a character cannot show the cursor and a verdict: the whole one does.
            at_cursor = self.column - first
            cells[at_cursor] = (upper if self.row == row else below)[at_cursor][0], self.glyphs.cursor[2]
        return self._spaced(self._row_header(row if lower is None or self.row != row + 1 else row + 1, 0), cells)

    def _spaced(self, header: tuple[int, str], cells: Runs) -> Runs:
        for at, blank in self._gaps:
            cells.insert(at, (CellStyle.PAD, " " * blank))
        return [header, *cells, *self._padding]

    def _row_header(self, row: int, part: int) -> tuple[int, str]:
        entry, layout, down = self._down.entries[row], self.layout, self._down
        here = row == self.row
        slot = CellStyle.HEADER_HERE if here else CellStyle.HEADER_GONE if entry.gone else CellStyle.HEADER
        if part:
            name = self.line_names[part - 1] if part <= len(self.line_names) else ""
            plain = CellStyle.HEADER if name else CellStyle.PAD
            return slot if here and not self.line_names else plain, f"{name[: layout.header]:<{layout.header}}"[
                : layout.width
            ]
        named = entry.first or entry.gone or here or row == self.top or layout.tall > 1
        label = squeeze(entry.label, layout.label, self.glyphs.ellipsis) if named else ""
        text = f"{label:<{layout.label}} {entry.index.replace('-', ''):>{down.index_width}} "
        if entry.gone:
            text = text[:-1] + self.glyphs.of_style[CellStyle.FAILED]
        return slot, text[: layout.width]

    def _corner(self, line: int) -> Runs:
        width = min(self.layout.header, self.layout.width)
        # A truncated word is worse than none, and so is one that the first narrow column touches.
        room = width - (self.layout.cell == 1)
        text = self.corner[line] if line >= 0 and len(self.corner[line]) <= room else ""
        return [(CellStyle.HEADER, f"{text:<{width}}")]

    def heading(self, line: int) -> Runs:
        if not line and self.axis.openings:
            return self._groups()
        named = self.layout.heads - (not self.axis.of_nodes_alone)
        runs = self._corner(line - (self.layout.heads - HEADER_LINES))
        if line >= named:
            return self._indices(runs)
        return self._stacked_names(runs, named - 1 - line) if self.axis.stacked else self._names(runs)

    def group(self, row: int) -> Runs:
        rule = "-" if self.glyphs.plain else "─"
        name = squeeze(self._down.entries[row].group, self.layout.width, self.glyphs.ellipsis)
        line = f" {rule * max(0, self.layout.width - len(name) - 1)}"[: self.layout.width - len(name)]
        return [(CellStyle.HEADER_NODE, name), (CellStyle.HEADER, line)]

    def _spread(self, runs: Runs, places: Iterable[tuple[int, int, str]]) -> Runs:
        end = self.layout.header
        for begin, slot, text in places:
            runs += [(CellStyle.PAD, " " * (begin - end)), (slot, text)] if begin > end else [(slot, text)]
            end = begin + len(text)
        return [*runs, *self._padding]

    def _groups(self) -> Runs:
        places = []
        for group, columns in groupby(self.columns, lambda at: self.axis.entries[at[0]].group):
            (first, begin), (last, end) = (shown := list(columns))[0], shown[-1]
            width = end + self.layout.cell - begin
            slot = CellStyle.HEADER_HERE if first <= self.column <= last else CellStyle.HEADER_NODE
            places.append((begin, slot, f"{squeeze(group, width, self.glyphs.ellipsis):^{width}}"))
        return self._spread([(CellStyle.PAD, " " * min(self.layout.header, self.layout.width))], places)

    def _names(self, runs: Runs) -> Runs:
        places, place = [], dict(self.columns)
        for begin, end in self._blocks:
            entry = self.axis.entries[begin]
            width = place[end - 1] + self.layout.cell - place[begin]
            label = squeeze(entry.label, width - (width > len(entry.label)), self.glyphs.ellipsis)
            slot = CellStyle.HEADER_GONE if entry.gone else CellStyle.HEADER_NODE
            slot = CellStyle.HEADER_HERE if begin <= self.column < end and label else slot
            places.append((place[begin], slot, f"{label:^{width}}"))
        return self._spread(runs, places)

    def _slot_of(self, column: int) -> CellStyle:
        gone = self.axis.entries[column].gone
        return CellStyle.HEADER_HERE if column == self.column else CellStyle.HEADER_GONE if gone else CellStyle.HEADER

    def _indices(self, runs: Runs) -> Runs:
        places, width = [], self.layout.cell
        for column, begin in self.columns:
            index = self.axis.entries[column].index[-width:]
            if width > 6 or width == 3:
                text = f"{index:^{width}}"
            else:
                text = f"{index:>{width - 1}} " if width >= NUMBER_WIDTH else f"{index:>{width}}"
            places.append((begin, self._slot_of(column), text))
        return self._spread(runs, places)

    def _stacked_names(self, runs: Runs, above: int) -> Runs:
        """Return a line of names over columns, one each: the end of the name on the last line, more above."""
        places, width, room, before = [], self.layout.cell, name_room(self.layout.cell), ""
        for column, begin in self.columns:
            label = self.axis.entries[column].label
            end = len(label) - above * room
            whole = label[max(0, end - room) : max(0, end)]
            # Repeated parts are shown once.
            text = "" if above and whole == before and column != self.column else whole
            before = whole
            places.append((begin, self._slot_of(column), f"{text:>{width}}"))
        return self._spread(runs, places)


#: Columns to outline, by row.
Outlined = dict[int, set[int]]


def outlined(pairs: Collection[tuple[str, str]], rows: Axis, columns: Axis) -> Outlined:
    """Return the cells of ordered pairs of endpoints; of node blocks those that contain one."""
    found: Outlined = {}
    if not pairs:
        return found
    row_of, column_of = _positions(rows), _positions(columns)
    for src, dst in pairs:
        row = row_of.get(node_of(src) if rows.of_nodes_alone else src)
        column = column_of.get(node_of(dst) if columns.of_nodes_alone else dst)
        if row is not None and column is not None:
            found.setdefault(row, set()).add(column)
    return found


def _positions(axis: Axis) -> dict[str, int]:
    named = axis.of_nodes_alone
    return {entry.node if named else f"{entry.node}:{entry.index}": at for at, entry in enumerate(axis.entries)}


def bracketed(text: str) -> str:
    """Return the text of a cell with parentheses in place of blanks at its ends; brackets are the cursor's."""
    left, right = text[:1] == " ", len(text) > 1 and text[-1:] == " "
    return ("(" if left else text[:1]) + text[1:-1] + ((")" if right else text[-1:]) if len(text) > 1 else "")


def frame(runs: Runs, at: int, glyphs: Glyphs) -> None:
    """Draw the brackets of the cursor around a cell, in the place of blanks of the cell or else of its neighbours."""
    slot, text = runs[at]
    left, right, single = glyphs.cursor
    if len(text) == 1:
        runs[at] = slot, single
        return
    free = (" ", "(", ")", glyphs.node_edge)
    before, after = runs[at - 1] if at else (0, ""), runs[at + 1] if at + 1 < len(runs) else (0, "")
    if text[0] in free or before[1][-1:] != " ":
        text = left + text[1:]
    else:
        runs[at - 1] = before[0], before[1][:-1] + left
    if text[-1] in free:
        text = text[:-1] + right
    elif after[1][:1] in free:
        runs[at + 1] = after[0], right + after[1][1:]
    runs[at] = slot, text
