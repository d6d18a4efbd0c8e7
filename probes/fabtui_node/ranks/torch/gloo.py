"""CPU ranks over gloo: one thread per rank, one process group and one port per pair."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Optional

from fabtui_node.ranks.base import Rank
from fabtui_node.ranks.engine import RankEndpoint
from fabtui_node.ranks.torch.endpoint import TorchEndpoint
from fabtui_node.ranks.torch.engine import TorchEngine

CONNECT_TRIES = 5
"""Times gloo tries to connect a full mesh, each with the group's timeout, before it gives up."""


class GlooEngine(TorchEngine):
    """gloo over TCP between the data addresses."""

    name = "gloo"

    def open(self) -> None:
        """Check that torch has gloo, and that its device can be opened on this node's data address."""
        if not hasattr(self.dist, "ProcessGroupGloo"):
            raise RuntimeError("torch was built without gloo")
        gloo: Any = self.dist.ProcessGroupGloo
        self._options: Any = getattr(gloo, "_Options", None) or gloo.Options
        self._type: Any = gloo
        began = time.monotonic()
        self._type.create_device(hostname=self.address)
        self.seconds["device"] = time.monotonic() - began

    def attach(self, rank: Rank) -> RankEndpoint:
        """Return a rank, once its data address was tried."""
        if rank.address and rank.address != self.address:
            self._type.create_device(hostname=rank.address)
        return TorchEndpoint(rank, self)

    def make(self, store: Any, rank: int, size: int, seconds: float, address: Optional[str]) -> Any:
        """Make a process group whose full mesh gives up in time.

        Each has a port of its own, which is closed with it. Connections to a port of gloo have numbers from 0 on, and
        one that comes too early is kept. At a port of all groups, a stranger would take the places of later peers.
        """
        options = self._options()
        options._timeout = timedelta(seconds=max(0.05, seconds / CONNECT_TRIES))
        options._devices = [self._type.create_device(hostname=address or self.address)]
        options._threads = 1
        return self._type(store, rank, size, options)
