"""State of the main view: zoom, order, filter and pair."""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING

from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import RANKS, Glyphs, Slot
from fabtui.presentation.wording import CELL, MUTED, Part
from fabtui.screen.grid.axis import Seat
from fabtui.screen.grid.cells import NOTHING, RANK, CellSource, EndpointCells, NodePairCells, Order
from fabtui.screen.grid.grouping import Grouped, group_by, groups_of_nodes
from fabtui.screen.grid.prompts import Filter

if TYPE_CHECKING:
    from fabtui.screen.grid.severity_index import NodeCells, SeverityIndex


#: Orders that depend on results.
BY_RESULT = (Order.BADNESS, Order.BLAME)

Arranged = tuple[list[int] | None, list[int] | None]


class Zoom(IntEnum):
    """Zoom level of the grid."""

    FABRIC = 0
    GPUS = 1
    NODES = 2


#: Texts for the corner of the grid (at most seven characters).
ZOOM_WORDS = {Zoom.FABRIC: "fabric", Zoom.GPUS: "pairs", Zoom.NODES: "2 nodes"}


class ViewState:
    """Cell sources of each zoom level over one model, with the same order and filter."""

    def __init__(self, model: Model, layer: Layer, glyphs: Glyphs) -> None:
        self.source = EndpointCells(model, layer, glyphs)
        self.zoom = Zoom.GPUS
        #: Order of rows; if by blame, of columns too.
        self.order = Order.GIVEN
        self.filter: Filter | None = None
        #: Selected pair, which may be hidden; None before there is one.
        self.pair: tuple[Seat, Seat] | None = None
        self._near: NodePairCells | None = None
        #: Positions of rows and columns as shown.
        self._shown_in: Arranged = (None, None)
        #: False if the filter matches no cell.
        self.matched = True
        #: Name of the group of each position, None without groups.
        self._groups: dict[int, str] | None = None

    @cached_property
    def index(self) -> SeverityIndex:
        """Severity of the cells of all endpoint pairs; imports numpy, so not to be used before the first frame."""
        from fabtui.screen.grid.severity_index import SeverityIndex

        return SeverityIndex(self.source)

    @cached_property
    def blocks(self) -> NodeCells:
        from fabtui.screen.grid.severity_index import NodeCells

        return NodeCells(self.source, self.index)

    @property
    def searching(self) -> bool:
        """True while there are cells whose severity is not known yet."""
        return "index" in self.__dict__ and self.index.busy

    def shown(self) -> CellSource:
        """Return the cell source of the zoom level."""
        if self.zoom is Zoom.FABRIC:
            return self.blocks
        if self.zoom is Zoom.GPUS:
            return self.source
        nodes = self.nodes() or (0, 0)
        if self._near is None or self._near.nodes != nodes:
            self._near = NodePairCells(self.source, *nodes)
        return self._near

    def take_axis(self) -> bool:
        """Take over the endpoints of the model; return True if they changed."""
        if not self.source.axis_changed():
            return False
        self.index.forget()
        self.__dict__.pop("blocks", None)
        self._rearrange()
        return True

    def take_layer(self, layer: Layer) -> None:
        self.source.show(layer)
        self.index.forget()

    def take_filter(self, chosen: Filter | None) -> None:
        self.filter = self.source.filter = chosen
        self.matched = True
        self.index.forget()
        self._rearrange()

    def take_order(self, order: Order) -> None:
        self.order = order
        self._rearrange()

    @property
    def follows(self) -> bool:
        """True if rows and columns depend on results."""
        return self.order is not Order.GIVEN or self.hides

    @property
    def hides(self) -> bool:
        """True if rows and columns without a match are to be hidden."""
        return self.filter is not None and self.filter.by_result and not self.filter.all_rows

    def grouped(self, order: Order) -> Grouped | None:
        """Return the endpoints by leaf switch or by rail; None for other orders, or if none is known."""
        if order not in (Order.LEAF, Order.RAIL):
            return None
        return group_by(self.source.model, self.source.axis, order)

    def reorder(self) -> bool:
        """Recompute rows and columns; return True if they changed."""
        arranged = self._arranged()
        if arranged == self._shown_in:
            return False
        self._rearrange(arranged)
        return True

    def _arranged(self) -> Arranged:
        """Return the positions of rows and columns, None for all in their own order; read the groups again."""
        chosen, size = self.filter, self.source.axis.size
        grouped = self.grouped(self.order)
        self._groups = None if grouped is None else grouped.names
        by_result = self.order in BY_RESULT
        ordered = self.index.order(self.order) if by_result else None if grouped is None else grouped.positions
        rows = self._those_of(ordered, chosen.sources if chosen else None)
        across = None if self.order is Order.BADNESS else ordered
        columns = self._those_of(across, chosen.targets if chosen else None)
        if self.hides and self.index.complete:
            found = self.index.matching(
                range(size) if rows is None else rows, range(size) if columns is None else columns
            )
            self.matched = bool(found[0])
            if self.matched:
                return found
        return rows, columns

    def _rearrange(self, arranged: Arranged | None = None) -> None:
        self._near = None
        source = self.source
        self._shown_in = rows, columns = arranged or self._arranged()
        groups = self._groups
        source.show_in(rows, columns, groups)
        self.blocks.show_in(
            None if rows is None else self._nodes_of(rows),
            None if columns is None else self._nodes_of(columns),
            groups_of_nodes(source.axis, groups) if groups is not None and self.order is Order.LEAF else None,
        )

    def _nodes_of(self, positions: list[int]) -> list[int]:
        """Return the nodes in the order of the first of their endpoints."""
        return list(dict.fromkeys(self.source.axis.node_at[position] for position in positions))

    def _those_of(self, order: list[int] | None, nodes: frozenset[str] | None) -> list[int] | None:
        if nodes is None:
            return order
        seats = self.source.axis.seats
        return [at for at in (range(len(seats)) if order is None else order) if seats[at].node in nodes]

    def map_tiles(self, down: int, across: int) -> list[bytes]:
        """Return the worst severity rank of each tile of a map of the grid, ``down`` lines of ``across`` tiles."""
        by_node = self.zoom is Zoom.FABRIC or self.order is Order.GIVEN
        shown = self.blocks if by_node else self.source
        return self.index.tiles(down, across, shown, by_node=by_node)

    def nodes(self) -> tuple[int, int] | None:
        """Return the node indices of the selected pair, or None."""
        if self.pair is None:
            return None
        at = self.place_of(self.pair)
        axis = self.source.axis
        return None if at is None else (axis.node_at[at[0]], axis.node_at[at[1]])

    def place_of(self, pair: tuple[Seat, Seat]) -> tuple[int, int] | None:
        """Return the positions of a pair, or None if it no longer exists."""
        row, column = (self.source.axis.find(seat) for seat in pair)
        return None if row is None or column is None else (row, column)

    def aim(self) -> tuple[Seat, Seat] | None:
        """Return the row and column of the selected pair at this zoom level."""
        if self.zoom is not Zoom.FABRIC or self.pair is None:
            return self.pair
        nodes = self.nodes()
        return None if nodes is None else (self.blocks.axis.seats[nodes[0]], self.blocks.axis.seats[nodes[1]])

    def moved_to(self, seats: tuple[Seat, Seat]) -> None:
        """Select the pair under the cursor; in a block its worst pair, unless the selected pair is in that block."""
        if self.zoom is not Zoom.FABRIC:
            self.pair = seats
            return
        row, column = (self.blocks.axis.find(seat) for seat in seats)
        if row is None or column is None or self.nodes() == (row, column):
            return
        a, b = self.index.worst_of(row, column)
        self.pair = self.source.axis.seats[a], self.source.axis.seats[b]


