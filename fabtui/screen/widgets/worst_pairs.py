"""The worst pairs as a list: what very small terminals get in place of the grid."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import clipped
from fabtui.screen.grid.axis import Axis
from fabtui.screen.grid.severity import BadCell
from fabtui.screen.widgets.side_panel import bad_line

#: How many of the worst pairs are kept at hand.
MOST = 200


class WorstList(Widget, can_focus=True):
    """Bad pairs, the worst first, with a cursor."""

    DEFAULT_CSS = """
    WorstList { width: 1fr; height: 1fr; text-wrap: nowrap; }
    """
    BINDING_GROUP_TITLE = "Worst pairs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", id="worst.up", show=False, tooltip="a line up"),
        Binding("down,j", "move(1)", id="worst.down", show=False, tooltip="a line down"),
        Binding("home,g", "move(-100000)", id="worst.first", show=False, tooltip="the worst pair"),
        Binding("end,G", "move(100000)", id="worst.last", show=False, tooltip="the last of the list"),
        Binding("pageup,ctrl+u", "page(-1)", id="worst.page-up", show=False, tooltip="a screen up"),
        Binding("pagedown,ctrl+d", "page(1)", id="worst.page-down", show=False, tooltip="a screen down"),
    ]

    class Moved(Message):
        """The cursor is on another pair."""

        def __init__(self, row: int, column: int) -> None:
            super().__init__()
            self.row = row
            self.column = column

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._axis: Axis | None = None
        self._bad: list[BadCell] = []
        self._key: tuple[object, ...] = ()
        self._nothing = ""
        self.cursor = 0
        self._top = 0

    def put(self, axis: Axis, bad: list[BadCell], nothing: str) -> None:
        """Show bad pairs; ``nothing`` is said when there are none."""
        key = (id(axis), nothing, tuple((b.row, b.column, b.slot, b.share) for b in bad))
        if key == self._key:
            return
        self._key = key
        self._axis, self._bad, self._nothing = axis, bad, nothing
        self.cursor = max(0, min(self.cursor, len(bad) - 1))
        self.refresh()

    @property
    def chosen(self) -> BadCell | None:
        """The pair under the cursor, or None when there is none."""
        return self._bad[self.cursor] if self._bad else None

    def render(self) -> Content:
        """Return the lines in sight."""
        width, height = self.size
        if not self._bad or self._axis is None:
            return Content.assemble((self._nothing[: width or None], MUTED))
        if self.cursor < self._top:
            self._top = self.cursor
        elif self.cursor >= self._top + height:
            self._top = self.cursor - height + 1
        lines = []
        for at in range(self._top, min(len(self._bad), self._top + height)):
            parts = clipped(bad_line(self._axis, self._bad[at], self._glyphs), width, self._glyphs.ellipsis)
            if at == self.cursor:
                used = sum(len(text) for text, _ in parts)
                cursor: list[Part] = [(text, "reverse") for text, _ in parts]
                parts = [*cursor, (" " * (width - used), "reverse")]
            lines.append(Content.assemble(*parts))
        return Content("\n").join(lines)

    def select(self, at: int) -> None:
        """Put the cursor on a line."""
        at = max(0, min(at, len(self._bad) - 1))
        if not self._bad:
            return
        self.cursor = at
        self.refresh()
        self.post_message(self.Moved(self._bad[at].row, self._bad[at].column))

    def select_pair(self, row: int, column: int) -> None:
        """Put the cursor on the line of a pair, where it is listed."""
        for at, bad in enumerate(self._bad):
            if (bad.row, bad.column) == (row, column):
                self.select(at)

    def action_move(self, by: int) -> None:
        """Move the cursor by lines."""
        self.select(self.cursor + by)

    def action_page(self, pages: int) -> None:
        """Move the cursor by screens."""
        self.select(self.cursor + pages * max(1, self.size.height - 1))

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the line that was clicked."""
        if self._top + event.y < len(self._bad):
            self.select(self._top + event.y)
