"""all_reduce over a communicator of many GPUs, with a sum that is checked."""

from __future__ import annotations

import array
import time
from typing import TYPE_CHECKING, Callable, Optional

from fabtui_probes.engines import base, nccl_data, nccl_log, transport
from fabtui_probes.engines.base import TRANSFER, Failed, Reduced
from fabtui_probes.engines.cuda_api import CudaError
from fabtui_probes.engines.nccl_api import MAX, NcclError

if TYPE_CHECKING:
    from fabtui_probes.engines.nccl_link import Member

BUDGET = 0.3
"""Seconds of timed sums of one size."""


class NcclGroup(base.Group):
    """A communicator of many ranks."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._endpoint = member.endpoint
        self._device = member.endpoint.device

    def _guard(self, what: str, end: float, work: Callable[[], None]) -> None:
        began = time.monotonic()
        try:
            work()
            self._member.wait(end)
        except (NcclError, CudaError) as error:
            raise self._member.failed(TRANSFER, what, error, time.monotonic() - began) from None

    def _reduce(self, data: int, count: int, times: int, end: float) -> None:
        for _ in range(times):
            self._member.comm.all_reduce(data, count, self._device.stream, end)

    def _largest(self, seconds: float, end: float) -> float:
        """Return the largest of what all ranks bring; also a barrier."""
        note, small, device = self._endpoint.note, self._endpoint.small, self._device
        note[:4] = array.array("f", [seconds]).tobytes()

        def work() -> None:
            device.upload(small, note, 4)
            self._member.comm.all_reduce(small, 1, device.stream, end, MAX)
            device.download(note, small, 4)

        self._guard("the ranks did not come together", end, work)
        return float(array.array("f", bytes(note[:4]))[0])

    def _timed(self, data: int, count: int, times: int, end: float) -> float:
        device = self._device
        first, second = device.event(), device.event()
        try:

            def work() -> None:
                device.record(first)
                self._reduce(data, count, times, end)
                device.record(second)

            self._guard("all_reduce of %d bytes did not finish" % (4 * count), end, work)
            return device.between(first, second) / times
        finally:
            device.forget([first, second])

    def _fill(self, data: int, size: int, end: float) -> None:
        tile = nccl_data.reduce_tile(self._member.me)

        def work() -> None:
            self._device.upload(data, tile, min(len(tile), size))
            self._device.spread(data, len(tile), size)

        self._guard("the data could not be made", end, work)

    def _wrong(self, data: int, size: int, rounds: int, end: float) -> int:
        blocks = nccl_data.blocks(size)

        def fetch() -> None:
            at = 0
            for offset, length in blocks:
                self._device.download(self._endpoint.sample, data + offset, length, at)
                at += length

        self._guard("the sums could not be read back", end, fetch)
        return nccl_data.count_wrong(bytes(self._endpoint.sample), blocks, self._member.size, rounds)

    def all_reduce(self, size: int, iters: int, warmup: int, end: float) -> Reduced:
        """Check one sum exactly, warm up, then time as many as fit the budget and check what they add up to."""
        size = max(4, size - size % 4)
        count = size // 4
        try:
            data = self._endpoint.data(size)
        except CudaError as error:
            raise Failed(TRANSFER, str(error)) from None
        self._fill(data, size, end)
        each = self._timed(data, count, 1, end)
        wrong = self._wrong(data, size, 1, end)
        if warmup > 1:
            times = base.bounded_sums(self._member.size, warmup - 1)
            self._fill(data, size, end)
            each = self._timed(data, count, times, end)
        longest = self._largest(each, end)
        timed = base.fitting(longest, min(BUDGET, base.remaining(end) / 3), iters)
        timed = base.bounded_sums(self._member.size, timed)
        self._fill(data, size, end)
        self._largest(0.0, end)
        seconds = self._timed(data, count, timed, end)
        wrong += self._wrong(data, size, timed, end)
        return Reduced(seconds, wrong, self._ways())

    def _ways(self) -> Optional[str]:
        """Return the ways out of this GPU that NCCL named, the worst first."""
        lines = self._member.lines()
        nics = self._endpoint.engine.log.nics()
        found = set()
        for line in lines:
            channel = transport.parse_channel(line.text)
            if channel is not None and channel.src == self._member.me and channel.direction != "receive":
                found.add(channel.via)
        ordered = sorted(found, key=lambda via: (-transport.rank_of_way(via), via))
        names = []
        for via in ordered:
            name = transport.name_way(via, nics)
            if name not in names:
                names.append(name)
        return " + ".join(names) or None

    def log(self) -> Optional[str]:
        """Return NCCL's warnings and connections of this group."""
        return nccl_log.summary(self._member.lines()) or None

    def close(self, broken: bool) -> Optional[str]:
        """Let go of the communicator."""
        self._member.leave(broken)
        return None
