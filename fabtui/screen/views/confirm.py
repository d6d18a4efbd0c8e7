"""Confirmation of an action that cannot be undone."""

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
    """Yes-or-no question; the result is True or False.

    Args:
        question: The question.
        detail: Consequences of yes.
        yes: Label of yes.
        no: Label of no.
    """

    DEFAULT_CSS = """
    ConfirmScreen { align: center middle; background: $background 60%; }
    ConfirmScreen #confirm {
        width: 64; max-width: 100%; height: auto; padding: 1 2; background: $panel; border: outer $accent;
    }
    ConfirmScreen TextLine { height: auto; text-wrap: wrap; }
    ConfirmScreen.-plain #confirm { border: ascii $accent; }
    /* A small terminal shows the keys before the details. */
    ConfirmScreen.-small #confirm { border: none; padding: 0; width: 100%; }
    """
    BINDING_GROUP_TITLE = "Question"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter,q,ctrl+c", "answer(True)", "yes", id="confirm.yes", priority=True, tooltip="confirm"),
        Binding("n,escape", "answer(False)", "no", id="confirm.no", priority=True, tooltip="cancel"),
    ]

    def __init__(self, question: str, detail: str, yes: str, no: str, *, plain: bool) -> None:
        super().__init__(classes="-plain" if plain else None)
        self._question = Content.styled(question, "bold")
        self._keys = Content.assemble(("y", "bold $primary"), f" {yes}    ", ("n", "bold $primary"), f" {no}")
        self._detail = Content.assemble("\n", (detail, MUTED))

    def compose(self) -> ComposeResult:
        """Compose the dialog."""
        with Vertical(id="confirm"):
            for content in (self._question, self._keys, self._detail):
                yield TextLine(content)

    def on_mount(self) -> None:
        """Adapt to the size of the terminal."""
        self.set_class(self.app.size.width < 70 or self.app.size.height < 14, "-small")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
