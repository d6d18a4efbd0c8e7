"""The bad cells of a layer: which they are, the next from the cursor on, the worst of all."""

from __future__ import annotations

import time
from typing import NamedTuple

from fabtui.fabric.model import Cell
from fabtui.screen.levels import Slot, ratio, slot_of
from fabtui.screen.source import ModelSource

#: From worst to least bad.
_ORDER = (Slot.FAILED, Slot.TIMEOUT, Slot.SLOW)


class BadCell(NamedTuple):
    """A bad cell by its row and column, with how bad it is."""

    row: int
    column: int
    slot: Slot
    share: float | None
    cell: Cell

    @property
    def badness(self) -> tuple[int, float, int, int]:
        """What to sort by, worst first."""
        share = self.share if self.share is not None else 0.0
        return _ORDER.index(self.slot), share, self.row, self.column


class Trouble:
    """Finds the bad cells of a source's layer, row by row, each row once until something in it changes.

    Args:
        source: The cells.
    """

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self._rows: dict[int, tuple[BadCell, ...]] = {}
        self._next = 0
        self._sorted: list[BadCell] | None = None

    def forget(self) -> None:
        """Look at everything anew."""
        self._rows.clear()
        self._next = 0
        self._sorted = None

    def forget_rows(self, rows: set[int]) -> None:
        """Look at some rows anew."""
        self._sorted = None
        for row in rows:
            self._rows.pop(row, None)
        if rows:
            self._next = min(self._next, *rows)

    def of_row(self, row: int) -> tuple[BadCell, ...]:
        """Return the bad cells of a row."""
        known = self._rows.get(row)
        if known is None:
            known = self._rows[row] = tuple(self._read(row))
            self._sorted = None
        return known

    def _read(self, row: int) -> list[BadCell]:
        source = self._source
        seats = source.axis.seats
        found = []
        for column in range(source.axis.size):
            src, dst = seats[row].number, seats[column].number
            if src is None or dst is None:
                continue
            cell = source.model.cell(source.layer, src, dst)
            if not cell.verdict.bad:
                continue
            slot = slot_of(cell.verdict, None)
            share = None
            if cell.value is not None and cell.measurement is not None:
                median = source.model.median(source.layer, source.class_of(cell, src, dst))
                share = ratio(source.layer, cell.value, median)
            found.append(BadCell(row, column, slot, share, cell))
        return found

    def step(self, budget: float) -> bool:
        """Look at rows that were not looked at yet, for about ``budget`` seconds; say whether all are known now."""
        end = time.perf_counter() + budget
        size = self._source.axis.size
        while self._next < size:
            self.of_row(self._next)
            self._next += 1
            if time.perf_counter() > end:
                break
        return self.complete

    def worst(self, count: int) -> list[BadCell]:
        """Return the worst of the rows looked at so far."""
        return self._all()[:count]

    @property
    def known(self) -> int:
        """How many bad cells there are in the rows looked at so far."""
        return len(self._all())

    @property
    def complete(self) -> bool:
        """Whether all rows were looked at."""
        return self._next >= self._source.axis.size

    def _all(self) -> list[BadCell]:
        if self._sorted is None:
            found = [bad for row in self._rows.values() for bad in row]
            self._sorted = sorted(found, key=lambda bad: bad.badness)
        return self._sorted

    def following(self, row: int, column: int, step: int) -> tuple[int, int] | None:
        """Return the next bad cell after (``step`` 1) or before (-1) a cell, going round; None when there is none."""
        size = self._source.axis.size
        for turn in range(size + 1):
            at = (row + step * turn) % size
            columns = [bad.column for bad in self.of_row(at)]
            if turn == 0:
                columns = [c for c in columns if (c > column if step > 0 else c < column)]
            elif turn == size:
                columns = [c for c in columns if (c <= column if step > 0 else c >= column)]
            if columns:
                return at, columns[0] if step > 0 else columns[-1]
        return None
