"""Levels of every cell in the order of the grid, with queries for bad cells, blocks and row orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabtui.model.cell_level import FINE, Judged, Level
from fabtui.model.cell_matrix import CellMatrix
from fabtui.model.layers import Layer
from fabtui.presentation.cell_levels import GRADES, STYLES, CellStyle, cell_text
from fabtui.presentation.numbers import short_value
from fabtui.screen.grid.cells import BadCell, CellSource, EndpointCells, RowOrder
from fabtui.screen.grid.layout import NUMBER_WIDTH, CellShape

#: Maximum number of endpoints that the order by blame takes one by one; the rest follow by bad cells left.
MAX_BLAMED = 64
#: Share of bad ones among the tested cells of a block or a tile of the map up to which it is not bad as a whole.
_FEW = 0.25
#: Rank of such a tile, above all levels.
FEW_TILE = 255
#: Levels hidden if a node of the block is gone.
_HIDDEN_WHEN_GONE = frozenset({Level.HIDDEN, Level.DIAGONAL, Level.UNTESTED, *FINE})


class _BadCells(NamedTuple):
    """Bad cells of the rows and columns shown, row by row: rows and columns as shown, and their positions."""

    shown_rows: NDArray[np.intp]
    shown_columns: NDArray[np.intp]
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]


class SeverityIndex(CellMatrix):
    """Levels of the cells of a source, by positions, updated in small steps so that no key press waits for them."""

    def __init__(self, source: EndpointCells) -> None:
        self._source = source
        self.forget()

    def forget(self) -> None:
        """Start from scratch: the layer, the filter or the endpoints changed."""
        source = self._source
        lets = None if source.filter is None else source.filter.lets
        numbers = [entry.number for entry in source.axis.entries]
        super().__init__(source.model, source.layer, numbers, source.axis.starts, lets)
        self._bad_key: tuple[object, ...] = ()
        self._bad = _BadCells(*[np.zeros(0, np.intp)] * 4)

    def take_axis(self) -> None:
        """Follow the axis of the source; with the same rows, cells keep their levels until they are judged again."""
        axis = self._source.axis
        same = self._number_at == [entry.number for entry in axis.entries] and self.starts.tolist() == list(axis.starts)
        if same and len(self._row_of) == len(self._source.model.endpoints):
            self.rejudge(changed=True)
        else:
            self.forget()

    def judged(self, row: int, column: int) -> Judged:
        src, dst = self._number_at[row], self._number_at[column]
        if src is None or dst is None:
            return super().judged(row, column)
        return self._source.judged(row, column, src, dst)

    @property
    def bad_shown(self) -> int:
        source = self._source
        whole = len(source.row_at) == len(source.column_at) == self.size
        return self.bad if whole else len(self._bad_cells().rows)

    def _bad_cells(self) -> _BadCells:
        source = self._source
        key = (self.version, source.row_at, source.column_at)
        if key != self._bad_key:
            self._bad_key = key
            row_at, column_at = _array(source.row_at), _array(source.column_at)
            shown_rows = np.flatnonzero(self.bad_per_row[row_at])
            bad = self.levels[row_at[shown_rows]][:, column_at] >= Level.SLOW
            at, shown_columns = np.nonzero(bad)
            shown_rows = shown_rows[at]
            self._bad = _BadCells(shown_rows, shown_columns, row_at[shown_rows], column_at[shown_columns])
        return self._bad

    def worst(self, count: int) -> list[BadCell]:
        """Return the worst cells, worst first: failed, timeout, then slow ones by their share of the median."""
        _, _, rows, columns = self._bad_cells()
        ranks, slowness = self.levels[rows, columns].astype(np.int8), self.slowness[rows, columns]
        found = []
        for at in np.lexsort((columns, rows, -slowness, -ranks))[:count].tolist():
            row, column = int(rows[at]), int(columns[at])
            level, cell, share = self.judged(row, column)
            if cell is not None and level >= Level.SLOW:
                found.append(BadCell(row, column, STYLES[level], share, cell))
        return found

    def next_bad(self, place: tuple[int, int], step: int, *, by_node: bool = False) -> tuple[int, int] | None:
        """Return the positions of the next (1) or previous (-1) bad cell as shown, or by blocks, wrapping around."""
        bad, source, size = self._bad_cells(), self._source, self.size
        keys = bad.shown_rows * size + bad.shown_columns
        here = source.row_of.get(place[0], 0) * size + source.column_of.get(place[1], 0)
        if by_node:
            node_at = np.append(self.node_of_row, 0)
            rows, columns = np.append(bad.rows, place[0]), np.append(bad.columns, place[1])
            *_, here = keys = ((node_at[rows] * size + node_at[columns]) * size + rows) * size + columns
            keys = keys[:-1]
        order = keys.argsort()
        found = _next(keys[order], here, step)
        return None if found is None else (int(bad.rows[order[found]]), int(bad.columns[order[found]]))

    def next_bad_block(self, place: tuple[int, int], step: int, blocks: NodeCells) -> tuple[int, int] | None:
        """Return the nodes of the next (step 1) or previous (-1) bad block after a row and column, wrapping around."""
        rows, columns = blocks.row_at, blocks.column_at
        keys = np.flatnonzero(self.node_levels[np.ix_(rows, columns)] >= Level.SLOW)
        if (found := _next(keys, place[0] * len(columns) + place[1], step)) is None:
            return None
        row, column = divmod(int(keys[found]), len(columns))
        return rows[row], columns[column]

    def order(self, order: RowOrder, at_fault: Sequence[int] = ()) -> list[int]:
        """Return the positions in an order; by blame, endpoints of the nodes ``at_fault`` come first."""
        if order is RowOrder.BADNESS:
            # Rows with the most failed and timed-out cells first, then those with the most slow ones.
            hard = (self.levels >= Level.TIMEOUT).sum(1)
            return [int(at) for at in np.lexsort((hard - self.bad_per_row, -hard))]
        return self._by_blame(at_fault) if order is RowOrder.BLAME else list(range(self.size))

    def _by_blame(self, first: Sequence[int]) -> list[int]:
        """Return the ``first`` positions, the one that explains the most bad cells, and what explains most of the rest.

        Row and column of a cell both explain it: pairs with one bad NIC are behind that NIC, and partners that only
        failed with it are not blamed.
        """
        bad = self.levels >= Level.SLOW
        left = bad.sum(0) + bad.sum(1) - bad.diagonal()
        found = list(first)
        for at in found:
            left -= bad[at] + bad[:, at].astype(left.dtype)
        left[found] = -1
        while len(found) - len(first) < MAX_BLAMED and left.max(initial=0) > 0:
            at = int(left.argmax())
            found.append(at)
            left -= bad[at] + bad[:, at].astype(left.dtype)
            left[found] = -1
        left[found] = np.iinfo(left.dtype).max
        return found + [int(at) for at in np.lexsort((-left,))[len(found) :]]

    def matching(self, rows: Sequence[int], columns: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the rows and columns that have a cell with a result which the filter shows."""
        row_at, column_at = _array(rows), _array(columns)
        ranks = self.levels[row_at][:, column_at]
        shown = (ranks > Level.UNTESTED) & (ranks != Level.GONE)
        return row_at[shown.any(1)].tolist(), column_at[shown.any(0)].tolist()

    def tiles(self, down: int, across: int, shown: CellSource, *, by_node: bool) -> list[bytes]:
        """Return the rank of each tile of a map of the rows and columns shown, nodes if ``by_node``; see `tiles`."""
        rows, columns = _array(shown.row_at), _array(shown.column_at)
        ranks = (self.node_levels if by_node else self.levels)[rows][:, columns]
        bad = self.bad_in[rows][:, columns] if by_node else ranks >= Level.SLOW
        tested = self.tested[rows][:, columns] if by_node else ranks > Level.UNTESTED
        return tiles(ranks, bad, tested, down, across)


