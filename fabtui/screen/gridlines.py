"""The lines of the grid: headers and rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from fabtui.screen.axis import Axis
from fabtui.screen.gridlayout import NUMBER_WIDTH, GridLayout, block_of, squeeze
from fabtui.screen.levels import Glyphs, Slot, cell_text
from fabtui.screen.strips import RESET, GlyphCells, Palette, ReadyStrip, Runs


@dataclass
class Scene:
    """What is in sight, and where the cursor is.

    Attributes:
        axis: The rows and columns.
        layout: Where they go.
        columns: The columns in sight, each with where it begins.
        top: The first row in sight.
        row: The cursor's row.
        column: The cursor's column.
        glyphs: The characters to draw with.
    """

    axis: Axis
    layout: GridLayout
    columns: list[tuple[int, int]]
    top: int
    row: int
    column: int
    glyphs: Glyphs

    def __post_init__(self) -> None:
        self._span = (self.columns[0][0], self.columns[-1][0] + 1) if self.columns else (0, 0)
        first, last = self._span
        gaps = self.layout.column_gap
        #: The columns without a gap between them, counted from the first in sight.
        self.stretches = [(a - first, b - first) for a, b in self.blocks()] if gaps else [(0, last - first)]
        self.padding = max(0, self.layout.width - self.used)
        self.cells = glyph_cells(self.glyphs, self.layout.cell)
        #: The first columns of nodes that are marked as such where there is no room for a gap.
        self.marked: list[int] = []
        if self.layout.cell in (2, 3) and len(self.axis.starts) < self.axis.size:
            self.marked = [at - first for at, _ in self.blocks() if at and self.axis.seats[at].first]

    @property
    def used(self) -> int:
        """How wide the headers and the columns in sight are."""
        return self.columns[-1][1] + self.layout.cell if self.columns else self.layout.header

    def span(self) -> tuple[int, int]:
        """Return the first column in sight and the one after the last."""
        return self._span

    def blocks(self) -> list[tuple[int, int]]:
        """Return the columns in sight node by node: first and after the last."""
        at, last = self.span()
        found = []
        while at < last:
            end = min(last, block_of(self.axis, at)[1])
            found.append((at, end))
            at = end
        return found

    def padded(self, runs: Runs) -> Runs:
        """Return runs filled up to the width of the view."""
        if self.used < self.layout.width:
            runs.append((Slot.PAD, " " * (self.layout.width - self.used)))
        return runs

    def row_strip(self, row: int, slots: bytearray, texts: list[str] | None, palette: Palette) -> ReadyStrip:
        """Return a row: its header, then its cells, which show their slot's glyph where they have no texts."""
        first, last = self._span
        shown = None if texts is None else texts.copy()
        if row == self.row and first <= self.column < last:
            shown = self.glyph_texts(slots) if shown is None else shown
            slots = bytearray(slots)
            slots[self.column - first] = Slot.CURSOR
        picture = _RowPicture(self, self._row_header(row), bytes(slots), shown)
        return ReadyStrip(picture.ready(palette), self.layout.width, palette, picture.runs)

    def glyph_texts(self, slots: bytes | bytearray) -> list[str]:
        """Return what cells show that have no texts."""
        texts = [self.cells.texts[slot] for slot in slots]
        for at in self.marked:
            texts[at] = self.cells.edges[slots[at]]
        return texts

    def _row_header(self, row: int) -> tuple[int, str]:
        seat, layout = self.axis.seats[row], self.layout
        here = row == self.row
        named = seat.first or seat.gone or here or row == self.top
        label = squeeze(seat.label, layout.label, self.glyphs.ellipsis) if named else ""
        text = f"{label:<{layout.label}} {seat.index:>{self.axis.index_width}} "
        if seat.gone:
            text = text[:-1] + self.glyphs.of_slot[Slot.FAILED]
        slot = Slot.HEADER_HERE if here else Slot.HEADER_GONE if seat.gone else Slot.HEADER
        return slot, text[: layout.width]

    def _corner(self) -> Runs:
        return [(Slot.PAD, " " * min(self.layout.header, self.layout.width))]

    def names(self) -> Runs:
        """Return the line of node names over their columns."""
        runs = self._corner()
        first, _ = self.span()
        here = block_of(self.axis, self.column) if self.axis.size else (0, 0)
        for begin, end in self.blocks():
            if begin > first and self.layout.column_gap:
                runs.append((Slot.PAD, " "))
            seat = self.axis.seats[begin]
            width = (end - begin) * self.layout.cell
            room = width - 1 if width > len(seat.label) else width
            label = squeeze(seat.label, room, self.glyphs.ellipsis)
            slot = Slot.HEADER_GONE if seat.gone else Slot.HEADER_NODE
            if here[0] <= begin < here[1]:
                slot = Slot.HEADER_HERE
            runs.append((slot, f"{label:^{width}}"))
        return self.padded(runs)

    def indices(self) -> Runs:
        """Return the line of endpoint indices over their columns."""
        runs = self._corner()
        width = self.layout.cell
        for at, (column, _) in enumerate(self.columns):
            seat = self.axis.seats[column]
            if at and self.layout.column_gap and seat.first:
                runs.append((Slot.PAD, " "))
            index = seat.index[-width:]
            if width >= NUMBER_WIDTH:
                text = f"{index:>{width - 1}} "
            else:
                text = f"{index:^{width}}" if width == 3 else f"{index:>{width}}"
            slot = Slot.HEADER_GONE if seat.gone else Slot.HEADER
            runs.append((Slot.HEADER_HERE if column == self.column else slot, text))
        return self.padded(runs)


@lru_cache(32)
def glyph_cells(glyphs: Glyphs, width: int) -> GlyphCells:
    """Return what cells of a width show where they have no texts."""
    texts = tuple(cell_text(slot, "", width, glyphs) if slot in glyphs.of_slot else " " * width for slot in Slot)
    return GlyphCells(texts, tuple(glyphs.node_edge + text[1:] for text in texts))


class _RowPicture(NamedTuple):
    """A row as it is drawn: header, cells in stretches with a gap between them, padding."""

    scene: Scene
    header: tuple[int, str]
    slots: bytes
    texts: list[str] | None

    def ready(self, palette: Palette) -> str:
        """Return it as terminal text."""
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
        """Return it as runs, neighbours of one style in one."""
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
