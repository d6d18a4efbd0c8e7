"""Lines of the grid: headers and rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

from fabtui.presentation.cell_levels import Glyphs, Slot, cell_text
from fabtui.screen.grid.axis import Axis
from fabtui.screen.grid.layout import NUMBER_WIDTH, GridLayout, squeeze
from fabtui.screen.terminal.ansi_strips import RESET, GlyphCells, Palette, ReadyStrip, Runs, half_slot


@dataclass
class LineRenderer:
    """Renders the lines of one frame.

    Attributes:
        axis: Columns.
        layout: Layout of rows and columns.
        columns: Columns in view, each with its x coordinate.
        top: First row in view.
        row: Row of the cursor.
        column: Column of the cursor.
        glyphs: Characters to draw with.
        rows: Rows, if they differ from the columns.
        corner: Texts of the two lines in the top left corner.
    """

    axis: Axis
    layout: GridLayout
    columns: list[tuple[int, int]]
    top: int
    row: int
    column: int
    glyphs: Glyphs
    rows: Axis | None = None
    corner: tuple[str, str] = ("", "")

    def __post_init__(self) -> None:
        self._span = (self.columns[0][0], self.columns[-1][0] + 1) if self.columns else (0, 0)
        self._down = self.axis if self.rows is None else self.rows
        first, last = self._span
        cell = self.layout.cell
        cuts = [later - first for (_, a), (later, b) in pairwise(self.columns) if b != a + cell]
        #: Ranges of columns without gaps, counted from the first in view.
        self.stretches = list(pairwise([0, *cuts, last - first]))
        self.padding = max(0, self.layout.width - self.used)
        self.cells = glyph_cells(self.glyphs, cell)
        #: First columns of nodes; marked if there is no room for a gap.
        self.marked: list[int] = []
        if cell in (2, 3) and self.axis.together and len(self.axis.starts) < self.axis.size:
            self.marked = [at - first for at, _ in self.blocks() if at and self.axis.seats[at].first]

    @property
    def used(self) -> int:
        """Width of row headers and columns in view."""
        return self.columns[-1][1] + self.layout.cell if self.columns else self.layout.header

    def span(self) -> tuple[int, int]:
        """Return the first column in view and the one after the last."""
        return self._span

    def blocks(self) -> list[tuple[int, int]]:
        """Return the columns in view node by node, as ranges."""
        at, last = self.span()
        seats = self.axis.seats
        cuts = [at, *(column for column in range(at + 1, last) if seats[column].first), last]
        return list(pairwise(cuts)) if last > at else []

    def padded(self, runs: Runs) -> Runs:
        """Return runs padded to the width of the grid."""
        if self.used < self.layout.width:
            runs.append((Slot.PAD, " " * (self.layout.width - self.used)))
        return runs

    def row_strip(
        self, row: int, slots: bytearray, texts: list[str] | None, palette: Palette, part: int = 0
    ) -> ReadyStrip:
        """Return a line of a row: header, then cells; cells without texts show their glyph."""
        first, last = self._span
        shown = None if texts is None else texts.copy()
        if row == self.row and first <= self.column < last:
            shown = self.glyph_texts(slots) if shown is None else shown
            slots = bytearray(slots)
            slots[self.column - first] = Slot.CURSOR
        line = _RowLine(self, self._row_header(row, part), bytes(slots), shown)
        return ReadyStrip(line.ready(palette), self.layout.width, palette, line.runs)

    def halves_strip(self, row: int, upper: bytearray, lower: bytearray | None, palette: Palette) -> ReadyStrip:
        """Return the line shared by two rows, ``row`` and the next one."""
        first, last = self._span
        here = row if lower is None or self.row != row + 1 else row + 1
        both = [bytearray(upper), bytearray(lower if lower is not None else len(upper))]
        if self.row in (row, row + 1) and first <= self.column < last:
            both[self.row - row][self.column - first] = Slot.CURSOR
        header, padding = self._row_header(here, 0), self.padding
        ready = palette.ready_halves(bytes(both[0]), bytes(both[1]))
        before = [palette.changes[-1][header[0]], header[1], RESET]
        after = [palette.changes[-1][Slot.PAD], " " * padding, RESET] if padding else []

        def runs() -> Runs:
            found: Runs = [header]
            for slot, cells in groupby(map(half_slot, *both)):
                found.append((slot, palette.half_text(slot) * len(list(cells))))
            return [*found, (Slot.PAD, " " * padding)] if padding else found

        return ReadyStrip("".join([*before, ready, RESET, *after]), self.layout.width, palette, runs)

    def glyph_texts(self, slots: bytes | bytearray) -> list[str]:
        """Return the texts of cells that show only a glyph."""
        texts = [self.cells.texts[slot] for slot in slots]
        for at in self.marked:
            texts[at] = self.cells.edges[slots[at]]
        return texts

    def _row_header(self, row: int, part: int) -> tuple[int, str]:
        seat, layout, down = self._down.seats[row], self.layout, self._down
        here = row == self.row
        slot = Slot.HEADER_HERE if here else Slot.HEADER_GONE if seat.gone else Slot.HEADER
        if part:
            return slot if here else Slot.PAD, (" " * layout.header)[: layout.width]
        named = seat.first or seat.gone or here or row == self.top or layout.apart
        label = squeeze(seat.label, layout.label, self.glyphs.ellipsis) if named else ""
        text = f"{label:<{layout.label}} {seat.index:>{down.index_width}} "
        if seat.gone:
            text = text[:-1] + self.glyphs.of_slot[Slot.FAILED]
        return slot, text[: layout.width]

    def _corner(self, line: int) -> Runs:
        width = min(self.layout.header, self.layout.width)
        # A truncated word is worse than none.
        text = self.corner[line] if len(self.corner[line]) <= width else ""
        return [(Slot.HEADER, f"{text:<{width}}")]

    def names(self) -> Runs:
        """Return the line of node names over their columns."""
        runs = self._corner(0)
        if self.axis.of_nodes_alone:
            return self._node_names(runs, 0)
        end_before = self.layout.header
        place = dict(self.columns)
        for begin, end in self.blocks():
            if place[begin] > end_before:
                runs.append((Slot.PAD, " " * (place[begin] - end_before)))
            seat = self.axis.seats[begin]
            end_before = place[end - 1] + self.layout.cell
            width = end_before - place[begin]
            room = width - 1 if width > len(seat.label) else width
            label = squeeze(seat.label, room, self.glyphs.ellipsis)
            slot = Slot.HEADER_GONE if seat.gone else Slot.HEADER_NODE
            if begin <= self.column < end:
                slot = Slot.HEADER_HERE
            runs.append((slot, f"{label:^{width}}"))
        return self.padded(runs)

    def indices(self) -> Runs:
        """Return the line of endpoint indices over their columns."""
        runs = self._corner(1)
        if self.axis.of_nodes_alone:
            return self._node_names(runs, 1)
        width = self.layout.cell
        end_before = self.layout.header
        for column, begin in self.columns:
            seat = self.axis.seats[column]
            if begin > end_before:
                runs.append((Slot.PAD, " " * (begin - end_before)))
            end_before = begin + width
            index = seat.index[-width:]
            if width > 6:
                text = f"{index:^{width}}"
            elif width >= NUMBER_WIDTH:
                text = f"{index:>{width - 1}} "
            else:
                text = f"{index:^{width}}" if width == 3 else f"{index:>{width}}"
            slot = Slot.HEADER_GONE if seat.gone else Slot.HEADER
            runs.append((Slot.HEADER_HERE if column == self.column else slot, text))
        return self.padded(runs)

    def _node_names(self, runs: Runs, line: int) -> Runs:
        """Return node names over columns of one node each: the end of the name on the second line, more above."""
        width = self.layout.cell
        room = width - 1 if width > 1 else 1
        before = ""
        for column, _ in self.columns:
            seat = self.axis.seats[column]
            whole = text = seat.label[-room:] if line else seat.label[-2 * room : -room]
            if not line and text == before and column != self.column:
                # Repeated parts are shown once.
                text = ""
            before = whole
            slot = Slot.HEADER_GONE if seat.gone else Slot.HEADER
            runs.append((Slot.HEADER_HERE if column == self.column else slot, f"{text:>{width}}"))
        return self.padded(runs)


@lru_cache(32)
def glyph_cells(glyphs: Glyphs, width: int) -> GlyphCells:
    """Return the glyph texts of cells of a width."""
    texts = tuple(cell_text(slot, "", width, glyphs) if slot in glyphs.of_slot else " " * width for slot in Slot)
    return GlyphCells(texts, tuple(glyphs.node_edge + text[1:] for text in texts))


class _RowLine(NamedTuple):
    """A row: header, cells in ranges with gaps between them, padding."""

    scene: LineRenderer
    header: tuple[int, str]
    slots: bytes
    texts: list[str] | None

    def ready(self, palette: Palette) -> str:
        """Return the row as terminal text."""
        scene = self.scene
        before, text = self.header
        changes = palette.changes
        parts = [changes[-1][before], text]
        if self.texts is None:
            if self.slots:
                parts.append(palette.ready_glyphs(self.slots, before, scene.cells, scene.marked))
                before = self.slots[-1]
        else:
            for begin, end in scene.stretches:
                if begin:
                    parts += (changes[before][Slot.PAD], " ")
                    before = Slot.PAD
                if begin < end:
                    parts.append(palette.ready_cells(self.slots[begin:end], self.texts[begin:end], before))
                    before = self.slots[end - 1]
        if scene.padding:
            parts += (changes[before][Slot.PAD], " " * scene.padding)
        parts.append(RESET)
        return "".join(parts)

    def runs(self) -> Runs:
        """Return the row as runs, adjacent cells of one style merged."""
        runs: Runs = [self.header]
        texts = self.scene.glyph_texts(self.slots) if self.texts is None else self.texts
        for begin, end in self.scene.stretches:
            if begin:
                runs.append((Slot.PAD, " "))
            for slot, cells in groupby(zip(self.slots[begin:end], texts[begin:end], strict=True), itemgetter(0)):
                runs.append((slot, "".join(text for _, text in cells)))
        if self.scene.padding:
            runs.append((Slot.PAD, " " * self.scene.padding))
        return runs
