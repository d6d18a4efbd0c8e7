"""Severity of every cell of a layer, with queries for bad cells, blocks and row orders.

Imports numpy, so it must not be imported before the first frame.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabtui.model.layers import Layer, Per, all_layers, pair_layers
from fabtui.presentation.cell_levels import RANKS, CellStyle, cell_text, short_value
from fabtui.screen.grid.cells import (
    BAD_FROM,
    NOTHING,
    RANK,
    SLOW,
    TIMEOUT,
    BadCell,
    CellSource,
    EndpointCells,
    RowOrder,
)
from fabtui.screen.grid.layout import NUMBER_WIDTH, CellShape

#: Cells judged between two checks of the clock.
CELLS_PER_CHECK = 40
#: Maximum number of endpoints that the order by blame takes one by one; the rest follow by bad cells left.
MAX_BLAMED = 64
#: Ranks of good cells.
_FINE_RANKS = frozenset(RANK[slot] for slot in (CellStyle.GOOD, CellStyle.FAIR, CellStyle.LOW))
#: Ranks hidden if a node of the block is gone.
_HIDDEN_WHEN_GONE = frozenset({0, RANK[CellStyle.DIAGONAL], NOTHING, *_FINE_RANKS})


class _BadCells(NamedTuple):
    """Bad cells of the rows and columns shown, row by row: rows and columns as shown, and their positions."""

    shown_rows: NDArray[np.intp]
    shown_columns: NDArray[np.intp]
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]


class SeverityIndex:
    """Severity rank of each cell by positions, updated in small steps so that no key press waits for it."""

    def __init__(self, source: EndpointCells) -> None:
        self._source = source
        #: Grows when a cell becomes bad or ceases to be bad.
        self.version = 0
        self.forget()

    def forget(self) -> None:
        """Start from scratch: the layer, the filter or the endpoints changed."""
        axis = self._source.axis
        self.size = axis.size
        self.node_at = axis.node_at
        self._starts = axis.starts
        self._ends = [*axis.starts[1:], axis.size]
        nodes = len(axis.starts)
        self.ranks = np.zeros((axis.size, axis.size), np.uint8)
        #: 1 / share of the class median; 0 where it is unknown. Untouched zeros take no memory.
        self._slowness = np.zeros((axis.size, axis.size), np.float32)
        #: Of each block, by nodes: the worst rank, and the number of cells with a result.
        self.block_ranks = np.zeros((nodes, nodes), np.uint8)
        self.tested = np.zeros((nodes, nodes), np.int32)
        self.bad_per_row = np.zeros(axis.size, np.int32)
        self._changed: set[tuple[int, int]] = set()
        self._pending: set[tuple[int, int]] = set()
        self._rejudge = False
        self._whole = False
        self.version += 1
        self._work: Iterator[tuple[int, int]] | None = self._all_cells()
        self._bad_key: tuple[object, ...] = ()
        self._bad = _BadCells(*[np.zeros(0, np.intp)] * 4)

    def rejudge(self) -> None:
        """Judge every cell with a result again, because the class medians moved."""
        if self._work is None:
            self._work = self._known_cells()
        else:
            self._rejudge = True

    def touch(self, positions: Iterable[tuple[int, int]]) -> None:
        self._pending.update(positions)

    @property
    def complete(self) -> bool:
        """True once every cell has been judged, if perhaps against earlier medians."""
        return self._whole and not self._pending

    @property
    def busy(self) -> bool:
        return self._work is not None or bool(self._pending)

    def step(self, budget: float) -> bool:
        """Judge cells for about ``budget`` seconds; return True if none are left."""
        end = time.perf_counter() + budget
        while self._pending:
            for _ in range(min(CELLS_PER_CHECK, len(self._pending))):
                self._judge(*self._pending.pop())
            if time.perf_counter() > end:
                return not self.busy
        while self._work is not None:
            for _ in range(CELLS_PER_CHECK):
                at = next(self._work, None)
                if at is None:
                    self._whole = True
                    self._work = self._known_cells() if self._rejudge else None
                    self._rejudge = False
                    break
                self._judge(*at)
            if time.perf_counter() > end:
                break
        return not self.busy

    def _all_cells(self) -> Iterator[tuple[int, int]]:
        """Yield the positions of every cell that may show something."""
        source = self._source
        model, at = source.model, source.axis.position
        layers = {source.layer, *pair_layers()}
        if source.layer is Layer.HEALTH:
            layers = set(all_layers())
        elif source.layer.spec.per is not Per.ENDPOINT_PAIR:
            layers = {source.layer}
        nodes = {source.axis.entries[start].node: node for node, start in enumerate(self._starts)}
        for pairs in (list(model.running), list(model.untested), model.pairs_in(layers)):
            for src, dst in pairs:
                a, b = model.number(src), model.number(dst)
                if a is not None and b is not None:
                    if a in at and b in at:
                        yield at[a], at[b]
                elif src in nodes and dst in nodes:
                    for block in {(nodes[src], nodes[dst]), (nodes[dst], nodes[src])}:
                        yield from self.cells_of(*block)

    def _known_cells(self) -> Iterator[tuple[int, int]]:
        for row, ranks in enumerate(self.ranks):
            for column in np.flatnonzero(ranks > NOTHING).tolist():
                yield row, column

    def _judge(self, row: int, column: int) -> None:
        slot, cell, share = self._source.judge(row, column)
        rank, before = RANK[slot], int(self.ranks[row, column])
        slowness = 0.0
        if share is not None and cell is not None and cell.value is not None:
            slowness = 1 / share if share > 0 else np.inf
        block = (self.node_at[row], self.node_at[column])
        if slowness != self._slowness[row, column]:
            self._slowness[row, column] = slowness
            self._changed.add(block)
        if rank == before:
            return
        self.ranks[row, column] = rank
        if rank >= BAD_FROM or before >= BAD_FROM:
            self.version += 1
            self.bad_per_row[row] += (rank >= BAD_FROM) - (before >= BAD_FROM)
        self.tested[block] += (rank > NOTHING) - (before > NOTHING)
        self.block_ranks[block] = max(rank, self.block_ranks[block]) if rank > before else self._block(*block).max()
        self._changed.add(block)

    def _slices(self, a: int, b: int) -> tuple[slice, slice]:
        return slice(self._starts[a], self._ends[a]), slice(self._starts[b], self._ends[b])

    def _block(self, a: int, b: int) -> NDArray[np.uint8]:
        return self.ranks[self._slices(a, b)]

    def drain_blocks(self) -> set[tuple[int, int]]:
        """Return the blocks, by nodes, that changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def cells_of(self, a: int, b: int) -> Iterator[tuple[int, int]]:
        return product(range(self._starts[a], self._ends[a]), range(self._starts[b], self._ends[b]))

    def counts(self, a: int, b: int) -> dict[int, int]:
        """Return the number of cells of a block per rank."""
        ranks, counts = np.unique(self._block(a, b), return_counts=True)
        return dict(zip(ranks.tolist(), counts.tolist(), strict=True))

    def cells(self, a: int, b: int) -> int:
        """Return the number of cells of a block that can be tested."""
        rows, columns = self._ends[a] - self._starts[a], self._ends[b] - self._starts[b]
        return rows * columns - (rows if a == b and self._source.layer.spec.per is not Per.NODE_PAIR else 0)

    def lowest(self, a: int, b: int) -> tuple[float, int, int] | None:
        """Return value and positions of the cell of a block with the lowest share of its class median."""
        slowness = self._slowness[self._slices(a, b)]
        row, column = divmod(int(slowness.argmax()), slowness.shape[1])
        position = row + self._starts[a], column + self._starts[b]
        cell = self._source.judge(*position)[1] if slowness[row, column] else None
        return None if cell is None or cell.value is None else (cell.value, *position)

    def worst_of(self, a: int, b: int) -> tuple[int, int]:
        """Return the positions of the worst cell of a block; the first cell if none has a result."""
        rank = self.block_ranks[a, b]
        lowest = self.lowest(a, b)
        if lowest is not None and (rank < BAD_FROM or rank == SLOW):
            return lowest[1:]
        block = self._block(a, b)
        row, column = divmod(int((block == rank).argmax()), block.shape[1]) if rank > NOTHING else (0, int(a == b))
        return row + self._starts[a], min(column, block.shape[1] - 1) + self._starts[b]

    @property
    def bad(self) -> int:
        return int(self.bad_per_row.sum())

    @property
    def bad_shown(self) -> int:
        """Number of bad cells found so far in the rows and columns shown."""
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
            bad = self.ranks[row_at[shown_rows]][:, column_at] >= BAD_FROM
            at, shown_columns = np.nonzero(bad)
            shown_rows = shown_rows[at]
            self._bad = _BadCells(shown_rows, shown_columns, row_at[shown_rows], column_at[shown_columns])
        return self._bad

    def worst(self, count: int) -> list[BadCell]:
        """Return the worst cells, worst first: failed, timeout, then slow ones by their share of the median."""
        _, _, rows, columns = self._bad_cells()
        ranks, slowness = self.ranks[rows, columns].astype(np.int8), self._slowness[rows, columns]
        found = []
        for at in np.lexsort((columns, rows, -slowness, -ranks))[:count].tolist():
            row, column = int(rows[at]), int(columns[at])
            slot, cell, share = self._source.judge(row, column)
            if cell is not None and RANK[slot] >= BAD_FROM:
                found.append(BadCell(row, column, slot, share, cell))
        return found

    def next_bad(self, place: tuple[int, int], step: int, *, by_node: bool = False) -> tuple[int, int] | None:
        """Return the positions of the next (1) or previous (-1) bad cell as shown, or by blocks, wrapping around."""
        bad, source, size = self._bad_cells(), self._source, self.size
        keys = bad.shown_rows * size + bad.shown_columns
        here = source.row_of.get(place[0], 0) * size + source.column_of.get(place[1], 0)
        if by_node:
            node_at = np.append(self.node_at, 0)
            rows, columns = np.append(bad.rows, place[0]), np.append(bad.columns, place[1])
            *_, here = keys = ((node_at[rows] * size + node_at[columns]) * size + rows) * size + columns
            keys = keys[:-1]
        order = keys.argsort()
        found = _next(keys[order], here, step)
        return None if found is None else (int(bad.rows[order[found]]), int(bad.columns[order[found]]))

    def next_bad_block(self, place: tuple[int, int], step: int, blocks: NodeCells) -> tuple[int, int] | None:
        """Return the nodes of the next (step 1) or previous (-1) bad block after a row and column, wrapping around."""
        rows, columns = blocks.row_at, blocks.column_at
        keys = np.flatnonzero(self.block_ranks[np.ix_(rows, columns)] >= BAD_FROM)
        if (found := _next(keys, place[0] * len(columns) + place[1], step)) is None:
            return None
        row, column = divmod(int(keys[found]), len(columns))
        return rows[row], columns[column]

    def order(self, order: RowOrder) -> list[int]:
        if order is RowOrder.BADNESS:
            # Rows with the most failed and timed-out cells first, then those with the most slow ones.
            hard = (self.ranks >= TIMEOUT).sum(1)
            return [int(at) for at in np.lexsort((hard - self.bad_per_row, -hard))]
        return self._by_blame() if order is RowOrder.BLAME else list(range(self.size))

    def _by_blame(self) -> list[int]:
        """Return the position that explains the most bad cells first, then what explains most of the rest.

        Row and column of a cell both explain it: pairs with one bad NIC are behind that NIC, and partners that only
        failed with it are not blamed.
        """
        bad = self.ranks >= BAD_FROM
        left = bad.sum(0) + bad.sum(1) - bad.diagonal()
        found: list[int] = []
        while len(found) < min(MAX_BLAMED, self.size) and left.max() > 0:
            at = int(left.argmax())
            found.append(at)
            left -= bad[at] + bad[:, at].astype(left.dtype)
            left[found] = -1
        left[found] = np.iinfo(left.dtype).max
        return found + [int(at) for at in np.lexsort((-left,))[len(found) :]]

    def matching(self, rows: Sequence[int], columns: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return those of some rows and columns that have a cell with a result which the filter shows."""
        row_at, column_at = _array(rows), _array(columns)
        ranks = self.ranks[row_at][:, column_at]
        shown = (ranks > NOTHING) & (ranks != RANK[CellStyle.GONE])
        return row_at[shown.any(1)].tolist(), column_at[shown.any(0)].tolist()

    def tiles(self, down: int, across: int, shown: CellSource, *, by_node: bool) -> list[bytes]:
        """Return the worst rank of each tile of a map of the rows and columns shown, nodes if ``by_node``."""
        ranks = self.block_ranks if by_node else self.ranks
        return tiles(ranks[_array(shown.row_at)][:, _array(shown.column_at)], down, across)


def tiles(ranks: NDArray[np.uint8], down: int, across: int) -> list[bytes]:
    """Return the highest rank of each tile of a matrix cut into ``down`` lines of ``across`` tiles."""
    if not ranks.size or not down or not across:
        return []
    rows, columns = ranks.shape
    lines = np.maximum.reduceat(ranks, np.arange(down) * rows // down, axis=0)
    worst = np.maximum.reduceat(lines, np.arange(across) * columns // across, axis=1)
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

    The slot of a block is that of its worst cell, after the number of such cells if not all are that bad. A good block
    with untested cells is `CellStyle.PARTLY`.
    """

    shape = CellShape(condensed=True)

    def __init__(self, source: EndpointCells, index: SeverityIndex) -> None:
        super().__init__(source.axis.of_nodes())
        self._source = source
        self._index = index

    def row(self, row: int, first: int, last: int, width: int) -> tuple[bytearray, list[str] | None]:
        if width > 1:
            return super().row(row, first, last, width)
        a, nodes = self.row_at[row], self.column_at[first:last]
        ranks, tested = self._index.block_ranks[a].tobytes(), self._index.tested[a].tolist()
        gone, entries, expected, whole = self.axis.entries[a].gone, self.axis.entries, self._index.cells, self._whole
        slots = bytearray(last - first)
        for at, b in enumerate(nodes):
            rank = ranks[b]
            slots[at] = RANKS[rank]
            if rank in _HIDDEN_WHEN_GONE and (gone or entries[b].gone):
                slots[at] = CellStyle.GONE
            elif whole and rank in _FINE_RANKS and tested[b] < expected(a, b):
                slots[at] = CellStyle.PARTLY
        return slots, None

    def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
        a, b = self.row_at[row], self.column_at[column]
        index = self._index
        rank = int(index.block_ranks[a, b])
        slot = RANKS[rank]
        glyphs = self._source.glyphs
        if rank in _HIDDEN_WHEN_GONE and (self.axis.entries[a].gone or self.axis.entries[b].gone):
            return CellStyle.GONE, cell_text(CellStyle.GONE, "", width, glyphs)
        if rank in _FINE_RANKS:
            if index.tested[a, b] < index.cells(a, b) and self._whole:
                slot = CellStyle.PARTLY
            lowest = index.lowest(a, b) if width >= NUMBER_WIDTH else None
            number = "" if lowest is None else short_value(lowest[0], self._source.unit()[0], min(width - 1, 4))
            return slot, cell_text(slot, number, width, glyphs)
        if rank < BAD_FROM or width < 2:
            return slot, cell_text(slot, "", width, glyphs)
        count = index.counts(a, b)[rank]
        if count >= index.cells(a, b):
            return slot, cell_text(slot, "", width, glyphs)
        return slot, _counted(count, glyphs.of_style[slot], width)

    @property
    def _whole(self) -> bool:
        """True if no cell of a block is hidden."""
        shown = self._source.filter
        return (shown is None or not shown.by_cell) and self._source.layer is not Layer.PING


def _counted(count: int, glyph: str, width: int) -> str:
    """Return a count before a glyph; ``+`` replaces a count that is too long."""
    room = width - 1 if width < NUMBER_WIDTH else width - 2
    number = str(count) if len(str(count)) <= room else "+"
    text = f"{number}{glyph}"
    return f"{text:>{width}}" if width < NUMBER_WIDTH else f"{text:>{width - 1}} "
