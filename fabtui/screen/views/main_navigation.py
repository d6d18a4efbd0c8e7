"""Cursor, zoom, order and filter of the main grid."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from fabtui.errors import InputError
from fabtui.model.layers import Layer
from fabtui.presentation.wording import MUTED, Part
from fabtui.sanitize import one_line
from fabtui.screen.context import AppContext
from fabtui.screen.grid.axis import Seat
from fabtui.screen.grid.cells import Order
from fabtui.screen.grid.grouping import UNKNOWN
from fabtui.screen.grid.prompts import read_filter, read_place
from fabtui.screen.grid.view_state import BY_RESULT, ZOOM_WORDS, ViewState, Zoom
from fabtui.screen.grid.widget import GridView

if TYPE_CHECKING:
    from fabtui.diagnosis.finding import Finding

#: Minimum time (s) between two checks of rows and columns.
_REORDER_INTERVAL = 2.0
#: That time as a multiple of what a check takes.
_REORDER_REST = 50.0
#: Length (s) of a step over unchecked cells, and the pause (s) after it. No key waits longer.
_STEP, _PAUSE = 0.002, 0.002
#: Label and key of each order of the rows.
_ORDER_LABELS = {
    Order.BADNESS: ("rows: worst first", "s"),
    Order.BLAME: ("rows and columns: likely causes first", "b"),
    Order.LEAF: ("by leaf switch", "O"),
    Order.RAIL: ("by rail", "O"),
}
#: Orders by groups, in the order in which one key goes through them.
_GROUPINGS = (Order.LEAF, Order.RAIL, Order.GIVEN)


class GridNavigation:
    """Content and cursor of the main grid. It draws nothing but the grid itself, which ``make_grid`` returns."""

    def __init__(self, context: AppContext, make_grid: Callable[[ViewState], GridView]) -> None:
        self._context = context
        self.scope = ViewState(context.model, Layer.P2P, context.glyphs)
        self.grid = make_grid(self.scope)
        self._zoom_before = Zoom.GPUS
        self._zoom_chosen = False
        self._resting_until = 0.0
        self._searching: asyncio.TimerHandle | None = None
        #: Label of the outlined cells, or "".
        self._outlined = ""

    def take_model(self, *, same: bool) -> None:
        """Show another model; ``same``: at the same pair, zoom, order and filter, as it is of the same session."""
        before = self.scope
        scope = self.scope = ViewState(self._context.model, before.source.layer, self._context.glyphs)
        if same:
            scope.zoom, scope.order, scope.pair = before.zoom, before.order, before.pair
            scope.filter = scope.source.filter = before.filter
            scope.take_axis()
            self.grid.aim = scope.aim() or self.grid.aim
        self.grid.show(scope.shown())

    def note_cursor(self) -> None:
        """Remember the pair that the cursor was moved to."""
        if self.grid.aim is not None:
            self.scope.moved_to(self.grid.aim)

    def seats(self) -> tuple[Seat, Seat] | None:
        """Return row and column of the cursor's pair: the worst one of a node block. None without cells."""
        here = self.grid.seats
        if here is None or self.scope.zoom is not Zoom.FABRIC:
            return here
        block = self.block()
        if block is None:
            return None
        if self.scope.pair is not None and self.scope.nodes() == block:
            return self.scope.pair
        seats = self.scope.source.axis.seats
        row, column = self.scope.index.worst_of(*block)
        return seats[row], seats[column]

    def block(self) -> tuple[int, int] | None:
        """Return the two nodes of the block under the cursor; None unless the grid shows node blocks."""
        here = self.grid.seats
        if here is None or self.scope.zoom is not Zoom.FABRIC:
            return None
        row, column = (self.scope.blocks.axis.find(seat) for seat in here)
        return None if row is None or column is None else (row, column)

    def go_to(self, row: int, column: int) -> None:
        """Move the cursor to a cell, by positions of endpoints, in the current zoom."""
        seats = self.scope.source.axis.seats
        self.scope.pair = seats[row], seats[column]
        self.show()

    def show(self) -> None:
        """Show the current zoom, order and filter, with the cursor on its pair."""
        self.grid.aim = self.scope.aim() or self.grid.aim
        self.grid.corner = (ZOOM_WORDS[self.scope.zoom], "row>col")
        self.grid.show(self.scope.shown())

    def go_to_finding(self, found: Sequence[Finding], place: int) -> bool:
        """Move the cursor to the first pair of a finding; return False if it has none in the grid."""
        position, model = self.scope.source.axis.position, self._context.model
        for pair in sorted(found[place].cells) if place < len(found) else ():
            ends = [model.number(name) for name in pair]
            if all(end in position for end in ends):
                self.go_to(*(position[end] for end in ends if end is not None))
                return True
        return False

    def next_bad(self, step: int) -> bool:
        """Move to the next (1) or previous (-1) bad cell; return False if there is none."""
        self.note_cursor()
        scope, grid = self.scope, self.grid
        found: tuple[int, int] | None = None
        if scope.zoom is Zoom.FABRIC:
            block = scope.index.next_bad_block((grid.row, grid.column), step, scope.blocks)
            found = None if block is None else scope.index.worst_of(*block)
        elif grid.seats is not None and (place := scope.place_of(grid.seats)) is not None:
            found = scope.index.next_bad(place, step, by_node=scope.zoom is Zoom.NODES)
        if found is not None:
            self.go_to(*found)
        return found is not None

    def zoom_to(self, zoom: Zoom, seats: tuple[Seat, Seat] | None = None) -> None:
        """Show another zoom with the cursor on the same pair; ``seats`` is the pair if the cursor has not moved yet."""
        self.note_cursor()
        scope = self.scope
        if zoom is scope.zoom:
            return
        scope.pair = scope.pair or seats or self.seats()
        self._zoom_before, scope.zoom = scope.zoom, zoom
        self.grid.cell_width = None
        self.show()

    def choose_zoom(self, zoom: Zoom, seats: tuple[Seat, Seat] | None = None) -> None:
        """Show a zoom, and keep it when the size of the terminal changes."""
        self._zoom_chosen = True
        self.zoom_to(zoom, seats)

    def fit_zoom(self, fits: bool) -> None:
        """Show node blocks if the endpoints do not fit, unless the user has chosen a zoom."""
        if not self._zoom_chosen:
            self.zoom_to(Zoom.GPUS if fits else Zoom.FABRIC)

    def outline(self, label: str, pairs: Collection[tuple[str, str]]) -> None:
        """Outline the cells of ordered pairs until `back`."""
        self._outlined = label
        self.grid.outline(pairs)

    def back(self) -> bool:
        """End the outline, then leave two nodes, then the filter, then the zoom; return False if there is nothing."""
        if self._outlined:
            self.outline("", ())
        elif self.scope.zoom is Zoom.NODES:
            self.zoom_to(self._zoom_before if self._zoom_before is not Zoom.NODES else Zoom.GPUS)
        elif self.scope.filter is not None:
            self.clear_filter()
        elif self.scope.zoom is Zoom.GPUS and self._zoom_before is Zoom.FABRIC:
            self.zoom_to(Zoom.FABRIC)
        else:
            return False
        return True

    def toggle_order(self, order: Order) -> None:
        """Sort the rows, or restore their own order."""
        self.note_cursor()
        if order in UNKNOWN and self.scope.grouped(order) is None:
            self._context.notify(UNKNOWN[order])
            return
        if order in BY_RESULT and order is not self.scope.order and not self.scope.index.bad:
            self._context.notify(f"no bad cell in layer {self.scope.source.layer}: nothing to sort by")
            return
        self.scope.take_order(Order.GIVEN if order is self.scope.order else order)
        self._resting_until = time.monotonic() + _REORDER_INTERVAL
        self.show()

    def next_grouping(self) -> None:
        """Order rows and columns by leaf switch, then by rail, then as given; skip what is unknown."""
        scope = self.scope
        here = _GROUPINGS.index(scope.order) if scope.order in _GROUPINGS else -1
        after = _GROUPINGS[here + 1 :] if scope.order in UNKNOWN else _GROUPINGS
        order = next((one for one in after if one is Order.GIVEN or scope.grouped(one) is not None), Order.GIVEN)
        if order is not Order.GIVEN:
            self.toggle_order(order)
        elif scope.order in UNKNOWN:
            self.toggle_order(scope.order)
        else:
            self._context.notify("; ".join(UNKNOWN.values()))

    def keep_order(self) -> None:
        """Sort, and hide what does not match, again from time to time while results change that."""
        scope = self.scope
        if not scope.follows or (scope.hides and not scope.index.complete):
            return
        began = time.monotonic()
        if began < self._resting_until:
            self._context.draw_within(_REORDER_INTERVAL)
            return
        self.note_cursor()
        if scope.reorder():
            self.show()
        now = time.monotonic()
        self._resting_until = now + max(_REORDER_INTERVAL, _REORDER_REST * (now - began))

    async def set_filter(self, text: str) -> None:
        """Show only the cells of a filter expression; `InputError` if it is not valid."""
        # Node groups may be resolved by programs of the site.
        chosen = await asyncio.to_thread(read_filter, text, list(self._context.model.nodes))
        self.scope.take_filter(chosen)
        self._resting_until = 0.0
        self.show()

    def clear_filter(self) -> None:
        if self.scope.filter is not None:
            self.note_cursor()
            self.scope.take_filter(None)
            self.show()

    def go_to_text(self, text: str) -> None:
        """Move the cursor to an endpoint, a node or a pair; `InputError` if there is none, or the filter hides it."""
        scope = self.scope
        axis = scope.source.axis
        row, column = read_place(text, axis)
        here = (scope.place_of(scope.pair) if scope.pair is not None else None) or (0, min(1, axis.size - 1))
        place = (here[0] if row is None else row, here[1] if column is None else column)
        if not scope.source.shown_at([place]):
            raise InputError(f"the filter hides {text.strip()[:80]}: u shows all again")
        if ":" not in text and row is not None and column is not None:
            # Of two nodes, their worst pair.
            place = scope.index.worst_of(axis.node_at[row], axis.node_at[column])
        self.go_to(*place)

    def chips(self) -> list[Part]:
        """Return the active filter and order, with the keys that end them."""
        scope = self.scope
        parts: list[Part] = []
        if self._outlined:
            parts += [(f" [ ] {one_line(self._outlined, 60)} ", "bold reverse"), (" esc: end  ", MUTED)]
        if scope.filter is not None:
            rows, columns = scope.source.rows.size, scope.source.columns.size
            parts += [
                (f" filter: {one_line(scope.filter.text, 60)} ", "bold reverse"),
                (" u, esc: show all", MUTED),
                (f"  {rows} x {columns} of {scope.source.axis.size} endpoints  ", MUTED),
            ]
            if scope.hides and not scope.index.complete:
                parts.append(("still searching  ", "$warning"))
            elif not scope.matched:
                parts.append(("no cell matches  ", "bold $warning"))
        if scope.order is not Order.GIVEN:
            label, key = _ORDER_LABELS[scope.order]
            after = "next order" if scope.order in UNKNOWN else "default order"
            parts += [(f" {label} ", "bold reverse"), (f" {key}: {after}, g: first row  ", MUTED)]
        return parts

    def search(self) -> None:
        """Check the remaining cells in the background."""
        if self._searching is None and self.scope.searching:
            self._searching = asyncio.get_running_loop().call_later(_PAUSE, self._search)

    def _search(self) -> None:
        self._searching = None
        if not self.grid.is_attached:
            return
        done = self.scope.index.step(_STEP)
        if done or not self.scope.index.complete:
            self._context.draw_within(0.05 if done else 0.25)
        self.search()
