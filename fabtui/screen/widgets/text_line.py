"""Text of known size."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import Static

from fabtui.screen.terminal.ansi_strips import pack
from fabtui.screen.terminal.internals import color_system


class TextLine(Static):
    """Text without markup. The same text again costs nothing, and other text needs no layout."""

    DEFAULT_CSS = """
    TextLine { height: 1; width: 1fr; text-wrap: nowrap; text-overflow: clip; }
    """
    ALLOW_SELECT = False

    def __init__(
        self,
        content: Content | str = "",
        *,
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(content, markup=False, id=id, classes=classes)
        self.shown = Content("") if isinstance(content, str) else content

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
