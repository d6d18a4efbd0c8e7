"""Bringing rank hosts back that died or hung, while tests that do not need them go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from fabtui.session.measure.context import TestBed
from fabtui.session.ranks.rank_host import RankHost


class Recovery:
    """The rank hosts that are being started anew during a pass of tests.

    Args:
        bed: What tests share.
        back: Called when one of them can be used again, or is known not to be.

    Attributes:
        nodes: The nodes whose rank hosts are not back yet.
    """

    def __init__(self, bed: TestBed, back: Callable[[], None]) -> None:
        self._bed = bed
        self._back = back
        self.nodes: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._left = False

    @property
    def ends(self) -> set[int]:
        """The endpoints that are not back yet."""
        return {e.number for node in self.nodes for e in self._bed.hosts[node].endpoints}

    def begin(self, host: RankHost) -> None:
        """Bring a rank host back in the background; one that is on its way is waited for."""
        self.nodes.add(host.node)
        task = asyncio.ensure_future(self._bring(host))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bring(self, host: RankHost) -> None:
        try:
            await host.revived(len(self._bed.endpoints))
        finally:
            self.nodes.discard(host.node)
            if not self._left:
                self._back()

    def expect(self, host: RankHost, nodes: Iterable[str]) -> None:
        """Have processes stand by on nodes, once a rank host that is brought back is through with what they will do.

        Not sooner: loading the driver at the same time, each would wait for the other.
        """
        names = sorted(nodes)

        def loaded() -> None:
            host.on_loaded = None
            for name in names:
                other = self._bed.hosts[name]
                if not self._left and (other is host or other.ready):
                    other.stand_by()

        host.on_loaded = loaded

    def begin_for(self, ends: Iterable[int]) -> None:
        """Bring those rank hosts back that endpoints need and that were left down, or are on their way."""
        for node in {self._bed.endpoints[end].node for end in ends} - self.nodes:
            host = self._bed.hosts.get(node)
            if host is not None and (host.down or host.starting):
                self.begin(host)

    async def leave(self) -> None:
        """Wait for none of them any more; they go on by themselves. Nothing stands by any longer."""
        self._left = True
        for host in self._bed.hosts.values():
            host.on_loaded = None
            host.stand_by(on=False)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
