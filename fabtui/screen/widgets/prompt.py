"""Input line at the bottom of the screen, for filters and places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import DescendantBlur, Key
from textual.message import Message
from textual.widgets import Input

from fabtui.presentation.wording import MUTED
from fabtui.screen.keys import shortcut
from fabtui.screen.widgets.text_line import TextLine


class EarlyInput(Input):
    """Input line of a prompt that opens by a key.

    Keys that follow at once still go to the view below, which passes them on: they may arrive after later ones.
    """

    def __init__(self, value: str = "", **options: Any) -> None:
        super().__init__(value, select_on_focus=False, **options)
        self._early = len(value)

    async def take(self, event: Key) -> bool:
        """Take a key that was pressed before the line had the focus; return False if a line has no use for it."""
        if event.key == "enter":
            await self.action_submit()
        elif event.character is not None and event.is_printable:
            # Before what was typed into the line itself.
            self.insert(event.character, self._early)
            self._early += len(event.character)
            self.cursor_position = len(self.value)
        else:
            return False
        return True


class Prompt(Vertical):
    """Asks for a line of text. It stays open, and shows the problem, if the text is not valid."""

    DEFAULT_CSS = """
    Prompt { height: 2; width: 1fr; background: $panel; }
    Prompt #prompt-line { layout: horizontal; height: 1; }
    Prompt #prompt-purpose { width: auto; padding: 0 1 0 0; }
    Prompt Input { height: 1; width: 1fr; border: none; padding: 0; background: $panel; }
    Prompt Input:focus { border: none; }
    """
    BINDING_GROUP_TITLE = "Prompt"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape", "close", "prompt.close", "close the prompt without changes", "close")
    ]

    @dataclass
    class Given(Message):
        """The user has entered a text."""

        purpose: str
        text: str

    @dataclass
    class Typed(Message):
        """The user has changed the text, and has not entered it yet."""

        text: str

    class Closed(Message):
        """The user has left the prompt."""

    def __init__(self, purpose: str, hint: str, text: str = "", *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.purpose = purpose
        self._hint = Content.styled(hint, MUTED)
        self._input = EarlyInput(text, id="prompt-input")
        self._hint_line = TextLine(id="prompt-hint")

    def compose(self) -> ComposeResult:
        yield self._hint_line
        with Vertical(id="prompt-line"):
            yield TextLine(Content.styled(self.purpose, "bold $primary"), id="prompt-purpose")
            yield self._input

    def on_mount(self) -> None:
        self._input.cursor_blink = False
        self._input.focus(scroll_visible=False)
        self._hint_line.show(self._hint)
        # Notifications are shown above it.
        self.screen.add_class("-prompt")

    def on_unmount(self) -> None:
        self.screen.remove_class("-prompt")

    async def take(self, event: Key) -> bool:
        """Take a key that was pressed before the input line had the focus; return False if a line has no use for it."""
        return await self._input.take(event)

    def complain(self, text: str) -> None:
        self._hint_line.show(Content.styled(text, "bold $error"))

    @on(Input.Changed)
    def _text_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._hint_line.show(self._hint)
        self.post_message(self.Typed(event.value))

    @on(Input.Submitted)
    def _text_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Given(self.purpose, event.value))

    @on(DescendantBlur)
    def action_close(self) -> None:
        self.post_message(self.Closed())
