"""A rank over torch.distributed, in a process of its own or in a thread."""

from __future__ import annotations

import time
from typing import Any, Callable, List, Optional

from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, Rank, Task
from fabtui_node.ranks.torch.collectives import TorchGroup
from fabtui_node.ranks.torch.engine import TorchEngine, failure, run_abandonable
from fabtui_node.ranks.torch.transfer import TorchLink


class TorchEndpoint(base.Endpoint):
    """A rank over torch.distributed."""

    def __init__(self, rank: Rank, engine: TorchEngine) -> None:
        super().__init__(rank)
        self._engine = engine

    def run(self, task: Task, work: Callable[[], Any], phase: str, end: float) -> Any:
        """Run a phase so that it can be abandoned."""

        def body() -> Any:
            self._engine.enter()
            return work()

        return run_abandonable(task, body, phase, end)

    def release(self, everything: bool) -> Optional[str]:
        """Release process groups."""
        return self._engine.release(everything)

    def connect(self, task: Task, peer: int, peer_address: str, attempt: int, end: float) -> base.Link:
        """Make a process group of two."""
        me = self.rank.rank
        indices = (0, 1) if me < peer else (1, 0)
        group = self._engine.group(task, "link%d/" % attempt, indices[0], 2, end)
        return TorchLink(self._engine, group, (me, peer), indices, peer_address)

    def join(self, task: Task, ranks: List[int], end: float, channels: Optional[int] = None) -> base.Group:
        """Make a process group of many."""
        began = time.monotonic()
        group = self._engine.group(task, "group/", ranks.index(self.rank.rank), len(ranks), end)
        try:
            self._engine.joined(group, end)
        except Exception as error:
            self._engine.discard(group, True)
            what = "the communicator of %d ranks was not formed" % len(ranks)
            raise failure(CONNECT, what, error, time.monotonic() - began) from None
        return TorchGroup(self._engine, group, self.rank.rank, ranks)
