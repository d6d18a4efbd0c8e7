"""The bad cells of a layer: which they are, the next from the cursor on, the worst of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fabtui.model.session_model import Cell
from fabtui.presentation.cell_levels import Slot
from fabtui.screen.grid.cells_by_endpoint import ModelSource
from fabtui.screen.grid.cells_by_node import BlockSource
from fabtui.screen.grid.severity_index import BAD_ONLY, RANK, CellIndex

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

        def bad_columns(at: int) -> bytes:
            return self._bad_columns(rows[at]) if self._index.bad_in(rows[at]) else b""

        return _next(bad_columns, len(rows), row, column, step)

    def following_cell(self, place: tuple[int, int], step: int, *, by_node: bool = False) -> tuple[int, int] | None:
        """Return the positions of the next bad cell, as `following`.

        Args:
            place: The positions to begin from.
            step: 1 for the next one, -1 for the one before.
            by_node: Go through the cells of two nodes before those of the next two.
        """
        source = self._source
        if not by_node:
            row, column = source.row_of(place[0]), source.column_of(place[1])
            found = self.following(row or 0, column or 0, step)
            return None if found is None else (source.row_at[found[0]], source.column_at[found[1]])
        at = source.axis.node_at
        cells = self._bad_cells()
        key = (at[place[0]], at[place[1]], *place)
        ordered = sorted((at[row], at[column], row, column) for row, column in cells)
        if not ordered:
            return None
        later = [cell for cell in ordered if (cell > key if step > 0 else cell < key)]
        chosen = (later or ordered)[0 if step > 0 else -1]
        return chosen[2], chosen[3]

    def _bad_cells(self) -> list[tuple[int, int]]:
        source, index = self._source, self._index
        found = []
        for row in source.row_at:
            if index.bad_in(row):
                columns = self._bad_columns(row)
                at = columns.find(1)
                while at >= 0:
                    found.append((row, source.column_at[at]))
                    at = columns.find(1, at + 1)
        return found

    def following_block(self, blocks: BlockSource, row: int, column: int, step: int) -> tuple[int, int] | None:
        """Return the nodes of the next bad block after (or before) a block that is shown, going round."""

        def bad_columns(at: int) -> bytes:
            ranks = self._index.blocks[blocks.row_at[at]]
            return bytes([BAD_ONLY[ranks[node]] for node in blocks.column_at])

        found = _next(bad_columns, blocks.rows.size, row, column, step)
        return None if found is None else (blocks.row_at[found[0]], blocks.column_at[found[1]])


def _next(bad_columns: Callable[[int], bytes], rows: int, row: int, column: int, step: int) -> tuple[int, int] | None:
    """Return the next 1 in a table of 0 and 1 after (or before) a place, going round."""
    for turn in range(rows + 1 if rows else 0):
        at = (row + step * turn) % rows
        bad = bad_columns(at)
        if not bad:
            continue
        if turn == 0:
            found = bad.find(1, column + 1) if step > 0 else bad.rfind(1, 0, column)
        elif turn == rows:
            found = bad.find(1, 0, column + 1) if step > 0 else bad.rfind(1, column)
        else:
            found = bad.find(1) if step > 0 else bad.rfind(1)
        if found >= 0:
            return at, found
    return None
