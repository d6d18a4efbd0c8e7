"""Zooming, ordering, filtering and finding: the keys of the main screen that choose what the grid shows."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.presentation.wording import MUTED, Part
from fabtui.sanitize import one_line
from fabtui.screen.grid.axis import Seat
from fabtui.screen.grid.severity import Order
from fabtui.screen.grid.view_state import ZOOM_WORDS, ViewState, Zoom
from fabtui.screen.grid.widget import GridView
from fabtui.screen.views.main_layout import Wishes, too_big
from fabtui.screen.widgets.minimap import MOST_TILES, Minimap
from fabtui.screen.widgets.side_panel import PANEL_WIDTH

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp
    from fabtui.screen.widgets.worst_pairs import WorstList

#: Seconds between two looks at whether the order of rows is still right.
_REORDER = 2.0
#: Seconds between two frames of the minimap.
_REMAP = 0.5
#: Seconds of searching at a time, and between two such times: no key has to wait longer.
_SEARCH, _REST = 0.002, 0.002
_ORDER_WORDS = {Order.BADNESS: ("rows, worst first", "s"), Order.BLAME: ("what explains most comes first", "b")}


class ZoomingScreen(Screen[None]):
    """What the main screen can do with its grid.

    Args:
        app: The app.
    """

    BINDING_GROUP_TITLE = "Zoom and find"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign", "zoom(1)", "in", id="main.zoom-in", tooltip="nearer: endpoints, two nodes, a pair"),
        Binding(
            "minus", "zoom(-1)", "out", id="main.zoom-out", tooltip="wider: two nodes, endpoints, the whole fabric"
        ),
        Binding("escape", "back", id="main.back", show=False, tooltip="back: the zoom before, or without the filter"),
        Binding(
            "right_square_bracket", "next_bad(1)", "next bad", id="main.next-bad", tooltip="go to the next bad cell"
        ),
        Binding(
            "left_square_bracket", "next_bad(-1)", id="main.previous-bad", show=False, tooltip="the previous bad cell"
        ),
        Binding("f", "filter", "filter", id="main.filter", tooltip="show some cells: verdict, class, nodes, transport"),
        Binding("u", "unfilter", id="main.unfilter", show=False, tooltip="show all cells again"),
        Binding("slash", "jump", "go to", id="main.jump", tooltip="go to an endpoint, a node or a pair by its name"),
        Binding("s", "order('badness')", "sort", id="main.sort", tooltip="rows with the most bad cells first, or not"),
        Binding(
            "b", "order('blame')", id="main.blame", show=False, tooltip="what explains most bad cells first, or not"
        ),
        Binding("v", "list", "list", id="main.list", tooltip="the worst pairs as a list, and back to the grid"),
        Binding("x", "other_way", id="main.other-way", show=False, tooltip="go to the pair's other direction"),
        Binding("m", "map", id="main.map", show=False, tooltip="show or hide the map of a grid that does not fit"),
    ]

    grid: GridView
    worst_list: WorstList
    wishes: Wishes

    @property
    def view(self) -> str:
        """What the body shows: ``connecting``, ``grid``, ``worst`` or ``small``."""
        raise NotImplementedError

    def __init__(self, app: FabricApp) -> None:
        super().__init__()
        #: How wide the side panel is.
        self.across = PANEL_WIDTH
        self._fabric_app = app
        self._glyphs = app.glyphs
        self.scope = ViewState(app.model, Layer.P2P, app.glyphs)
        self.minimap = Minimap(app.glyphs, id="minimap")
        #: Whether the zoom follows the size, as no one has chosen another.
        self._any_zoom = True
        self._zoom_before = Zoom.GPUS
        self._searching: asyncio.TimerHandle | None = None
        self._ordered = 0.0
        self._mapped = 0.0
        self._map_key: tuple[object, ...] = ()
        self._tiles: list[bytes] = []

    @property
    def model(self) -> Model:
        """What is known so far."""
        return self._fabric_app.model

    def action_unfilter(self) -> None:
        """Show all cells again."""
        raise NotImplementedError

    def draw(self) -> None:
        """Bring everything up to date that shows something else now."""
        raise NotImplementedError

    # -- where one is -------------------------------------------------------------------------------------------------

    def note_cursor(self) -> None:
        """Be at the pair that the cursor was moved to last."""
        if self.grid.aim is not None:
            self.scope.moved_to(self.grid.aim)

    def cursor_seats(self) -> tuple[Seat, Seat] | None:
        """Return row and column of the cursor's pair, or None when there is nothing to be on."""
        seats = self.scope.source.axis.seats
        if self.view == "worst" and (bad := self.worst_list.chosen) is not None:
            return seats[bad.row], seats[bad.column]
        here = self.grid.seats
        if here is None or self.scope.zoom is not Zoom.FABRIC:
            return here
        block = self.cursor_block()
        if block is None:
            return None
        if self.scope.pair is not None and self.scope.nodes() == block:
            return self.scope.pair
        a, b = self.scope.index.worst_of(*block)
        return seats[a], seats[b]

    def cursor_block(self) -> tuple[int, int] | None:
        """Return the nodes of the block that the cursor is on, by their places; None in the other zooms."""
        here = self.grid.seats
        if here is None or self.scope.zoom is not Zoom.FABRIC:
            return None
        row, column = (self.scope.blocks.axis.find(seat) for seat in here)
        return None if row is None or column is None else (row, column)

    def go_to(self, position: tuple[int, int]) -> None:
        """Put the cursor on a cell by its positions, in whatever zoom there is."""
        seats = self.scope.source.axis.seats
        self.scope.pair = seats[position[0]], seats[position[1]]
        self.show_scope()

    def show_scope(self) -> None:
        """Show what the scope shows now, the cursor where it belongs."""
        scope, grid = self.scope, self.grid
        source = scope.shown()
        grid.aim = scope.aim() or grid.aim
        grid.corner = (ZOOM_WORDS[scope.zoom], "row>col")
        grid.show(source)
        self.draw()

    # -- zooms --------------------------------------------------------------------------------------------------------

    def zoom_to(self, zoom: Zoom) -> None:
        """Show another zoom, the cursor on the pair that it was on."""
        self.note_cursor()
        scope = self.scope
        if zoom is scope.zoom:
            return
        if scope.pair is None and (seats := self.cursor_seats()) is not None:
            scope.pair = seats
        self._zoom_before, scope.zoom = scope.zoom, zoom
        self.grid.cell_width = None
        self.show_scope()

    def fit_zoom(self, width: int) -> None:
        """Show the whole fabric when its endpoints do not fit, until a zoom is chosen."""
        if not self._any_zoom:
            return
        zoom = Zoom.FABRIC if too_big(self.scope.source.axis, width) else Zoom.GPUS
        if zoom is not self.scope.zoom:
            self.zoom_to(zoom)

    def action_zoom(self, step: int) -> None:
        """Go nearer, or wider."""
        if self.view == "connecting" or not self.scope.source.axis.size:
            return
        self._any_zoom = False
        zoom = self.scope.zoom + step
        if self.view == "worst" or zoom > Zoom.NODES:
            if step > 0 and (seats := self.cursor_seats()) is not None:
                self._fabric_app.open_pair(*seats)
        elif zoom < Zoom.FABRIC:
            self._fabric_app.tell("this is the whole fabric")
        else:
            self.zoom_to(Zoom(zoom))

    def action_pair(self) -> None:
        """Look into what the cursor is on: a block's pairs, or a pair."""
        seats = self.cursor_seats()
        if seats is None or self.view == "connecting":
            return
        if self.scope.zoom is Zoom.FABRIC and self.view == "grid":
            self._any_zoom = False
            self.zoom_to(Zoom.NODES)
        else:
            self._fabric_app.open_pair(*seats)

    def action_back(self) -> None:
        """Go back: out of two nodes or the list, or out of the filter, or to the zoom before."""
        if self.view == "worst" and self.wishes.worst:
            self.action_list()
        elif self.scope.zoom is Zoom.NODES:
            self.zoom_to(self._zoom_before if self._zoom_before is not Zoom.NODES else Zoom.GPUS)
        elif self.scope.filter is not None:
            self.action_unfilter()
        elif self.scope.zoom is Zoom.GPUS and self._zoom_before is Zoom.FABRIC:
            self.zoom_to(Zoom.FABRIC)

    # -- finding ------------------------------------------------------------------------------------------------------

    def action_next_bad(self, step: int) -> None:
        """Go to the next or the previous bad cell."""
        if self.view == "worst":
            self.worst_list.action_move(step)
            return
        self.note_cursor()
        found = self._following(step)
        if found is None:
            layer, scope = self.scope.source.layer, self.scope
            through = " that the filter lets through" if scope.filter is not None else ""
            self._fabric_app.tell(f"no bad cell in layer {layer}{through}")
        else:
            self.go_to(found)

    def _following(self, step: int) -> tuple[int, int] | None:
        """Return the positions of the next bad cell; among blocks, of the worst cell of the next bad one."""
        scope, grid = self.scope, self.grid
        if scope.zoom is Zoom.FABRIC:
            block = scope.index.next_bad_block(
                (grid.row, grid.column), step, scope.blocks.row_at, scope.blocks.column_at
            )
            return None if block is None else scope.index.worst_of(*block)
        if grid.seats is None:
            return None
        place = scope.place_of(grid.seats)
        return None if place is None else scope.index.next_bad(place, step, by_node=scope.zoom is Zoom.NODES)

    def action_other_way(self) -> None:
        """Go to the other direction of the cursor's pair."""
        seats = self.cursor_seats()
        place = self.scope.place_of((seats[1], seats[0])) if seats is not None else None
        if place is not None:
            self.go_to(place)

    def action_list(self) -> None:
        """Show the worst pairs as a list, or the grid."""
        if self.view == "worst" and not self.wishes.worst:
            self._fabric_app.tell("the terminal is too small for the grid")
            return
        self.note_cursor()
        self.wishes = replace(self.wishes, worst=not self.wishes.worst)
        self.draw()

    def action_map(self) -> None:
        """Show or hide the map."""
        self.wishes = replace(self.wishes, map=not self.wishes.map)
        self.draw()

    # -- order --------------------------------------------------------------------------------------------------------

    def action_order(self, name: str) -> None:
        """Show rows in an order, or in their own again."""
        self.note_cursor()
        order = Order(name)
        if order is not self.scope.order and not self.scope.index.bad:
            self._fabric_app.tell(f"no bad cell in layer {self.scope.source.layer}: nothing to sort by")
            return
        self.scope.take_order(Order.GIVEN if order is self.scope.order else order)
        self._ordered = time.monotonic()
        self.show_scope()

    def keep_order(self) -> None:
        """Follow what has changed the order, now and then."""
        if self.scope.order is Order.GIVEN or time.monotonic() - self._ordered < _REORDER:
            return
        self._ordered = time.monotonic()
        self.note_cursor()
        if self.scope.reorder():
            self.grid.aim = self.scope.aim() or self.grid.aim
            self.grid.show(self.scope.shown())

    # -- what is told of it -------------------------------------------------------------------------------------------

    def chips(self) -> list[Part]:
        """Return what is different from a plain grid, with the keys that end it."""
        scope = self.scope
        parts: list[Part] = []
        if scope.filter is not None:
            rows, columns = scope.source.rows.size, scope.source.columns.size
            parts += [
                (f" filter: {one_line(scope.filter.text, 60)} ", "bold reverse"),
                (" u, esc: show all", MUTED),
                (f"  {rows} x {columns} of {scope.source.axis.size} endpoints  ", MUTED),
            ]
        if scope.order is not Order.GIVEN:
            words, key = _ORDER_WORDS[scope.order]
            parts += [(f" {words} ", "bold reverse"), (f" {key}: as given, g: to the top  ", MUTED)]
        return parts

    def draw_map(self, beside_panel: bool) -> None:
        """Show the map where the grid does not fit, and bring it up to date."""
        window = self.grid.window if self.view == "grid" and self.wishes.map else None
        shown = window is not None and self.scope.zoom is not Zoom.NODES and self.size.width >= 60
        if self.minimap.display != shown:
            self.minimap.display = shown
            # The grid has another width now, and with it another window.
            self._fabric_app.draw_again(0.01)
        if not shown or window is None:
            return
        source = self.scope.shown()
        most = min(MOST_TILES if beside_panel else 18, 2 * max(4, self.size.height // 4))
        per_line = 2 if self.minimap.halves else 1
        across = min(most, source.columns.size)
        down = min(most if per_line == 2 else most // 2, source.rows.size)
        self.minimap.styles.width = self.across if beside_panel else across + 2
        self.minimap.styles.height = -(-down // per_line) + 1
        key = (
            self.scope.index.version,
            self.scope.index.complete,
            source,
            source.row_at,
            source.column_at,
            across,
            down,
        )
        now = time.monotonic()
        if key != self._map_key:
            if now - self._mapped < _REMAP and key[2:] == self._map_key[2:]:
                self._fabric_app.draw_again(_REMAP)
            else:
                self._map_key, self._mapped = key, now
                self._tiles = self.scope.map_tiles(down, across)
        rows, columns = window
        lit = (_share(rows, source.rows.size, down), _share(columns, source.columns.size, across))
        self.minimap.put("map" if across < 16 else "map: in sight is lit", self._tiles, lit)

    def on_minimap_pointed(self, message: Minimap.Pointed) -> None:
        """Go where was pointed to."""
        source = self.grid.source
        self.grid.move_to(int(message.down * source.rows.size), int(message.right * source.columns.size))

    # -- searching ----------------------------------------------------------------------------------------------------

    def search(self) -> None:
        """Go on looking at cells that were not looked at yet, a little at a time, until all are known."""
        if self._searching is not None or not self.scope.searching:
            return
        self._searching = asyncio.get_running_loop().call_later(_REST, self._search)

    def _search(self) -> None:
        self._searching = None
        if not self.is_running:
            return
        done = self.scope.index.step(_SEARCH)
        if done or not self.scope.index.complete:
            self._fabric_app.draw_again(0.05 if done else 0.25)
        self.search()


def _share(part: range, whole: int, tiles_of: int) -> range:
    """Return which of the tiles of a length a part of it touches."""
    if not whole:
        return range(0)
    return range(
        part.start * tiles_of // whole, max(part.start * tiles_of // whole + 1, -(-part.stop * tiles_of // whole))
    )
