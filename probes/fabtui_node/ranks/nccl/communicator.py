"""One GPU of a rank, and its part of an NCCL communicator."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Set, Tuple

from fabtui_node.parsers.nccl import log_lines
from fabtui_node.parsers.nccl.log_lines import NcclLine
from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, TRANSFER, Failed, Rank, StoreError, Task, remaining
from fabtui_node.ranks.measure import verify
from fabtui_node.ranks.measure.verify import Blocks
from fabtui_node.ranks.nccl import log_capture
from fabtui_node.ranks.nccl.ctypes_cuda import CudaDevice, CudaError, Driver
from fabtui_node.ranks.nccl.ctypes_nccl import Communicator, Library, NcclError
from fabtui_node.ranks.nccl.log_capture import Log

#: Timeout (s) for destroying one healthy communicator.
DESTROY_TIMEOUT = 10.0
#: Timeout (s) for aborting all broken communicators.
ABORT_TIMEOUT = 2.0
#: Size of the buffers for setup messages and pings.
SMALL = 256
#: Number of earlier tests whose data is recognised.
EARLIER = 64
#: Maximum number of different rings that are reported.
MOST_RINGS = 32


class Scratch(NamedTuple):
    """Memory for small messages and for what is read back."""

    small: int  #: Device memory for setup messages and pings.
    note: Any  #: Pinned host memory for setup messages.
    sample: Any  #: Pinned host memory for the blocks that are checked.


class Abandoned(NamedTuple):
    """A stream with work of a broken communicator, and the memory to which that work may still write."""

    stream: Any
    scratch: Scratch
    data: int  #: Device memory for messages, 0 for none.
    size: int


class RankGpu:
    """A GPU with its stream, its memory and the communicators to be released; used by the thread of one rank."""

    def __init__(self, rank: Rank, driver: Driver, nccl: Library, log: Log, notes: List[str], address: str) -> None:
        self.rank = rank.rank
        self.nccl = nccl
        self.log = log
        self.notes = notes  #: NCCL variables set for the tests.
        self.address = address  #: Data address of the node.
        self.device = CudaDevice(driver, driver.find(rank.index, rank.uuid))
        self.scratch = self._new_scratch()
        self._spare: List[Scratch] = []
        self._abandoned: List[Abandoned] = []
        self._shifts: Deque[int] = deque(maxlen=EARLIER)
        self._data, self._data_size = 0, 0
        self._source, self._source_size = 0, 0
        self._outgrown: List[Tuple[int, int]] = []
        self._done: List[Communicator] = []
        self._spent: List[Communicator] = []
        self._broken: List[Communicator] = []
        self.buffers = 0  #: Bytes of device memory for messages.
        self.largest = 0  #: Size of the largest message to come, for which memory is allocated at once.

    def _new_scratch(self) -> Scratch:
        return Scratch(self.device.allocate(SMALL), self.device.pinned(SMALL), self.device.pinned(verify.SAMPLE))

    def abandon(self) -> None:
        """Continue with a new stream and other memory: queued work of a broken communicator may still write to these.

        They are kept until the communicator has been aborted and the stream is idle, see `release`. The memory that is
        sent from stays, as nothing writes to it.
        """
        self._abandoned.append(Abandoned(self.device.stream, self.scratch, self._data, self._data_size))
        self.device.renew_stream()
        self.scratch = self._spare.pop() if self._spare else self._new_scratch()
        self._data, self._data_size = 0, 0

    def expect(self, start: int) -> None:
        """Note the shift of the data that is to come, by which it is recognised where it arrives too late."""
        if start not in self._shifts:
            self._shifts.append(start)

    def earlier(self, start: int) -> List[int]:
        return [shift for shift in self._shifts if shift != start]

    def _allocate(self, size: int) -> int:
        pointer = self.device.allocate(size)
        self.buffers += size
        return pointer

    def data(self, size: int) -> int:
        """Return device memory of at least ``size`` bytes, or raise; the same pointer while it is large enough."""
        if size > self._data_size:
            size = max(size, self.largest)
            pointer = self._allocate(size)
            # Freeing waits for other GPUs as well, see `keep`.
            self._outgrow(self._data, self._data_size)
            self._data, self._data_size = pointer, size
        return self._data

    def _outgrow(self, pointer: int, size: int) -> None:
        if pointer:
            self._outgrown.append((pointer, size))

    def source(self, size: int) -> int:
        """Return device memory that repeats the pattern of `verify.PATTERN`, one period longer than ``size`` bytes.

        So it contains every message of that size to any rank, at the offset `verify.shift`.
        """
        if size > self._source_size:
            size = max(size, self.largest)
            length = size + verify.PERIOD
            pointer = self._allocate(length)
            self._outgrow(self._source, self._source_size + verify.PERIOD)
            self._source, self._source_size = pointer, size
            self.device.upload(pointer, verify.PATTERN, verify.PERIOD)
            self.device.spread(pointer, verify.PERIOD, length)
        return self._source

    def keep(self, comm: Communicator, broken: bool, group: bool = False) -> None:
        """Keep a communicator that is no longer used, of two ranks or a ``group``, until `release`.

        Not released at once: freeing its memory waits for every GPU of this process that can access that memory,
        while another thread's launch waits for the driver. With pairs in progress both would wait forever.
        """
        (self._broken if broken else self._spent if group else self._done).append(comm)

    def release(self, groups: bool) -> Optional[str]:
        """Release communicators and memory kept so far; nothing may be in progress on any GPU of this process.

        A healthy communicator takes up to 0.5 s; ``groups`` releases those that groups use. Return the error if
        NCCL does not return from a broken one.
        """
        end = time.monotonic() + ABORT_TIMEOUT
        stuck = [text for text in [comm.abort(max(0.1, remaining(end))) for comm in self._broken] if text]
        self._broken.clear()
        done, self._done = self._done, []
        if groups:
            done += self._spent
            self._spent = []
        for comm in done:
            comm.retire(DESTROY_TIMEOUT)
        if not stuck:
            stuck = self._reclaim(end)
        if not stuck:
            outgrown, self._outgrown = self._outgrown, []
            for pointer, size in outgrown:
                self.device.free(pointer)
                self.buffers -= size
        return stuck[0] if stuck else None

    def _reclaim(self, end: float) -> List[str]:
        """Take back the memory of aborted communicators; return an error if their work still runs at ``end``."""
        while self._abandoned:
            stream, scratch, data, size = self._abandoned[-1]
            while self.device.driver.busy(stream):
                if time.monotonic() > end:
                    return ["abort stuck: work of an aborted communicator has not ended"]
                time.sleep(0.001)
            self._abandoned.pop()
            self._spare.append(scratch)
            self._outgrow(data, size)
        return []


class Member:
    """A rank's part of one communicator, with the log lines that NCCL printed about it."""

    def __init__(self, gpu: RankGpu, task: Task, me: int, size: int) -> None:
        self.gpu = gpu
        self.task = task
        self.me, self.size = me, size
        self.comm = Communicator(gpu.nccl, lambda: self.task.cancelled)
        #: NCCL's names of transports, by source, destination, and whether the source's end printed them.
        self.transports: Dict[Tuple[int, int, bool], Set[str]] = {}
        #: The rings of its channels in NCCL's order, each once.
        self.rings: List[List[int]] = []
        self._mark = self._surveyed = gpu.log.mark()
        self._earlier: List[NcclLine] = []
        self._laps: List[str] = []
        self._lap = time.monotonic()

    def pause(self) -> None:
        """Keep what NCCL printed about this communicator; the lines that follow are about others."""
        self._earlier = log_capture.notable(self.lines())

    def renew(self, task: Task) -> None:
        self.task = task
        self._mark = self._surveyed = self.gpu.log.mark()
        self._laps, self._lap = [], time.monotonic()

    @classmethod
    def joined(
        cls, gpu: RankGpu, task: Task, key: str, ranks: List[int], end: float, channels: Optional[int] = None
    ) -> Member:
        """Join a communicator whose first rank creates its id and publishes it under ``key``, or raise `Failed`."""
        member = cls(gpu, task, ranks.index(gpu.rank), len(ranks))
        began = time.monotonic()
        what = "the communicator of %d ranks was not formed" % len(ranks)
        try:
            unique = member._unique_id(key, ranks[0], what, end)
            member.lap("meet")
            member.comm.join(unique, member.me, len(ranks), end, channels)
            member.lap("init")
        except (NcclError, CudaError, StoreError, ValueError) as error:
            failed = member.failed(CONNECT, what, error, time.monotonic() - began)
            member.leave(broken=True)
            raise failed from None
        return member

    def _unique_id(self, key: str, first: int, what: str, end: float) -> bytes:
        if self.me == 0:
            try:
                unique = self.gpu.nccl.unique_id()
            except NcclError as error:
                # The others cannot find out why: NCCL printed the reason in this process.
                failed = self.failed(CONNECT, what, error, 0.0)
                self.task.put(key, {"error": failed.text, "error_kind": failed.kind})
                raise
            self.task.put(key, {"id": unique.hex()})
            return unique
        published = self.task.take(key, end)
        if "id" not in published:
            text = "rank %d: %s" % (first, str(published.get("error"))[:2000])
            raise Failed(CONNECT, text, kind=ErrorKind.of(published.get("error_kind")))
        return bytes.fromhex(str(published["id"])).ljust(128, b"\0")[:128]

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self._laps.append("%s %.3f" % (name, now - self._lap))
        self._lap = now

    def laps(self) -> str:
        """Return the durations (s) of the steps since the last call, as text."""
        laps, self._laps = self._laps, []
        return "seconds: " + ", ".join(laps) if laps else ""

    def guard(
        self, phase: str, what: str, end: float, work: Callable[[], None], late: Optional[ErrorKind] = None
    ) -> None:
        """Queue work and wait for it, with an eye on the communicator's health; raise `Failed` if it fails.

        ``what`` is the failure without its reason, ``late`` its kind if the deadline passes.
        """
        began = time.monotonic()
        try:
            work()
            self.gpu.device.wait(end, self.comm.look)
        except (NcclError, CudaError) as error:
            failed = self.failed(phase, what, error, time.monotonic() - began)
            if failed.timeout and late is not None:
                failed.kind = late
            raise failed from None

    @staticmethod
    def memory(phase: str, allocate: Callable[[int], int], size: int) -> int:
        """Return device memory; raise `Failed` if there is not enough."""
        try:
            return allocate(size)
        except CudaError as error:
            raise Failed.from_error(phase, error) from None

    def fetch(self, data: int, blocks: Blocks, end: float) -> bytes:
        """Return blocks of device memory, one behind the other."""
        device, sample = self.gpu.device, self.gpu.scratch.sample

        def work() -> None:
            at = 0
            for offset, length in blocks:
                device.download(sample, data + offset, length, at)
                at += length

        self.guard(TRANSFER, "the received data could not be read back", end, work)
        return bytes(sample)

    def lines(self) -> List[NcclLine]:
        """Return what NCCL printed for this GPU since the communicator was begun."""
        return self._earlier + self.gpu.log.since(self._mark, self.gpu.device.ordinal)

    def survey(self) -> None:
        """Read what NCCL printed about its connections since the last call, into ``transports``."""
        log, since = self.gpu.log, self._surveyed
        self._surveyed = log.mark()
        for line in log.since(since, self.gpu.device.ordinal):
            ring = log_lines.parse_ring(line.text)
            if ring is not None and sorted(ring) == list(range(self.size)) and len(self.rings) < MOST_RINGS:
                self.rings += [] if ring in self.rings else [ring]
            channel = log_lines.parse_channel(line.text)
            if channel is None:
                continue
            for sending in (True, False):
                if channel.direction is None or (channel.direction == "send") == sending:
                    self.transports.setdefault((channel.src, channel.dst, sending), set()).add(channel.via)

    def failed(self, phase: str, what: str, error: Exception, seconds: float) -> Failed:
        """Return a failure: what was expected, the error, and NCCL's own reason for it."""
        kind = base.kind_of(error)
        late = kind is ErrorKind.TIMEOUT
        lines = self.lines()
        reason = log_lines.root(log_lines.warnings(lines))
        if reason is None and phase == CONNECT:
            reason = self._process_reason()
        text = "%s within %.1f s" % (what, seconds) if late else "%s: %s" % (what, base.one_line(str(error)))
        if reason:
            # NCCL's result code only repeats that there is an error; its warning is the reason.
            text = "%s: %s" % (text if late else what, base.one_line(reason))
            if kind is ErrorKind.LIBRARY and log_lines.is_peer_lost(reason):
                kind = ErrorKind.PEER_LOST
        notes = "set for this test: " + " ".join(self.gpu.notes) if self.gpu.notes else ""
        raw = "\n".join(part for part in (log_capture.summary(lines), notes, self.laps()) if part)
        return Failed(phase, text, late, raw or None, kind)

    def _process_reason(self) -> Optional[str]:
        """Return NCCL's reason where it names no GPU: before a communicator has one, or once per process."""
        log = self.gpu.log
        # NCCL sets up its bootstrap once per process; later communicators get the result without the reason.
        once = [line for line in log.warned(0) if line.text.startswith("Bootstrap")]
        recent = log_lines.root(log_lines.warnings(log.warned(self._mark)))
        return recent or log_lines.root(log_lines.warnings(once))

    def leave(self, broken: bool, group: bool = False) -> None:
        """Release the communicator; queued work of a broken one is abandoned with its stream."""
        self.gpu.keep(self.comm, broken, group)
        if broken:
            try:
                self.gpu.device.wait(time.monotonic() + 0.2)
            except CudaError:
                self.gpu.abandon()
