"""Text of known size: lines, the side panel, and the value under the mouse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.color import TRANSPARENT
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.style import Style
from textual.widgets import Static

from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import Part, plain
from fabtui.presentation.wrapping import Line
from fabtui.screen.terminal.ansi_strips import pack
from fabtui.screen.terminal.internals import color_system
from fabtui.screen.widgets.headings import Span, heading_at


def content_of(lines: Iterable[Line]) -> Content:
    return Content("\n").join(Content.assemble(*line) for line in lines)


class TextLine(Static):
    """Text without markup. The same text again costs nothing, and other text needs no layout.

    Lines that do not wrap are drawn here: Textual's own way takes eight times as long for each line.
    """

    DEFAULT_CSS = "TextLine { height: 1; width: 1fr; text-wrap: nowrap; text-overflow: clip; }"
    ALLOW_SELECT = False
    #: Text and style at the left end of each line, within the padding.
    edge: Part = ("", "")

    def __init__(self, content: Content | None = None, **place: Any) -> None:
        self.shown = content or Content("")
        #: Lines as drawn, the colours and the width that they were drawn with, and the styles of their parts.
        self._strips: dict[int, Strip] = {}
        self._drawn_with: tuple[object, ...] = ()
        self._rich_styles: dict[str | Style, RichStyle] = {}
        super().__init__(self.shown, markup=False, **place)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines in view, each with as few escape sequences as it needs."""
        system = color_system(self.app)
        if self.styles.text_wrap == "wrap":
            strips = super().render_lines(crop)
            for strip in strips:
                pack(strip, system)
            return strips
        drawn_with = (self.visual_style, self.app.theme_variables, system, self.size, self.gutter)
        if drawn_with != self._drawn_with:
            self._drawn_with = drawn_with
            self._rich_styles.clear()
            self._strips.clear()
        for y in range(crop.y, crop.bottom):
            if y not in self._strips:
                self._strips[y] = self._strip(y)
                pack(self._strips[y], system)
        strips = [self._strips[y] for y in range(crop.y, crop.bottom)]
        whole = crop.width == self.outer_size.width
        return strips if whole else [strip.crop(crop.x, crop.right) for strip in strips]

    def _strip(self, y: int) -> Strip:
        blank, (_, right, _, left) = self.visual_style.rich_style, self.gutter
        styled = [Segment(text, self._rich_style(style)) for text, style in self._parts(y) if text]
        content = Strip(styled).adjust_cell_length(self.size.width, blank)
        text, style = self.edge
        ends = [Segment(text, self._rich_style(style)), Segment(" " * (left - len(text)), blank)]
        strip = Strip([one for one in (*ends, *content, Segment(" " * right, blank)) if one.text])
        for one in self.get_line_filters():
            strip = strip.apply_filter(one, self.visual_style.background or TRANSPARENT)
        return strip

    def _parts(self, y: int) -> Iterable[tuple[str, str | Style]]:
        lines = self.shown.split(allow_blank=True)
        return lines[y].render(end="", parse_style=self._get_style) if y < len(lines) else ()

    def _rich_style(self, style: str | Style) -> RichStyle:
        found = self._rich_styles.get(style)
        if found is None:
            found = self._rich_styles[style] = (self.visual_style + self._get_style(style)).rich_style
        return found

    def show(self, content: Content, *, layout: bool = False) -> None:
        """Show text; ``layout``: the size of the widget depends on it."""
        if not content.is_same(self.shown):
            self.shown = content
            self._strips.clear()
            self.update(content, layout=layout)


#: Width with the edges. A wide screen allows more.
PANEL_WIDTH = 48
PANEL_WIDTHS = (80, 64, PANEL_WIDTH)
#: Width of the edges.
PANEL_EDGES = 3


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

    class Pointed(Message):
        """A line with a target was clicked."""

        def __init__(self, target: int | tuple[int, int]) -> None:
            super().__init__()
            self.target = target

    class Sorted(Message):
        """A heading was clicked."""

        def __init__(self, column: int) -> None:
            super().__init__()
            self.column = column

    _targets: Sequence[Target] = ()
    _lines: Sequence[Line] = ()

    @property
    def text(self) -> str:
        return "\n".join(map(plain, self._lines))

    @property
    def headings(self) -> Headings | None:
        """Headings of the table among the lines, or None."""
        return next((one for one in self._targets if isinstance(one, Headings)), None)

    def put(self, lines: Sequence[TargetLine]) -> None:
        """Show lines; only those that differ from the previous ones are drawn."""
        before, self._lines = self._lines, [line for line, _ in lines]
        self._targets = [target for _, target in lines]
        changed = [y for y, (old, new) in enumerate(zip_longest(before, self._lines)) if old != new]
        for y in changed:
            self._strips.pop(y, None)
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def _parts(self, y: int) -> Iterable[tuple[str, str | Style]]:
        return self._lines[y] if y < len(self._lines) else ()

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
    SidePanel { width: 48; height: 100%; padding: 0 1 0 2; text-wrap: nowrap; overflow: hidden; }
    """

    class Resized(Message):
        """The panel has another size: other lines fit."""

    def __init__(self, glyphs: Glyphs, **place: Any) -> None:
        super().__init__(**place)
        self.edge = ("", "") if glyphs.plain else ("▏", "$secondary 60%")

    def on_resize(self) -> None:
        self.post_message(self.Resized())


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
