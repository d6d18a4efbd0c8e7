"""Times in which this process stood still: it was stopped (SIGSTOP, Ctrl+Z), or its machine slept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

#: Interval (s) at which the clock is read.
TICK = 0.5
#: Minimum duration (s) of a standstill; a busy loop is late by less.
LEAST = 5.0

#: Unlike the monotonic clock it goes on while the machine sleeps. Only Linux has it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Return a time in seconds that goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class Standstill:
    """Watch over the tests of a session: those during which the process stood still are ended, and give no verdict.

    ``woke`` is called with the duration (s) of each standstill.
    """

    def __init__(self, woke: Callable[[float], None]) -> None:
        self._woke = woke
        self._last = clock()
        self._guarded: set[asyncio.Task[None]] = set()
        self._ended: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        """Look for standstills, for ever."""
        self._last = clock()
        while True:
            await asyncio.sleep(TICK)
            self.look()

    def look(self) -> None:
        """Read the clock."""
        now = clock()
        stood, self._last = now - self._last, now
        if stood < LEAST:
            return
        for task in self._guarded - self._ended:
            self._ended.add(task)
            task.cancel()
        self._woke(stood)

    def void(self) -> bool:
        """Return True if tests are being ended: what they report now may be due to the standstill."""
        self.look()
        return bool(self._ended)

    async def guard(self, tests: Coroutine[Any, Any, None]) -> bool:
        """Run tests; return False if they were ended because of a standstill."""
        task = asyncio.ensure_future(tests)
        self._guarded.add(task)
        try:
            await asyncio.wait({task})
        finally:
            self._guarded.discard(task)
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            ended = task in self._ended
            self._ended.discard(task)
        if ended:
            # Its exception, if it has one, is a consequence.
            await asyncio.gather(task, return_exceptions=True)
            return False
        task.result()
        return True
