"""A standing lab of SSH servers on loopback addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from fabtui.lab.namespaces.faults import Fault, Shape, parse_faults, places_of
from fabtui.lab.server import PARENT_CHECK, LabServer, end_all
from fabtui.lab.spec import LabSpec
from fabtui.lab.standing.lab import Order

#: What the faults of nodes are called in `fabtui.lab.spec`.
_KINDS = {"stop": "hang", "down": "down"}


class HeldServers:
    """The nodes of `fabtui.lab.server`, whose faults come and go."""

    def __init__(self, order: Order) -> None:
        spec = LabSpec((order.endpoints,) * order.nodes)
        self._shape = Shape(spec.names, 0)
        self._server = LabServer(spec, (), Path(order.folder))
        self._faults: dict[str, Fault] = {}
        self._reaping: asyncio.Task[None] | None = None

    async def start(self) -> Path:
        """Make it; return the SSH configuration of its nodes."""
        await self._server.listen()
        self._reaping = asyncio.create_task(self._reap())
        return self._server.ssh_config

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(PARENT_CHECK)
            self._server.reap_orphans()

    @property
    def planted(self) -> list[str]:
        """The faults that are planted."""
        return [fault.text for fault in self._faults.values()]

    async def plant(self, texts: Sequence[str]) -> None:
        """Plant faults; raises ValueError if one cannot be planted."""
        for fault in parse_faults(texts, self._shape, self._faults.values()):
            self._faults[fault.where] = fault
            await self._server.turn(fault.nodes[0], _KINDS[fault.kind.name])

    async def heal(self, places: Sequence[str]) -> None:
        """Take faults back; raises ValueError if there is none at one of the places."""
        for where in places_of(places, self._faults):
            await self._server.turn(self._faults.pop(where).nodes[0], "")

    async def close(self) -> None:
        """Take it down."""
        if self._reaping is not None:
            self._reaping.cancel()
        # Stopped processes end as well: the signals are SIGTERM, and then SIGKILL.
        await end_all(self._server)
