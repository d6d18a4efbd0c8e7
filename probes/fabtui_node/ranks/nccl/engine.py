"""GPU ranks over NCCL through ctypes, without torch: one thread per GPU, one communicator per pair or group."""

from __future__ import annotations

import array
import contextlib
import struct
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from fabtui_node.parsers.lines import bytes_text
from fabtui_node.parsers.nccl import log_lines
from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, TRANSFER, Failed, PairJob, Rank, Task
from fabtui_node.ranks.engine import Engine, PairLink, RankEndpoint, RankGroup, Setup
from fabtui_node.ranks.measure import verify
from fabtui_node.ranks.measure.host_link import HostSteps
from fabtui_node.ranks.measure.verify import ADDING, TWICE, TransferShape, arrived
from fabtui_node.ranks.nccl import log_capture
from fabtui_node.ranks.nccl.communicator import Member, RankGpu
from fabtui_node.ranks.nccl.ctypes_cuda import CudaError, Driver
from fabtui_node.ranks.nccl.ctypes_nccl import FLOAT32, SUM, Library, Transfer, version_text
from fabtui_node.ranks.nccl.gpu_host_link import GpuHostSteps
from fabtui_node.ranks.rank_host import driver_start

#: Channels of the world's communicator, where NCCL would take up to 32 between any two of its ranks.
#: Connecting takes half the time and the transfers are as fast. Measured on 8 H200s: 0.54 s instead of 0.97 s, and 315
#: GB/s instead of 311 at the slowest pair; 8 channels gave 260. The user's NCCL_MAX_CTAS takes precedence.
WORLD_CHANNELS = 16
#: Bytes of the message that makes a connection.
HELLO = 64
#: Size of a message from which on messages are queued and timed one by one; smaller ones are batched.
LARGE = 8 << 20
BATCH = 8

_NUMBERS = struct.Struct("<3q")
_TRANSPORT = 104
#: Bytes of a setup message: three numbers, and the transport that the source uses.
_SETUP = _NUMBERS.size + _TRANSPORT


class NcclEngine(Engine):
    """NCCL between GPUs."""

    name = "nccl"

    _initialised = False

    def warm(self) -> None:
        """Initialise the driver, which takes most of a start and makes no context yet."""
        # No driver, or a broken one: load() fails with the same error and reports it.
        with contextlib.suppress(Exception):
            self._initialise()

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

    def host_steps(self, size: int) -> HostSteps:
        return GpuHostSteps(self._gpu, size)

    def connect(
        self, task: Task, peer: int, peer_address: str, attempt: int, end: float, ctas: Optional[int] = None
    ) -> PairLink:
        ranks = sorted([self.rank.rank, peer])
        member = Member.joined(self._gpu, task, "link%d/id" % attempt, ranks, end, ctas)
        return NcclLink(member, peer, 1 - member.me)

    def join(self, task: Task, ranks: List[int], end: float, channels: Optional[int] = None) -> RankGroup:
        return NcclGroup(Member.joined(self._gpu, task, "group/id", ranks, end, channels), ranks)


