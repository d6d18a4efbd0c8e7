"""Text of known size: lines, the side panel, and the value under the mouse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from textual import events
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.widgets import Static

from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import plain
from fabtui.presentation.wrapping import Line


def content_of(lines: Iterable[Line]) -> Content:
    return Content("\n").join(Content.assemble(*line) for line in lines)


class TextLine(Static):
    """Text without markup. The same text again costs nothing, and other text needs no layout."""

    DEFAULT_CSS = "TextLine { height: 1; width: 1fr; text-wrap: nowrap; text-overflow: clip; }"
    ALLOW_SELECT = False

    def __init__(self, content: Content | None = None, **place: Any) -> None:
        self.shown = content or Content("")
        super().__init__(self.shown, markup=False, **place)

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

#: Start and end of a heading on its line, and the number of its column.
Span = tuple[int, int, int]


def heading_at(spans: Sequence[Span], x: int) -> int | None:
    return next((at for begin, end, at in spans if begin <= x < end), None)


class Headings(NamedTuple):
    """Line of headings of a table, which is sorted by a click on one of them."""

    spans: Sequence[Span]


#: A line, and what a click on it leads to: the place of a finding, the positions of a pair, an order, or nothing.
#: A place beyond the last finding leads to all of them.
Target = int | tuple[int, int] | Headings | None
TargetLine = tuple[Line, Target]
ALL_FINDINGS = 1 << 20


class TargetLines(TextLine):
    """Lines, some of which lead to a finding or a pair when clicked."""

    @dataclass
    class Pointed(Message):
        """A line with a target was clicked."""

        target: int | tuple[int, int]

    @dataclass
    class Sorted(Message):
        """A heading was clicked."""

        column: int

    _targets: Sequence[Target] = ()

    @property
    def headings(self) -> Headings | None:
        return next((target for target in self._targets if isinstance(target, Headings)), None)

    def put(self, lines: Sequence[TargetLine]) -> None:
        """Show lines with their targets."""
        self._targets = [target for _, target in lines]
        self.show(content_of(line for line, _ in lines))

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        target = self._targets[at.y] if at is not None and at.y < len(self._targets) else None
        if isinstance(target, Headings):
            if at is not None and (column := heading_at(target.spans, at.x)) is not None:
                self.post_message(self.Sorted(column))
        elif target is not None:
            self.post_message(self.Pointed(target))


class SidePanel(TargetLines):
    """Summary of the cursor's pair, findings, classes, sweep and worst pairs."""

    DEFAULT_CSS = """
    SidePanel { width: 48; height: 100%; padding: 0 1; border-left: vkey $secondary 60%; overflow: hidden; }
    SidePanel.-plain { padding: 0 1 0 2; border-left: none; }
    """

    class Resized(Message):
        """The panel has another size: other lines fit."""

    def __init__(self, glyphs: Glyphs, **place: Any) -> None:
        super().__init__(classes="-plain" if glyphs.plain else None, **place)

    def on_resize(self) -> None:
        self.post_message(self.Resized())


class CellTooltip(TextLine):
    """A line that covers the grid while the mouse is on a cell."""

    DEFAULT_CSS = """
    CellTooltip {
        overlay: screen; position: absolute; height: 1; background: $panel; color: $foreground; display: none;
    }
    """
    at = (0, 0)  #: Position of the mouse.

    def put(self, parts: Line, grid: Region) -> None:
        """Show text at the lower edge of the grid, or at the upper edge if the mouse is at the lower one."""
        self.styles.width = len(plain(parts))
        last = grid.bottom - 1
        self.styles.offset = (grid.x, last if self.at[1] != last else grid.y)
        self.show(Content.assemble(*parts), layout=True)
        self.display = True
