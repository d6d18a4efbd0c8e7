"""Jump mode: a letter on each place that can be gone to, and a key that goes there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from fabtui.screen.terminal.internals import screen_lines
from fabtui.screen.views.detail_base import DetailScreen
from fabtui.screen.views.main import MainScreen
from fabtui.screen.widgets.pair_text import pair_name
from fabtui.screen.widgets.text_line import TextLine

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp

#: Those under the fingers first; two letters where these are not enough would be slower than moving.
LETTERS = "asdfghjklqwertyuiopzxcvbnm"


class Target(NamedTuple):
    """A place that can be gone to.

    Attributes:
        x: Its column on the screen.
        y: Its line on the screen.
        go: Goes there.
    """

    x: int
    y: int
    go: Callable[[], object]


def targets_of(app: FabricApp, screen: Screen[Any]) -> list[Target]:
    """Return the places of a screen, from the top."""
    found: Iterable[Target] = ()
    if isinstance(screen, MainScreen):
        found = [*_tabs(screen), *_nodes(screen), *_worst(screen)]
    elif isinstance(screen, DetailScreen):
        found = [*_sections(screen), *_focusable(screen)]
    else:
        found = _focusable(screen)
    return sorted(found, key=lambda target: (target.y, target.x))[: len(LETTERS)]


def _tabs(screen: MainScreen) -> Iterable[Target]:
    """Yield the layers."""
    tabs = screen.tabs
    if not tabs.region or not tabs.display:
        return
    for start, _, layer in tabs.spans:

        def go(name: str = str(layer)) -> None:
            screen.action_layer(name)

        yield Target(tabs.region.x + start, tabs.region.y, go)


def _nodes(screen: MainScreen) -> Iterable[Target]:
    """Yield the first row in sight of each node of the grid."""
    grid = screen.grid
    if screen.view != "grid" or not grid.region:
        return
    seen: set[str] = set()
    seats = grid.source.rows.seats
    for y in range(grid.region.height):
        row = next((cell[0] for x in range(grid.region.width) if (cell := grid.cell_at(x, y)) is not None), None)
        if row is None or row >= len(seats) or seats[row].node in seen:
            continue
        seen.add(seats[row].node)

        def go(at: int = row) -> None:
            grid.move_to(at, grid.column)

        # Over the index, which is the least of what the row's head says.
        yield Target(grid.region.x + max(0, grid.layout_now().header - 3), grid.region.y + y, go)


def _worst(screen: MainScreen) -> Iterable[Target]:
    """Yield the bad pairs that the side panel or the list names."""
    widget: Widget = screen.panel if screen.view == "grid" else screen.worst_list
    if not widget.display or not widget.region:
        return
    seats = screen.source.axis.seats
    names = {pair_name(seats[bad.row], seats[bad.column]): bad for bad in screen.scope.index.worst(len(LETTERS))}
    for y, text in _texts(screen, widget.region):
        # The panel begins with the cursor's own pair, which is where one is already.
        name = next((name for name in names if name in text), None)
        if name is None or (widget is screen.panel and y == widget.region.y):
            continue
        bad = names.pop(name)

        def go(row: int = bad.row, column: int = bad.column) -> None:
            screen.go_to((row, column))
            if screen.view == "worst":
                screen.worst_list.select_pair(row, column)

        yield Target(max(widget.region.x, widget.content_region.x - 1), y, go)


def _sections(screen: DetailScreen) -> Iterable[Target]:
    """Yield the sections in sight."""
    body = screen.query_one("#detail-body")
    headings = [line[0][0] for line in screen.body_lines(max(20, screen.size.width - 2)) if _is_heading(line)]
    for y, text in _texts(screen, body.region):
        heading = next((one for one in headings if text.startswith(one)), None)
        if heading is None:
            continue
        headings.remove(heading)

        def go(by: int = y - body.region.y) -> None:
            body.scroll_relative(y=by, animate=False)

        yield Target(body.region.x, y, go)


def _is_heading(line: list[tuple[str, str]]) -> bool:
    return bool(line) and line[0][1] == "bold $accent" and not line[0][0].startswith(" ")


def _focusable(screen: Screen[Any]) -> Iterable[Target]:
    """Yield the widgets that take keys."""
    for widget in screen.focus_chain:
        if widget.region:
            yield Target(widget.region.x, widget.region.y, widget.focus)


def _texts(screen: Screen[Any], region: Region) -> Iterable[tuple[int, str]]:
    """Yield what is on the lines of a part of the screen."""
    strips = screen_lines(screen)
    for y in range(max(0, region.y), min(region.bottom, len(strips))):
        yield y, strips[y].crop(region.x, region.right).text


class JumpScreen(ModalScreen[None]):
    """Letters over a screen.

    Args:
        targets: The places, at most as many as there are letters.
    """

    DEFAULT_CSS = """
    JumpScreen { background: transparent; layout: vertical; }
    JumpScreen .letter { position: absolute; width: 3; height: 1; background: $accent; color: $background; }
    JumpScreen #jump-words { dock: bottom; background: $accent; color: $background; }
    """
    BINDING_GROUP_TITLE = "Jump"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", id="jump.leave", tooltip="stay where one is"),
    ]

    def __init__(self, targets: list[Target]) -> None:
        super().__init__()
        self._targets = dict(zip(LETTERS, targets, strict=False))

    def compose(self) -> ComposeResult:
        """Make the letters."""
        for target in self._targets.values():
            letter = TextLine(classes="letter")
            letter.styles.offset = (target.x, target.y)
            yield letter
        yield TextLine(id="jump-words")

    def on_mount(self) -> None:
        """Show the letters."""
        for letter, line in zip(self._targets, self.query(".letter").results(TextLine), strict=True):
            line.show(Content.assemble((f" {letter} ", "bold")))
        self.query_one("#jump-words", TextLine).show(Content(" jump: press a letter; esc leaves"))

    def on_key(self, event: events.Key) -> None:
        """Go where the letter stands; another key leaves."""
        if event.key == "escape":
            return
        event.stop()
        event.prevent_default()
        target = self._targets.get(event.character or "")
        self.dismiss()
        if target is not None:
            self.app.call_after_refresh(target.go)

    def on_click(self, event: events.Click) -> None:
        """Go where the letter stands that was clicked; elsewhere: leave."""
        for target in self._targets.values():
            if event.screen_y == target.y and target.x <= event.screen_x < target.x + 3:
                self.app.call_after_refresh(target.go)
                break
        self.dismiss()

    def action_leave(self) -> None:
        """Stay where one is."""
        self.dismiss()
