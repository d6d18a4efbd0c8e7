"""Jump mode: letters on the places of a view; pressing a letter goes there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from fabtui.presentation.wrapping import HEADING
from fabtui.screen.keys import shortcut
from fabtui.screen.terminal.internals import screen_lines
from fabtui.screen.views.detail_base import DetailScreen
from fabtui.screen.views.main import MainScreen
from fabtui.screen.widgets.pair_text import pair_name
from fabtui.screen.widgets.text_line import TextLine

#: Home row first. Two letters per place would be slower than moving the cursor.
LETTERS = "asdfghjklqwertyuiopzxcvbnm"


class JumpTarget(NamedTuple):
    """A place of the screen to go to."""

    x: int
    y: int
    go: Callable[[], object]


def targets_of(screen: Screen[Any]) -> list[JumpTarget]:
    if isinstance(screen, MainScreen):
        found = [*_tabs(screen), *_nodes(screen), *_worst(screen)]
    else:
        found = [*_sections(screen)] if isinstance(screen, DetailScreen) else []
        found += [JumpTarget(one.region.x, one.region.y, one.focus) for one in screen.focus_chain if one.region]
    return sorted(found, key=lambda target: (target.y, target.x))[: len(LETTERS)]


def _tabs(screen: MainScreen) -> Iterable[JumpTarget]:
    tabs = screen.tabs
    for start, _, layer in tabs.spans if tabs.region and tabs.display else ():
        yield JumpTarget(tabs.region.x + start, tabs.region.y, partial(screen.action_layer, str(layer)))


def _nodes(screen: MainScreen) -> Iterable[JumpTarget]:
    grid = screen.grid
    if screen.view != "grid" or not grid.region:
        return
    seen: set[str] = set()
    entries = grid.source.rows.entries
    for y in range(grid.region.height):
        row = next((cell[0] for x in range(grid.region.width) if (cell := grid.cell_at(x, y)) is not None), None)
        if row is None or row >= len(entries) or entries[row].node in seen:
            continue
        seen.add(entries[row].node)
        # Over the index of the endpoint, the least important part of the row heading.
        x = grid.region.x + max(0, grid.layout_now().header - 3)
        yield JumpTarget(x, grid.region.y + y, partial(grid.move_to, row, grid.column))


def _worst(screen: MainScreen) -> Iterable[JumpTarget]:
    widget: Widget = screen.panel if screen.view == "grid" else screen.worst_pairs
    if not widget.display or not widget.region:
        return
    entries = screen.source.axis.entries
    names = {
        pair_name(entries[bad.row], entries[bad.column]): bad for bad in screen.view_state.index.worst(len(LETTERS))
    }
    for y, text in _texts(screen, widget.region):
        # The first line of the panel is the pair under the cursor.
        name = next((name for name in names if name in text), None)
        if name is None or (widget is screen.panel and y == widget.region.y):
            continue
        bad = names.pop(name)

        def go(row: int = bad.row, column: int = bad.column) -> None:
            screen.go_to((row, column))
            if screen.view == "worst":
                screen.worst_pairs.select_pair(row, column)

        yield JumpTarget(max(widget.region.x, widget.content_region.x - 1), y, go)


def _sections(screen: DetailScreen) -> Iterable[JumpTarget]:
    body = screen.query_one("#detail-body")
    starts = [line[0] for line in screen.body_lines(max(20, screen.size.width - 2)) if line]
    headings = [text for text, style in starts if style == HEADING and not text.startswith(" ")]
    for y, text in _texts(screen, body.region):
        heading = next((one for one in headings if text.startswith(one)), None)
        if heading is None:
            continue
        headings.remove(heading)
        yield JumpTarget(body.region.x, y, partial(body.scroll_relative, y=y - body.region.y, animate=False))


def _texts(screen: Screen[Any], region: Region) -> Iterable[tuple[int, str]]:
    strips = screen_lines(screen)
    for y in range(max(0, region.y), min(region.bottom, len(strips))):
        yield y, strips[y].crop(region.x, region.right).text


class JumpScreen(ModalScreen[None]):
    """Letters over the places of a view, at most one per letter."""

    DEFAULT_CSS = """
    JumpScreen { background: transparent; layout: vertical; }
    JumpScreen .letter { position: absolute; width: 3; height: 1; background: $accent; color: $background; }
    JumpScreen #jump-hint { dock: bottom; background: $accent; color: $background; }
    """
    BINDING_GROUP_TITLE = "Jump"
    BINDINGS: ClassVar[list[BindingType]] = [shortcut("escape", "leave", "jump.leave", "leave jump mode", "back")]

    def __init__(self, targets: list[JumpTarget]) -> None:
        super().__init__()
        self._targets = dict(zip(LETTERS, targets, strict=False))

    def compose(self) -> ComposeResult:
        for letter, target in self._targets.items():
            line = TextLine(Content.styled(f" {letter} ", "bold"), classes="letter")
            line.styles.offset = (target.x, target.y)
            yield line
        yield TextLine(Content(" jump: press a letter, esc to leave"), id="jump-hint")

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            return
        event.stop()
        event.prevent_default()
        target = self._targets.get(event.character or "")
        self.dismiss()
        if target is not None:
            self.app.call_after_refresh(target.go)

    def on_click(self, event: events.Click) -> None:
        for target in self._targets.values():
            if event.screen_y == target.y and target.x <= event.screen_x < target.x + 3:
                self.app.call_after_refresh(target.go)
                break
        self.dismiss()

    def action_leave(self) -> None:
        self.dismiss()
