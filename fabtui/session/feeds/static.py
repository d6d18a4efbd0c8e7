"""Feed of imported files: all events at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fabtui.model.events import Event
from fabtui.model.session_model import Model


class StillFeed:
    """Feed that applies all events at once.

    Args:
        events: Events; each one fits the model.
        badge: Origin, for the status bar.
    """

    can_test = False

    def __init__(self, events: Iterable[Event], badge: str) -> None:
        self.model = Model()
        self.badges: list[str] = [badge]
        self._events = events
        self._listeners: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        """Register a callback for the end of each batch of events."""
        self._listeners.append(changed)

    def pause(self, on: bool) -> None:
        """Do nothing: nothing moves."""

    async def retest(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Do nothing: a file cannot be tested again."""

    async def sweep(self) -> None:
        """Do nothing: a file cannot be tested again."""

    async def look(self, nodes: Sequence[str]) -> None:
        """Do nothing: there are no nodes."""

    def watch(self, on: bool) -> None:
        """Do nothing: nothing can be tested."""

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    async def run(self) -> None:
        """Apply all events."""
        for event in self._events:
            self.model.apply(event)
        for changed in self._listeners:
            changed()
