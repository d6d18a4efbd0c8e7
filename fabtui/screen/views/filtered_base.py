"""Base of the detail views that show only what has the words that the user types."""

from __future__ import annotations

from typing import ClassVar

from textual import on

from fabtui.screen.views.detail_base import DetailScreen
from fabtui.screen.widgets.prompt import Prompt


class FilteredScreen(DetailScreen):
    """Text under a title, filtered while the user types. Leaving the view shows everything first."""

    #: Purpose and hint of the prompt.
    FILTER_PROMPT: ClassVar[tuple[str, str]]

    def __init__(self) -> None:
        super().__init__()
        #: Words to look for; "" shows everything.
        self.filter = ""
        self._prompt: Prompt | None = None

    def matches(self, text: str) -> bool:
        """Return True if a text has all words of the filter."""
        lowered = text.lower()
        return all(word in lowered for word in self.filter.lower().split())

    async def action_filter(self) -> None:
        await self.ask(*self.FILTER_PROMPT, self.filter)

    async def ask(self, purpose: str, hint: str, text: str) -> None:
        """Open a prompt unless one is open."""
        if self._prompt is None:
            self._prompt = Prompt(purpose, hint, text, id="prompt")
            await self.mount(self._prompt)

    @on(Prompt.Typed)
    def _filter_typed(self, message: Prompt.Typed) -> None:
        if self._prompt is not None and self._prompt.purpose == self.FILTER_PROMPT[0]:
            self.filter = message.text.strip()
            self.draw()

    @on(Prompt.Closed)
    @on(Prompt.Given)
    def _close_prompt(self) -> None:
        prompt, self._prompt = self._prompt, None
        if prompt is not None:
            self.set_focus(None)
            prompt.remove()

    def action_leave(self) -> None:
        """Show everything again, then leave."""
        if self.filter:
            self.filter = ""
            self.draw()
        else:
            super().action_leave()
