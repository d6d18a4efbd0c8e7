"""A line to type into, at the bottom of the screen: for filters and for places to go to."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input

from fabtui.presentation.wording import MUTED
from fabtui.screen.widgets.text_line import TextLine


class Prompt(Vertical):
    """Asks for a line of text. What is wrong with it is said above it, and it stays open.

    Args:
        purpose: What is asked for, one word.
        hint: What may be typed.
        text: What stands in it at first.
    """

    DEFAULT_CSS = """
    Prompt { height: 2; width: 1fr; background: $panel; }
    Prompt #prompt-line { layout: horizontal; height: 1; }
    Prompt #prompt-purpose { width: auto; padding: 0 1 0 0; }
    Prompt Input { height: 1; width: 1fr; border: none; padding: 0; background: $panel; }
    Prompt Input:focus { border: none; }
    """
    BINDING_GROUP_TITLE = "Prompt"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "close", id="prompt.close", tooltip="leave everything as it is"),
    ]

    class Given(Message):
        """A text was given."""

        def __init__(self, purpose: str, text: str) -> None:
            super().__init__()
            self.purpose = purpose
            self.text = text

    class Closed(Message):
        """Nothing is wanted any more."""

    def __init__(self, purpose: str, hint: str, text: str = "", *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.purpose = purpose
        self._hint = hint
        self._text = text

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield TextLine(id="prompt-hint")
        with Vertical(id="prompt-line"):
            yield TextLine(id="prompt-purpose")
            yield Input(self._text, id="prompt-input", select_on_focus=False)

    def on_mount(self) -> None:
        """Take the keys."""
        line = self.query_one(Input)
        line.cursor_blink = False
        line.focus(scroll_visible=False)
        self.query_one("#prompt-purpose", TextLine).show(Content.styled(self.purpose, "bold $primary"), layout=True)
        self._say_hint()

    def _say_hint(self) -> None:
        self.query_one("#prompt-hint", TextLine).show(Content.styled(self._hint, MUTED))

    def complain(self, text: str) -> None:
        """Say what is wrong with what was typed."""
        self.query_one("#prompt-hint", TextLine).show(Content.styled(text, "bold $error"))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Take back what was said of an earlier text."""
        event.stop()
        if self.is_mounted:
            self._say_hint()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Hand the text on."""
        event.stop()
        self.post_message(self.Given(self.purpose, event.value))

    def on_descendant_blur(self, _: events.DescendantBlur) -> None:
        """Close when the keys go elsewhere."""
        self.post_message(self.Closed())

    def action_close(self) -> None:
        """Leave everything as it is."""
        self.post_message(self.Closed())
