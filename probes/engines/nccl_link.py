"""One communicator of GPUs as its member sees it, and the test of one direction over one of two ranks."""

from __future__ import annotations

import statistics
import struct
import time
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Tuple

from fabtui_probes.engines import base, nccl_data, nccl_log, transport
from fabtui_probes.engines.base import TRANSFER, VERIFY, Failed, Measured, PairJob, Task
from fabtui_probes.engines.channel import StoreTimeout
from fabtui_probes.engines.cuda_api import CudaError, CudaTimeout
from fabtui_probes.engines.nccl_api import Communicator, NcclError, NcclTimeout
from fabtui_probes.engines.transport import Line

if TYPE_CHECKING:
    from fabtui_probes.engines.nccl import NcclEndpoint

BUDGET = 0.05
"""Seconds of timed messages in one direction; fewer are sent where they would take longer."""

PROBE = 4 << 20
"""Bytes of the first message: it tells how long a whole one would take."""

_WORDS = struct.Struct("<4q")


class Member:
    """This endpoint's part of one communicator, with what NCCL printed about it."""

    def __init__(self, endpoint: NcclEndpoint, task: Task, me: int, size: int) -> None:
        self.endpoint = endpoint
        self.task = task
        self.me, self.size = me, size
        self.comm = Communicator(endpoint.engine.nccl, lambda: task.cancelled)
        self._mark = endpoint.engine.log.mark()
        self._laps: List[str] = []
        self._lap = time.monotonic()

    def lap(self, name: str) -> None:
        """Note that a phase ends here."""
        now = time.monotonic()
        self._laps.append("%s %.3f" % (name, now - self._lap))
        self._lap = now

    def laps(self) -> str:
        """Return the seconds of the phases since the last call, in words."""
        laps, self._laps = self._laps, []
        return "seconds: " + ", ".join(laps)

    def wait(self, end: float) -> None:
        """Wait for the stream, with an eye on the communicator's health."""
        self.endpoint.device.wait(end, self.comm.look)

    def lines(self) -> List[Line]:
        """Return what NCCL printed for this GPU since the communicator was begun."""
        return self.endpoint.engine.log.since(self._mark, self.endpoint.device.ordinal)

    def failed(self, phase: str, what: str, error: Exception, seconds: float) -> Failed:
        """Return a failure in words: what was awaited, what came instead, and what NCCL said about it."""
        late = isinstance(error, (NcclTimeout, CudaTimeout, StoreTimeout))
        text = "%s within %.1f s (%s)" % (what, seconds, error) if late else "%s: %s" % (what, base.describe(error))
        lines = self.lines()
        said = transport.root(transport.warnings(lines))
        if said and said not in text:
            text += "; NCCL: " + said
        notes = "set for this test: " + " ".join(self.endpoint.engine.notes) if self.endpoint.engine.notes else ""
        raw = "\n".join(part for part in (nccl_log.summary(lines), notes) if part)
        return Failed(phase, text, late, raw or None)

    def leave(self, broken: bool) -> None:
        """Let go of the communicator; what a broken one still has on the stream is left behind with the stream."""
        self.endpoint.keep(self.comm, broken)
        if broken:
            try:
                self.endpoint.device.wait(time.monotonic() + 0.2)
            except CudaError:
                self.endpoint.device.renew_stream()


