"""Views over all others: a question, and a terminal that is too small."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Input

from fabtui.model.exit_codes import exit_code
from fabtui.presentation.wording import MUTED, clock_text
from fabtui.screen.context import context_of
from fabtui.screen.keys import shortcut
from fabtui.screen.views.main_layout import MIN_HEIGHT, MIN_WIDTH, is_too_small
from fabtui.screen.widgets.text_line import TextLine, content_of
from fabtui.transport.login_answers import LoginQuestion


class Question(ModalScreen[bool]):
    """Yes-or-no question with the consequences of yes, and labels; the result is True or False.

    A detail that is called may change while the question is open.
    """

    DEFAULT_CSS = """
    Question { align: center middle; background: $background 60%; }
    Question #confirm {
        width: 64; max-width: 100%; height: auto; padding: 1 2; background: $panel; border: outer $accent;
    }
    Question TextLine { height: auto; text-wrap: wrap; }
    Question.-plain #confirm { border: ascii $accent; }
    /* A small terminal shows the keys before the details. */
    Question.-small #confirm { border: none; padding: 0; width: 100%; }
    """

    def __init__(self, question: str, detail: str | Callable[[], str], yes: str, no: str, *, plain: bool) -> None:
        super().__init__(classes="-plain" if plain else None)
        self._question = Content.styled(question, "bold")
        self._keys = Content.assemble(("y", "bold $primary"), f" {yes}    ", ("n", "bold $primary"), f" {no}")
        self._detail = detail
        self._detail_line = TextLine()

    def compose(self) -> ComposeResult:
        with Vertical(id="confirm"):
            yield TextLine(self._question)
            yield TextLine(self._keys)
            yield self._detail_line

    def on_mount(self) -> None:
        """Adapt to the size of the terminal, and follow what the detail is about."""
        self._show_detail()
        if callable(self._detail):
            self.set_interval(0.5, self._show_detail)
        self.set_class(self.app.size.width < 70 or self.app.size.height < 14, "-small")

    def _show_detail(self) -> None:
        text = self._detail() if callable(self._detail) else self._detail
        self._detail_line.show(Content.assemble("\n", (text, MUTED)), layout=True)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class ConfirmScreen(Question):
    """Question before the end of the session; the keys that opened it confirm it."""

    BINDING_GROUP_TITLE = "Question"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("y,enter,q,ctrl+c", "answer(True)", "confirm.yes", "confirm", "yes", priority=True),
        shortcut("n,escape", "answer(False)", "confirm.no", "cancel", "no", priority=True),
    ]


class SmallScreen(Screen[None]):
    """Required size of the terminal, and the state of the session."""

    DEFAULT_CSS = """
    SmallScreen { layout: vertical; overflow: hidden; }
    SmallScreen TextLine { height: 1fr; }
    """
    BINDING_GROUP_TITLE = "Small terminal"

    def compose(self) -> ComposeResult:
        yield TextLine(id="small")

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        if not self.is_mounted or not self.query("#small"):
            return
        context = context_of(self)
        model, phase = context.model, context.model.phase
        width, height = self.app.size
        bad, complete = context.bad_pairs()
        state = f"{phase.name[:8]} {model.done}/{phase.total}" if phase.total else phase.name[:14]
        if model.exit_code is not None:
            state = "all ok" if exit_code(model) == 0 and not bad else "done"
        lines = [
            (f"fabtui needs {MIN_WIDTH}x{MIN_HEIGHT}"[-width:], "bold"),
            (f"this is {width}x{height}", ""),
            (f"{bad}{'' if complete else '+'} bad pair{'s' * (bad != 1)}", "bold $error" if bad else ""),
            (f"{state} {clock_text(context.elapsed())}", ""),
            ("q quits", "bold"),
        ]
        # The last line, how to quit, is always shown.
        shown = [*lines[: max(0, height - 1)], lines[-1]][:height] if height < len(lines) else lines
        self.query_one("#small", TextLine).show(content_of([line] for line in shown))


def fit(app: App[int]) -> None:
    covered = isinstance(app.screen, SmallScreen)
    if is_too_small(*app.size) and not covered:
        app.push_screen(SmallScreen())
    elif covered and not is_too_small(*app.size):
        app.pop_screen()


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
