"""Asking for a filter or for a place to go to, in a line at the bottom of the main screen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fabtui.errors import InputError
from fabtui.sanitize import one_line
from fabtui.screen.views.main_zoom import ZoomingScreen

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp
    from fabtui.screen.widgets.prompt import Prompt


class PromptingScreen(ZoomingScreen):
    """What the main screen asks for before it shows something else.

    Args:
        app: The app.
    """

    def __init__(self, app: FabricApp) -> None:
        super().__init__(app)
        self._prompt: Prompt | None = None

    def action_filter(self) -> None:
        """Ask for a filter."""
        from fabtui.screen.grid.filter import HINT

        self._ask("filter", HINT, self.scope.filter.text if self.scope.filter is not None else "")

    def action_unfilter(self) -> None:
        """Show all cells again."""
        if self.scope.filter is not None:
            self.note_cursor()
            self.scope.take_filter(None)
            self.show_scope()

    def action_jump(self) -> None:
        """Ask for a place to go to."""
        from fabtui.screen.grid.goto import HINT

        self._ask("go to", HINT)

    def _ask(self, purpose: str, hint: str, text: str = "") -> None:
        from fabtui.screen.widgets.prompt import Prompt

        if self.view == "connecting" or self._prompt is not None:
            return
        self.note_cursor()
        self._prompt = Prompt(purpose, hint, text, id="prompt")
        self.mount(self._prompt)

    def on_prompt_closed(self) -> None:
        """Go on without."""
        self._close_prompt()

    def _close_prompt(self) -> None:
        prompt, self._prompt = self._prompt, None
        if prompt is not None:
            self.set_focus(self.query_one(f"#{self.view}"), scroll_visible=False)
            prompt.remove()

    async def on_prompt_given(self, message: Prompt.Given) -> None:
        """Take what was typed, or say what is wrong with it."""
        try:
            if message.purpose == "filter":
                await self._take_filter(message.text)
            else:
                self._jump_to(message.text)
        except InputError as error:
            if self._prompt is not None:
                self._prompt.complain(one_line(str(error), 300))
        else:
            self._close_prompt()

    async def _take_filter(self, text: str) -> None:
        from fabtui.screen.grid.filter import read_filter

        # Groups of nodes may be asked of programs of the site.
        chosen = await asyncio.to_thread(read_filter, text, list(self.model.nodes))
        self.scope.take_filter(chosen)
        self.show_scope()

    def _jump_to(self, text: str) -> None:
        from fabtui.screen.grid.goto import read_place

        scope = self.scope
        axis = scope.source.axis
        row, column = read_place(text, axis)
        here = (scope.place_of(scope.pair) if scope.pair is not None else None) or (0, min(1, axis.size - 1))
        place = (here[0] if row is None else row, here[1] if column is None else column)
        if not scope.shows(*place):
            raise InputError(f"the filter hides {text.strip()[:80]}: u shows all again")
        if ":" not in text and row is not None and column is not None:
            # Two nodes: to what is worst between them.
            place = scope.index.worst_of(axis.node_at[row], axis.node_at[column])
        self.go_to(place)
