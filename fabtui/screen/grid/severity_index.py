"""What every cell of a layer shows, kept at hand: who asks for the worst of many need not look at each of them."""

from __future__ import annotations

import re
import time
from array import array
from collections.abc import Iterable, Iterator

from fabtui.model.layers import Layer, Per, all_layers, pair_layers
from fabtui.presentation.cell_levels import RANKS, Slot
from fabtui.screen.grid.cells_by_endpoint import ModelSource

RANK: dict[int, int] = {int(slot): rank for rank, slot in enumerate(RANKS)}
#: From ranks to slots, for `bytes.translate`.
SLOT_OF_RANK = bytes([int(slot) for slot in RANKS] + [0] * (256 - len(RANKS)))
SLOW, TIMEOUT, FAILED = RANK[Slot.SLOW], RANK[Slot.TIMEOUT], RANK[Slot.FAILED]
#: Ranks from this one on say that something is wrong.
BAD_FROM = SLOW
#: Ranks of cells in which nothing was measured.
NOTHING = RANK[Slot.UNTESTED]
_SOMETHING = re.compile(b"[^%s]" % b"".join(b"\\x%02x" % rank for rank in range(NOTHING + 1)))
#: 1 for every bad rank.
BAD_ONLY = bytes(1 if rank >= BAD_FROM else 0 for rank in range(256))
#: Cells between two looks at the clock.
_AT_ONCE = 40

Lowest = tuple[float, float, int, int]


