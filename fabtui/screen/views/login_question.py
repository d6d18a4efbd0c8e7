"""Dialog with the questions of a server at a login."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input

from fabtui.presentation.wording import MUTED
from fabtui.screen.keys import shortcut
from fabtui.screen.widgets.text_line import TextLine
from fabtui.transport.login_answers import LoginQuestion


class LoginQuestionScreen(ModalScreen[Sequence[str] | None]):
    """An input line for each question; the result is the answers, or None."""

    DEFAULT_CSS = """
    LoginQuestionScreen { align: center middle; background: $background 60%; }
    LoginQuestionScreen Vertical {
        width: 64; max-width: 100%; height: auto; padding: 1 2; background: $panel; border: outer $accent;
    }
    LoginQuestionScreen.-plain Vertical { border: ascii $accent; }
    LoginQuestionScreen TextLine { height: auto; text-wrap: wrap; }
    LoginQuestionScreen Input { height: 1; border: none; padding: 0; background: $boost; }
    LoginQuestionScreen Input:focus { border: none; }
    """
    BINDING_GROUP_TITLE = "Login"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape", "give_up", "login.cancel", "give no answer: nodes that ask are left out", "no answer"),
    ]

    def __init__(self, question: LoginQuestion, *, plain: bool) -> None:
        super().__init__(classes="-plain" if plain else None)
        self._question = question

    def compose(self) -> ComposeResult:
        question = self._question
        with Vertical():
            yield TextLine(Content.styled(f"{question.node} has a question for {question.user}", "bold"))
            if question.refused:
                yield TextLine(Content.styled("the answer was refused", "bold $error"))
            if question.instruction:
                yield TextLine(Content(question.instruction))
            for text, echo in question.prompts:
                yield TextLine(Content(text))
                yield Input(password=not echo)
            yield TextLine(Content.styled("Enter sends, Esc gives no answer. One answer serves all nodes.", MUTED))

    def on_mount(self) -> None:
        """Wait for the first answer."""
        for line in self.query(Input):
            line.cursor_blink = False
        self.query(Input).first().focus(scroll_visible=False)

    @on(Input.Submitted)
    def _line_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        lines = list(self.query(Input))
        at = lines.index(event.input)
        if at + 1 < len(lines):
            lines[at + 1].focus()
        else:
            self.dismiss([line.value for line in lines])

    def action_give_up(self) -> None:
        self.dismiss(None)


async def ask_in_app(app: App[int], question: LoginQuestion, *, plain: bool) -> Sequence[str] | None:
    """Return the answers that the user gives in a dialog, or None."""
    given: asyncio.Future[Sequence[str] | None] = asyncio.get_running_loop().create_future()

    def take(answers: Sequence[str] | None) -> None:
        if not given.done():
            given.set_result(answers)

    screen = LoginQuestionScreen(question, plain=plain)
    await app.push_screen(screen, take)
    try:
        return await given
    finally:
        if screen.is_current and given.cancelled():
            screen.dismiss(None)
