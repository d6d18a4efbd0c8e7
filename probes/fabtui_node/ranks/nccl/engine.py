"""GPU ranks over NCCL itself, without torch: one thread a GPU, a communicator a pair, data checked at the far end."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import List, Optional

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, Failed, Rank, Task
from fabtui_node.ranks.controller_channel import StoreError
from fabtui_node.ranks.nccl import log_capture, verify
from fabtui_node.ranks.nccl.communicator import Member
from fabtui_node.ranks.nccl.ctypes_cuda import CudaError, Device
from fabtui_node.ranks.nccl.ctypes_hip import open_driver
from fabtui_node.ranks.nccl.ctypes_nccl import Communicator, Library, NcclError, version_text
from fabtui_node.ranks.nccl.transfer import NcclLink

RETIRE_PATIENCE = 10.0
ABORT_PATIENCE = 2.0

SMALL = 256

WORLD_CHANNELS = 16
"""Channels of the world's communicator, where NCCL would take up to 32 between any two of its ranks.

Making the connections takes half the time, and as fast they are: measured on 8 H200s, 0.54 s instead of 0.97 s, and
315 GB/s instead of 311 at the slowest pair; 8 channels gave 260. What the user sets in NCCL_MAX_CTAS goes first.
"""


def _raise_nvml() -> None:
    try:
        ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2()
    except (OSError, AttributeError):
        # NCCL will meet that itself, and tell.
        return


class NcclEngine(base.Engine):
    """NCCL between GPUs."""

    name = "nccl"

    _initialised = False

    def warm(self) -> None:
        """Initialise the driver, which takes most of a start and makes no context yet."""
        try:
            self._initialise()
        except Exception:
            # No driver, or one that is broken: load() meets that again, and tells.
            return

    def _initialise(self) -> None:
        fd = log_capture.memory_file()
        # Before the driver: the order of its devices is one of these variables.
        self.notes = log_capture.set_environment(fd)
        self.log = log_capture.Log(fd)
        # NCCL asks NVML, which takes 0.1 s to come up: beside the driver, which takes seconds.
        threading.Thread(target=_raise_nvml, name="nvml", daemon=True).start()
        began = time.monotonic()
        self.driver = open_driver()
        self.seconds["driver"] = time.monotonic() - began
        self._initialised = True

    def load(self) -> str:
        """Load the driver and NCCL."""
        if not self._initialised:
            self._initialise()
        began = time.monotonic()
        self.nccl = Library(self.library, self.driver.amd)
        self.seconds["nccl"] = time.monotonic() - began
        return "%s %s, %s %s" % (
            self.nccl.name,
            version_text(self.nccl.code),
            self.driver.word,
            self.driver.version(),
        )

    def attach(self, rank: Rank) -> base.Endpoint:
        """Make the GPU's context and take its first memory."""
        began = time.monotonic()
        endpoint = NcclEndpoint(rank, self)
        self.seconds["contexts"] = max(self.seconds.get("contexts", 0.0), time.monotonic() - began)
        return endpoint


