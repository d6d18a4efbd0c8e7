"""A standing lab of network namespaces."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from fabtui.lab.namespaces.network import Network
from fabtui.lab.spec import LabSpec
from fabtui.lab.standing.lab import Order

T = TypeVar("T")


class HeldNetwork:
    """A network whose calls do not block the event loop.

    All of them run in one thread that lives as long as the process: the namespaces end with the thread that made them.
    """

    def __init__(self, order: Order) -> None:
        spec = LabSpec((order.endpoints,) * order.nodes)
        self._order = order
        self._names = spec.names
        self._thread = ThreadPoolExecutor(1)
        self._network: Network | None = None

    async def start(self) -> Path:
        """Make it; return the SSH configuration of its nodes."""
        network = await self._in_thread(self._made)
        return network.ssh_config

    def _made(self) -> Network:
        variables = {
            "FABTUI_LAB_ENDPOINTS": str(self._order.endpoints),
            "FABTUI_LAB_PYTHON": sys.executable,
            # All nodes would have the same GPUs.
            "CUDA_VISIBLE_DEVICES": "",
        }
        self._network = Network(
            Path(self._order.folder),
            rails=self._order.rails,
            management="mgmt0",
            relayed=True,
            variables=variables,
            names=self._names,
        )
        return self._network.__enter__()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @property
    def planted(self) -> list[str]:
        """The faults that are planted."""
        return [] if self._network is None else [fault.text for fault in self._network.faults.values()]

    async def plant(self, texts: Sequence[str]) -> None:
        """Plant faults; raises ValueError if one cannot be planted."""
        network = self._network
        assert network is not None
        await self._in_thread(lambda: network.plant(*texts))

    async def heal(self, places: Sequence[str]) -> None:
        """Take faults back; raises ValueError if there is none at one of the places."""
        network = self._network
        assert network is not None
        await self._in_thread(lambda: network.heal(*places))

    async def close(self) -> None:
        """Take it down."""
        if (network := self._network) is not None:
            await self._in_thread(network.close)
