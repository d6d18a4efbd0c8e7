"""Queue of the reports of rank hosts to the running test, and the check that busy rank hosts answer."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection
from typing import Self

from fabtui.session.ranks.rank_host import HostFrozen, RankHost, Report

#: Interval (s) between two checks of a rank host.
PERIOD = 1.0
#: Interval (s) at which answers are looked for.
TICK = 0.1
#: Maximum delay (s) of an answer; it comes from a thread that does nothing else, but the node may be crowded.
PATIENCE = 3.0
#: Maximum delay (s) of an answer if the supervisor reports that the process is stopped.
HALTED_PATIENCE = 0.5


class HostReports:
    """Queue of the reports of rank hosts, from entering it as a context until it is left.

    Busy rank hosts are asked every second, so that one that hangs is found before a deadline.

    Args:
        hosts: The rank hosts.
        busy: Returns the nodes on which something runs; the others are not checked.
    """

    def __init__(self, hosts: Collection[RankHost], busy: Callable[[], set[str]] = set) -> None:
        self._hosts = list(hosts)
        self._busy = busy
        self._queue: list[Report] = []
        self._wake = asyncio.Event()
        #: By node: time of the check that has not been answered, and time of the next check after an answer.
        self._asked: dict[str, float] = {}
        self._next: dict[str, float] = {}
        self._numbers = itertools.count()
        self._checking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        for host in self._hosts:
            host.subscribers.append(self.put)
        self._checking = asyncio.create_task(self._check_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        for host in self._hosts:
            host.subscribers.remove(self.put)
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)

    def put(self, report: Report) -> None:
        """Add a report to the queue."""
        self._queue.append(report)
        self._wake.set()

    async def take(self, seconds: float) -> list[Report]:
        """Return the reports in the queue as soon as there are any; none after a number of seconds."""
        if not self._queue:
            self._wake.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                return []
        taken, self._queue = self._queue, []
        return taken

    async def _check_all(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            busy = self._busy()
            for host in self._hosts:
                self._check(host, now, busy=host.node in busy and not host.broken)

    def _check(self, host: RankHost, now: float, *, busy: bool) -> None:
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
                seconds = now - asked
                text = f"the rank host of {node} is frozen: no answer for {seconds:.{0 if seconds >= 2 else 1}f} s"
                self.put(HostFrozen(host, f"{text}, and its process is stopped" if host.halted else text))
        elif now >= self._next.get(node, 0.0) or host.halted:
            self._asked[node] = now
            host.send({"op": "alive", "n": next(self._numbers)})
