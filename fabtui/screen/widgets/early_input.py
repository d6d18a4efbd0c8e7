"""Input line that also takes keys pressed before it had the focus."""

from __future__ import annotations

from typing import Any

from textual.events import Key
from textual.widgets import Input


class EarlyInput(Input):
    """Input line of a prompt that opens by a key.

    Keys that follow at once still go to the view below, which passes them on: they may arrive after later ones.
    """

    def __init__(self, value: str = "", **options: Any) -> None:
        super().__init__(value, select_on_focus=False, **options)
        self._early = len(value)

    async def take(self, event: Key) -> bool:
        """Take a key that was pressed before the line had the focus; return False if it is none for a line."""
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
