"""What a front end sees of a session, be it live or replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from fabtui.model.session_model import Model


class Feed(Protocol):
    """A source of events with the model they build.

    Attributes:
        model: What is known so far. Only the feed changes it, in the event loop that runs the feed.
        can_test: Whether `retest` and `sweep` do anything (a replay cannot test).
        badges: Short lasting warnings for the status bar, for example ``HOST KEYS NOT CHECKED``.
    """

    model: Model
    can_test: bool
    badges: list[str]

    async def run(self) -> None:
        """Connect, look and sweep; return when the first sweep is done. Nodes stay connected until `close`."""

    async def close(self) -> None:
        """End everything on the nodes and close the journal; bounded in time, safe to call twice and at any moment."""

    def listen(self, changed: Callable[[], None]) -> None:
        """Have ``changed`` called, in the event loop, after each batch of events that went into the model."""

    async def retest(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Test ordered pairs of endpoints (``n060:3``) again, alone; returns when they are done."""

    async def sweep(self) -> None:
        """Run the whole sweep again over the nodes that are left."""

    async def look(self, nodes: Sequence[str]) -> None:
        """Look at nodes again, beside what is tested; returns when that is done. A replay does nothing."""

    def watch(self, on: bool) -> None:
        """Test pairs again in the background while ``on``, suspects and the stalest first; a replay does nothing."""

    def pause(self, on: bool) -> None:
        """Start no new test while ``on``; what runs goes on to its end. A replay stops its clock."""