def tiles(ranks: NDArray[np.uint8], bad: NDArray[Any], tested: NDArray[Any], down: int, across: int) -> list[bytes]:
    """Return the highest rank of each tile of a matrix, or `FEW_TILE` by the number of bad cells in each place."""
    if not ranks.size or not down or not across:
        return []
    rows, columns = (np.arange(tiled) * size // tiled for tiled, size in zip((down, across), ranks.shape, strict=True))
    worst = np.maximum.reduceat(np.maximum.reduceat(ranks, rows, axis=0), columns, axis=1)
    number, whole = (
        np.add.reduceat(np.add.reduceat(counts, rows, axis=0, dtype=np.int32), columns, axis=1)
        for counts in (bad, tested)
    )
    worst[(worst >= Level.SLOW) & (worst < Level.WRONG) & (number <= _FEW * whole)] = FEW_TILE
    return [line.tobytes() for line in worst]


def _array(order: Sequence[int]) -> NDArray[np.intp]:
    return np.arange(len(order)) if isinstance(order, range) else np.asarray(order, np.intp)


def _next(keys: NDArray[np.intp], here: int, step: int) -> int | None:
    """Return the index of the sorted key after (or before) a place, wrapping around; None if there are no keys."""
    if not len(keys):
        return None
    at = np.searchsorted(keys, here, "right") if step > 0 else np.searchsorted(keys, here, "left") - 1
    return int(at % len(keys))


class NodeCells(CellSource):
    """Blocks: the cells of two nodes.

    A block has the style of its worst cell, after the number of such cells if not all are that bad. A good block
    with untested cells is `CellStyle.PARTLY`, one with few bad cells `CellStyle.FEW`: a dead NIC is not a dead node.
    """

    shape = CellShape(condensed=True)

    def __init__(self, source: EndpointCells, index: SeverityIndex) -> None:
        super().__init__(source.axis.of_nodes())
        self._source = source
        self._index = index

    def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
        a, b = self.row_at[row], self.column_at[column]
        index = self._index
        rank = int(index.node_levels[a, b])
        style = STYLES[rank]
        glyphs = self._source.glyphs
        if rank in _HIDDEN_WHEN_GONE and (self.axis.entries[a].gone or self.axis.entries[b].gone):
            return CellStyle.GONE, cell_text(CellStyle.GONE, "", width, glyphs)
        if rank in FINE:
            if index.tested[a, b] < index.cells(a, b) and self._whole:
                style = CellStyle.PARTLY
            lowest = index.lowest(a, b) if width >= NUMBER_WIDTH else None
            # Its number is more exact than a shade.
            style = CellStyle.GOOD if lowest is not None and style in GRADES else style
            number = "" if lowest is None else short_value(lowest[0], self._source.unit()[0], min(width - 1, 4))
            return style, cell_text(style, number, width, glyphs)
        few = Level.SLOW <= rank < Level.WRONG and index.bad_in[a, b] <= _FEW * index.tested[a, b]
        tone = CellStyle.FEW if few else style
        if rank < Level.SLOW or width < 2:
            return tone, cell_text(style, "", width, glyphs)
        count = index.counts(a, b)[rank]
        if count >= index.cells(a, b):
            return style, cell_text(style, "", width, glyphs)
        return tone, _counted(count, glyphs.of_style[style], width)

    @property
    def _whole(self) -> bool:
        shown = self._source.filter
        return (shown is None or not shown.by_cell) and self._source.layer is not Layer.PING


def _counted(count: int, glyph: str, width: int) -> str:
    """Return a count before a glyph; ``+`` replaces a count that is too long."""
    room = width - 1 if width < NUMBER_WIDTH else width - 2
    number = str(count) if len(str(count)) <= room else "+"
    text = f"{number}{glyph}"
    return f"{text:>{width}}" if width < NUMBER_WIDTH else f"{text:>{width - 1}} "
