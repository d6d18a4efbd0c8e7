"""Transfer test between two ranks of an NCCL communicator."""

from __future__ import annotations

import struct
import time
from typing import Callable, List, Optional, Tuple

from fabtui_node.parsers.lines import bytes_text
from fabtui_node.parsers.nccl import log_lines
from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import TRANSFER, PairJob, Task
from fabtui_node.ranks.engine import PairLink, Setup
from fabtui_node.ranks.measure import verify
from fabtui_node.ranks.nccl import log_capture
from fabtui_node.ranks.nccl.communicator import Member
from fabtui_node.ranks.nccl.ctypes_nccl import Transfer

LARGE = 8 << 20
"""Size of a message from which on messages are queued and timed one by one; smaller ones are batched."""

BATCH = 8

_NUMBERS = struct.Struct("<3q")
_TRANSPORT = 104
_SETUP = _NUMBERS.size + _TRANSPORT
"""Bytes of a setup message: three numbers, and the transport that the source uses."""


class NcclLink(PairLink):
    """Two ranks of a communicator, which may have more.

    Args:
        member: This rank's part of the communicator.
        peer: The other rank's global number.
        other: Its number within the communicator.
        alone: Whether the communicator is of these two only, so that all NCCL prints about it concerns them.
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
        gpu.note[:_SETUP] = _NUMBERS.pack(*setup) + text.ljust(_TRANSPORT, b"\0")

        def work() -> None:
            self._device.upload(gpu.small, gpu.note, _SETUP)
            self._member.comm.send(gpu.small, _SETUP, self._other, self._device.stream, end)

        self._guard("the %s to rank %d was not sent" % (what, self._peer), end, work)

    def _receive_setup(self, end: float, what: str = "setup message") -> Setup:
        gpu = self._gpu

        def work() -> None:
            self._member.comm.receive(gpu.small, _SETUP, self._other, self._device.stream, end)
            self._device.download(gpu.note, gpu.small, _SETUP)

        late = ErrorKind.SETUP_MISSING if what == "setup message" else None
        self._guard("no %s came from rank %d" % (what, self._peer), end, work, late)
        note = bytes(gpu.note[:_SETUP])
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
            comm.receive(self._gpu.small, 8, self._other, stream, end)

        seconds = self._timed(self._not_sent, end, work)
        self._lap("%d x %s" % (count, bytes_text(size)))
        return seconds

    def _receive_warmup(self, size: int, count: int, end: float) -> None:
        data, batches = self._data(size), self._batches(size, count)
        comm, stream = self._member.comm, self._device.stream

        def work() -> None:
            self._queue(False, data, size, batches, end)
            comm.send(self._gpu.small, 8, self._other, stream, end)

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

    def _difference(self, size: int, end: float) -> Optional[verify.Difference]:
        blocks = verify.blocks(size)
        sample, start = self._member.fetch(self._data(size), blocks, end), self._expected()
        return verify.compare(sample, blocks, size, start, self._gpu.earlier(start))

    def _ping(self, count: int, end: float) -> List[float]:
        device, comm, small = self._device, self._member.comm, self._gpu.small
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
        comm, small, stream = self._member.comm, self._gpu.small, self._device.stream

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
        """Return NCCL's warnings and connections of this link."""
        return log_capture.summary(self._member.lines()) or None

    def pause(self) -> None:
        """Keep the communicator for the next test of the pair."""
        self._member.pause()

    def renew(self, task: Task) -> None:
        """Use the communicator for another test."""
        self._member.renew(task)

    def close(self, broken: bool) -> None:
        """Release the communicator, if it is of these two only."""
        if self._alone:
            self._member.leave(broken)
