"""A recording as a feed: the same events into the same model, at any speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from fabtui.model.events import Event, LogEntry, Paused
from fabtui.model.recording import DamagedRecording, apply_recorded, read_events
from fabtui.model.session_model import Model

#: Events closer together than this many seconds of replay time go into the model together.
_TICK = 0.03


class ReplayFeed:
    """Plays a recording.

    Args:
        path: The recording.
        speed: How many recorded seconds pass in one; None: as fast as can be.

    Raises:
        InputError: When it runs: the file is not a recording.
    """

    can_test = False

    def __init__(self, path: Path, speed: float | None = None) -> None:
        self.model = Model()
        self.badges: list[str] = [f"RECORDING {path.name}"]
        self._path = path
        self._speed = speed
        self._listeners: list[Callable[[], None]] = []
        self._go = asyncio.Event()
        self._go.set()
        self._closed = False

    def listen(self, changed: Callable[[], None]) -> None:
        """Have ``changed`` called after each batch of events."""
        self._listeners.append(changed)

    def pause(self, on: bool) -> None:
        """Stop the clock of the replay while ``on``."""
        if on:
            self._go.clear()
        else:
            self._go.set()
        self.model.paused = on
        self._tell()

    async def retest(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Do nothing: a recording cannot be tested again."""

    async def sweep(self) -> None:
        """Do nothing: a recording cannot be tested again."""

    async def look(self, nodes: Sequence[str]) -> None:
        """Do nothing: the nodes of a recording are not there."""

    def watch(self, on: bool) -> None:
        """Do nothing: a recording cannot be tested again."""

    async def close(self) -> None:
        """Stop playing."""
        self._closed = True
        self._go.set()

    async def run(self) -> None:
        """Play to the end, or to where the recording is damaged, which is told then.

        Raises:
            InputError: The file is not a recording.
        """
        try:
            await self._play()
        except DamagedRecording as damage:
            self.badges.append("DAMAGED, SHOWN IN PART")
            text = f"{damage}; what comes after it is left out"
            self.model.apply(LogEntry(level="error", text=text, time=self.model.now))
        self._tell()

    async def _play(self) -> None:
        behind = 0.0
        last: float | None = None
        events = iter(read_events(self._path))
        count = 0
        while not self._closed and (event := next(events, None)) is not None:
            time = event.time
            if self._speed is not None and last is not None:
                behind += max(0.0, time - last) / self._speed
            last = time
            if behind > _TICK:
                self._tell()
                await asyncio.sleep(behind)
                behind = 0.0
            await self._go.wait()
            self._apply(event)
            count += 1
            if count % 200 == 0:
                self._tell()
                await asyncio.sleep(0)

    def _apply(self, event: Event) -> None:
        paused = self.model.paused
        apply_recorded(self.model, event, self._path)
        if isinstance(event, Paused):
            # The recorded session's pause is not the replay's.
            self.model.paused = paused

    def _tell(self) -> None:
        for changed in self._listeners:
            changed()
