"""Queue of the reports of rank hosts to the running test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from fabtui.session.ranks.rank_host import RankHost, Report


class HostReports:
    """Queue of the reports of rank hosts, from entering it as a context until it is left.

    Args:
        hosts: The rank hosts.
    """

    def __init__(self, hosts: Iterable[RankHost]) -> None:
        self._hosts = list(hosts)
        self._queue: list[Report] = []
        self._wake = asyncio.Event()

    def __enter__(self) -> Self:
        for host in self._hosts:
            host.subscribe(self.put)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in self._hosts:
            host.unsubscribe(self.put)

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
