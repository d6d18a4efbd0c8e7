"""The value of the cell under the mouse, in a line at the lower edge of the grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events
from textual.content import Content

from fabtui.screen.pairwords import status_parts
from fabtui.screen.textline import TextLine
from fabtui.screen.words import plain
from fabtui.screen.wrapping import clipped

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp


class HoverLine(TextLine):
    """Lies over the grid while the mouse is on a cell."""

    DEFAULT_CSS = """
    HoverLine { overlay: screen; position: absolute; height: 1; background: $panel; color: $foreground; display: none; }
    """
    #: Where the mouse is.
    at = (0, 0)


def show_value(app: FabricApp, event: events.MouseMove) -> None:
    """Show what is known of the cell under the mouse; nothing where there is no cell."""
    if app.screen is app.main:
        _show(app, event.screen_x, event.screen_y)


def show_again(app: FabricApp) -> None:
    """Show what is known by now of the cell that the mouse is on, if it is on one."""
    for line in app.main.query(HoverLine):
        if line.display:
            _show(app, *line.at)


def _show(app: FabricApp, x: int, y: int) -> None:
    main = app.main
    grid = main.grid
    region = grid.region
    found = main.query(HoverLine)
    at = grid.cell_at(x - region.x, y - region.y) if grid.display else None
    seats = main.source.axis.seats
    if at is None or max(at) >= len(seats):
        found.set(display=False)
        return
    if not found:
        main.mount(HoverLine(id="hover"))
        found = main.query(HoverLine)
    line = found.first()
    line.at = (x, y)
    parts = status_parts(app.model, main.source.layer, seats[at[0]], seats[at[1]], app.glyphs)
    parts = clipped([(" ", ""), *parts, (" ", "")], region.width, app.glyphs.ellipsis)
    line.styles.width = len(plain(parts))
    # Not over the line that is pointed at.
    line.styles.offset = (region.x, region.bottom - 1 if y != region.bottom - 1 else region.y)
    line.show(Content.assemble(*parts), layout=True)
    line.display = True
