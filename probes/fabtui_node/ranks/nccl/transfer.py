"""The test of one direction, and of both at once, between two ranks of a communicator of GPUs."""

from __future__ import annotations

import statistics
import struct
import time
from typing import Callable, List, Optional, Tuple

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import TRANSFER, VERIFY, Failed, Measured, PairJob
from fabtui_node.ranks.nccl import log_capture, verify
from fabtui_node.ranks.nccl import log_parser as transport
from fabtui_node.ranks.nccl.communicator import Member
from fabtui_node.ranks.nccl.ctypes_cuda import CudaError
from fabtui_node.ranks.nccl.ctypes_nccl import NcclError, Transfer

BUDGET = 0.05
"""Seconds of timed messages in one direction; fewer are sent where they would take longer."""

PROBE = 4 << 20
"""Bytes of the first message: it tells how long a whole one would take."""

LARGE = 8 << 20
"""Messages from this size on are queued and timed each; smaller ones go eight at once."""

BATCH = 8

SLOW = 0.01
"""Seconds of a message above which the first timed one need not be preceded by one that is not timed."""

_WORDS = struct.Struct("<4q")
_WAY = 96
_NOTE = _WORDS.size + _WAY
"""Bytes of a note to the other side: four numbers, and the sender's words for the way it sends."""

Words = Tuple[int, int, int, int]


