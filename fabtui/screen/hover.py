"""The value of the cell under the mouse, beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events
from textual.content import Content

from fabtui.screen.pairwords import status_parts

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp


def show_value(app: FabricApp, event: events.MouseMove) -> None:
    """Have what is known of the cell under the mouse shown where the mouse rests; nothing where there is no cell."""
    main = app.main
    grid = main.grid
    if app.screen is not main or not grid.display:
        return
    at = grid.cell_at(event.screen_x - grid.region.x, event.screen_y - grid.region.y)
    seats = main.source.axis.seats
    if at is None or max(at) >= len(seats):
        words = None
    else:
        parts = status_parts(app.model, main.source.layer, seats[at[0]], seats[at[1]], app.glyphs)
        words = Content.assemble(*parts)
    before = grid.tooltip
    if words is None or not isinstance(before, Content) or not words.is_same(before):
        grid.tooltip = words