class NcclLink(base.Link):
    """A communicator of two ranks."""

    def __init__(self, member: Member, peer: int, other: int) -> None:
        self._member = member
        self._endpoint = member.endpoint
        self._device = member.endpoint.device
        self._rank = member.endpoint.rank.rank
        self._peer = peer
        self._other = other

    def _guard(self, what: str, end: float, work: Callable[[], None]) -> None:
        """Queue work, wait for it, and put a failure in words."""
        began = time.monotonic()
        try:
            work()
            self._member.wait(end)
        except (NcclError, CudaError) as error:
            raise self._member.failed(TRANSFER, what, error, time.monotonic() - began) from None

    def _tell(self, words: Tuple[int, int, int, int], end: float, what: str) -> None:
        self._endpoint.note[: _WORDS.size] = _WORDS.pack(*words)

        def work() -> None:
            self._device.upload(self._endpoint.small, self._endpoint.note, _WORDS.size)
            self._member.comm.send(self._endpoint.small, _WORDS.size, self._other, self._device.stream, end)

        self._guard("the %s to rank %d did not go out" % (what, self._peer), end, work)

    def _hear(self, end: float, what: str) -> Tuple[int, int, int, int]:
        def work() -> None:
            self._member.comm.receive(self._endpoint.small, _WORDS.size, self._other, self._device.stream, end)
            self._device.download(self._endpoint.note, self._endpoint.small, _WORDS.size)

        self._guard("no %s came from rank %d" % (what, self._peer), end, work)
        words: Tuple[int, int, int, int] = _WORDS.unpack(self._endpoint.note[: _WORDS.size])
        return words

    def _send(self, data: int, size: int, count: int, end: float) -> None:
        self._member.comm.many(True, data, size, count, self._other, self._device.stream, end)

    def _receive(self, data: int, size: int, count: int, end: float) -> None:
        self._member.comm.many(False, data, size, count, self._other, self._device.stream, end)

    def send(self, job: PairJob, end: float) -> Measured:
        """Be the source: first byte, probe, warm-up, then as many messages as fit the budget, then ping."""
        device, peer = self._device, self._peer
        data = self._memory(job.bytes)
        tile = nccl_data.tile(self._rank, peer)

        def fill() -> None:
            device.upload(data, tile, min(len(tile), job.bytes))
            device.spread(data, len(tile), job.bytes)

        self._guard("the source's data could not be made", end, fill)
        probe = min(job.bytes, PROBE)
        self._member.lap("fill")
        self._tell((probe, 0, 0, 0), end, "first byte")
        self._member.lap("first byte")
        lost = "the data to rank %d did not go out" % peer
        each = self._timed(lost, end, lambda: self._send(data, probe, 1, end))
        size, warmup = self._plan(job, probe, each, end)
        self._tell((size, warmup, job.latency_iters, 0), end, "plan")
        each = self._timed(lost, end, lambda: self._send(data, size, warmup, end)) / warmup
        pause = size / job.rate if job.rate else 0.0
        count = base.fitting(max(each, pause), 4 * BUDGET if pause else BUDGET, job.iters)
        self._tell((count, 0, 0, 0), end, "plan")
        if pause:
            for _ in range(count):
                time.sleep(min(pause, base.remaining(end)))
                self._guard(lost, end, lambda: self._send(data, size, 1, end))
        else:
            self._guard(lost, end, lambda: self._send(data, size, count, end))
        self._member.lap("data")
        latency = self._ping(job.latency_iters, end)
        self._member.lap("ping")
        return Measured(size, None, latency, self._raw(self._member.me, self._other))

    def _plan(self, job: PairJob, probe: int, seconds: float, end: float) -> Tuple[int, int]:
        """Return message size and warm-up count: what was asked, smaller where it would outlast the deadline."""
        size = job.bytes
        if job.rate:
            return max(1, min(size, int(job.rate * BUDGET))), 1
        affordable = int(probe / max(seconds, 1e-9) * base.remaining(end) / 8)
        if affordable < size:
            size = max(min(size, probe), affordable)
        return size, max(1, job.warmup)

    def receive(self, job: PairJob, end: float) -> Measured:
        """Be the destination: the messages are timed on the GPU and a sample of the last one is compared."""
        device, peer = self._device, self._peer
        data = self._memory(job.bytes)
        unclean = "the destination could not be cleared"
        self._guard(unclean, end, lambda: device.fill(data, nccl_data.BLANK, job.bytes))
        lost = "no data came from rank %d" % peer
        self._member.lap("fill")
        probe = self._hear(end, "first byte")[0]
        self._member.lap("first byte")
        self._expect(1 <= probe <= job.bytes, "a probe of %d bytes" % probe)
        self._guard(lost, end, lambda: self._receive(data, probe, 1, end))
        size, warmup, pings, _ = self._hear(end, "plan")
        self._expect(1 <= size <= job.bytes and 1 <= warmup <= max(1, job.warmup), "%d x %d bytes" % (warmup, size))
        self._expect(0 <= pings <= job.latency_iters, "%d pings" % pings)
        self._guard(lost, end, lambda: self._receive(data, size, warmup, end))
        # What the warm-up left must not pass for what the timed messages bring.
        self._guard(unclean, end, lambda: device.fill(data, nccl_data.BLANK, size))
        count = self._hear(end, "plan")[0]
        self._expect(1 <= count <= job.iters, "%d messages" % count)
        seconds = self._timed(lost, end, lambda: self._receive(data, size, count, end)) / count
        self._member.lap("data")
        wrong = self._wrong(data, size, end)
        self._member.lap("check")
        self._pong(pings, end)
        self._member.lap("ping")
        if wrong:
            raise Failed(VERIFY, wrong, raw=self.log())
        return Measured(size, size / max(seconds, 1e-9), None, self._raw(self._other, self._member.me))

    def _expect(self, good: bool, what: str) -> None:
        if not good:
            raise Failed(VERIFY, "the source announced %s" % what, raw=self.log())

    def _memory(self, size: int) -> int:
        try:
            return self._endpoint.data(size)
        except CudaError as error:
            raise Failed(TRANSFER, str(error)) from None

    def _timed(self, what: str, end: float, work: Callable[[], None]) -> float:
        """Return the seconds that work took on the GPU."""
        device = self._device
        first, second = device.event(), device.event()
        try:

            def stamped() -> None:
                device.record(first)
                work()
                device.record(second)

            self._guard(what, end, stamped)
            return device.between(first, second)
        finally:
            device.forget([first, second])

    def _wrong(self, data: int, size: int, end: float) -> Optional[str]:
        """Compare a sample of what came with what was sent; return the difference in words."""
        blocks = nccl_data.blocks(size)

        def fetch() -> None:
            at = 0
            for offset, length in blocks:
                self._device.download(self._endpoint.sample, data + offset, length, at)
                at += length

        self._guard("what came could not be read back", end, fetch)
        return nccl_data.compare(bytes(self._endpoint.sample), blocks, self._peer, self._rank)

    def _ping(self, count: int, end: float) -> Optional[float]:
        device, comm, small = self._device, self._member.comm, self._endpoint.small
        if count < 1:
            return None
        events: List[Any] = [device.event() for _ in range(count + 1)]
        try:

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
            trips = [device.between(events[turn], events[turn + 1]) for turn in range(count)]
            return statistics.median(trips) / 2
        finally:
            device.forget(events)

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
        way = transport.worst(transport.ways(self._member.lines(), src, dst, sending))
        if way is None:
            # The receiving end of P2P and SHM prints nothing; what the sending end tells is filled in by the meeting.
            return None, self._device.bus_id, None
        nics = self._endpoint.engine.log.nics()
        if transport.is_network(way):
            own = transport.address_of_way(way, nics) or self._endpoint.engine.address
        else:
            own = self._device.bus_id
        return transport.name_way(way, nics), own, None

    def _raw(self, src: int, dst: int) -> str:
        notes = self._endpoint.engine.notes
        text = nccl_log.summary(self._member.lines(), 6, (src, dst))
        return "\n".join(part for part in (text, " ".join(notes), self._member.laps()) if part)

    def log(self) -> Optional[str]:
        """Return NCCL's warnings and connections of this link."""
        return nccl_log.summary(self._member.lines()) or None

    def close(self, broken: bool) -> Optional[str]:
        """Let go of the communicator."""
        self._member.leave(broken)
        return None