_OK = frozenset(RANK[slot] for slot in (Slot.GOOD, Slot.FAIR, Slot.LOW, Slot.P2P, Slot.SHM, Slot.RDMA, Slot.SOCKET))


def block_parts(scope: ViewState, a: int, b: int, glyphs: Glyphs) -> list[Part]:
    """Return the number of pairs of a block per verdict, worst first."""
    index = scope.index
    cells = index.cells(a, b)
    counts = index.counts(a, b)
    ok = sum(counts.get(rank, 0) for rank in (*_OK, RANK[Slot.OTHER]))
    parts: list[Part] = []
    for rank in range(len(RANKS) - 1, NOTHING, -1):
        slot = RANKS[rank]
        if rank in _OK or slot is Slot.OTHER or not counts.get(rank):
            continue
        word = "node gone" if slot is Slot.GONE else slot.key
        parts += [(f"{glyphs.of_slot[slot]} {counts[rank]} {word}", f"{CELL}{slot.key}"), ("  ", "")]
    if ok:
        parts += [(f"{ok} ok", f"{CELL}{Slot.GOOD.key}"), ("  ", "")]
    left = cells - int(index.tested[a, b])
    if left > 0:
        hiding = scope.filter is not None and scope.filter.by_cell
        parts.append((f"{left} {'not shown' if hiding else 'untested'}  ", MUTED))
    return [*parts, (f"of {cells} pair{'s' if cells != 1 else ''}", MUTED)]


def block_name(scope: ViewState, a: int, b: int) -> str:
    """Return the name of a block: ``n060 > n061``."""
    seats = scope.blocks.axis.seats
    return f"{seats[a].label} > {seats[b].label}" if a != b else f"within {seats[a].label}"
