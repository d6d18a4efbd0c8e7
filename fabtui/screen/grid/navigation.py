"""Cursor, zoom, order, groups and filter of the main grid."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

from fabtui.diagnosis.finding import Finding
from fabtui.errors import InputError
from fabtui.model.cell_level import BY_PATH, FINE, Level
from fabtui.model.facts.leaf_switches import leaf_names
from fabtui.model.facts.nvlink_domains import domain_names
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.nodeset import count
from fabtui.presentation.cell_levels import STYLES, CellStyle, Glyphs
from fabtui.presentation.job_board import JobBoard
from fabtui.presentation.wording import CELL, MUTED, Part
from fabtui.sanitize import one_line
from fabtui.screen.context import AppContext
from fabtui.screen.grid.axis import Axis, AxisEntry, fit_text
from fabtui.screen.grid.cells import CellSource, EndpointCells, NodePairCells, RankCells, RowOrder
from fabtui.screen.grid.prompts import Filter, read_filter, read_place
from fabtui.screen.grid.severity_index import NodeCells, SeverityIndex
from fabtui.screen.grid.widget import GridView

#: Why an order by groups is not possible, and what to do.
UNKNOWN = {
    RowOrder.DOMAIN: "NVLink domains are unknown: no GPU reports one",
    RowOrder.LEAF: "leaf switches are unknown: the probe ibfabric reports none, and results show no groups of nodes",
    RowOrder.RAIL: "rails are unknown: no node has reported a NIC for its endpoints",
}


class Grouped(NamedTuple):
    """Positions of endpoints group by group, and the name of the group of each position."""

    positions: list[int]
    names: dict[int, str]


def group_by(model: Model, axis: Axis, order: RowOrder) -> Grouped | None:
    """Return the endpoints by NVLink domain, leaf switch or rail, in the order of the axis within a group.

    Domains and leaf switches come in the order of their first endpoint, rails by number, and endpoints of which it is
    unknown last. None if it is unknown of all.
    """
    if order is not RowOrder.RAIL:
        by_domain = order is RowOrder.DOMAIN
        group_of = model.table.domains if by_domain else model.table.leaves
        words = domain_names(group_of.values()) if by_domain else leaf_names(model.nodes.values())
        groups = {at: group for number, at in axis.position.items() if (group := group_of.get(number)) is not None}
        names = {at: fit_text(words.get(group, group), 24) for at, group in sorted(groups.items())}
        known = list(dict.fromkeys(names.values()))
    else:
        rails = {at: rail for number, at in axis.position.items() if (rail := model.endpoints[number].rail) is not None}
        names = {at: f"rail {rail}" for at, rail in rails.items()}
        known = [f"rail {rail}" for rail in sorted(set(rails.values()))]
    if not known:
        return None
    ranks = {name: rank for rank, name in enumerate(known)}
    positions = sorted(range(axis.size), key=lambda at: ranks.get(names.get(at, ""), len(ranks)))
    other = "no NVLink domain" if order is RowOrder.DOMAIN else f"{order} unknown"
    return Grouped(positions, {at: names.get(at, other) for at in positions})


def groups_of_nodes(axis: Axis, names: dict[int, str]) -> dict[int, str]:
    """Return the name of the group of each node: the one that all of its endpoints share, or the first and how many."""
    found: dict[int, dict[str, None]] = {}
    for at, node in enumerate(axis.node_at):
        found.setdefault(node, {}).setdefault(names[at])
    return {node: next(iter(own)) + (f" +{len(own) - 1}" if len(own) > 1 else "") for node, own in found.items()}


#: Orders that depend on results.
BY_RESULT = (RowOrder.BADNESS, RowOrder.BLAME)

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
        #: Severity of the cells of all endpoint pairs, and the blocks of nodes.
        self.index = SeverityIndex(self.source)
        self.blocks = NodeCells(self.source, self.index)
        self.zoom = Zoom.GPUS
        self.order = RowOrder.GIVEN  #: Order of rows; if by blame, of columns too.
        self.at_fault: tuple[str, ...] = ()  #: Nodes at fault, with which the order by blame begins.
        self.filter: Filter | None = None
        #: Selected pair, which may be hidden; None before there is one.
        self.pair: tuple[AxisEntry, AxisEntry] | None = None
        #: Ranks of the running job, which the layer ``job`` shows, and the selected one.
        self.ranks = RankCells(glyphs)
        self.rank: tuple[AxisEntry, AxisEntry] | None = None
        self._near: NodePairCells | None = None
        self._shown_in: Arranged = (None, None)  #: Positions of rows and columns as shown.
        self.matched = True  #: False if the filter matches no cell.
        self._groups: dict[int, str] | None = None  #: Name of the group of each position, None without groups.

    def shown(self) -> CellSource:
        """Return the cell source of the zoom level; the layer ``job`` has pairs only of two nodes."""
        if self.shows_ranks:
            return self.ranks
        if self.zoom is Zoom.FABRIC:
            return self.blocks
        if self.zoom is Zoom.GPUS:
            return self.source
        nodes = self.nodes() or (0, 0)
        if self._near is None or self._near.nodes != nodes:
            self._near = NodePairCells(self.source, *nodes)
        return self._near

    @property
    def shows_ranks(self) -> bool:
        return self.source.layer is Layer.JOB and self.zoom is not Zoom.NODES

    def entry_of(self, row: AxisEntry, column: AxisEntry) -> AxisEntry:
        """Return the endpoint of a rank; of a rank without one an entry of its node."""
        entry = replace(row, index=column.index)
        position = self.source.axis.find(entry)
        return entry if position is None else self.source.axis.entries[position]

    def take_axis(self) -> bool:
        if not self.source.axis_changed():
            return False
        self.index.take_axis()
        self.blocks = NodeCells(self.source, self.index)
        self._rearrange()
        return True

    def take_layer(self, layer: Layer) -> None:
        self.source.show(layer)
        self.index.forget()

    def take_filter(self, chosen: Filter | None) -> None:
        self.filter = chosen
        self.source.take_filter(chosen)
        self.matched = True
        self.index.forget()
        self._rearrange()

    def take_order(self, order: RowOrder) -> None:
        self.order = order
        self._rearrange()

    @property
    def follows(self) -> bool:
        return self.order is not RowOrder.GIVEN or self.hides

    @property
    def hides(self) -> bool:
        return self.filter is not None and self.filter.by_result and not self.filter.all_rows

    def grouped(self, order: RowOrder) -> Grouped | None:
        """Return the endpoints by domain, leaf switch or rail; None for other orders, or if none is known."""
        if order not in UNKNOWN:
            return None
        return group_by(self.source.model, self.source.axis, order)

    def reorder(self) -> bool:
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
        ordered = None if grouped is None else grouped.positions
        if self.order in BY_RESULT:
            ordered = self.index.order(self.order, self._positions_at_fault())
        rows = self._those_of(ordered, chosen.sources if chosen else None)
        across = None if self.order is RowOrder.BADNESS else ordered
        columns = self._those_of(across, chosen.targets if chosen else None)
        if self.hides and self.index.complete:
            found = self.index.matching(
                range(size) if rows is None else rows, range(size) if columns is None else columns
            )
            self.matched = bool(found[0])
            if self.matched:
                return found
        return rows, columns

    def _positions_at_fault(self) -> list[int]:
        """Return the positions of the endpoints of nodes at fault, in the order of the nodes."""
        place = {name: at for at, name in enumerate(self.at_fault)}
        entries = self.source.axis.entries
        mine = (at for at, entry in enumerate(entries) if entry.node in place)
        return sorted(mine, key=lambda at: place[entries[at].node]) if place else []

    def _rearrange(self, arranged: Arranged | None = None) -> None:
        self._near = None
        source = self.source
        self._shown_in = rows, columns = arranged or self._arranged()
        groups = self._groups
        source.show_in(rows, columns, groups)
        self.blocks.show_in(
            None if rows is None else self._nodes_of(rows),
            None if columns is None else self._nodes_of(columns),
            groups_of_nodes(source.axis, groups) if groups is not None and self.order is not RowOrder.RAIL else None,
        )

    def _nodes_of(self, positions: list[int]) -> list[int]:
        return list(dict.fromkeys(self.source.axis.node_at[position] for position in positions))

    def _those_of(self, order: list[int] | None, nodes: frozenset[str] | None) -> list[int] | None:
        if nodes is None:
            return order
        entries = self.source.axis.entries
        return [at for at in (range(len(entries)) if order is None else order) if entries[at].node in nodes]

    def map_tiles(self, down: int, across: int) -> list[bytes]:
        """Return the worst severity rank of each tile of a map of the grid, ``down`` lines of ``across`` tiles."""
        by_node = self.zoom is Zoom.FABRIC or self.order is RowOrder.GIVEN
        shown = self.blocks if by_node else self.source
        return self.index.tiles(down, across, shown, by_node=by_node)

    def nodes(self) -> tuple[int, int] | None:
        if self.pair is None:
            return None
        at = self.place_of(self.pair)
        axis = self.source.axis
        return None if at is None else (axis.node_at[at[0]], axis.node_at[at[1]])

    def judge_here(self) -> None:
        if self.zoom is Zoom.FABRIC and (nodes := self.nodes()) is not None:
            self.index.judge_block(*nodes)

    def place_of(self, pair: tuple[AxisEntry, AxisEntry]) -> tuple[int, int] | None:
        row, column = (self.source.axis.find(entry) for entry in pair)
        return None if row is None or column is None else (row, column)

    def aim(self) -> tuple[AxisEntry, AxisEntry] | None:
        if self.shows_ranks:
            return self.rank
        if self.zoom is not Zoom.FABRIC or self.pair is None:
            return self.pair
        nodes = self.nodes()
        return None if nodes is None else (self.blocks.axis.entries[nodes[0]], self.blocks.axis.entries[nodes[1]])

    def moved_to(self, entries: tuple[AxisEntry, AxisEntry]) -> None:
        """Select the pair under the cursor; in a block its worst pair, unless the selected pair is in that block."""
        if self.shows_ranks:
            self.rank = entries
            return
        if self.zoom is not Zoom.FABRIC:
            self.pair = entries
            return
        row, column = (self.blocks.axis.find(entry) for entry in entries)
        if row is None or column is None or self.nodes() == (row, column):
            return
        self.index.judge_block(row, column)
        a, b = self.index.worst_of(row, column)
        self.pair = self.source.axis.entries[a], self.source.axis.entries[b]


#: Levels of good cells, and of cells that name a transport.
_OK = frozenset((*FINE, *BY_PATH.values()))


def block_parts(view: ViewState, a: int, b: int, glyphs: Glyphs) -> list[Part]:
    index = view.index
    cells = index.cells(a, b)
    counts = index.counts(a, b)
    ok = sum(counts.get(level, 0) for level in _OK)
    parts: list[Part] = []
    for level in reversed(Level):
        if level <= Level.UNTESTED or level in _OK or not counts.get(level):
            continue
        style = STYLES[level]
        word = "node gone" if level is Level.GONE else style.key
        parts += [(f"{glyphs.of_style[style]} {counts[level]} {word}", f"{CELL}{style.key}"), ("  ", "")]
    if ok:
        parts += [(f"{ok} ok", f"{CELL}{CellStyle.GOOD.key}"), ("  ", "")]
    left = cells - int(index.tested[a, b])
    if left > 0:
        hiding = view.filter is not None and view.filter.by_cell
        parts.append((f"{left} {'not shown' if hiding else 'untested'}  ", MUTED))
    return [*parts, (f"of {cells} pair{'s' if cells != 1 else ''}", MUTED)]


def block_name(view: ViewState, a: int, b: int) -> str:
    """Return the name of a block: ``n060 > n061``."""
    entries = view.blocks.axis.entries
    return f"{entries[a].label} > {entries[b].label}" if a != b else f"within {entries[a].label}"


#: Minimum time (s) between two checks of rows and columns.
_REORDER_INTERVAL = 2.0
#: That time as a multiple of what a check takes.
_REORDER_REST = 50.0
#: Length (s) of a step over unchecked cells, and the pause (s) after it. No key waits longer.
_STEP, _PAUSE = 0.002, 0.002
#: Label and key of each order of the rows.
_ORDER_LABELS = {
    RowOrder.BADNESS: ("rows: worst first", "s"),
    RowOrder.BLAME: ("rows and columns: likely causes first", "b"),
    RowOrder.DOMAIN: ("by NVLink domain", "O"),
    RowOrder.LEAF: ("by leaf switch", "O"),
    RowOrder.RAIL: ("by rail", "O"),
}
#: Orders by groups, in the order in which one key goes through them.
_GROUPINGS = (RowOrder.DOMAIN, RowOrder.LEAF, RowOrder.RAIL, RowOrder.GIVEN)


class GridNavigation:
    """Content and cursor of the main grid. It draws nothing but the grid itself, which ``make_grid`` returns."""

    def __init__(self, context: AppContext, make_grid: Callable[[ViewState], GridView]) -> None:
        self._context = context
        self.view_state = ViewState(context.model, Layer.P2P, context.glyphs)
        self.grid = make_grid(self.view_state)
        self._zoom_before = Zoom.GPUS
        self._zoom_chosen = False
        self._resting_until = 0.0
        self._placed: tuple[AxisEntry, AxisEntry] | None = None  #: Pair that the cursor was put on, not moved to.
        self._searching: asyncio.TimerHandle | None = None
        #: What is outlined, or "", and its pairs.
        self._outlined = ""
        self._pairs: list[tuple[str, str]] = []

    def take_model(self, *, same: bool) -> None:
        """Show another model; ``same``: at the same pair, zoom, order and filter, as it is of the same session."""
        before = self.view_state
        view = self.view_state = ViewState(self._context.model, before.source.layer, self._context.glyphs)
        if same:
            view.zoom, view.order, view.pair, view.rank = before.zoom, before.order, before.pair, before.rank
            view.at_fault = before.at_fault
            view.filter = view.source.filter = before.filter
            view.take_axis()
            self.grid.aim = view.aim() or self.grid.aim
        self.grid.show(view.shown())

    def note_cursor(self) -> None:
        if self.grid.aim is not None:
            self.view_state.moved_to(self.grid.aim)

    def entries(self) -> tuple[AxisEntry, AxisEntry] | None:
        """Return row and column of the cursor's pair: the worst one of a node block. None without cells."""
        here = self.grid.entries
        if here is not None and self.view_state.shows_ranks:
            return (self.view_state.entry_of(*here),) * 2
        if here is None or self.view_state.zoom is not Zoom.FABRIC:
            return here
        block = self.block()
        if block is None:
            return None
        if self.view_state.pair is not None and self.view_state.nodes() == block:
            return self.view_state.pair
        entries = self.view_state.source.axis.entries
        row, column = self.view_state.index.worst_of(*block)
        return entries[row], entries[column]

    def block(self) -> tuple[int, int] | None:
        """Return the two nodes of the block under the cursor; None unless the grid shows node blocks."""
        here = self.grid.entries
        if here is None or self.view_state.zoom is not Zoom.FABRIC or self.view_state.shows_ranks:
            return None
        row, column = (self.view_state.blocks.axis.find(entry) for entry in here)
        return None if row is None or column is None else (row, column)

    def go_to(self, row: int, column: int) -> None:
        entries = self.view_state.source.axis.entries
        self.view_state.pair = entries[row], entries[column]
        self.show()

    @property
    def moved(self) -> bool:
        return self.view_state.pair is not self._placed

    def put_cursor(self, row: int, column: int) -> None:
        """Put the cursor on a cell, by positions of endpoints; it does not count as moved."""
        view = self.view_state
        if view.pair is None or view.place_of(view.pair) != (row, column):
            self.go_to(row, column)
            self.grid.show_from_start()
        self._placed = view.pair

    def take_layer(self, layer: Layer) -> None:
        self.note_cursor()
        before = self.view_state.shown()
        self.view_state.take_layer(layer)
        if self.view_state.shown() is not before:
            self.grid.cell_width = None
            self.show()
        self.grid.reread()

    def take_board(self, board: JobBoard) -> None:
        """Show what is known of the ranks of the running job; the cursor starts on one that is at fault."""
        view = self.view_state
        other_rows, changed = view.ranks.take(board)
        view.source.take_board(board)
        if view.rank is None and board.bad and (place := view.ranks.place_of(*board.bad[0])) is not None:
            view.rank = view.ranks.rows.entries[place[0]], view.ranks.columns.entries[place[1]]
            other_rows = True
        if view.source.layer is Layer.JOB and other_rows:
            self.show()
        elif view.source.layer is Layer.JOB and changed:
            self.grid.reread()

    def show(self) -> None:
        view = self.view_state
        self.grid.aim = view.aim() or (None if view.shows_ranks else self.grid.aim)
        self.grid.corner = ("ranks", "") if view.shows_ranks else (ZOOM_WORDS[view.zoom], "row>col")
        self.grid.show(self.view_state.shown())

    def place_of_finding(self, found: Finding) -> tuple[int, int] | None:
        position, model = self.view_state.source.axis.position, self._context.model
        for pair in sorted(found.cells):
            places = [position[end] for end in map(model.table.number, pair) if end in position]
            if len(places) == 2:
                return places[0], places[1]
        return None

    def next_bad(self, step: int) -> bool:
        """Move to the next (1) or previous (-1) bad cell; return False if there is none."""
        self.note_cursor()
        view, grid = self.view_state, self.grid
        if view.shows_ranks:
            return self._next_rank(step)
        found: tuple[int, int] | None = None
        if self._outlined:
            found = self._next_outlined(step)
        elif view.zoom is Zoom.FABRIC:
            block = view.index.next_bad_block((grid.row, grid.column), step, view.blocks)
            found = None if block is None else view.index.worst_of(*block)
        elif grid.entries is not None and (place := view.place_of(grid.entries)) is not None:
            found = view.index.next_bad(place, step, by_node=view.zoom is Zoom.NODES)
        if found is not None:
            self.go_to(*found)
        return found is not None

    def _outlined_place(self) -> int | None:
        names = tuple(entry.name for entry in self.entries() or ())
        return next((at for at, pair in enumerate(self._pairs) if pair == names), None)

    def _next_outlined(self, step: int) -> tuple[int, int] | None:
        table, position = self._context.model.table, self.view_state.source.axis.position
        here = self._outlined_place()
        first = (0 if step > 0 else -1) if here is None else here + step
        for further in range(len(self._pairs)):
            ends = [table.number(name) for name in self._pairs[(first + further * step) % len(self._pairs)]]
            places = [position[end] for end in ends if end in position]
            if len(places) == 2:
                return places[0], places[1]
        return None

    def _next_rank(self, step: int) -> bool:
        ranks = self.view_state.ranks
        bad = [] if ranks.board is None else ranks.board.bad
        places = sorted(place for one in bad if (place := ranks.place_of(*one)) is not None)
        if not places:
            return False
        here = (self.grid.row, self.grid.column)
        further = [place for place in places if (place > here if step > 0 else place < here)]
        first, last = (further or places)[0], (further or places)[-1]
        self.grid.move_to(*(first if step > 0 else last))
        return True

    def zoom_to(self, zoom: Zoom, entries: tuple[AxisEntry, AxisEntry] | None = None) -> None:
        """Show another zoom with the cursor on the same pair, ``entries`` if the cursor has not moved yet."""
        self.note_cursor()
        view = self.view_state
        if zoom is view.zoom:
            return
        view.pair = (self.entries() if view.shows_ranks else view.pair) or entries or self.entries()
        self._zoom_before, view.zoom = view.zoom, zoom
        self.grid.cell_width = None
        self.show()

    def choose_zoom(self, zoom: Zoom, entries: tuple[AxisEntry, AxisEntry] | None = None) -> None:
        self._zoom_chosen = True
        self.zoom_to(zoom, entries)

    def fit_zoom(self, fits: bool) -> None:
        """Show node blocks if the endpoints do not fit, unless the user has chosen a zoom."""
        if not self._zoom_chosen and self.view_state.source.layer is not Layer.JOB:
            self.note_cursor()
            moved = self.moved
            self.zoom_to(Zoom.GPUS if fits else Zoom.FABRIC)
            self._placed = self._placed if moved else self.view_state.pair

    def outline(self, label: str, pairs: Collection[tuple[str, str]]) -> None:
        self._outlined, self._pairs = label, sorted(pairs)
        self.grid.outline(pairs)

    def back(self) -> bool:
        """End the outline, then leave two nodes, then the filter, then the zoom; return False if there is nothing."""
        if self._outlined:
            self.outline("", ())
        elif self.view_state.zoom is Zoom.NODES:
            self.zoom_to(self._zoom_before if self._zoom_before is not Zoom.NODES else Zoom.GPUS)
        elif self.view_state.filter is not None:
            self.clear_filter()
        elif self.view_state.zoom is Zoom.GPUS and self._zoom_before is Zoom.FABRIC:
            self.zoom_to(Zoom.FABRIC)
        else:
            return False
        return True

    def toggle_order(self, order: RowOrder) -> None:
        self.note_cursor()
        if order in UNKNOWN and self.view_state.grouped(order) is None:
            self._context.notify(UNKNOWN[order])
            return
        if order in BY_RESULT and order is not self.view_state.order and not self.view_state.index.bad:
            self._context.notify(f"no bad cell in layer {self.view_state.source.layer}: nothing to sort by")
            return
        self.view_state.at_fault = tuple(self._context.findings.faults.causes)
        self.view_state.take_order(RowOrder.GIVEN if order is self.view_state.order else order)
        self._resting_until = time.monotonic() + _REORDER_INTERVAL
        self.show()

    def next_grouping(self) -> None:
        """Order rows and columns by NVLink domain, leaf switch, rail, then as given; skip what is unknown."""
        view = self.view_state
        here = _GROUPINGS.index(view.order) if view.order in _GROUPINGS else -1
        after = _GROUPINGS[here + 1 :] if view.order in UNKNOWN else _GROUPINGS
        order = next((one for one in after if one is RowOrder.GIVEN or view.grouped(one) is not None), RowOrder.GIVEN)
        if order is not RowOrder.GIVEN:
            self.toggle_order(order)
        elif view.order in UNKNOWN:
            self.toggle_order(view.order)
        else:
            self._context.notify("; ".join(UNKNOWN.values()))

    def keep_order(self) -> None:
        """Apply order and filter again periodically while results arrive."""
        view = self.view_state
        if not view.follows or (view.hides and not view.index.complete):
            return
        began = time.monotonic()
        if began < self._resting_until:
            self._context.draw_within(_REORDER_INTERVAL)
            return
        self.note_cursor()
        if view.order is RowOrder.BLAME:
            view.at_fault = tuple(self._context.findings.faults.causes)
        if view.reorder():
            self.show()
        now = time.monotonic()
        self._resting_until = now + max(_REORDER_INTERVAL, _REORDER_REST * (now - began))

    async def set_filter(self, text: str) -> None:
        """Show only the cells of a filter expression; `InputError` if it is not valid."""
        # Node groups may be resolved by programs of the site.
        chosen = await asyncio.to_thread(read_filter, text, list(self._context.model.nodes))
        self.view_state.take_filter(chosen)
        self._resting_until = 0.0
        self.show()

    def clear_filter(self) -> None:
        if self.view_state.filter is not None:
            self.note_cursor()
            self.view_state.take_filter(None)
            self.show()

    def go_to_text(self, text: str) -> None:
        """Move the cursor to an endpoint, a node or a pair; `InputError` if it is unknown or the filter hides it."""
        view = self.view_state
        axis = view.source.axis
        row, column = read_place(text, axis)
        here = (view.place_of(view.pair) if view.pair is not None else None) or (0, min(1, axis.size - 1))
        place = (here[0] if row is None else row, here[1] if column is None else column)
        if not view.source.shown_at([place]):
            raise InputError(f"the filter hides {text.strip()[:80]}: u shows all again")
        if ":" not in text and row is not None and column is not None:
            # Two nodes stand for their worst pair.
            place = view.index.worst_of(axis.node_at[row], axis.node_at[column])
        self.go_to(*place)

    def chips(self) -> list[Part]:
        view = self.view_state
        parts: list[Part] = []
        if self._outlined:
            at, pairs = self._outlined_place(), len(self._pairs)
            where = count(pairs, "pair") if at is None else f"pair {at + 1} of {pairs}"
            parts += [
                (f" {one_line(self._outlined, 60)}, {where} ", "bold reverse"),
                ("  [ ] step   esc leave  ", MUTED),
            ]
        if view.filter is not None:
            rows, columns = view.source.rows.size, view.source.columns.size
            parts += [
                (f" filter: {one_line(view.filter.text, 60)} ", "bold reverse"),
                (" u, esc: show all", MUTED),
                (f"  {rows} x {columns} of {view.source.axis.size} endpoints  ", MUTED),
            ]
            if view.hides and not view.index.complete:
                parts.append(("still searching  ", "$warning"))
            elif not view.matched:
                parts.append(("no cell matches  ", "bold $warning"))
        if view.order is not RowOrder.GIVEN:
            label, key = _ORDER_LABELS[view.order]
            after = "next order" if view.order in UNKNOWN else "default order"
            parts += [(f" {label} ", "bold reverse"), (f" {key}: {after}, ^home: first row  ", MUTED)]
        return parts

    def search(self) -> None:
        seeking = self._context.feed is not None and self._context.feed.seeking
        if self._searching is None and self.view_state.index.busy and not seeking:
            self._searching = asyncio.get_running_loop().call_later(_PAUSE, self._search)

    def _search(self) -> None:
        self._searching = None
        if not self.grid.is_attached:
            return
        done = self.view_state.index.step(_STEP)
        if done or not self.view_state.index.complete:
            self._context.draw_within(0.05 if done else 0.25)
        self.search()
