"""Feeds without nodes: imported files all at once, and a recording at any speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from fabtui.model.events import Event, LogEntry, Paused
from fabtui.model.recording import DamagedRecording, apply_recorded, read_events
from fabtui.model.session_model import Model
from fabtui.session.feeds.base import Feed

#: Maximum distance (s of replay time) of events that are applied together.
_TICK = 0.03


class StillFeed(Feed):
    """Feed that applies all events at once; each one fits the model. The badge names their origin."""

    can_test = False

    def __init__(self, events: Iterable[Event], badge: str) -> None:
        self.model = Model()
        self.badges: list[str] = [badge]
        self._events = events
        self._listeners: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        """Register a callback for the end of each batch of events."""
        self._listeners.append(changed)

    async def run(self) -> None:
        """Apply all events."""
        for event in self._events:
            self.model.apply(event)
        self._notify()

    def _notify(self) -> None:
        for changed in self._listeners:
            changed()


class ReplayFeed(StillFeed):
    """Feed that plays a recording; ``speed`` in recorded seconds per second, None: as fast as possible."""

    def __init__(self, path: Path, speed: float | None = None) -> None:
        super().__init__((), f"RECORDING {path.name}")
        self._path = path
        self._speed = speed
        self._go = asyncio.Event()
        self._go.set()
        self._closed = False

    def pause(self, on: bool) -> None:
        """Stop the clock of the replay while ``on``."""
        if on:
            self._go.clear()
        else:
            self._go.set()
        self.model.paused = on
        self._notify()

    async def close(self) -> None:
        """Stop playing."""
        self._closed = True
        self._go.set()

    async def run(self) -> None:
        """Play to the end, or to the damaged place of the recording, and report the damage.

        Raises:
            InputError: The file is not a recording.
        """
        try:
            await self._play()
        except DamagedRecording as damage:
            self.badges.append("DAMAGED, SHOWN IN PART")
            text = f"{damage}; what follows is left out"
            self.model.apply(LogEntry(level="error", text=text, time=self.model.now))
        self._notify()

    async def _play(self) -> None:
        behind = 0.0
        last: float | None = None
        for count, event in enumerate(read_events(self._path), 1):
            if self._closed:
                return
            if self._speed is not None and last is not None:
                behind += max(0.0, event.time - last) / self._speed
            last = event.time
            if behind > _TICK:
                self._notify()
                await asyncio.sleep(behind)
                behind = 0.0
            await self._go.wait()
            paused = self.model.paused
            apply_recorded(self.model, event, self._path)
            if isinstance(event, Paused):
                # The recorded session's pause is not the replay's.
                self.model.paused = paused
            if count % 200 == 0:
                self._notify()
                await asyncio.sleep(0)
