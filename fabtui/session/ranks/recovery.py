"""Restart of rank hosts that died or hung, while tests that do not need them go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from fabtui.session.measure.context import TestBed
from fabtui.session.ranks.rank_host import HostRestarted, RankHost


class Recovery:
    """Rank hosts that are being restarted during a pass of tests, those of `nodes`; ``put`` gets the ended restarts."""

    def __init__(self, bed: TestBed, put: Callable[[HostRestarted], None]) -> None:
        self._bed = bed
        self._put = put
        self.nodes: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        #: Nodes that get a standby process as soon as a restarting rank host has loaded the driver.
        self._standbys: dict[RankHost, list[str]] = {}

    @property
    def ends(self) -> set[int]:
        """Endpoints whose rank hosts are being restarted."""
        return {e.number for node in self.nodes for e in self._bed.hosts[node].endpoints}

    def begin(self, host: RankHost) -> None:
        """Restart a rank host in the background; a restart that is under way is waited for."""
        self.nodes.add(host.node)
        task = asyncio.ensure_future(self._restart(host))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _restart(self, host: RankHost) -> None:
        try:
            await host.restart(len(self._bed.endpoints))
        finally:
            self.nodes.discard(host.node)
            if not self._closed:
                self._put(HostRestarted(host))

    def stand_by_after(self, host: RankHost, nodes: Iterable[str]) -> None:
        """Start standby processes on nodes as soon as a restarting rank host has loaded the driver.

        Not sooner: two processes that load the driver at the same time wait for each other.
        """
        self._standbys[host] = sorted(nodes)

    def loaded(self, host: RankHost) -> None:
        """Start the standby processes that waited for a rank host to load the driver."""
        for name in self._standbys.pop(host, ()):
            other = self._bed.hosts[name]
            if not self._closed and (other is host or other.ready):
                other.stand_by()

    def begin_for(self, ends: Iterable[int]) -> None:
        """Restart the rank hosts of endpoints that were left down or are being started."""
        for node in {self._bed.endpoints[end].node for end in ends} - self.nodes:
            host = self._bed.hosts.get(node)
            if host is not None and (host.down or host.starting):
                self.begin(host)

    async def close(self) -> None:
        """Stop waiting for restarts, which go on by themselves, and end all standby processes."""
        self._closed = True
        self._standbys.clear()
        for host in self._bed.hosts.values():
            host.stand_by(on=False)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
