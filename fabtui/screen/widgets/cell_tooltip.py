"""The value of the cell under the mouse, in a line at the lower edge of the grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events
from textual.content import Content

from fabtui.presentation.wording import Part, plain
from fabtui.presentation.wrapping import clipped
from fabtui.screen.grid.axis import Seat
from fabtui.screen.grid.node_block_text import block_name, block_parts
from fabtui.screen.grid.view_state import Zoom
from fabtui.screen.widgets.pair_text import status_parts
from fabtui.screen.widgets.text_line import TextLine

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
    rows, columns = grid.source.rows.seats, grid.source.columns.seats
    if at is None or at[0] >= len(rows) or at[1] >= len(columns):
        found.set(display=False)
        return
    if not found:
        main.mount(HoverLine(id="hover"))
        found = main.query(HoverLine)
    line = found.first()
    line.at = (x, y)
    parts = _words(app, rows[at[0]], columns[at[1]])
    parts = clipped([(" ", ""), *parts, (" ", "")], region.width, app.glyphs.ellipsis)
    line.styles.width = len(plain(parts))
    # Not over the line that is pointed at.
    line.styles.offset = (region.x, region.bottom - 1 if y != region.bottom - 1 else region.y)
    line.show(Content.assemble(*parts), layout=True)
    line.display = True


def _words(app: FabricApp, row: Seat, column: Seat) -> list[Part]:
    """Return what is known of a cell: of a pair, or of all pairs of two nodes."""
    main = app.main
    scope = main.scope
    if scope.zoom is not Zoom.FABRIC:
        return status_parts(app.model, main.source.layer, row, column, app.glyphs)
    a, b = scope.blocks.axis.find(row), scope.blocks.axis.find(column)
    if a is None or b is None:
        return []
    return [(f"{block_name(scope, a, b)}  ", "bold"), *block_parts(scope, a, b, app.glyphs)]
