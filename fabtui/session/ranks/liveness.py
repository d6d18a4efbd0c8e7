"""Whether busy rank hosts are still alive: asked each second, so that one that hangs is found before a deadline."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Iterator

from fabtui.session.ranks.rank_host import RankHost

PERIOD = 1.0
#: How often it is looked whether one has answered.
TICK = 0.1
#: A rank host answers from a thread that does nothing else; on a crowded node it may still be late.
PATIENCE = 3.0
#: Unless its node's supervisor says that its process is stopped, from which it does not come back by itself.
HALTED_PATIENCE = 0.5


class Pulse:
    """Asks rank hosts whether they live, and tells of those that are silent.

    Args:
        hosts: The rank hosts.
        busy: Says on which nodes something runs; the others are left alone.
        frozen: Called with a rank host that answered nothing, and for how many seconds.
    """

    def __init__(
        self, hosts: Collection[RankHost], busy: Callable[[], set[str]], frozen: Callable[[RankHost, float], None]
    ) -> None:
        self._hosts = hosts
        self._busy = busy
        self._frozen = frozen
        #: When each busy one was asked what it has not answered, and when one that has answered is to be asked again.
        self._asked: dict[str, float] = {}
        self._next: dict[str, float] = {}

    async def run(self) -> None:
        """Ask for ever; cancel it to stop."""
        numbers = itertools.count()
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            busy = self._busy()
            for host in self._hosts:
                self._look(host, now, numbers, busy=host.node in busy and not host.broken)

    def _look(self, host: RankHost, now: float, numbers: Iterator[int], *, busy: bool) -> None:
        node = host.node
        asked = self._asked.get(node)
        if not busy:
            self._asked.pop(node, None)
            self._next.pop(node, None)
        elif asked is not None and host.heard > asked:
            del self._asked[node]
            self._next[node] = asked + PERIOD
        elif asked is not None:
            if now - asked > (HALTED_PATIENCE if host.halted else PATIENCE):
                del self._asked[node]
                self._frozen(host, now - asked)
        elif now >= self._next.get(node, 0.0) or host.halted:
            self._asked[node] = now
            host.send({"op": "alive", "n": next(numbers)})


def frozen_text(host: RankHost, seconds: float) -> str:
    """Return one line on a rank host that has not answered for some seconds."""
    text = f"the rank host of {host.node} is frozen: it answered nothing for {seconds:.{0 if seconds >= 2 else 1}f} s"
    return f"{text}, and its process is stopped" if host.halted else text
