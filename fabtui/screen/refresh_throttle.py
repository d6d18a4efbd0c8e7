"""Rate limit for frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: Maximum frame rate (1/s). More would only cost bytes on the way to a distant terminal.
RATE = 15.0


class RefreshThrottle:
    """Calls ``draw`` soon after `request`, at most ``rate`` times a second, and never without a request.

    Args:
        draw: Callback that draws, called in the event loop.
        rate: Maximum frame rate (1/s).
    """

    def __init__(self, draw: Callable[[], object], rate: float = RATE) -> None:
        self._draw = draw
        self._interval = 1.0 / rate
        self._last = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def request(self) -> None:
        """Request a frame; cheap enough to be called for every change."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, self._last + self._interval - loop.time()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._last = asyncio.get_running_loop().time()
        self._draw()
