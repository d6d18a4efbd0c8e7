"""GPU ranks over NCCL itself, without torch: one thread a GPU, a communicator a pair, data checked at the far end."""

from __future__ import annotations

import time
from typing import List, Optional

from fabtui_probes.engines import base, nccl_data, nccl_log
from fabtui_probes.engines.base import CONNECT, Failed, Rank, Task
from fabtui_probes.engines.channel import StoreError
from fabtui_probes.engines.cuda_api import CudaError, Device, Driver
from fabtui_probes.engines.nccl_api import Communicator, Library, NcclError, version_text
from fabtui_probes.engines.nccl_link import Member, NcclLink

RETIRE_PATIENCE = 10.0
ABORT_PATIENCE = 5.0

SMALL = 256


class NcclEngine(base.Engine):
    """NCCL between GPUs."""

    name = "nccl"

    def load(self) -> str:
        """Load the driver and NCCL."""
        fd = nccl_log.memory_file()
        self.notes = nccl_log.set_environment(fd)
        self.log = nccl_log.Log(fd)
        began = time.monotonic()
        self.driver = Driver()
        self.seconds["driver"] = time.monotonic() - began
        began = time.monotonic()
        self.nccl = Library(self.library)
        self.seconds["nccl"] = time.monotonic() - began
        return "NCCL %s, CUDA driver %s" % (version_text(self.nccl.code), self.driver.version())

    def attach(self, rank: Rank) -> base.Endpoint:
        """Make the GPU's context and take its first memory."""
        began = time.monotonic()
        endpoint = NcclEndpoint(rank, self)
        self.seconds["contexts"] = max(self.seconds.get("contexts", 0.0), time.monotonic() - began)
        return endpoint


class NcclEndpoint(base.Endpoint):
    """A GPU: its context, stream and memory."""

    def __init__(self, rank: Rank, engine: NcclEngine) -> None:
        super().__init__(rank)
        self.engine = engine
        self.device = Device(engine.driver, engine.driver.find(rank.index, rank.uuid))
        self.small = self.device.allocate(SMALL)
        self.note = self.device.pinned(SMALL)
        self.sample = self.device.pinned(nccl_data.SAMPLE)
        self._data, self._size = 0, 0
        self._done: List[Communicator] = []
        self._broken: List[Communicator] = []

    def data(self, size: int) -> int:
        """Return device memory of at least ``size`` bytes; the same at each call that fits."""
        if size > self._size:
            if self._data:
                old, self._data, self._size = self._data, 0, 0
                self.device.free(old)
            self._data = self.device.allocate(size)
            self._size = size
        return self._data

    def keep(self, comm: Communicator, broken: bool) -> None:
        """Take a communicator that is of no use any more, to be let go of by `rest`.

        Not at once: freeing its memory waits for every GPU of this process that can see that memory, while another
        thread's launch waits for the driver; with pairs under way both would wait for ever.
        """
        (self._broken if broken else self._done).append(comm)

    def rest(self) -> Optional[str]:
        """Let go of all communicators kept so far; nothing may be under way on any GPU of this process.

        Returns:
            What to tell when NCCL does not come back from one of them.
        """
        stuck = [text for text in [comm.abort(ABORT_PATIENCE) for comm in self._broken] if text]
        self._broken.clear()
        done, self._done = self._done, []
        for comm in done:
            comm.retire(RETIRE_PATIENCE)
        return stuck[0] if stuck else None

    def connect(self, task: Task, peer: int, peer_address: str, attempt: int, end: float) -> base.Link:
        """Make a communicator of two."""
        ranks = sorted([self.rank.rank, peer])
        member = self.member(task, "link%d/id" % attempt, ranks, end)
        return NcclLink(member, peer, 1 if self.rank.rank < peer else 0)

    def join(self, task: Task, ranks: List[int], end: float) -> base.Group:
        """Make a communicator of many."""
        from fabtui_probes.engines.nccl_group import NcclGroup

        return NcclGroup(self.member(task, "group/id", ranks, end))

    def member(self, task: Task, key: str, ranks: List[int], end: float) -> Member:
        """Become a member of a communicator whose first rank makes its id."""
        me = ranks.index(self.rank.rank)
        member = Member(self, task, me, len(ranks))
        began = time.monotonic()
        try:
            if me == 0:
                try:
                    unique = self.engine.nccl.unique_id()
                except NcclError as error:
                    task.board.put(key, {"error": base.describe(error)})
                    raise
                task.board.put(key, {"id": unique.hex()})
            else:
                told = task.board.take(key, end)
                if "id" not in told:
                    raise Failed(CONNECT, "rank %d: %s" % (ranks[0], str(told.get("error"))[:2000]))
                unique = bytes.fromhex(str(told["id"])).ljust(128, b"\0")[:128]
            member.lap("meet")
            member.comm.join(unique, me, len(ranks), end)
            member.lap("init")
        except Failed:
            raise
        except (NcclError, CudaError, StoreError, ValueError) as error:
            failed = member.failed(CONNECT, "no communicator of %d ranks" % len(ranks), error, time.monotonic() - began)
            member.leave(broken=True)
            raise failed from None
        return member
