"""Lines of the grid: headers and rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby, pairwise

from fabtui.model.endpoints import node_of
from fabtui.presentation.cell_levels import CURSOR_ON, CellStyle, Glyphs, cell_text
from fabtui.sanitize import drawable
from fabtui.screen.grid.axis import Axis
from fabtui.screen.grid.layout import HEADER_LINES, NUMBER_WIDTH, GridLayout, name_room, squeeze
from fabtui.screen.terminal.ansi_strips import GlyphCells, Palette, ReadyStrip, Runs, half_style


@dataclass
class LineRenderer:
    """Renders the lines of one frame."""

    #: Columns, their layout, and those in view, each with its x coordinate.
    axis: Axis
    layout: GridLayout
    columns: list[tuple[int, int]]
    #: First row in view.
    top: int
    #: Cell of the cursor.
    row: int
    column: int
    glyphs: Glyphs
    #: Rows, if they differ from the columns.
    rows: Axis | None = None
    #: Texts of the two lines in the top left corner.
    corner: tuple[str, str] = ("", "")
    outlined: Outlined = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._headings: dict[int, ReadyStrip] = {}
        self._row_headers: dict[tuple[int, int], tuple[int, str]] = {}
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
        #: First columns of nodes; marked if there is no room for a gap.
        self._marked: list[int] = []
        if cell in (2, 3) and self.axis.together and len(self.axis.starts) < self.axis.size:
            self._marked = [at - first for at, _ in self._blocks if at and entries[at].first]

    def row_strip(
        self, row: int, slots: bytearray, texts: list[str] | None, palette: Palette, part: int = 0
    ) -> ReadyStrip:
        """Return a line of a row: header, then cells; cells without texts show their glyph."""
        first, last = self.span
        header, glyphs = self._row_header(row, part), glyph_cells(self.glyphs, self.layout.cell)
        framed, at_cursor = False, self.column - first
        if row == self.row and first <= self.column < last:
            slots = bytearray(slots)
            under = CURSOR_ON.get(slots[at_cursor], CellStyle.CURSOR)
            # Between two edges of the cursor, a wide cell keeps its color.
            framed = texts is not None and under is not CellStyle.CURSOR and palette.system is not None
            slots[at_cursor] = slots[at_cursor] if framed else under
        fixed = bytes(slots)
        outlined = self.outlined.get(row)

        def runs() -> Runs:
            shown = texts
            if shown is None:
                shown = [glyphs.texts[slot] for slot in fixed]
                for at in self._marked:
                    shown[at] = glyphs.edges[fixed[at]]
            if outlined:
                shown = [bracketed(text) if first + at in outlined else text for at, text in enumerate(shown)]
            cells: Runs = list(zip(fixed, shown, strict=True))
            for at, blank in self._gaps:
                cells.insert(at, (CellStyle.PAD, " " * blank))
            if framed:
                at = at_cursor + sum(gap <= at_cursor for gap, _ in self._gaps)
                slot, text = cells[at]
                cells[at : at + 1] = [(CellStyle.CURSOR, text[:1]), (slot, text[1:-1]), (CellStyle.CURSOR, text[-1:])]
            return [header, *cells, *self._padding]

        if outlined or framed or (texts is None and self._gaps):
            ready = palette.ready(runs())
        elif texts is not None:
            ready = palette.ready_texts(header, fixed, texts, self._gaps, self._padding)
        else:
            ready = palette.ready_glyphs(header, fixed, glyphs, self._marked, self._padding)
        return ReadyStrip(ready, self.layout.width, palette, runs)

    def halves_strip(self, row: int, upper: bytearray, lower: bytearray | None, palette: Palette) -> ReadyStrip:
        """Return the line shared by two rows, ``row`` and the next one."""
        first, last = self.span
        header = self._row_header(row if lower is None or self.row != row + 1 else row + 1, 0)
        both = [bytearray(upper), bytearray(lower if lower is not None else len(upper))]
        if self.row in (row, row + 1) and first <= self.column < last:
            under = both[self.row - row][self.column - first]
            both[self.row - row][self.column - first] = CURSOR_ON.get(under, CellStyle.CURSOR)
        slots = list(map(half_style, *both))
        ready, end = palette.ready(self._padding), last - first
        for at, blank in self._gaps:
            between = palette.ready([(CellStyle.PAD, " " * blank)])
            ready, end = between + palette.ready_halves(*(bytes(one[at:end]) for one in both)) + ready, at
        ready = palette.ready([header]) + palette.ready_halves(*(bytes(one[:end]) for one in both)) + ready

        def runs() -> Runs:
            cells: Runs = [(slot, palette.half_text(slot)) for slot in slots]
            for at, blank in self._gaps:
                cells.insert(at, (CellStyle.PAD, " " * blank))
            return [header, *cells, *self._padding]

        return ReadyStrip(ready, self.layout.width, palette, runs)

    def _row_header(self, row: int, part: int) -> tuple[int, str]:
        known = self._row_headers.get((row, part))
        if known is None:
            slot, text = self._make_row_header(row, part)
            known = self._row_headers[row, part] = slot, drawable(text)
        return known

    def _make_row_header(self, row: int, part: int) -> tuple[int, str]:
        entry, layout, down = self._down.entries[row], self.layout, self._down
        here = row == self.row
        slot = CellStyle.HEADER_HERE if here else CellStyle.HEADER_GONE if entry.gone else CellStyle.HEADER
        if part:
            return slot if here else CellStyle.PAD, (" " * layout.header)[: layout.width]
        named = entry.first or entry.gone or here or row == self.top or layout.tall > 1
        label = squeeze(entry.label, layout.label, self.glyphs.ellipsis) if named else ""
        text = f"{label:<{layout.label}} {entry.index:>{down.index_width}} "
        if entry.gone:
            text = text[:-1] + self.glyphs.of_style[CellStyle.FAILED]
        return slot, text[: layout.width]

    def _corner(self, line: int) -> Runs:
        width = min(self.layout.header, self.layout.width)
        # A truncated word is worse than none.
        text = self.corner[line] if line >= 0 and len(self.corner[line]) <= width else ""
        return [(CellStyle.HEADER, f"{text:<{width}}")]

    def heading_strip(self, line: int, palette: Palette) -> ReadyStrip:
        """Return a line above the rows."""
        if line not in self._headings:
            self._headings[line] = ReadyStrip.of_runs(self.heading(line), self.layout.width, palette)
        return self._headings[line]

    def heading(self, line: int) -> Runs:
        """Return the runs of a line above the rows: node names, then indices."""
        if not line and self.axis.openings:
            return self._groups()
        named = self.layout.heads - (not self.axis.of_nodes_alone)
        runs = self._corner(line - (self.layout.heads - HEADER_LINES))
        if line >= named:
            return self._indices(runs)
        return self._stacked_names(runs, named - 1 - line) if self.axis.stacked else self._names(runs)

    def group_strip(self, row: int, palette: Palette) -> ReadyStrip:
        """Return the line with the name of a row's group, above the row."""
        rule = "-" if self.glyphs.plain else "─"
        name = squeeze(self._down.entries[row].group, self.layout.width, self.glyphs.ellipsis)
        line = f" {rule * max(0, self.layout.width - len(name) - 1)}"[: self.layout.width - len(name)]
        return ReadyStrip.of_runs([(CellStyle.HEADER_NODE, name), (CellStyle.HEADER, line)], self.layout.width, palette)

    def _groups(self) -> Runs:
        """Return the line of the names of groups over their columns."""
        runs: Runs = [(CellStyle.PAD, " " * min(self.layout.header, self.layout.width))]
        end_before = self.layout.header
        for _, group in groupby(self.columns, lambda at: self.axis.entries[at[0]].group):
            shown = list(group)
            begin, end = shown[0][1], shown[-1][1] + self.layout.cell
            runs.append((CellStyle.PAD, " " * (begin - end_before)))
            name = squeeze(self.axis.entries[shown[0][0]].group, end - begin, self.glyphs.ellipsis)
            here = shown[0][0] <= self.column <= shown[-1][0]
            runs.append((CellStyle.HEADER_HERE if here else CellStyle.HEADER_NODE, f"{name:^{end - begin}}"))
            end_before = end
        return [*runs, *self._padding]

    def _names(self, runs: Runs) -> Runs:
        """Return the line of node names over their columns."""
        end_before = self.layout.header
        place = dict(self.columns)
        for begin, end in self._blocks:
            if place[begin] > end_before:
                runs.append((CellStyle.PAD, " " * (place[begin] - end_before)))
            entry = self.axis.entries[begin]
            end_before = place[end - 1] + self.layout.cell
            width = end_before - place[begin]
            room = width - 1 if width > len(entry.label) else width
            label = squeeze(entry.label, room, self.glyphs.ellipsis)
            slot = CellStyle.HEADER_GONE if entry.gone else CellStyle.HEADER_NODE
            if begin <= self.column < end:
                slot = CellStyle.HEADER_HERE
            runs.append((slot, f"{label:^{width}}"))
        return [*runs, *self._padding]

    def _indices(self, runs: Runs) -> Runs:
        """Return the line of endpoint indices over their columns."""
        width = self.layout.cell
        end_before = self.layout.header
        for column, begin in self.columns:
            entry = self.axis.entries[column]
            if begin > end_before:
                runs.append((CellStyle.PAD, " " * (begin - end_before)))
            end_before = begin + width
            index = entry.index[-width:]
            if width > 6:
                text = f"{index:^{width}}"
            elif width >= NUMBER_WIDTH:
                text = f"{index:>{width - 1}} "
            else:
                text = f"{index:^{width}}" if width == 3 else f"{index:>{width}}"
            slot = CellStyle.HEADER_GONE if entry.gone else CellStyle.HEADER
            runs.append((CellStyle.HEADER_HERE if column == self.column else slot, text))
        return [*runs, *self._padding]

    def _stacked_names(self, runs: Runs, above: int) -> Runs:
        """Return a line of names over columns, one each: the end of the name on the last line, more above."""
        width = self.layout.cell
        room = name_room(width)
        end_before = self.layout.header
        before = ""
        for column, begin in self.columns:
            if begin > end_before:
                runs.append((CellStyle.PAD, " " * (begin - end_before)))
            end_before = begin + width
            entry = self.axis.entries[column]
            end = len(entry.label) - above * room
            whole = text = entry.label[max(0, end - room) : max(0, end)]
            if above and text == before and column != self.column:
                # Repeated parts are shown once.
                text = ""
            before = whole
            slot = CellStyle.HEADER_GONE if entry.gone else CellStyle.HEADER
            runs.append((CellStyle.HEADER_HERE if column == self.column else slot, f"{text:>{width}}"))
        return [*runs, *self._padding]


@lru_cache(32)
def glyph_cells(glyphs: Glyphs, width: int) -> GlyphCells:
    """Return the glyph texts of cells of a width."""
    texts = tuple(cell_text(slot, "", width, glyphs) if slot in glyphs.of_style else " " * width for slot in CellStyle)
    return GlyphCells(texts, tuple(glyphs.node_edge + text[1:] for text in texts))


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
    """Return the text of a cell with brackets in place of blanks at its ends."""
    left, right = text[:1] == " ", len(text) > 1 and text[-1:] == " "
    return ("[" if left else text[:1]) + text[1:-1] + (("]" if right else text[-1:]) if len(text) > 1 else "")
