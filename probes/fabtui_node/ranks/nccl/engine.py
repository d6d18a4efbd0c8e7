"""GPU ranks over NCCL through ctypes, without torch: one thread per GPU, one communicator per pair."""

from __future__ import annotations

import array
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from fabtui_node.parsers.nccl import log_lines
from fabtui_node.ranks.base import CONNECT, TRANSFER, Failed, Rank, Task
from fabtui_node.ranks.engine import Engine, PairLink, RankEndpoint, RankGroup
from fabtui_node.ranks.measure import verify
from fabtui_node.ranks.measure.verify import ADDING, TWICE, TransferShape, arrived
from fabtui_node.ranks.nccl import log_capture
from fabtui_node.ranks.nccl.communicator import Member, RankGpu
from fabtui_node.ranks.nccl.ctypes_cuda import CudaError, Driver
from fabtui_node.ranks.nccl.ctypes_nccl import FLOAT32, SUM, Library, Transfer, version_text
from fabtui_node.ranks.nccl.driver_start import driver_start
from fabtui_node.ranks.nccl.transfer import NcclLink

WORLD_CHANNELS = 16
"""Channels of the world's communicator, where NCCL would take up to 32 between any two of its ranks.

Connecting takes half the time and the transfers are as fast. Measured on 8 H200s: 0.54 s instead of 0.97 s, and
315 GB/s instead of 311 at the slowest pair; 8 channels gave 260. The user's NCCL_MAX_CTAS takes precedence.
"""


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
        start = driver_start()
        self.notes, self.log = start.notes, log_capture.Log(start.log)
        seconds, began = start.wait(), time.monotonic()
        self.driver = Driver()
        self.seconds["driver"] = seconds + time.monotonic() - began
        self._initialised = True

    def load(self) -> str:
        if not self._initialised:
            self._initialise()
        began = time.monotonic()
        self.nccl = Library(self.library)
        self.seconds["nccl"] = time.monotonic() - began
        return "NCCL %s, CUDA driver %s" % (version_text(self.nccl.code), self.driver.version())

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
        return self._gpu.release(groups)

    def connect(
        self, task: Task, peer: int, peer_address: str, attempt: int, end: float, ctas: Optional[int] = None
    ) -> PairLink:
        """Make a communicator of two ranks."""
        ranks = sorted([self.rank.rank, peer])
        member = Member.joined(self._gpu, task, "link%d/id" % attempt, ranks, end, ctas)
        return NcclLink(member, peer, 1 - member.me)

    def join(self, task: Task, ranks: List[int], end: float, channels: Optional[int] = None) -> RankGroup:
        return NcclGroup(Member.joined(self._gpu, task, "group/id", ranks, end, channels), ranks)


HELLO = 64
"""Bytes of the message that makes a connection."""


