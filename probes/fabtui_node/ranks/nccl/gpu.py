"""One GPU of a rank: device, buffers, and the communicators to be released."""

from __future__ import annotations

import time
from typing import List, Optional

from fabtui_node.ranks.base import Rank, remaining
from fabtui_node.ranks.measure import verify
from fabtui_node.ranks.nccl.ctypes_cuda import Device, Driver
from fabtui_node.ranks.nccl.ctypes_nccl import Communicator, Library
from fabtui_node.ranks.nccl.log_capture import Log

DESTROY_TIMEOUT = 10.0
"""Timeout (s) for destroying one healthy communicator."""

ABORT_TIMEOUT = 2.0
"""Timeout (s) for aborting all broken communicators."""

SMALL = 256
"""Size of the buffers for setup messages and pings."""


class Gpu:
    """A GPU with its stream and memory, used by the thread of one rank.

    Attributes:
        rank: Global number of the rank.
        nccl: The NCCL library.
        log: NCCL's log of this process.
        notes: NCCL variables set for the tests.
        address: Data address of the node.
        device: The CUDA device.
        small: Device memory for small messages.
        note: Pinned host memory for small messages.
        sample: Pinned host memory for the blocks that are checked.
    """

    def __init__(self, rank: Rank, driver: Driver, nccl: Library, log: Log, notes: List[str], address: str) -> None:
        self.rank = rank.rank
        self.nccl = nccl
        self.log = log
        self.notes = notes
        self.address = address
        self.device = Device(driver, driver.find(rank.index, rank.uuid))
        self.small = self.device.allocate(SMALL)
        self.note = self.device.pinned(SMALL)
        self.sample = self.device.pinned(verify.SAMPLE)
        self._data, self._data_size = 0, 0
        self._source, self._source_size = 0, 0
        self._outgrown: List[int] = []
        self._done: List[Communicator] = []
        self._broken: List[Communicator] = []

    def data(self, size: int) -> int:
        """Return device memory of at least ``size`` bytes; the same pointer while it is large enough.

        Raises:
            CudaError: There is not enough.
        """
        if size > self._data_size:
            pointer = self.device.allocate(size)
            # Freeing waits for other GPUs as well, see `keep`.
            self._outgrown.append(self._data)
            self._data, self._data_size = pointer, size
        return self._data

    def source(self, size: int) -> int:
        """Return device memory that repeats the pattern of `verify.base`, one period longer than ``size`` bytes.

        So it contains every message of that size to any rank, at the offset `verify.shift`.

        Raises:
            CudaError: There is not enough.
        """
        if size > self._source_size:
            length = size + verify.PERIOD
            pointer = self.device.allocate(length)
            self._outgrown.append(self._source)
            self._source, self._source_size = pointer, size
            self.device.upload(pointer, verify.base(), verify.PERIOD)
            self.device.spread(pointer, verify.PERIOD, length)
        return self._source

    def keep(self, comm: Communicator, broken: bool) -> None:
        """Keep a communicator that is no longer used until `release`.

        Not released at once: freeing its memory waits for every GPU of this process that can access that memory,
        while another thread's launch waits for the driver. With pairs in progress both would wait forever.
        """
        (self._broken if broken else self._done).append(comm)

    def release(self, everything: bool) -> Optional[str]:
        """Release communicators and memory kept so far; nothing may be in progress on any GPU of this process.

        Args:
            everything: Whether healthy communicators are released too, which takes 0.05 to 0.3 s each.

        Returns:
            The error if NCCL does not return from one of them.
        """
        end = time.monotonic() + ABORT_TIMEOUT
        stuck = [text for text in [comm.abort(max(0.1, remaining(end))) for comm in self._broken] if text]
        self._broken.clear()
        if everything:
            done, self._done = self._done, []
            for comm in done:
                comm.retire(DESTROY_TIMEOUT)
            if not stuck:
                outgrown, self._outgrown = self._outgrown, []
                for pointer in filter(None, outgrown):
                    self.device.free(pointer)
        return stuck[0] if stuck else None
