"""View of a terminal that is too small for any other."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.content import Content
from textual.screen import Screen

from fabtui.model.exit_codes import exit_code
from fabtui.presentation.wording import clock_text
from fabtui.screen.context import context_of
from fabtui.screen.views.main_layout import MIN_HEIGHT, MIN_WIDTH, is_too_small
from fabtui.screen.widgets.text_line import TextLine


class SmallScreen(Screen[None]):
    """Required size of the terminal, and the state of the session."""

    DEFAULT_CSS = """
    SmallScreen { layout: vertical; overflow: hidden; }
    SmallScreen TextLine { height: 1fr; }
    """
    BINDING_GROUP_TITLE = "Small terminal"

    def compose(self) -> ComposeResult:
        """Compose the view."""
        yield TextLine(id="small")

    def on_mount(self) -> None:
        """Draw the first frame."""
        self.draw()

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.draw()

    def draw(self) -> None:
        """Draw the current state."""
        if not self.is_mounted or not self.query("#small"):
            return
        context = context_of(self)
        model, phase = context.model, context.model.phase
        width, height = self.app.size
        bad, complete = context.bad_pairs()
        if model.exit_code is not None:
            state = "all ok" if exit_code(model) == 0 else "done"
        else:
            state = f"{phase.name[:8]} {model.done}/{phase.total}" if phase.total else phase.name[:14]
        lines = [
            (f"fabtui needs {MIN_WIDTH}x{MIN_HEIGHT}"[-width:], "bold"),
            (f"this is {width}x{height}", ""),
            (f"{bad}{'' if complete else '+'} bad pair{'s' * (bad != 1)}", "bold $error" if bad else ""),
            (f"{state} {clock_text(context.elapsed())}", ""),
            ("q quits", "bold"),
        ]
        # The last line, how to quit, is always shown.
        shown = [*lines[: max(0, height - 1)], lines[-1]][:height] if height < len(lines) else lines
        self.query_one("#small", TextLine).show(Content("\n").join(Content.assemble(line) for line in shown))


def fit(app: App[int]) -> None:
    """Cover the current view while the terminal is too small."""
    covered = isinstance(app.screen, SmallScreen)
    if is_too_small(*app.size) and not covered:
        app.push_screen(SmallScreen())
    elif covered and not is_too_small(*app.size):
        app.pop_screen()
