"""A widget for finished text that draws itself only when the text is another one."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import Static

from fabtui.screen.terminal.ansi_strips import pack
from fabtui.screen.terminal.internals import color_system


class TextLine(Static):
    """Text of which the caller knows the size. What it shows is never read as markup."""

    DEFAULT_CSS = """
    TextLine { height: 1; width: 1fr; text-wrap: nowrap; text-overflow: clip; }
    """
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__("", markup=False, id=id, classes=classes)
        self._shown = Content("")

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines in sight, each with as little terminal text as it needs."""
        strips = super().render_lines(crop)
        system = color_system(self.app)
        for strip in strips:
            pack(strip, system)
        return strips

    @property
    def shown(self) -> Content:
        """What it shows."""
        return self._shown

    def show(self, content: Content, *, layout: bool = False) -> None:
        """Show another text; the same one costs nothing.

        Args:
            content: The text.
            layout: Whether the widget's height depends on it.
        """
        if content.is_same(self._shown):
            return
        self._shown = content
        self.update(content, layout=layout)
