"""Levels of all cells of a layer, judged once per change, and folded to the blocks of two nodes.

A pass over all pairs reads the columns of the results, 8,192 pairs at a time, so that no key press waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabtui.model.address_log import badness
from fabtui.model.cell_level import (
    BY_PATH,
    BY_VERDICT,
    FAIR_FROM,
    FINE,
    GOOD_FROM,
    Judged,
    Level,
    judge,
)
from fabtui.model.layers import Layer, Per, health_layers
from fabtui.model.measurement import SEVERITY, Measurement
from fabtui.model.pair_table import PairTable, parts
from fabtui.model.session_model import Cell, Model
from fabtui_node.parsers.nccl.transports import path_of

#: Cells judged one by one between two checks of the clock.
_CELLS_PER_STEP = 40
#: Maximum number of cells judged at once.
_MOST_AT_ONCE = 256
#: A pass over all pairs takes less time than judging this share of them one by one, if these are at least a number.
_ONE_OF, _FEWEST = 64, 2000
_CODE = {verdict: code for code, verdict in enumerate(SEVERITY)}


Levels = NDArray[np.uint8]
Ints = NDArray[Any]

_OF_CODE = np.array([BY_VERDICT[verdict] for verdict in SEVERITY], np.uint8)
_FINE = np.isin(np.arange(len(Level)), list(FINE))


class CellMatrix:
    """Level of each cell of a layer, in the order of some rows.

    Args:
        model: The session.
        layer: The layer.
        rows: Number of the endpoint of each row; None for the row of a node without endpoints.
        starts: First row of each node.
        lets: Returns False for a cell that a filter hides.
    """

    version = 0  #: Grows when a cell becomes bad or ceases to be bad.

    def __init__(
        self,
        model: Model,
        layer: Layer,
        rows: Sequence[int | None],
        starts: Sequence[int],
        lets: Callable[[Model, Cell, int, int], bool] | None = None,
    ) -> None:
        self._model, self._layer, self._lets = model, layer, lets
        self.size = size = len(rows)
        self._number_at = rows
        self._row_of = np.full(len(model.endpoints), -1)
        for row, number in enumerate(rows):
            if number is not None:
                self._row_of[number] = row
        self.starts = np.asarray(starts, np.intp)
        self._ends = np.append(self.starts[1:], size)
        self.node_of_row = np.repeat(np.arange(len(starts)), self._ends - self.starts)
        nodes = len(starts)
        #: `Level` of each cell that has been judged, 0 for others.
        self.levels: Levels = np.zeros((size, size), np.uint8)
        #: 1 / share of the class median; 0 where it is unknown. Untouched zeros take no memory.
        self.slowness = np.zeros((size, size), np.float32)
        self.node_levels: Levels = np.zeros((nodes, nodes), np.uint8)  #: Worst level of each block, by nodes.
        self.tested = np.zeros((nodes, nodes), np.int32)  #: Number of cells of each block with a result.
        self.bad_in = np.zeros((nodes, nodes), np.int32)  #: Number of bad cells of each block.
        self.bad_per_row = np.zeros(size, np.int32)  #: Number of bad cells of each row.
        self.version += 1
        self._changed: set[tuple[int, int]] = set()
        self._pending: set[tuple[int, int]] = set()
        #: Cells that changed while a pass over the columns runs, which may have read them before.
        self._touched: set[tuple[int, int]] = set()
        self._again = self._all = False
        self._whole = False
        self._pass: Iterator[None] | None = self._judge_all()

    @classmethod
    def of_model(cls, model: Model, layer: Layer, numbers: Sequence[int] | None = None) -> CellMatrix:
        """Return the whole matrix of some endpoints, by default of all, each node's next to each other."""
        ends = model.rows if numbers is None else [model.endpoints[number] for number in numbers]
        starts = [at for at, end in enumerate(ends) if not at or ends[at - 1].node != end.node]
        matrix = cls(model, layer, [end.number for end in ends], starts)
        while not matrix.step(1.0):
            pass
        return matrix

    # -- judging ------------------------------------------------------------------------------------------------------

    def rejudge(self, *, changed: bool = False) -> None:
        """Judge every cell with a result again, because the class medians moved; until then it keeps its level.

        ``changed``: any cell may have changed, one without a result included.
        """
        self._again = self._pass is not None
        self._all |= changed
        self._pass = self._pass or self._judge_all()

    def judge_block(self, a: int, b: int) -> None:
        """Judge the cells of two nodes now, unless they are too many, if there are cells that wait to be judged."""
        if self.busy and self.block(a, b).size <= _MOST_AT_ONCE:
            cells = set(self.cells_of(a, b))
            self._pending -= cells
            if self._pass is not None:
                self._touched |= cells
            for cell in cells:
                self._judge(*cell)

    def touch(self, cells: Iterable[tuple[int, int]]) -> None:
        """Judge some cells again, because they changed; all of them, if that takes less time than those that wait."""
        self._pending.update(cells)
        if self._reads_columns and len(self._pending) > max(_FEWEST, self.size**2 // _ONE_OF):
            self._pending.clear()
            self.rejudge(changed=True)

    @property
    def complete(self) -> bool:
        """True once every cell has been judged, if perhaps against earlier medians."""
        return self._whole and not self._pending

    @property
    def busy(self) -> bool:
        """True while cells wait to be judged."""
        return self._pass is not None or bool(self._pending)

    def step(self, budget: float) -> bool:
        """Judge cells for about ``budget`` seconds; return True if none are left."""
        end = time.perf_counter() + budget
        while self._pending:
            for _ in range(min(_CELLS_PER_STEP, len(self._pending))):
                cell = self._pending.pop()
                if self._pass is not None:
                    self._touched.add(cell)
                self._judge(*cell)
            if time.perf_counter() > end:
                return not self.busy
        while self._pass is not None:
            if next(self._pass, self) is self:
                self._whole = True
                if not (self._again and self._reads_columns):
                    # Another pass would read them.
                    self._pending = self._touched
                self._pass = self._judge_all() if self._again else None
                self._again, self._touched = False, set()
            if time.perf_counter() > end:
                break
        return not self.busy

    def judged(self, row: int, column: int) -> Judged:
        src, dst = self._number_at[row], self._number_at[column]
        if src is None or dst is None:
            return Judged(Level.UNTESTED)
        return judge(self._model, self._layer, src, dst, self._lets)

    def _judge(self, row: int, column: int) -> None:
        level, cell, share = self.judged(row, column)
        slowness = 0.0
        if share is not None and cell is not None and cell.value is not None:
            slowness = 1 / share if share > 0 else np.inf
        block = int(self.node_of_row[row]), int(self.node_of_row[column])
        before = int(self.levels[row, column])
        if slowness != self.slowness[row, column]:
            self.slowness[row, column] = slowness
            self._changed.add(block)
        if level == before:
            return
        self.levels[row, column] = level
        if level >= Level.SLOW or before >= Level.SLOW:
            self.version += 1
            more = int(level >= Level.SLOW) - int(before >= Level.SLOW)
            self.bad_per_row[row] += more
            self.bad_in[block] += more
        self.tested[block] += int(level > Level.UNTESTED) - int(before > Level.UNTESTED)
        self.node_levels[block] = max(level, self.node_levels[block]) if level > before else self.block(*block).max()
        self._changed.add(block)

    def _put(self, rows: Ints, columns: Ints, levels: Levels, slowness: NDArray[np.float32]) -> None:
        before = self.levels[rows, columns]
        moved = slowness != self.slowness[rows, columns]
        self.slowness[rows[moved], columns[moved]] = slowness[moved]
        other = levels != before
        a, b, new, old = rows[other], columns[other], levels[other], before[other]
        self.levels[a, b] = new
        bad = (new >= Level.SLOW).astype(np.int32) - (old >= Level.SLOW)
        nodes = len(self.starts)
        blocks = self.node_of_row[rows] * nodes + self.node_of_row[columns]
        if (new >= Level.SLOW).any() or bad.any():
            self.version += 1
            np.add.at(self.bad_per_row, a, bad)
            np.add.at(self.bad_in.reshape(-1), blocks[other], bad)
        moved |= other
        results = (new > Level.UNTESTED).astype(np.int32) - (old > Level.UNTESTED)
        np.add.at(self.tested.reshape(-1), blocks[other], results)
        for block in np.unique(blocks[moved]).tolist():
            at = divmod(block, nodes)
            self.node_levels[at] = self.block(*at).max()
            self._changed.add(at)

    @property
    def _reads_columns(self) -> bool:
        """True if a pass over all pairs reads the columns of the results, not one pair after the other."""
        layer = self._layer
        return self._lets is None and layer is not Layer.CHANGE and layer.spec.per is Per.ENDPOINT_PAIR

    def _judge_all(self) -> Iterator[None]:
        layer, model = self._layer, self._model
        changed, self._all = self._all, False
        if self._reads_columns:
            yield from self._judge_health() if layer is Layer.HEALTH else self._judge_columns()
            special = [*model.running, *model.untested, *((src, dst) for _, src, dst in model.results.flapping)]
            yield from self._one_by_one(self._cells_of_names(special))
        else:
            yield from self._one_by_one(self._known(changed=changed))
        if changed and self._whole:
            yield from self._judge_left_over()

    def _judge_left_over(self) -> Iterator[None]:
        """Judge cells whose level may have ended without a result: a test was broken off, or a node has returned."""
        gone = self._gone()
        for row, levels in enumerate(self.levels):
            left = (levels == Level.RUNNING) | (levels == Level.SKIPPED)
            left |= (levels == Level.GONE) & ~(gone | gone[row])
            yield from self._one_by_one((row, column) for column in np.flatnonzero(left).tolist())
            yield

    def _one_by_one(self, cells: Iterable[tuple[int, int]]) -> Iterator[None]:
        for count, cell in enumerate(cells, 1):
            self._judge(*cell)
            if not count % _CELLS_PER_STEP:
                yield

    def _known(self, *, changed: bool) -> Iterator[tuple[int, int]]:
        """Yield all cells with a result in layers that this one may show; after the first pass, those known by then.

        ``changed``: later ones as well.
        """
        if self._whole and not changed:
            for row, levels in enumerate(self.levels):
                for column in np.flatnonzero(levels > Level.UNTESTED).tolist():
                    yield row, column
            return
        model, layer = self._model, self._layer
        of = set(health_layers()) if layer is Layer.HEALTH else {Layer(layer.spec.shows or layer)}
        of |= {model.compared_layer} if layer is Layer.CHANGE else set()
        for names in (list(model.running), list(model.untested), model.pairs_in(of)):
            yield from self._cells_of_names(names)

    def _cells_of_names(self, names: Iterable[tuple[str, str]]) -> Iterator[tuple[int, int]]:
        model = self._model
        numbers = [self._number_at[start] for start in self.starts.tolist()]
        nodes = {model.endpoints[number].node: node for node, number in enumerate(numbers) if number is not None}
        for src, dst in names:
            a, b = model.table.number(src), model.table.number(dst)
            if a is not None and b is not None:
                if self._row_of[a] >= 0 and self._row_of[b] >= 0:
                    yield int(self._row_of[a]), int(self._row_of[b])
            elif src in nodes and dst in nodes:
                for block in {(nodes[src], nodes[dst]), (nodes[dst], nodes[src])}:
                    yield from self.cells_of(*block)

    def _placed(self, table: PairTable) -> Iterator[tuple[slice, Ints, Ints]]:
        """Yield each part of a table with the rows and columns of its pairs, -1 for endpoints without one."""
        known = len(self._row_of)
        for part in parts(len(table)) if len(table) and known else ():
            ends = table.source[part], table.target[part]
            rows, columns = (np.where(one < known, self._row_of[np.minimum(one, known - 1)], -1) for one in ends)
            yield part, rows, columns

    def _judge_columns(self) -> Iterator[None]:
        layer = self._layer
        for table in self._model.pair_tables(Layer(layer.spec.shows or layer)):
            if table is None:
                yield
                continue
            gone, paths = self._gone(), None
            if layer is Layer.TRANSPORT:
                shapes, shape_of, _ = self._model.results.store.columns()
                names = ["" if shape is None else shape.transport or "" for shape in shapes]
                of_shapes = [BY_PATH[path_of(name)] if name else Level.HIDDEN for name in names]
                paths = np.array(of_shapes, np.uint8)[np.array(shape_of)[table.row]]
            for part, rows, columns in self._placed(table):
                levels = _OF_CODE[table.verdict[part]]
                shares = np.exp(table.share[part])
                if paths is not None:
                    shares[:] = np.nan
                levels[(levels == Level.GOOD) & (shares < GOOD_FROM)] = Level.FAIR
                levels[(levels == Level.FAIR) & (shares < FAIR_FROM)] = Level.LOW
                self._put_known(rows, columns, levels, shares, gone, paths, part)
                yield

    def _put_known(
        self,
        rows: Ints,
        columns: Ints,
        levels: Levels,
        shares: NDArray[Any],
        gone: NDArray[np.bool_],
        paths: Levels | None = None,
        part: slice = slice(None),
    ) -> None:
        """Set cells that have a result, cells of lost nodes, and transports by their path."""
        fine = _FINE[levels]
        hidden = (fine | (levels == Level.SKIPPED)) & (gone[rows] | gone[columns])
        if paths is not None:
            named = fine & (paths[part] != Level.HIDDEN)
            levels[named] = paths[part][named]
            hidden &= ~named
        levels[hidden] = Level.GONE
        with np.errstate(divide="ignore"):
            slowness = np.nan_to_num(1 / shares, nan=0.0, posinf=np.inf).astype(np.float32)
        inside = (rows >= 0) & (columns >= 0)
        self._put(rows[inside], columns[inside], levels[inside], slowness[inside])

    def _gone(self) -> NDArray[np.bool_]:
        model = self._model
        gone = {node for node in model.nodes if model.gone(node) is not None}
        ends = [None if number is None else model.endpoints[number].node for number in self._number_at]
        return np.array([end in gone for end in ends], bool)

    def _judge_health(self) -> Iterator[None]:
        worst = np.zeros((self.size, self.size), np.uint8)
        for layer in health_layers():
            if layer.spec.per is not Per.ENDPOINT_PAIR:
                for count, (row, column, found) in enumerate(self._of_nodes(layer), 1):
                    worst[row, column] = max(worst[row, column], _CODE[self._model.verdict(found)])
                    if not count % _CELLS_PER_STEP:
                        yield
                continue
            for table in self._model.pair_tables(layer):
                if table is None:
                    yield
                    continue
                for part, rows, columns in self._placed(table):
                    inside = (rows >= 0) & (columns >= 0)
                    where = rows[inside], columns[inside]
                    worst[where] = np.maximum(worst[where], table.verdict[part][inside])
                    yield
        np.fill_diagonal(worst, 0)
        gone = self._gone()
        for row in range(self.size):
            columns = np.flatnonzero(worst[row])
            shares = np.full(len(columns), np.nan)
            self._put_known(np.full(len(columns), row), columns, _OF_CODE[worst[row, columns]], shares, gone)
            yield

    def _of_nodes(self, layer: Layer) -> Iterator[tuple[int, int, Measurement]]:
        """Yield the cells between nodes with what they show of a layer of nodes or of addresses."""
        model = self._model
        if not any(True for _ in model.verdicts_in(layer)):
            return
        for src, dst in model.addresses.node_pairs(layer) if layer.spec.by_address else model.pairs_in({layer}):
            sources, targets = model.table.of_node(src), model.table.of_node(dst)
            if layer.spec.by_address:
                latest = model.addresses.latest(layer, src, dst)
                own: dict[tuple[str | None, str | None], list[Measurement]] = {}
                for one in latest:
                    own.setdefault((one.src_addr, one.dst_addr), []).append(one)
                shown = [
                    max(own.get((a.address, b.address), latest), key=badness) for a, b in product(sources, targets)
                ]
                pairs = list(zip(product(sources, targets), shown, strict=True))
            else:
                there, back = (model.latest(layer, *ends) for ends in ((src, dst), (dst, src)))
                forth = there or back
                if forth is None:
                    continue
                pairs = [((a, b), forth) for a, b in product(sources, targets)]
                pairs += [((b, a), back or forth) for a, b in product(sources, targets)]
            for (a, b), one in pairs:
                row, column = int(self._row_of[a.number]), int(self._row_of[b.number])
                if row >= 0 and column >= 0:
                    yield row, column, one

    # -- reading ------------------------------------------------------------------------------------------------------

    def filled(self) -> Levels:
        """Return the levels of all cells, those without a result included."""
        levels = self.levels.copy()
        gone = self._gone()
        empty = (levels == Level.HIDDEN) | (levels == Level.UNTESTED)
        levels[empty] = Level.UNTESTED
        levels[empty & (gone[:, None] | gone[None, :])] = Level.GONE
        at = np.flatnonzero(empty.diagonal())
        levels[at, at] = Level.DIAGONAL
        return levels

    def drain_blocks(self) -> set[tuple[int, int]]:
        """Return the blocks, by nodes, that changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def _slices(self, a: int, b: int) -> tuple[slice, slice]:
        return slice(self.starts[a], self._ends[a]), slice(self.starts[b], self._ends[b])

    def block(self, a: int, b: int) -> Levels:
        return self.levels[self._slices(a, b)]

    def cells_of(self, a: int, b: int) -> Iterator[tuple[int, int]]:
        rows, columns = self._slices(a, b)
        return product(range(rows.start, rows.stop), range(columns.start, columns.stop))

    def counts(self, a: int, b: int) -> dict[int, int]:
        levels, counts = np.unique(self.block(a, b), return_counts=True)
        return dict(zip(levels.tolist(), counts.tolist(), strict=True))

    def cells(self, a: int, b: int) -> int:
        rows, columns = int(self._ends[a] - self.starts[a]), int(self._ends[b] - self.starts[b])
        return rows * columns - (rows if a == b and self._layer.spec.per is not Per.NODE_PAIR else 0)

    def lowest(self, a: int, b: int) -> tuple[float, int, int] | None:
        """Return value, row and column of the cell of a block with the lowest share of its class median."""
        slowness = self.slowness[self._slices(a, b)]
        row, column = divmod(int(slowness.argmax()), slowness.shape[1])
        position = row + int(self.starts[a]), column + int(self.starts[b])
        cell = self.judged(*position).cell if slowness[row, column] else None
        return None if cell is None or cell.value is None else (cell.value, *position)

    def worst_of(self, a: int, b: int) -> tuple[int, int]:
        """Return row and column of the worst cell of a block; the first cell if none has a result."""
        level = self.node_levels[a, b]
        lowest = self.lowest(a, b)
        if lowest is not None and level <= Level.SLOW:
            return lowest[1:]
        block = self.block(a, b)
        place = int((block == level).argmax()) if level > Level.UNTESTED else int(a == b)
        row, column = divmod(place, block.shape[1]) if level > Level.UNTESTED else (0, place)
        return row + int(self.starts[a]), min(column, block.shape[1] - 1) + int(self.starts[b])

    @property
    def bad(self) -> int:
        return int(self.bad_per_row.sum())
