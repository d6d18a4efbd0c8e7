"""The bad cells of a layer: which they are, the next from the cursor on, the worst of all."""

from __future__ import annotations

from typing import NamedTuple

from fabtui.fabric.model import Cell
from fabtui.screen.index import BAD_ONLY, RANK, CellIndex
from fabtui.screen.levels import Slot
from fabtui.screen.source import ModelSource

#: From worst to least bad.
_ORDER = (Slot.FAILED, Slot.TIMEOUT, Slot.SLOW)
#: Among at most this many slow cells the slowest are looked for.
_MOST_COMPARED = 2000


class BadCell(NamedTuple):
    """A bad cell by its positions, with how bad it is."""

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
    """Finds the bad cells of a source's layer: the worst of all, and the next from the cursor on.

    Args:
        source: The cells.
        index: What is known of them.
    """

    def __init__(self, source: ModelSource, index: CellIndex) -> None:
        self._source = source
        self._index = index
        self._worst: list[BadCell] = []
        self._worst_key: tuple[object, ...] = ()
        self._known = 0
        self._known_key: tuple[object, ...] = ()

    def step(self, budget: float) -> bool:
        """Look at cells that were not looked at yet, for about ``budget`` seconds; say whether all are known now."""
        return self._index.step(budget)

    @property
    def complete(self) -> bool:
        """Whether all cells were looked at."""
        return self._index.complete

    @property
    def known(self) -> int:
        """How many bad cells are known so far, of rows and columns that are shown."""
        source, index = self._source, self._index
        if len(source.row_at) == len(source.column_at) == index.size:
            return index.bad
        key = (index.version, source.row_at, source.column_at)
        if key != self._known_key:
            self._known_key = key
            rows = [position for position in source.row_at if index.bad_in(position)]
            self._known = sum(self._bad_columns(position).count(1) for position in rows)
        return self._known

    def worst(self, count: int) -> list[BadCell]:
        """Return the worst that are known, worst first; of very many slow ones, of those found first."""
        source = self._source
        key = (self._index.version, count, source.row_at, source.column_at)
        if key != self._worst_key:
            self._worst_key = key
            found = [bad for slot in _ORDER for bad in self._of_slot(slot, count)]
            self._worst = sorted(found, key=lambda bad: bad.badness)[:count]
        return self._worst

    def _of_slot(self, slot: Slot, count: int) -> list[BadCell]:
        rank, source = RANK[slot], self._source
        most = max(count, _MOST_COMPARED) if slot is Slot.SLOW else count
        found: list[BadCell] = []
        shown = source.shows_column
        for row in sorted(source.row_at):
            ranks = self._index.ranks(row)
            if ranks is None or not self._index.bad_in(row):
                continue
            at = ranks.find(rank)
            while at >= 0:
                if shown(at):
                    judged, cell, share = source.judge(row, at)
                    if judged is slot and cell is not None:
                        found.append(BadCell(row, at, slot, share, cell))
                        if len(found) >= most:
                            return found
                at = ranks.find(rank, at + 1)
        return found

    def _bad_columns(self, position: int) -> bytes:
        """Return 1 for each column, as they are shown, in which the row of a position is bad."""
        ranks = self._index.ranks(position)
        if ranks is None:
            return b""
        bad = ranks.translate(BAD_ONLY)
        columns = self._source.column_at
        return bytes(bad) if isinstance(columns, range) else bytes([bad[at] for at in columns])

    def following(self, row: int, column: int, step: int) -> tuple[int, int] | None:
        """Return the next bad cell after (``step`` 1) or before (-1) a cell, going round; None when there is none.

        Rows and columns are those that are shown, in their order.
        """
        rows = self._source.row_at
        for turn in range(len(rows) + 1):
            at = (row + step * turn) % len(rows)
            if not self._index.bad_in(rows[at]):
                continue
            bad = self._bad_columns(rows[at])
            if turn == 0:
                found = bad.find(1, column + 1) if step > 0 else bad.rfind(1, 0, column)
            elif turn == len(rows):
                found = bad.find(1, 0, column + 1) if step > 0 else bad.rfind(1, column)
            else:
                found = bad.find(1) if step > 0 else bad.rfind(1)
            if found >= 0:
                return at, found
        return None