class NcclEndpoint(base.Endpoint):
    """A GPU: its context, stream and memory."""

    world_channels = WORLD_CHANNELS

    def __init__(self, rank: Rank, engine: NcclEngine) -> None:
        super().__init__(rank)
        self.engine = engine
        self.device = Device(engine.driver, engine.driver.find(rank.index, rank.uuid))
        self.small = self.device.allocate(SMALL)
        self.note = self.device.pinned(SMALL)
        self.sample = self.device.pinned(verify.SAMPLE)
        self._data, self._size = 0, 0
        self._source, self._source_size = 0, 0
        self._outgrown: List[int] = []
        self._done: List[Communicator] = []
        self._broken: List[Communicator] = []

    def prepare(self, size: int, second: bool) -> None:
        """Take memory for what comes in, and with ``second`` for what goes out."""
        try:
            self.data(size)
            if second:
                self.source(size)
        except CudaError as error:
            raise Failed(CONNECT, "rank %d: %s" % (self.rank.rank, error), kind=error.kind) from None

    def data(self, size: int) -> int:
        """Return device memory of at least ``size`` bytes; the same at each call that fits.

        Raises:
            CudaError: There is not that much.
        """
        if size > self._size:
            pointer = self.device.allocate(size)
            # Freeing waits for other GPUs as well, see `keep`.
            self._outgrown.append(self._data)
            self._data, self._size = pointer, size
        return self._data

    def source(self, size: int) -> int:
        """Return device memory that repeats the pattern of `verify.base`, a period longer than ``size`` bytes.

        So every message of that size to any rank lies in it, at the offset that `verify.shift` names.

        Raises:
            CudaError: There is not that much.
        """
        if size > self._source_size:
            whole = size + verify.PERIOD
            pointer = self.device.allocate(whole)
            self._outgrown.append(self._source)
            self._source, self._source_size = pointer, size
            self.device.upload(pointer, verify.base(), verify.PERIOD)
            self.device.spread(pointer, verify.PERIOD, whole)
        return self._source

    def keep(self, comm: Communicator, broken: bool) -> None:
        """Take a communicator that is of no use any more, to be let go of by `rest`.

        Not at once: freeing its memory waits for every GPU of this process that can see that memory, while another
        thread's launch waits for the driver; with pairs under way both would wait for ever.
        """
        (self._broken if broken else self._done).append(comm)

    def rest(self, whole: bool) -> Optional[str]:
        """Let go of communicators and memory kept so far; nothing may be under way on any GPU of this process.

        Args:
            whole: Whether those that are not broken go as well, which takes a good while: 0.05 to 0.3 s each.

        Returns:
            What to tell when NCCL does not come back from one of them.
        """
        end = time.monotonic() + ABORT_PATIENCE
        stuck = [text for text in [comm.abort(max(0.1, base.remaining(end))) for comm in self._broken] if text]
        self._broken.clear()
        if not whole:
            return stuck[0] if stuck else None
        done, self._done = self._done, []
        for comm in done:
            comm.retire(RETIRE_PATIENCE)
        if not stuck:
            outgrown, self._outgrown = self._outgrown, []
            for pointer in filter(None, outgrown):
                self.device.free(pointer)
        return stuck[0] if stuck else None

    def connect(self, task: Task, peer: int, peer_address: str, attempt: int, end: float) -> base.Link:
        """Make a communicator of two."""
        ranks = sorted([self.rank.rank, peer])
        member = self.member(task, "link%d/id" % attempt, ranks, end)
        return NcclLink(member, peer, 1 if self.rank.rank < peer else 0)

    def join(self, task: Task, ranks: List[int], end: float, channels: Optional[int] = None) -> base.Group:
        """Make a communicator of many."""
        from fabtui_node.ranks.nccl.collectives import NcclGroup

        return NcclGroup(self.member(task, "group/id", ranks, end, channels), ranks)

    def member(self, task: Task, key: str, ranks: List[int], end: float, channels: Optional[int] = None) -> Member:
        """Become a member of a communicator whose first rank makes its id."""
        me = ranks.index(self.rank.rank)
        member = Member(self, task, me, len(ranks))
        began = time.monotonic()
        what = "no communicator of %d ranks came about" % len(ranks)
        try:
            if me == 0:
                try:
                    unique = self.engine.nccl.unique_id()
                except NcclError as error:
                    # The others cannot find out why: it is this process that NCCL told.
                    failed = member.failed(CONNECT, what, error, 0.0)
                    task.board.put(key, {"error": failed.text, "error_kind": failed.kind})
                    raise
                task.board.put(key, {"id": unique.hex()})
            else:
                told = task.board.take(key, end)
                if "id" not in told:
                    text = "rank %d: %s" % (ranks[0], str(told.get("error"))[:2000])
                    raise Failed(CONNECT, text, kind=ErrorKind.of(told.get("error_kind")))
                unique = bytes.fromhex(str(told["id"])).ljust(128, b"\0")[:128]
            member.lap("meet")
            member.comm.join(unique, me, len(ranks), end, channels)
            member.lap("init")
        except Failed:
            raise
        except (NcclError, CudaError, StoreError, ValueError) as error:
            failed = member.failed(CONNECT, what, error, time.monotonic() - began)
            member.leave(broken=True)
            raise failed from None
        return member
