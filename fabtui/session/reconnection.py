"""Reconnection of lost nodes, and detection of times when this process was suspended (SIGSTOP, sleep)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

from fabtui.transport.link import LostKind, UnreachableKind

#: Range of the pause (s) before the first try; it doubles with each further one.
FIRST = (1.0, 2.0)
#: Longest pause (s).
LONGEST = 60.0
#: Minimum time (s) between two tries of any nodes.
SPACING = 0.1
#: Minimum duration (s) of a link after which pauses begin with the first again: one that breaks at once will again.
LASTING = 60.0

#: Temporary reasons. A refused login or host key is never offered again: servers lock out who repeats it.
_PASSING: frozenset[UnreachableKind | LostKind] = frozenset(
    ("refused", "timeout", "no-route", "banner", "busy", "closed", "lost", "exit", "frozen", "stalled", "lease")
)
#: Interval (s) at which the clock is read.
TICK = 0.5
#: Minimum duration (s) of a suspension; a busy loop is late by less.
LEAST = 5.0
#: Unlike the monotonic clock, it counts while the machine sleeps. Only Linux has it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def may_return(kind: UnreachableKind | LostKind) -> bool:
    """Return True if a node that was lost for this kind of reason is tried again."""
    return kind in _PASSING


class Reconnection:
    """Schedule of reconnection attempts: growing, jittered pauses per node, and a bounded rate over all nodes."""

    def __init__(self) -> None:
        self._tries: dict[str, int] = {}
        self._free = 0.0
        self._called = asyncio.Event()

    def lasted(self, node: str, seconds: float) -> None:
        if seconds >= LASTING:
            self._tries.pop(node, None)

    def pause(self, node: str) -> float:
        """Return the time (s) until the next try of a node."""
        tries = self._tries[node] = self._tries.get(node, 0) + 1
        return min(LONGEST, random.uniform(*FIRST) * 2.0 ** min(tries - 1, 10))

    async def wait(self, pause: float) -> None:
        """Wait until the attempt is due, and for its turn among other nodes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._called.wait()
        now = asyncio.get_running_loop().time()
        place = self._free = max(now, self._free + SPACING)
        await asyncio.sleep(place - now)

    def call(self) -> None:
        self._called.set()
        self._called = asyncio.Event()
        self._tries.clear()


def clock() -> float:
    """Return a time (s) that also counts while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class SuspendDetector:
    """Ends the tests during which this process was suspended, without a verdict.

    ``woke`` is called with the duration (s) of each suspension.
    """

    def __init__(self, woke: Callable[[float], None]) -> None:
        self._woke = woke
        self._last = clock()
        self._guarded: set[asyncio.Task[None]] = set()
        self._ended: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        self._last = clock()
        while True:
            await asyncio.sleep(TICK)
            self.look()

    def look(self) -> None:
        now = clock()
        stood, self._last = now - self._last, now
        if stood < LEAST:
            return
        for task in self._guarded - self._ended:
            self._ended.add(task)
            task.cancel()
        # A busy loop, or one that got no processor, is late as well. Its nodes may have ended meanwhile, too.
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
