"""What a terminal gets that is too small for anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.content import Content
from textual.screen import Screen

from fabtui.model.exit_codes import exit_code
from fabtui.presentation.wording import clock_text
from fabtui.screen.views.main_layout import LEAST_HEIGHT, LEAST_WIDTH, is_too_small
from fabtui.screen.widgets.text_line import TextLine

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp


class SmallScreen(Screen[None]):
    """Says how large the terminal would have to be, and how the session stands meanwhile."""

    DEFAULT_CSS = """
    SmallScreen { layout: vertical; overflow: hidden; }
    SmallScreen TextLine { height: 1fr; }
    """
    BINDING_GROUP_TITLE = "Small"

    def compose(self) -> ComposeResult:
        """Make the widget."""
        yield TextLine(id="small")

    def on_mount(self) -> None:
        """Say it."""
        self.draw()

    def on_resize(self) -> None:
        """Say it of another size."""
        self.draw()

    def draw(self) -> None:
        """Say what is needed, and how it stands."""
        if not self.is_mounted or not self.query("#small"):
            return
        app = cast("FabricApp", self.app)
        width, height = app.size
        bad = app.main.scope.index.bad_shown
        plus = "" if app.main.scope.index.complete else "+"
        phase = app.model.phase
        if app.model.exit_code is not None:
            state = "all ok" if exit_code(app.model) == 0 else "done"
        else:
            state = f"{phase.name[:8]} {app.model.done}/{phase.total}" if phase.total else phase.name[:14]
        lines = [
            (f"fabtui needs {LEAST_WIDTH}x{LEAST_HEIGHT}"[-width:], "bold"),
            (f"this is {width}x{height}", ""),
            (f"{bad}{plus} bad pair{'s' * (bad != 1)}", "bold $error" if bad else ""),
            (f"{state} {clock_text(app.elapsed())}", ""),
            ("q quits", "bold"),
        ]
        # Of five lines there may be fewer: how to leave is what must not be missing.
        shown = [*lines[: max(0, height - 1)], lines[-1]][:height] if height < len(lines) else lines
        self.query_one("#small", TextLine).show(Content("\n").join(Content.assemble(line) for line in shown))


def fit(app: FabricApp) -> None:
    """Cover everything where there is no room for it, and uncover it where there is."""
    covered = isinstance(app.screen, SmallScreen)
    if is_too_small(*app.size) and not covered:
        app.push_screen(SmallScreen())
    elif covered and not is_too_small(*app.size):
        app.pop_screen()
