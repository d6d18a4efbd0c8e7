"""The lines of the grid as runs of equal style: headers, rows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fabtui.screen.axis import Axis
from fabtui.screen.gridlayout import NUMBER_WIDTH, GridLayout, block_of, squeeze
from fabtui.screen.levels import Glyphs, Slot
from fabtui.screen.strips import Runs

_SAME = re.compile(rb"(.)\1*", re.DOTALL)


@dataclass(slots=True)
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

    @property
    def used(self) -> int:
        """How wide the headers and the columns in sight are."""
        return self.columns[-1][1] + self.layout.cell if self.columns else self.layout.header

    def span(self) -> tuple[int, int]:
        """Return the first column in sight and the one after the last."""
        return (self.columns[0][0], self.columns[-1][0] + 1) if self.columns else (0, 0)

    def fit(self, column: int, text: str) -> str:
        """Return a cell's text with the mark of a node's first column, where there is no room for a gap."""
        if self.layout.cell in (2, 3) and column and self.axis.seats[column].first and len(self.axis.starts) > 1:
            return self.glyphs.node_edge + text[1:]
        return text

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

    def row_runs(self, row: int, slots: bytearray, texts: list[str]) -> Runs:
        """Return a row: its header, then its cells, neighbours of one style in one run."""
        runs: Runs = [self._row_header(row)]
        first, last = self.span()
        width = self.layout.cell
        if row == self.row and first <= self.column < last:
            slots = bytearray(slots)
            slots[self.column - first] = Slot.CURSOR
        text = "".join(texts)
        blocks = self.blocks() if self.layout.column_gap else [(first, last)] if last else []
        for begin, end in blocks:
            if begin > first:
                runs.append((Slot.PAD, " "))
            for same in _SAME.finditer(slots, begin - first, end - first):
                start, stop = same.span()
                runs.append((slots[start], text[start * width : stop * width]))
        return self.padded(runs)

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