class NcclLink(PairLink):
    """Two ranks of a communicator; ``other`` is the number of the peer within it.

    ``alone``: the communicator is of these two only, so that all NCCL prints about it concerns them.
    """

    def __init__(self, member: Member, peer: int, other: int, alone: bool = True) -> None:
        super().__init__(member.gpu.rank, peer)
        self._member = member
        self._gpu = member.gpu
        self._device = member.gpu.device
        self._other = other
        self._alone = alone
        self._not_sent = "the data to rank %d was not sent" % peer
        self._not_received = "no data came from rank %d" % peer

    def _guard(self, what: str, end: float, work: Callable[[], None], late: Optional[ErrorKind] = None) -> None:
        self._member.guard(TRANSFER, what, end, work, late)

    def _lap(self, name: str) -> None:
        self._member.lap(name)

    def _send_setup(
        self, setup: Setup, end: float, transport: Optional[str] = None, what: str = "setup message"
    ) -> None:
        gpu = self._gpu
        text = (transport or "").encode("utf-8", "replace")[:_TRANSPORT]
        gpu.scratch.note[:_SETUP] = _NUMBERS.pack(*setup) + text.ljust(_TRANSPORT, b"\0")

        def work() -> None:
            self._device.upload(gpu.scratch.small, gpu.scratch.note, _SETUP)
            self._member.comm.send(gpu.scratch.small, _SETUP, self._other, self._device.stream, end)

        self._guard("the %s to rank %d was not sent" % (what, self._peer), end, work)

    def _receive_setup(self, end: float, what: str = "setup message") -> Setup:
        gpu = self._gpu

        def work() -> None:
            self._member.comm.receive(gpu.scratch.small, _SETUP, self._other, self._device.stream, end)
            self._device.download(gpu.scratch.note, gpu.scratch.small, _SETUP)

        late = ErrorKind.SETUP_MISSING if what == "setup message" else None
        self._guard("no %s came from rank %d" % (what, self._peer), end, work, late)
        note = bytes(gpu.scratch.note[:_SETUP])
        text = note[_NUMBERS.size :].rstrip(b"\0").decode("utf-8", "replace")
        self._peer_transport = text or self._peer_transport
        setup: Setup = _NUMBERS.unpack(note[: _NUMBERS.size])
        return setup

    def _announced_transport(self) -> Optional[str]:
        # The receiving end of P2P and SHM prints nothing; ranks that meet as a pair exchange transports with verdicts.
        return None if self._alone else self.transport(True)[0]

    def _source(self, size: int) -> int:
        return self._member.memory(TRANSFER, self._gpu.source, size) + verify.shift(self._rank, self._peer, self.test)

    def _data(self, size: int) -> int:
        return self._member.memory(TRANSFER, self._gpu.data, size)

    def _queue(self, sending: bool, data: int, size: int, batches: List[int], end: float) -> None:
        transfer = Transfer(sending, data, size, self._other)
        for batch in batches:
            self._member.comm.together([transfer] * batch, self._device.stream, end)

    @staticmethod
    def _batches(size: int, count: int) -> List[int]:
        batch = 1 if size >= LARGE else BATCH
        return [batch] * (count // batch) + [count % batch] * (count % batch > 0)

    def _timed(self, what: str, end: float, work: Callable[[], None]) -> float:
        events = self._device.events(2)

        def stamped() -> None:
            self._device.record(events[0])
            work()
            self._device.record(events[1])

        self._guard(what, end, stamped)
        return self._device.laps(events)[0]

    def _prepare(self, job: PairJob, sending: bool) -> None:
        if sending:
            self._source(job.bytes)
        else:
            self._gpu.expect(self._expected())
            self._device.fill(self._data(job.bytes), verify.BLANK, job.bytes)

    def _expected(self) -> int:
        return verify.shift(self._peer, self._rank, self.test)

    def _send_warmup(self, size: int, count: int, end: float) -> float:
        data, batches = self._source(size), self._batches(size, count)
        comm, stream = self._member.comm, self._device.stream

        def work() -> None:
            self._queue(True, data, size, batches, end)
            # What is in sockets and queues has not arrived.
            comm.receive(self._gpu.scratch.small, 8, self._other, stream, end)

        seconds = self._timed(self._not_sent, end, work)
        self._lap("%d x %s" % (count, bytes_text(size)))
        return seconds

    def _receive_warmup(self, size: int, count: int, end: float) -> None:
        data, batches = self._data(size), self._batches(size, count)
        comm, stream = self._member.comm, self._device.stream

        def work() -> None:
            self._queue(False, data, size, batches, end)
            comm.send(self._gpu.scratch.small, 8, self._other, stream, end)

        self._guard(self._not_received, end, work)
        self._lap("%d x %s" % (count, bytes_text(size)))
        # The data of the warm-up must not pass for the data of the timed messages.
        self._device.fill(data, verify.BLANK, size)

    def _send_timed(self, job: PairJob, size: int, count: int, untimed: int, end: float) -> None:
        data = self._source(size)
        if job.rate or job.fault:
            self._send_with_fault(job, data, size, count + untimed, end)
        else:
            batches = [1] * untimed + self._batches(size, count)
            self._guard(self._not_sent, end, lambda: self._queue(True, data, size, batches, end))

    def _send_with_fault(self, job: PairJob, data: int, size: int, count: int, end: float) -> None:
        at = min(size, verify.BLOCK) // 2
        right = verify.tile(self._rank, self._peer, self.test)[at % verify.PERIOD]
        pause = size / job.rate if job.rate else 0.0
        for number in range(count):
            if job.fault in ("kill", "stop") and number == count // 2:
                base.signal_self(job.fault)
            if job.fault == "corrupt":
                self._device.fill(data + at, right ^ 0xFF, 1)
            time.sleep(min(pause, base.remaining(end)))
            self._guard(self._not_sent, end, lambda: self._queue(True, data, size, [1], end))
        if job.fault == "corrupt":
            self._device.fill(data + at, right, 1)

    def _receive_timed(self, size: int, count: int, untimed: int, end: float) -> List[float]:
        data, batches = self._data(size), self._batches(size, count)
        events = self._device.events(len(batches) + 1)

        def work() -> None:
            if untimed:
                self._queue(False, data, size, [1], end)
            self._device.record(events[0])
            for turn, batch in enumerate(batches, 1):
                self._queue(False, data, size, [batch], end)
                self._device.record(events[turn])

        self._guard(self._not_received, end, work)
        laps = self._device.laps(events)
        return [laps[turn] / batch for turn, batch in enumerate(batches) for _ in range(batch)]

    def _exchange(self, size: int, count: int, end: float) -> float:
        device, source, data = self._device, self._source(size), self._data(size)
        device.fill(data, verify.BLANK, size)
        pair = [Transfer(True, source, size, self._other), Transfer(False, data, size, self._other)]
        first, last = device.events(2)

        def work() -> None:
            self._member.comm.together(pair, device.stream, end)
            device.record(first)
            for _ in range(count):
                self._member.comm.together(pair, device.stream, end)
            device.record(last)

        self._guard("no data in both directions at once with rank %d" % self._peer, end, work)
        return device.laps([first, last])[0]

    def _difference(self, size: int, end: float) -> Optional[verify.DataDifference]:
        blocks = verify.blocks(size)
        sample, start = self._member.fetch(self._data(size), blocks, end), self._expected()
        return verify.compare(sample, blocks, size, start, self._gpu.earlier(start))

    def _ping(self, count: int, end: float) -> List[float]:
        device, comm, small = self._device, self._member.comm, self._gpu.scratch.small
        if count < 1:
            return []
        events = device.events(count + 1)

        def trip() -> None:
            comm.send(small, 8, self._other, device.stream, end)
            comm.receive(small, 8, self._other, device.stream, end)

        def work() -> None:
            device.record(events[0])
            for event in events[1:]:
                trip()
                device.record(event)

        # The first one makes the connection in the other direction, which may wait for the device.
        lost = "no pong came from rank %d" % self._peer
        self._guard(lost, end, trip)
        self._guard(lost, end, lambda: device.held(work))
        return device.laps(events)

    def _pong(self, count: int, end: float) -> None:
        comm, small, stream = self._member.comm, self._gpu.scratch.small, self._device.stream

        def trips(number: int) -> None:
            for _ in range(number):
                comm.receive(small, 8, self._other, stream, end)
                comm.send(small, 8, self._other, stream, end)

        if count:
            lost = "no ping came from rank %d" % self._peer
            self._guard(lost, end, lambda: trips(1))
            self._guard(lost, end, lambda: self._device.held(lambda: trips(count)))

    def transport(self, sending: bool) -> Tuple[Optional[str], Optional[str], Optional[str]]:
        """Return NCCL's transport, and the address of this end: of the interface it uses, or of the GPU on its bus."""
        me = self._member.me
        src, dst = (me, self._other) if sending else (self._other, me)
        if self._alone:
            self._member.survey()
        via = log_lines.worst(self._member.transports.get((src, dst, sending), ()))
        if via is None:
            return None, self._device.bus_id, None
        nics = self._gpu.log.nics()
        own = log_lines.address_of(via, nics) or self._gpu.address if log_lines.is_network(via) else self._device.bus_id
        return log_lines.short_name(via, nics), own, None

    def raw(self, sending: bool) -> Optional[str]:
        """Return what NCCL printed about a direction, its variables, and the durations of the steps."""
        if not self._alone:
            return None
        pair = (self._member.me, self._other) if sending else (self._other, self._member.me)
        text = log_capture.summary(self._member.lines(), 6, pair)
        return "\n".join(part for part in (text, " ".join(self._gpu.notes), self._member.laps()) if part)

    def log(self) -> Optional[str]:
        return log_capture.summary(self._member.lines()) or None

    def pause(self) -> None:
        self._member.pause()

    def renew(self, task: Task) -> None:
        self._member.renew(task)

    def close(self, broken: bool) -> None:
        if self._alone:
            self._member.leave(broken)


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
            transfers.append(Transfer(True, self._gpu.scratch.small, HELLO, other))
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
        note, small, device = self._gpu.scratch.note, self._gpu.scratch.small, self._device
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
            comm.minimum(self._gpu.scratch.small, device.stream, end)
            iterations()

        # NCCL takes longer to queue a small message than a GPU to send it.
        work = (lambda: device.held(held)) if times > 1 else iterations
        self._member.guard(TRANSFER, "%s of %d bytes did not finish" % (form.kind, form.bytes), end, work)
        return device.laps(events)

    def _wrong(self, form: TransferShape, buffer: int, rounds: int, end: float) -> int:
        me = self._me
        if form.kind not in ADDING:
            pieces = verify.piece_blocks(arrived(form, me))
            blocks = [(piece.offset + offset, length) for piece, parts in pieces for offset, length in parts]
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
        names = {
            via for (src, _, sending), vias in self._member.transports.items() if src == me and sending for via in vias
        }
        return log_lines.short_names(names, self._gpu.log.nics())

    def close(self, broken: bool) -> None:
        self._member.leave(broken, group=True)
