"""GPU ranks over NCCL through ctypes, without torch: one thread per GPU, one communicator per pair."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import List, Optional

from fabtui_node.ranks.base import CONNECT, Failed, Rank, Task
from fabtui_node.ranks.engine import Engine, PairLink, RankEndpoint, RankGroup
from fabtui_node.ranks.nccl import log_capture
from fabtui_node.ranks.nccl.collectives import NcclGroup
from fabtui_node.ranks.nccl.communicator import Member, RankGpu
from fabtui_node.ranks.nccl.ctypes_cuda import CudaError
from fabtui_node.ranks.nccl.ctypes_hip import open_driver
from fabtui_node.ranks.nccl.ctypes_nccl import Library, version_text
from fabtui_node.ranks.nccl.transfer import NcclLink

WORLD_CHANNELS = 16
"""Channels of the world's communicator, where NCCL would take up to 32 between any two of its ranks.

Connecting takes half the time and the transfers are as fast. Measured on 8 H200s: 0.54 s instead of 0.97 s, and
315 GB/s instead of 311 at the slowest pair; 8 channels gave 260. The user's NCCL_MAX_CTAS takes precedence.
"""


def _initialise_nvml() -> None:
    try:
        ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2()
    except (OSError, AttributeError):
        # NCCL will report that itself.
        return


class NcclEngine(Engine):
    """NCCL between GPUs."""

    name = "nccl"

    _initialised = False

    def warm(self) -> None:
        """Initialise the driver, which takes most of a start and makes no context yet."""
        try:
            self._initialise()
        except Exception:
            # No driver, or a broken one: load() fails with the same error and reports it.
            return

    def _initialise(self) -> None:
        fd = log_capture.memory_file()
        # Before the driver: the order of its devices is one of these variables.
        self.notes = log_capture.set_environment(fd)
        self.log = log_capture.Log(fd)
        # NCCL queries NVML, which takes 0.1 s to start: in parallel to the driver, which takes seconds.
        threading.Thread(target=_initialise_nvml, name="nvml", daemon=True).start()
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
        versions = self.nccl.name, version_text(self.nccl.code), self.driver.title, self.driver.version()
        return "%s %s, %s %s" % versions

    def attach(self, rank: Rank) -> RankEndpoint:
        """Make the GPU's context and allocate its first memory."""
        began = time.monotonic()
        gpu = RankGpu(rank, self.driver, self.nccl, self.log, self.notes, self.address)
        gpu.largest = self.largest
        self.seconds["contexts"] = max(self.seconds.get("contexts", 0.0), time.monotonic() - began)
        return NcclEndpoint(rank, gpu)


class NcclEndpoint(RankEndpoint):
    """A rank with a GPU."""

    world_channels = WORLD_CHANNELS

    def __init__(self, rank: Rank, gpu: RankGpu) -> None:
        super().__init__(rank)
        self._gpu = gpu

    def prepare(self, size: int, second: bool) -> None:
        """Allocate memory for incoming data, and with ``second`` for outgoing data."""
        try:
            self._gpu.data(size)
            if second:
                self._gpu.source(size)
        except CudaError as error:
            raise Failed.from_error(CONNECT, error, "rank %d: " % self.rank.rank) from None

    def free_memory(self) -> Optional[int]:
        """Return the free memory of the GPU, as if messages took none."""
        return self._gpu.device.memory()[0] + self._gpu.buffers

    def release(self, groups: bool) -> Optional[str]:
        """Release communicators and memory."""
        return self._gpu.release(groups)

    def connect(
        self, task: Task, peer: int, peer_address: str, attempt: int, end: float, ctas: Optional[int] = None
    ) -> PairLink:
        """Make a communicator of two ranks."""
        ranks = sorted([self.rank.rank, peer])
        member = Member.joined(self._gpu, task, "link%d/id" % attempt, ranks, end, ctas)
        return NcclLink(member, peer, 1 - member.me)

    def join(self, task: Task, ranks: List[int], end: float, channels: Optional[int] = None) -> RankGroup:
        """Make a communicator of many ranks."""
        return NcclGroup(Member.joined(self._gpu, task, "group/id", ranks, end, channels), ranks)
