"""Tries to reach nodes that were lost, or did not answer: which, when, and at what rate."""

from __future__ import annotations

import asyncio
import contextlib
import random

from fabtui.transport.link import LostKind, UnreachableKind

#: Range of the pause (s) before the first try; it doubles with each further one.
FIRST = (1.0, 2.0)
#: Longest pause (s).
LONGEST = 60.0
#: Minimum time (s) between two tries of any nodes.
SPACING = 0.1
#: Minimum duration (s) of a link after which pauses begin with the first again: one that breaks at once will again.
LASTING = 60.0

#: What may pass. A login or a host key that is refused is never offered again: servers lock out who repeats it.
_PASSING: frozenset[UnreachableKind | LostKind] = frozenset(
    ("refused", "timeout", "no-route", "banner", "busy", "closed", "lost", "exit", "frozen", "stalled", "lease")
)


def may_return(kind: UnreachableKind | LostKind) -> bool:
    """Return True if a node that is gone for a kind of reason is tried again."""
    return kind in _PASSING


class Returns:
    """Times of the tries: with growing, jittered pauses for each node, and a bounded rate for all of them."""

    def __init__(self) -> None:
        self._tries: dict[str, int] = {}
        self._free = 0.0
        self._called = asyncio.Event()

    def lasted(self, node: str, seconds: float) -> None:
        """Note how long the link of a node has lasted."""
        if seconds >= LASTING:
            self._tries.pop(node, None)

    def pause(self, node: str) -> float:
        """Return the time (s) until the next try of a node."""
        tries = self._tries[node] = self._tries.get(node, 0) + 1
        return min(LONGEST, random.uniform(*FIRST) * 2.0 ** min(tries - 1, 10))

    async def wait(self, pause: float) -> None:
        """Wait for the time of a try, and for a place among those of other nodes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._called.wait()
        now = asyncio.get_running_loop().time()
        place = self._free = max(now, self._free + SPACING)
        await asyncio.sleep(place - now)

    def call(self) -> None:
        """Try all nodes now."""
        self._called.set()
        self._called = asyncio.Event()
        self._tries.clear()
