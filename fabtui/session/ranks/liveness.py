"""Liveness of busy rank hosts, checked every second, so that one that hangs is found before a deadline."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Iterator

from fabtui.session.ranks.rank_host import HostFrozen, RankHost

#: Interval (s) between two checks of a rank host.
PERIOD = 1.0
#: Interval (s) at which answers are looked for.
TICK = 0.1
#: Maximum delay (s) of an answer; it comes from a thread that does nothing else, but the node may be crowded.
PATIENCE = 3.0
#: Maximum delay (s) of an answer if the supervisor reports that the process is stopped.
HALTED_PATIENCE = 0.5


class Pulse:
    """Checks rank hosts and reports those that do not answer.

    Args:
        hosts: The rank hosts.
        busy: Returns the nodes on which something runs; the others are not checked.
        put: Queue for the reports.
    """

    def __init__(
        self, hosts: Collection[RankHost], busy: Callable[[], set[str]], put: Callable[[HostFrozen], None]
    ) -> None:
        self._hosts = hosts
        self._busy = busy
        self._put = put
        #: By node: time of the check that has not been answered, and time of the next check after an answer.
        self._asked: dict[str, float] = {}
        self._next: dict[str, float] = {}

    async def run(self) -> None:
        """Check until cancelled."""
        numbers = itertools.count()
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            busy = self._busy()
            for host in self._hosts:
                self._check(host, now, numbers, busy=host.node in busy and not host.broken)

    def _check(self, host: RankHost, now: float, numbers: Iterator[int], *, busy: bool) -> None:
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
                self._put(HostFrozen(host, now - asked))
        elif now >= self._next.get(node, 0.0) or host.halted:
            self._asked[node] = now
            host.send({"op": "alive", "n": next(numbers)})


def frozen_text(host: RankHost, seconds: float) -> str:
    """Return the error of a rank host that has not answered for some seconds."""
    text = f"the rank host of {host.node} is frozen: no answer for {seconds:.{0 if seconds >= 2 else 1}f} s"
    return f"{text}, and its process is stopped" if host.halted else text
