"""A question before something is ended that cannot be taken back."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from fabtui.presentation.wording import MUTED
from fabtui.screen.widgets.text_line import TextLine


class ConfirmScreen(ModalScreen[bool]):
    """Asks whether to do something; gives True or False.

    Args:
        question: The question.
        detail: What happens when it is done.
        yes: What doing it is called.
        no: What leaving it is called.
    """

    DEFAULT_CSS = """
    ConfirmScreen { align: center middle; background: $background 60%; }
    ConfirmScreen #confirm {
        width: 64; max-width: 100%; height: auto; padding: 1 2; background: $panel; border: outer $accent;
    }
    ConfirmScreen TextLine { height: auto; text-wrap: wrap; }
    ConfirmScreen.-plain #confirm { border: ascii $accent; }
    /* Where there is little room: the keys before the details. */
    ConfirmScreen.-small #confirm { border: none; padding: 0; width: 100%; }
    """
    BINDING_GROUP_TITLE = "Question"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter,q,ctrl+c", "answer(True)", "yes", id="confirm.yes", priority=True, tooltip="do it"),
        Binding("n,escape", "answer(False)", "no", id="confirm.no", priority=True, tooltip="leave it"),
    ]

    def __init__(self, question: str, detail: str, yes: str, no: str, *, plain: bool) -> None:
        super().__init__(classes="-plain" if plain else None)
        self._texts = (question, detail)
        self._words = (yes, no)

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        with Vertical(id="confirm"):
            yield TextLine(id="confirm-question")
            yield TextLine(id="confirm-keys")
            yield TextLine(id="confirm-detail")

    def on_mount(self) -> None:
        """Show the question."""
        self.set_class(self.app.size.width < 70 or self.app.size.height < 14, "-small")
        question, detail = self._texts
        yes, no = self._words
        self.query_one("#confirm-question", TextLine).show(Content.assemble((question, "bold")), layout=True)
        self.query_one("#confirm-detail", TextLine).show(Content.assemble("\n", (detail, MUTED)), layout=True)
        keys = Content.assemble(("y", "bold $primary"), f" {yes}    ", ("n", "bold $primary"), f" {no}")
        self.query_one("#confirm-keys", TextLine).show(keys, layout=True)

    def action_answer(self, yes: bool) -> None:
        """Give the answer."""
        self.dismiss(yes)