class NcclLink(base.Link):
    """Two ranks of a communicator, which may have more of them.

    Args:
        member: This rank's part of the communicator.
        peer: The other rank's global number.
        other: Its number within the communicator.
        alone: Whether the communicator is of these two only, so that all NCCL prints about it concerns them.
    """

    def __init__(self, member: Member, peer: int, other: int, alone: bool = True) -> None:
        self._member = member
        self._endpoint = member.endpoint
        self._device = member.endpoint.device
        self._rank = member.endpoint.rank.rank
        self._peer = peer
        self._other = other
        self._alone = alone

    def _guard(self, what: str, end: float, work: Callable[[], None]) -> None:
        """Queue work, wait for it, and put a failure in words."""
        began = time.monotonic()
        try:
            work()
            self._member.wait(end)
        except (NcclError, CudaError) as error:
            raise self._member.failed(TRANSFER, what, error, time.monotonic() - began) from None

    def _tell(self, words: Words, end: float, what: str, way: Optional[str] = None) -> None:
        note = _WORDS.pack(*words) + (way or "").encode("utf-8", "replace")[:_WAY].ljust(_WAY, b"\0")
        self._endpoint.note[:_NOTE] = note

        def work() -> None:
            self._device.upload(self._endpoint.small, self._endpoint.note, _NOTE)
            self._member.comm.send(self._endpoint.small, _NOTE, self._other, self._device.stream, end)

        self._guard("the %s to rank %d did not go out" % (what, self._peer), end, work)

    def _hear(self, end: float, what: str) -> Tuple[Words, Optional[str]]:
        def work() -> None:
            self._member.comm.receive(self._endpoint.small, _NOTE, self._other, self._device.stream, end)
            self._device.download(self._endpoint.note, self._endpoint.small, _NOTE)

        self._guard("no %s came from rank %d" % (what, self._peer), end, work)
        note = bytes(self._endpoint.note[:_NOTE])
        words: Words = _WORDS.unpack(note[: _WORDS.size])
        return words, note[_WORDS.size :].rstrip(b"\0").decode("utf-8", "replace") or None

    def _queue(self, sending: bool, data: int, size: int, count: int, end: float) -> None:
        transfer = Transfer(sending, data, size, self._other)
        self._member.comm.together([transfer] * count, self._device.stream, end)

    def _batches(self, size: int, count: int) -> List[int]:
        batch = 1 if size >= LARGE else BATCH
        return [batch] * (count // batch) + [count % batch] * (count % batch > 0)

    # -- one direction

    def send(self, job: PairJob, end: float) -> Measured:
        """Be the source: first byte, probe, warm-up, then as many messages as fit the budget, then ping."""
        peer = self._peer
        data = self._memory(self._endpoint.source, job.bytes) + verify.shift(self._rank, peer)
        probe = min(job.bytes, PROBE)
        self._tell((probe, 0, 0, 0), end, "first byte")
        self._member.lap("first byte")
        lost = "the data to rank %d did not go out" % peer
        each = self._timed(lost, end, lambda: self._queue(True, data, probe, 1, end))
        size, warmup = self._plan(job, probe, each, end)
        # The receiving end of P2P and SHM prints nothing; ranks that meet as a pair tell each other in another way.
        way = None if self._alone else self.transport(True)[0]
        self._tell((size, warmup, job.latency_iters, 0), end, "plan", way)
        each = self._timed(lost, end, lambda: self._some(True, data, size, warmup, end)) / warmup
        pause = size / job.rate if job.rate else 0.0
        count = base.fitting(max(each, pause), 4 * BUDGET if pause else BUDGET, job.iters)
        lead = 0 if max(each, pause) > SLOW else 1
        self._tell((count, lead, 0, 0), end, "plan")
        if pause or job.deed:
            self._made(job, data, size, count + lead, pause, end)
        else:
            self._guard(lost, end, lambda: self._some(True, data, size, count, end, lead))
        self._member.lap("data")
        latency = self._ping(job.latency_iters, end)
        self._member.lap("ping")
        return Measured(size, None, latency, self._raw(self._member.me, self._other))

    def _some(self, sending: bool, data: int, size: int, count: int, end: float, lead: int = 0) -> None:
        for batch in [1] * lead + self._batches(size, count):
            self._queue(sending, data, size, batch, end)

    def _made(self, job: PairJob, data: int, size: int, count: int, pause: float, end: float) -> None:
        """Send the timed messages the way a fault of the lab wants it."""
        at = min(size, verify.BLOCK) // 2
        right = verify.tile(self._rank, self._peer)[at % verify.PERIOD]
        for number in range(count):
            if job.deed in ("kill", "stop") and number == count // 2:
                base.strike(job.deed)
            if job.deed == "corrupt":
                self._device.fill(data + at, right ^ 0xFF, 1)
            time.sleep(min(pause, base.remaining(end)))
            lost = "the data to rank %d did not go out" % self._peer
            self._guard(lost, end, lambda: self._queue(True, data, size, 1, end))
        if job.deed == "corrupt":
            self._device.fill(data + at, right, 1)

    def _plan(self, job: PairJob, probe: int, seconds: float, end: float) -> Tuple[int, int]:
        """Return message size and warm-up count: what was asked, smaller where it would outlast the deadline."""
        size = job.bytes
        if job.rate:
            return max(1, min(size, int(job.rate * BUDGET))), 1
        affordable = int(probe / max(seconds, 1e-9) * base.remaining(end) / 8)
        if affordable < size:
            size = max(min(size, probe), base.rounded(affordable))
        return size, max(1, job.warmup)

    def receive(self, job: PairJob, end: float) -> Measured:
        """Be the destination: the messages are timed on the GPU and a sample of the last one is compared."""
        device = self._device
        data = self._memory(self._endpoint.data, job.bytes)
        device.fill(data, verify.BLANK, job.bytes)
        lost = "no data came from rank %d" % self._peer
        probe = self._hear(end, "first byte")[0][0]
        self._member.lap("first byte")
        self._expect(1 <= probe <= job.bytes, "a probe of %d bytes" % probe)
        self._guard(lost, end, lambda: self._queue(False, data, probe, 1, end))
        (size, warmup, pings, _), way = self._hear(end, "plan")
        self._expect(1 <= size <= job.bytes and 1 <= warmup <= max(1, job.warmup), "%d x %d bytes" % (warmup, size))
        self._expect(0 <= pings <= job.latency_iters, "%d pings" % pings)
        self._guard(lost, end, lambda: self._some(False, data, size, warmup, end))
        # What the warm-up left must not pass for what the timed messages bring.
        device.fill(data, verify.BLANK, size)
        count, lead, _, _ = self._hear(end, "plan")[0]
        self._expect(1 <= count <= job.iters and lead in (0, 1), "%d messages" % count)
        laps = self._receive_timed(data, size, count, lead, lost, end)
        self._member.lap("data")
        wrong = self._wrong(data, size, end)
        self._member.lap("check")
        self._pong(pings, end)
        self._member.lap("ping")
        if wrong:
            raise Failed(VERIFY, wrong, raw=self.log(), kind=ErrorKind.VERIFY)
        rate = size * count / max(sum(laps), 1e-9)
        batches = self._batches(size, count)
        times = [laps[turn] / batch for turn, batch in enumerate(batches) for _ in range(batch)]
        return Measured(size, rate, None, self._raw(self._other, self._member.me), tuple(times), way)

    def _receive_timed(self, data: int, size: int, count: int, lead: int, lost: str, end: float) -> List[float]:
        """Receive the timed messages; return the seconds of each batch."""
        batches = self._batches(size, count)
        events = self._device.events(len(batches) + 1)

        def work() -> None:
            if lead:
                self._queue(False, data, size, 1, end)
            self._device.record(events[0])
            for turn, batch in enumerate(batches, 1):
                self._queue(False, data, size, batch, end)
                self._device.record(events[turn])

        self._guard(lost, end, work)
        return self._device.laps(events)

    # -- both directions

    def both(self, size: int, count: int, leading: bool, end: float) -> float:
        """Send and receive each message as one, as NCCL's users do; timed by events."""
        device, peer = self._device, self._peer
        source = self._memory(self._endpoint.source, size) + verify.shift(self._rank, peer)
        data = self._memory(self._endpoint.data, size)
        device.fill(data, verify.BLANK, size)
        if leading:
            self._tell((size, count, 0, 0), end, "plan")
        else:
            said = self._hear(end, "plan")[0]
            self._expect(said[0] == size and 1 <= said[1] <= count, "%d x %d bytes both ways" % (said[1], said[0]))
            count = said[1]
        way = [Transfer(True, source, size, self._other), Transfer(False, data, size, self._other)]
        first, last = device.events(2)

        def work() -> None:
            self._member.comm.together(way, device.stream, end)
            device.record(first)
            for _ in range(count):
                self._member.comm.together(way, device.stream, end)
            device.record(last)

        self._guard("the data did not flow both ways at once with rank %d" % peer, end, work)
        wrong = self._wrong(data, size, end)
        self._member.lap("both")
        if wrong:
            raise Failed(VERIFY, wrong, raw=self.log(), kind=ErrorKind.VERIFY)
        return size * count / max(device.between(first, last), 1e-9)

    def _expect(self, good: bool, what: str) -> None:
        if not good:
            raise Failed(TRANSFER, "the source announced %s" % what, raw=self.log(), kind=ErrorKind.PROTOCOL)

    def _memory(self, take: Callable[[int], int], size: int) -> int:
        try:
            return take(size)
        except CudaError as error:
            raise Failed(TRANSFER, str(error), kind=error.kind) from None

    def _timed(self, what: str, end: float, work: Callable[[], None]) -> float:
        """Return the seconds that work took on the GPU."""
        first, second = self._device.events(2)

        def stamped() -> None:
            self._device.record(first)
            work()
            self._device.record(second)

        self._guard(what, end, stamped)
        return self._device.between(first, second)

    def _wrong(self, data: int, size: int, end: float) -> Optional[str]:
        """Compare a sample of what came with what was sent; return the difference in words."""
        blocks = verify.blocks(size)

        def fetch() -> None:
            at = 0
            for offset, length in blocks:
                self._device.download(self._endpoint.sample, data + offset, length, at)
                at += length

        self._guard("what came could not be read back", end, fetch)
        return verify.compare(bytes(self._endpoint.sample), blocks, self._peer, self._rank)

    def _ping(self, count: int, end: float) -> Optional[float]:
        device, comm, small = self._device, self._member.comm, self._endpoint.small
        if count < 1:
            return None
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
        self._guard(lost, end, lambda: self._held(work))
        return statistics.median(device.laps(events)) / 2

    def _pong(self, count: int, end: float) -> None:
        comm, small, stream = self._member.comm, self._endpoint.small, self._device.stream

        def trips(number: int) -> None:
            for _ in range(number):
                comm.receive(small, 8, self._other, stream, end)
                comm.send(small, 8, self._other, stream, end)

        if count:
            lost = "no ping came from rank %d" % self._peer
            self._guard(lost, end, lambda: trips(1))
            self._guard(lost, end, lambda: self._held(lambda: trips(count)))

    def _held(self, work: Callable[[], None]) -> None:
        """Queue work on a stream held back meanwhile: NCCL takes longer to queue a ping than a GPU to send it."""
        release = self._device.hold()
        try:
            work()
        finally:
            if release is not None:
                release()

    def transport(self, sending: bool) -> Tuple[Optional[str], Optional[str], Optional[str]]:
        """Return NCCL's way, and the address of this end: of the interface it uses, or of the GPU on its bus."""
        me = self._member.me
        src, dst = (me, self._other) if sending else (self._other, me)
        if self._alone:
            self._member.survey()
        way = transport.worst(self._member.ways.get((src, dst, sending), ()))
        if way is None:
            # The receiving end of P2P and SHM prints nothing; what the sending end tells is filled in by the meeting.
            return None, self._device.bus_id, None
        nics = self._endpoint.engine.log.nics()
        if transport.is_network(way):
            own = transport.address_of_way(way, nics) or self._endpoint.engine.address
        else:
            own = self._device.bus_id
        return transport.name_way(way, nics), own, None

    def _raw(self, src: int, dst: int) -> Optional[str]:
        if not self._alone:
            return None
        notes = self._endpoint.engine.notes
        text = log_capture.summary(self._member.lines(), 6, (src, dst))
        return "\n".join(part for part in (text, " ".join(notes), self._member.laps()) if part)

    def log(self) -> Optional[str]:
        """Return NCCL's warnings and connections of this link."""
        return log_capture.summary(self._member.lines()) or None

    def close(self, broken: bool) -> Optional[str]:
        """Let go of the communicator, if it is of these two only."""
        if self._alone:
            self._member.leave(broken)
        return None
