"""Screens that show all of one thing: text that scrolls, under a title, over the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen

from fabtui.presentation.wording import MUTED, Part
from fabtui.screen.command_palette import shown_keys
from fabtui.screen.widgets.side_panel import KeyBar
from fabtui.screen.widgets.text_line import TextLine

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp

#: A column of a table is cut beyond this many characters.
_WIDEST_COLUMN = 44

Lines = list[list[Part]]


def section(title: str, note: str = "") -> Lines:
    """Return a section's heading, after a blank line."""
    return [[], [(title, "bold $accent"), (f"  {note}" if note else "", MUTED)]]


def pairs(rows: list[tuple[str, str]], width: int = 12) -> Lines:
    """Return names with their values, a line each."""
    return [[(f"  {name:<{width}} ", MUTED), (value, "")] for name, value in rows]


def table(headings: list[str], rows: list[list[str]], styles: dict[tuple[int, int], str] | None = None) -> Lines:
    """Return a table, its columns as wide as what is in them.

    Args:
        headings: The columns' names; a column that is empty in every row is left out.
        rows: The cells.
        styles: Styles of single cells, by row and column.
    """
    if not rows:
        return []
    used = [at for at in range(len(headings)) if any(row[at] not in ("", "-") for row in rows)]
    widths = {at: min(_WIDEST_COLUMN, max(len(headings[at]), *(len(row[at]) for row in rows))) for at in used}
    if used:
        # What stands last may run on into the next line.
        widths[used[-1]] = max(len(headings[used[-1]]), *(len(row[used[-1]]) for row in rows))
    lines: Lines = [[("  ", ""), *((f"{headings[at]:<{widths[at]}}  ", MUTED) for at in used)]]
    for number, row in enumerate(rows):
        line: list[Part] = [("  ", "")]
        for at in used:
            style = (styles or {}).get((number, at), "")
            line.append((f"{row[at][: widths[at]]:<{widths[at]}}  ", style))
        lines.append(line)
    return lines


class DetailScreen(Screen[None]):
    """A title, text that scrolls, the keys. Subclasses say what stands in it."""

    DEFAULT_CSS = """
    DetailScreen #detail-title { background: $panel; }
    DetailScreen #detail-body { height: 1fr; scrollbar-size-vertical: 1; }
    DetailScreen #detail-text { height: auto; text-wrap: wrap; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "leave", "back", id="detail.back", tooltip="back to where one came from"),
        Binding("down,j", "scroll(1)", id="detail.down", show=False, tooltip="a line down"),
        Binding("up,k", "scroll(-1)", id="detail.up", show=False, tooltip="a line up"),
        Binding("pagedown,ctrl+d", "scroll_page(1)", id="detail.page-down", show=False, tooltip="a screen down"),
        Binding("pageup,ctrl+u", "scroll_page(-1)", id="detail.page-up", show=False, tooltip="a screen up"),
        Binding("home,g", "scroll_edge(False)", id="detail.top", show=False, tooltip="to the top"),
        Binding("end,G", "scroll_edge(True)", id="detail.bottom", show=False, tooltip="to the bottom"),
    ]

    @property
    def fabric_app(self) -> FabricApp:
        """The app."""
        from fabtui.screen.app import FabricApp

        assert isinstance(self.app, FabricApp)
        return self.app

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield TextLine(id="detail-title")
        with VerticalScroll(id="detail-body", can_focus=False):
            yield TextLine(id="detail-text")
        yield KeyBar(id="detail-keys")

    def on_mount(self) -> None:
        """Show what is known."""
        self.draw()

    def on_resize(self) -> None:
        """Lay the text out anew."""
        self.draw()

    def title_parts(self) -> list[Part]:
        """Return the title."""
        raise NotImplementedError

    def body_lines(self, width: int) -> Lines:
        """Return the text for a width."""
        raise NotImplementedError

    def draw(self) -> None:
        """Show what is known now; costs nothing when that is what is shown."""
        if not self.is_mounted or not self.query("#detail-text"):
            return
        width = max(20, self.size.width - 2)
        self.query_one("#detail-title", TextLine).show(Content.assemble(*self.title_parts()))
        body = Content("\n").join(Content.assemble(*line) for line in self.body_lines(width))
        self.query_one("#detail-text", TextLine).show(body, layout=True)
        self.query_one("#detail-keys", KeyBar).put(shown_keys(self.fabric_app, self), self.size.width)

    def action_leave(self) -> None:
        """Go back to where one came from."""
        self.app.pop_screen()

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one("#detail-body").scroll_relative(y=lines, animate=False)

    def action_scroll_page(self, pages: int) -> None:
        """Scroll by screens."""
        body = self.query_one("#detail-body")
        body.scroll_relative(y=pages * max(1, body.size.height - 1), animate=False)

    def action_scroll_edge(self, end: bool) -> None:
        """Scroll to the top or the bottom."""
        body = self.query_one("#detail-body")
        if end:
            body.scroll_end(animate=False)
        else:
            body.scroll_home(animate=False)

    def on_key_bar_pressed(self, message: KeyBar.Pressed) -> None:
        """Do what a clicked key does."""
        self.call_later(self.run_action, message.action)
