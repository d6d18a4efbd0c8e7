"""Base of the detail views: scrolling text under a title, with a key bar."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen

from fabtui.presentation.wording import MUTED, Part, plain
from fabtui.presentation.wrapping import Lines, clipped
from fabtui.screen.context import AppContext, context_of
from fabtui.screen.keys import group_title, shortcut
from fabtui.screen.widgets.key_bar import KeyBar
from fabtui.screen.widgets.text_line import TextLine, content_of

#: Maximum width of a column of a table; the last column may wrap.
_MAX_COLUMN = 44
#: Text of a cell of a table, or text and style.
Cell = str | Part


def section(title: str, note: str = "") -> Lines:
    """Return the heading of a section, after a blank line."""
    return [[], [(title, "bold $accent"), (f"  {note}" if note else "", MUTED)]]


def pairs(rows: list[tuple[str, str]], width: int = 12) -> Lines:
    """Return names with their values, one per line."""
    return [[(f"  {name:<{width}} ", MUTED), (value, "")] for name, value in rows]


def table(headings: list[str], rows: Sequence[Sequence[Cell]]) -> Lines:
    """Return a table. A column that is empty in every row is left out."""
    texts = [[cell if isinstance(cell, str) else cell[0] for cell in row] for row in rows]
    used = [at for at in range(len(headings)) if any(row[at] not in ("", "-") for row in texts)]
    widths = {at: max(len(headings[at]), *(len(row[at]) for row in texts)) for at in used}
    widths |= {at: min(_MAX_COLUMN, widths[at]) for at in used[:-1]}
    lines: Lines = [[("  ", ""), *((f"{headings[at]:<{widths[at]}}  ", MUTED) for at in used)]]
    for row, cells in zip(texts, rows, strict=True):
        line: list[Part] = [("  ", "")]
        for at in used:
            style = "" if isinstance(cells[at], str) else cells[at][1]
            text = row[at][: widths[at]]
            line += [(text, style), (" " * (widths[at] - len(text) + 2), "")]
        lines.append(line)
    return lines


def table_section(title: str, headings: list[str], rows: Sequence[Sequence[Cell]], note: str = "") -> Lines:
    """Return a section with a table; nothing without rows."""
    return section(title, note) + table(headings, rows) if rows else []


def as_text(lines: Lines) -> str:
    """Return lines without styles."""
    return "\n".join(plain(line).rstrip() for line in lines)


def crumbs(screen: TitledScreen) -> list[Part]:
    """Return the way to a view, from the layer of the grid on; only its end if it is long."""
    below: list[TitledScreen] = [one for one in screen.app.screen_stack if isinstance(one, TitledScreen)]
    names = [one.crumb for one in below[: below.index(screen)]] if screen in below else []
    whole = " / ".join(["fabtui", str(screen.context.layer), *names])
    if len(whole) > screen.size.width // 2:
        whole = f"{screen.context.glyphs.ellipsis} / {(names or [''])[-1]}".rstrip(" /")
    return [(f" {whole} /", MUTED)]


class TitledScreen(Screen[None]):
    """View with a title, drawn again for each size."""

    DEFAULT_CSS = "TitledScreen .screen-title { background: $panel; }"

    def __init__(self) -> None:
        super().__init__()
        self.title_line = TextLine(classes="screen-title")

    @property
    def context(self) -> AppContext:
        return context_of(self)

    @property
    def crumb(self) -> str:
        """Name of the view in the way to those opened from it."""
        return group_title(type(self)).lower()

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    @abstractmethod
    def draw(self) -> None:
        """Draw the current state."""

    def action_leave(self) -> None:
        self.app.pop_screen()


class DetailScreen(TitledScreen):
    """Text that scrolls, under a title. Subclasses return the title and the text."""

    DEFAULT_CSS = """
    DetailScreen #detail-body { height: 1fr; scrollbar-size-vertical: 1; }
    DetailScreen #detail-text { height: auto; text-wrap: wrap; }
    """
    BINDING_GROUP_TITLE = "Detail views"
    #: Width of the lines of copied text.
    copy_width = 200
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape,backspace", "leave", "detail.back", "back to the previous view", "back"),
        shortcut("down,j", "scroll(1)", "detail.down", "one line down"),
        shortcut("up,k", "scroll(-1)", "detail.up", "one line up"),
        shortcut("pagedown,ctrl+d", "scroll_page(1)", "detail.page-down", "one screen down"),
        shortcut("pageup,ctrl+u", "scroll_page(-1)", "detail.page-up", "one screen up"),
        shortcut("home,g", "scroll_edge(False)", "detail.top", "top of the text"),
        shortcut("end,G", "scroll_edge(True)", "detail.bottom", "end of the text"),
    ]

    def compose(self) -> ComposeResult:
        yield self.title_line
        with VerticalScroll(id="detail-body", can_focus=False):
            yield TextLine(id="detail-text")
        yield KeyBar(id="detail-keys")

    @abstractmethod
    def title_parts(self) -> list[Part]: ...

    @abstractmethod
    def body_lines(self, width: int) -> Lines: ...

    def draw(self) -> None:
        """Draw the current state; costs nothing if it has not changed."""
        if not self.is_mounted or not self.query("#detail-text"):
            return
        width = max(20, self.size.width - 2)
        parts = [*crumbs(self), *self.title_parts()]
        self.title_line.show(Content.assemble(*clipped(parts, self.size.width, self.context.glyphs.ellipsis)))
        self.query_one("#detail-text", TextLine).show(content_of(self.body_lines(width)), layout=True)

    def action_copy(self) -> None:
        lines = [self.title_parts(), *self.body_lines(self.copy_width)]
        self.context.copy(as_text(lines))

    def action_scroll(self, lines: int) -> None:
        self.query_one("#detail-body").scroll_relative(y=lines, animate=False)

    def action_scroll_page(self, pages: int) -> None:
        body = self.query_one("#detail-body")
        body.scroll_relative(y=pages * max(1, body.size.height - 1), animate=False)

    def action_scroll_edge(self, end: bool) -> None:
        body = self.query_one("#detail-body")
        (body.scroll_end if end else body.scroll_home)(animate=False)
