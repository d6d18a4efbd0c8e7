"""Many changes, few frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: Frames a second at most. More would only cost bytes on the way to a terminal far away.
RATE = 15.0


class Pulse:
    """Calls ``draw`` soon after `beat`, but not more often than ``rate`` times a second; never when nothing beats.

    Args:
        draw: What draws, called in the event loop.
        rate: Frames a second at most.
    """

    def __init__(self, draw: Callable[[], None], rate: float = RATE) -> None:
        self._draw = draw
        self._between = 1.0 / rate
        self._last = float("-inf")
        self._waiting: asyncio.TimerHandle | None = None

    def beat(self) -> None:
        """Say that something changed; cheap, to be called for every change."""
        if self._waiting is not None:
            return
        loop = asyncio.get_running_loop()
        wait = max(0.0, self._last + self._between - loop.time())
        self._waiting = loop.call_later(wait, self._fire)

    def _fire(self) -> None:
        self._waiting = None
        self._last = asyncio.get_running_loop().time()
        self._draw()

    def stop(self) -> None:
        """Draw nothing more."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
