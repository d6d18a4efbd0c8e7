"""Text of known size: lines, the side panel, and the value under the mouse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Static

from fabtui.presentation.wording import plain
from fabtui.presentation.wrapping import Line, Lines
from fabtui.screen.terminal.ansi_strips import pack
from fabtui.screen.terminal.internals import color_system


def content_of(lines: Iterable[Line]) -> Content:
    """Return styled lines as content."""
    return Content("\n").join(Content.assemble(*line) for line in lines)


class TextLine(Static):
    """Text without markup. The same text again costs nothing, and other text needs no layout."""

    DEFAULT_CSS = "TextLine { height: 1; width: 1fr; text-wrap: nowrap; text-overflow: clip; }"
    ALLOW_SELECT = False

    def __init__(self, content: Content | None = None, **place: Any) -> None:
        self.shown = content or Content("")
        super().__init__(self.shown, markup=False, **place)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines in view, each with as few escape sequences as it needs."""
        strips = super().render_lines(crop)
        system = color_system(self.app)
        for strip in strips:
            pack(strip, system)
        return strips

    def show(self, content: Content, *, layout: bool = False) -> None:
        """Show text; ``layout``: the size of the widget depends on it."""
        if not content.is_same(self.shown):
            self.shown = content
            self.update(content, layout=layout)


#: Width with the edges. A wide screen allows more.
PANEL_WIDTH = 48
PANEL_WIDTHS = (80, 64, PANEL_WIDTH)
#: Width of the edges.
PANEL_EDGES = 3


class SidePanel(TextLine):
    """Summary of the cursor's pair, findings, classes, sweep and worst pairs."""

    DEFAULT_CSS = """
    SidePanel {
        width: 48; height: 100%; padding: 0 1; border-left: vkey $secondary 60%; text-wrap: nowrap; overflow: hidden;
    }
    SidePanel.-plain { border: none; padding: 0 1 0 2; }
    """

    class Resized(Message):
        """The panel has another size: other lines fit."""

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    def put(self, lines: Lines) -> None:
        self.show(content_of(lines))


class CellTooltip(TextLine):
    """A line that covers the grid while the mouse is on a cell."""

    DEFAULT_CSS = """
    CellTooltip {
        overlay: screen; position: absolute; height: 1; background: $panel; color: $foreground; display: none;
    }
    """
    #: Position of the mouse.
    at = (0, 0)

    def put(self, parts: Line, grid: Region) -> None:
        """Show text at the lower edge of the grid, or at the upper edge if the mouse is at the lower one."""
        self.styles.width = len(plain(parts))
        last = grid.bottom - 1
        self.styles.offset = (grid.x, last if self.at[1] != last else grid.y)
        self.show(Content.assemble(*parts), layout=True)
        self.display = True