class CellIndex:
    """The rank of each cell of a source, by positions, and the worst of each block of two nodes.

    It is brought up to date in small steps, so that no key waits for it: `step` goes on where it was left.

    Args:
        source: The cells.
    """

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self.version = 0
        self.forget()

    def forget(self) -> None:
        """Begin anew: another layer, another filter, other endpoints."""
        axis = self._source.axis
        self.size = axis.size
        self.nodes = len(axis.starts)
        self.node_at = axis.node_at
        self._ends = [*axis.starts[1:], axis.size]
        self._starts = axis.starts
        self._rows: list[bytearray | None] = [None] * axis.size
        #: Bad cells of each row: those that failed or timed out, and those that are slow.
        self.hard = array("l", bytes(axis.size * array("l").itemsize))
        self.soft = array("l", bytes(axis.size * array("l").itemsize))
        #: Bad cells of each row and each column together.
        self.blame = array("l", bytes(axis.size * array("l").itemsize))
        self.blocks = [bytearray(self.nodes) for _ in range(self.nodes)]
        self._tested: list[array[int] | None] = [None] * self.nodes
        self._lowest: dict[tuple[int, int], Lowest] = {}
        self._changed: set[tuple[int, int]] = set()
        self._pending: set[tuple[int, int]] = set()
        self._again = False
        self._whole = False
        #: Grows when a cell becomes bad, or is no longer.
        self.version += 1
        self._work: Iterator[tuple[int, int]] | None = self._everything()

    # -- being brought up to date -------------------------------------------------------------------------------------

    def rejudge(self) -> None:
        """Look once more at every cell that has something: what they are judged against has moved."""
        if self._work is None:
            self._work = self._known()
        else:
            self._again = True

    def touch(self, positions: Iterable[tuple[int, int]]) -> None:
        """Look at some cells anew."""
        self._pending.update(positions)

    @property
    def complete(self) -> bool:
        """Whether every cell was looked at, be it against what cells were judged by before."""
        return self._whole and not self._pending

    @property
    def busy(self) -> bool:
        """Whether there are cells to look at."""
        return self._work is not None or bool(self._pending)

    def step(self, budget: float) -> bool:
        """Look at cells for about ``budget`` seconds; say whether there are none left to look at."""
        end = time.perf_counter() + budget
        while self._pending:
            for _ in range(min(_AT_ONCE, len(self._pending))):
                self._look(*self._pending.pop())
            if time.perf_counter() > end:
                return not self.busy
        while self._work is not None:
            for _ in range(_AT_ONCE):
                at = next(self._work, None)
                if at is None:
                    self._whole = True
                    self._work = self._known() if self._again else None
                    self._again = False
                    break
                self._look(*at)
            if time.perf_counter() > end:
                break
        return not self.busy

    def _everything(self) -> Iterator[tuple[int, int]]:
        """Yield the positions of every cell that may show something."""
        source = self._source
        model, at = source.model, source.axis.position
        layers = {source.layer, *pair_layers()}
        if source.layer is Layer.HEALTH:
            layers = set(all_layers())
        elif source.layer.spec.per is not Per.ENDPOINT_PAIR:
            layers = {source.layer}
        nodes = {source.axis.seats[start].node: node for node, start in enumerate(self._starts)}
        for pairs in (list(model.running), list(model.untested), model.pairs_in(layers)):
            for src, dst in pairs:
                a, b = model.number(src), model.number(dst)
                if a is not None and b is not None:
                    if a in at and b in at:
                        yield at[a], at[b]
                elif src in nodes and dst in nodes:
                    for way in {(nodes[src], nodes[dst]), (nodes[dst], nodes[src])}:
                        yield from self.cells_of(*way)

    def _known(self) -> Iterator[tuple[int, int]]:
        for row, ranks in enumerate(self._rows):
            if ranks is None:
                continue
            for found in _SOMETHING.finditer(bytes(ranks)):
                yield row, found.start()

    def _look(self, row: int, column: int) -> None:
        slot, cell, share = self._source.judge(row, column)
        rank = RANK[slot]
        ranks = self._rows[row]
        if ranks is None:
            if rank == 0:
                return
            ranks = self._rows[row] = bytearray(self.size)
        before = ranks[column]
        block = (self.node_at[row], self.node_at[column])
        if share is not None and cell is not None and cell.value is not None:
            self._note_lowest(block, (share, cell.value, row, column))
        elif block in self._lowest and self._lowest[block][2:] == (row, column):
            self._find_lowest(block)
        if rank == before:
            return
        ranks[column] = rank
        if rank >= BAD_FROM or before >= BAD_FROM:
            self.version += 1
            self._count(row, column, before, -1)
            self._count(row, column, rank, 1)
        if (rank > NOTHING) is not (before > NOTHING):
            tested = self._tested[block[0]]
            if tested is None:
                tested = self._tested[block[0]] = array("l", bytes(self.nodes * array("l").itemsize))
            tested[block[1]] += 1 if rank > NOTHING else -1
        worst = self.blocks[block[0]]
        if rank >= worst[block[1]]:
            worst[block[1]] = rank
        elif before == worst[block[1]]:
            first, last = self._starts[block[1]], self._ends[block[1]]
            worst[block[1]] = max(max(known[first:last]) for known in self._ranks_of(block[0]))
        self._changed.add(block)

    def _ranks_of(self, node: int) -> Iterator[bytearray]:
        return (ranks for ranks in self._rows[self._starts[node] : self._ends[node]] if ranks is not None)

    def _count(self, row: int, column: int, rank: int, by: int) -> None:
        if rank < BAD_FROM:
            return
        (self.soft if rank == SLOW else self.hard)[row] += by
        self.blame[row] += by
        if column != row:
            self.blame[column] += by

    def _note_lowest(self, block: tuple[int, int], found: Lowest) -> None:
        lowest = self._lowest.get(block)
        if lowest is None or found[0] <= lowest[0]:
            self._lowest[block] = found
        elif lowest[2:] == found[2:]:
            # What was lowest has become better: another one may be lowest now.
            self._find_lowest(block)
        else:
            return
        self._changed.add(block)

    def _find_lowest(self, block: tuple[int, int]) -> None:
        shares = []
        for row, column in self.cells_of(*block):
            _, cell, share = self._source.judge(row, column)
            if share is not None and cell is not None and cell.value is not None:
                shares.append((share, cell.value, row, column))
        self._lowest.pop(block, None)
        if shares:
            self._lowest[block] = min(shares)

    # -- reading ------------------------------------------------------------------------------------------------------

    def drain_blocks(self) -> set[tuple[int, int]]:
        """Return the blocks, by nodes, that changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def ranks(self, row: int) -> bytearray | None:
        """Return the rank of each cell of a row by position, or None where nothing is known of any."""
        return self._rows[row]

    def cells_of(self, a: int, b: int) -> Iterator[tuple[int, int]]:
        """Yield the positions of the cells of a block of two nodes."""
        for row in range(self._starts[a], self._ends[a]):
            for column in range(self._starts[b], self._ends[b]):
                yield row, column

    def lowest(self, a: int, b: int) -> Lowest | None:
        """Return share, value and positions of the cell of a block that is worst against its class, or None."""
        return self._lowest.get((a, b))

    def counts(self, a: int, b: int) -> dict[int, int]:
        """Return how many cells of a block have each rank."""
        first, last = self._starts[b], self._ends[b]
        found: dict[int, int] = {}
        for ranks in self._rows[self._starts[a] : self._ends[a]]:
            for rank in ranks[first:last] if ranks is not None else bytes(last - first):
                found[rank] = found.get(rank, 0) + 1
        return found

    def cells(self, a: int, b: int) -> int:
        """Return how many cells of a block can be tested."""
        rows, columns = self._ends[a] - self._starts[a], self._ends[b] - self._starts[b]
        return rows * columns - (rows if a == b and self._source.layer.spec.per is not Per.NODE_PAIR else 0)

    def tested(self, a: int, b: int) -> int:
        """Return how many cells of a block show something."""
        tested = self._tested[a]
        return 0 if tested is None else tested[b]

    def worst_of(self, a: int, b: int) -> tuple[int, int]:
        """Return the positions of the cell of a block that matters most: the worst; the first where none is known."""
        rank = self.blocks[a][b]
        lowest = self._lowest.get((a, b))
        if lowest is not None and (rank < BAD_FROM or rank == SLOW):
            return lowest[2:]
        first, last = self._starts[b], self._ends[b]
        for row in range(self._starts[a], self._ends[a]):
            ranks = self._rows[row]
            if ranks is not None and rank > NOTHING and (at := ranks.find(rank, first, last)) >= 0:
                return row, at
        row = self._starts[a]
        return row, min(first + (row == first), last - 1)

    def bad_in(self, row: int) -> int:
        """Return how many bad cells a row has."""
        return self.hard[row] + self.soft[row]

    @property
    def bad(self) -> int:
        """How many bad cells are known."""
        return sum(self.hard) + sum(self.soft)