class NcclGroup(RankGroup):
    """A communicator of many ranks."""

    budget = 0.3

    def __init__(self, member: Member, ranks: List[int]) -> None:
        super().__init__(ranks, member.me)
        self._member = member
        self._gpu = member.gpu
        self._device = member.gpu.device
        self._test = member.task.id  # Its data depends on it.
        self._mark = 0

    def connect(self, peers: List[int], end: float) -> None:
        """Make all connections by one group call; NCCL would make each one separately at its first use."""
        data = self._member.memory(CONNECT, self._gpu.data, HELLO * len(self._ranks))
        transfers = []
        for peer in peers:
            other = self._ranks.index(peer)
            transfers.append(Transfer(True, self._gpu.small, HELLO, other))
            transfers.append(Transfer(False, data + HELLO * other, HELLO, other))
        comm, stream = self._member.comm, self._device.stream
        what = "not all connections to %d ranks were made" % len(peers)
        self._member.guard(CONNECT, what, end, lambda: comm.together(transfers, stream, end))
        self._member.survey()

    def link(self, peer: int) -> NcclLink:
        link = NcclLink(self._member, peer, self._ranks.index(peer), alone=False)
        link.test = self._test
        return link

    def _allocate(self, form: TransferShape) -> int:
        self._mark = self._gpu.log.mark()
        return self._member.memory(TRANSFER, self._gpu.data, form.bytes)

    def _iteration(self, form: TransferShape, buffer: int, end: float) -> Callable[[], None]:
        comm, me, stream = self._member.comm, self._me, self._device.stream
        if form.kind in TWICE:
            transfers = self._transfers(form, buffer, self._member.memory(TRANSFER, self._gpu.source, form.bytes))
            return lambda: comm.together(transfers, stream, end)
        own = buffer + form.chunk * me
        calls: Dict[str, Tuple[Any, ...]] = {
            "all_reduce": ("ncclAllReduce", buffer, buffer, form.values, FLOAT32, SUM),
            "all_gather": ("ncclAllGather", own, buffer, form.values, FLOAT32),
            "reduce_scatter": ("ncclReduceScatter", buffer, own, form.values, FLOAT32, SUM),
            "broadcast": ("ncclBroadcast", buffer, buffer, form.values, FLOAT32, 0),
        }
        name, *arguments = calls[form.kind]
        return lambda: comm.queue(name, stream, end, *arguments)

    def _transfers(self, form: TransferShape, buffer: int, source: int) -> List[Transfer]:
        me, ranks, chunk = self._me, form.ranks, form.chunk
        if form.kind == "sendrecv":
            after, before = (me + 1) % ranks, (me - 1) % ranks
            begin = source + verify.shift(me, after, self._test)
            return [Transfer(True, begin, form.bytes, after), Transfer(False, buffer, form.bytes, before)]
        transfers = []
        for rank in range(ranks):
            # Every rank's chunk has memory of its own, at the place where the pattern is the one for that rank.
            offset = rank * chunk
            offset += (verify.shift(me, rank, self._test) - offset) % verify.PERIOD
            transfers.append(Transfer(True, source + offset, chunk, rank))
            transfers.append(Transfer(False, buffer + rank * chunk, chunk, rank))
        return transfers

    def _fill(self, form: TransferShape, buffer: int, end: float) -> None:
        device, me = self._device, self._me
        if form.kind in ADDING:
            at, length, tile = buffer, form.bytes, verify.reduce_tile(me, self._test)
        else:
            device.fill(buffer, verify.BLANK, form.bytes)
            if form.kind == "all_gather":
                at, length, tile = buffer + me * form.chunk, form.chunk, verify.tile(me, me, self._test)
            elif form.kind == "broadcast" and me == 0:
                at, length, tile = buffer, form.bytes, verify.tile(0, 0, self._test)
            else:
                return

        def work() -> None:
            device.upload(at, tile, min(len(tile), length))
            device.spread(at, len(tile), length)

        self._member.guard(TRANSFER, "the data to send could not be written", end, work)

    def _minimum(self, number: int, end: float) -> int:
        note, small, device = self._gpu.note, self._gpu.small, self._device
        note[:4] = array.array("f", [number]).tobytes()

        def work() -> None:
            device.upload(small, note, 4)
            self._member.comm.minimum(small, device.stream, end)
            device.download(note, small, 4)

        self._member.guard(TRANSFER, "not all ranks reached the barrier", end, work)
        return int(array.array("f", bytes(note[:4]))[0])

    def _timed(self, form: TransferShape, times: int, run: Callable[[], None], end: float) -> List[float]:
        device, comm = self._device, self._member.comm
        events = device.events(times + 1)

        def iterations() -> None:
            device.record(events[0])
            for event in events[1:]:
                run()
                device.record(event)

        def held() -> None:
            # The ranks are not released at one instant; in a ring that would reach those further away only in
            # later iterations, which count (0.25 ms in each of twenty, on 8 H200s).
            comm.minimum(self._gpu.small, device.stream, end)
            iterations()

        # NCCL takes longer to queue a small message than a GPU to send it.
        work = (lambda: device.held(held)) if times > 1 else iterations
        self._member.guard(TRANSFER, "%s of %d bytes did not finish" % (form.kind, form.bytes), end, work)
        return device.laps(events)

    def _wrong(self, form: TransferShape, buffer: int, rounds: int, end: float) -> int:
        me = self._me
        if form.kind not in ADDING:
            pieces = verify.piece_blocks(arrived(form, me))
            blocks = [(piece.offset + offset, length) for piece, found in pieces for offset, length in found]
            return verify.words_wrong(self._member.fetch(buffer, blocks, end), pieces, self._test)
        blocks = verify.blocks(form.bytes)
        if form.kind == "reduce_scatter":
            blocks = [(me * form.chunk + offset, length) for offset, length in verify.blocks(form.chunk)]
        sums, rounding = verify.expected_sums(form.kind, form.ranks, rounds, me, self._test)
        return verify.count_wrong(self._member.fetch(buffer, blocks, end), blocks, sums, rounding)

    def _algorithm(self) -> Optional[str]:
        return log_lines.choice(self._gpu.log.since(self._mark, self._device.ordinal))

    def _rings(self) -> List[List[int]]:
        return self._member.rings

    def _transports(self) -> Optional[str]:
        self._member.survey()
        me = self._me
        found = {
            via for (src, _, sending), vias in self._member.transports.items() if src == me and sending for via in vias
        }
        return log_lines.short_names(found, self._gpu.log.nics())

    def close(self, broken: bool) -> None:
        self._member.leave(broken, group=True)
