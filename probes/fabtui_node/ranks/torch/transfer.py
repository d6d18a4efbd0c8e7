"""The test of one direction, and of both at once, between two ranks of a process group."""

from __future__ import annotations

import statistics
import time
from typing import Any, List, Optional, Tuple

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import TRANSFER, VERIFY, Failed, Measured, PairJob
from fabtui_node.ranks.torch.engine import Ends, TorchEngine, failure

BUDGET = 0.2
"""Seconds of timed messages in one direction; fewer messages are sent where they would take longer."""

LATENCY_BUDGET = 0.05
PROBES = 2
"""Times the probe goes and is answered: the first answer may wait until a way back is made."""

PROBE = 65536
"""Bytes of the first message: it tells how long a whole one would take."""

PERIOD = 4099
"""Length of the data pattern: prime, so that a block that lands in the wrong place is seen."""

STAMPED = 64
"""Messages of at least this many bytes carry their number in their first 8 bytes."""

SLOW = 0.01
"""Seconds of a message above which the first timed one need not be preceded by one that is not timed."""


class TorchLink(base.Link):
    """Two ranks of a process group, which may have more of them.

    Args:
        engine: The engine.
        group: The process group.
        ends: The global numbers of this rank and of its peer.
        indices: Their numbers within the group.
        peer_address: The data address of the peer's node, where known.
        inside: Whether messages go within the communicator of the whole group.
    """

    def __init__(
        self, engine: TorchEngine, group: Any, ends: Ends, indices: Ends, peer_address: str = "", inside: bool = False
    ) -> None:
        self._engine = engine
        self._torch = engine.torch
        self._group = group
        self._me, self._peer = ends
        self._own, self._other = indices
        self._peer_address = peer_address
        self._inside = inside
        self._tag = 0
        self._wrong: Optional[str] = None

    # -- messages

    def _bytes(self, size: int) -> Any:
        return self._torch.zeros(size, dtype=self._torch.uint8, device=self._engine.device)

    def _numbers(self, *numbers: int) -> Any:
        return self._torch.tensor(numbers, dtype=self._torch.int64, device=self._engine.device)

    def _wait(self, work: Any, end: float, what: str) -> None:
        left = base.remaining(end, 0.001)
        try:
            self._engine.finish(work, end)
        except Exception as error:
            raise failure(TRANSFER, what, error, left) from None

    def _put(self, tensor: Any, end: float, what: str = "message") -> None:
        self._tag += 1
        lost = "the %s to rank %d was not taken" % (what, self._peer)
        self._wait(self._begin(True, tensor, lost), end, lost)

    def _take(self, tensor: Any, end: float, what: str = "message") -> None:
        self._tag += 1
        lost = "no %s came from rank %d" % (what, self._peer)
        self._wait(self._begin(False, tensor, lost), end, lost)

    def _begin(self, sending: bool, tensor: Any, lost: str) -> Any:
        try:
            return self._engine.begin(self._group, sending, tensor, self._other, self._tag, self._inside)
        except Exception as error:
            raise failure(TRANSFER, lost, error) from None

    def _stream(self, buffers: List[Any], count: int, end: float, sending: bool, job: PairJob) -> List[float]:
        """Send or receive numbered messages, one always on its way while the one before is finished.

        Args:
            buffers: Memory for them, used in turn.
            count: How many.
            end: Monotonic time at which to give up.
            sending: Whether this is the source.
            job: At the source, how a fault of the lab changes it.

        Returns:
            When each message was done, by ``time.perf_counter``.
        """
        pending: List[Tuple[Any, Any, int]] = []
        done: List[float] = []
        lost = "message %d of %d to rank %d was not taken" if sending else "message %d of %d did not come from rank %d"
        pause = buffers[0].numel() / job.rate if job.rate and sending else 0.0

        def finish() -> None:
            work, buffer, number = pending.pop(0)
            self._wait(work, end, lost % (number + 1, count, self._peer))
            done.append(time.perf_counter())
            if not sending and buffer.numel() >= STAMPED:
                stamp = int(buffer[:8].view(self._torch.int64).item())
                if stamp != number and self._wrong is None:
                    self._wrong = "message %d of %d carries the number %d" % (number + 1, count, stamp)

        for number in range(count):
            buffer = buffers[number % len(buffers)]
            if len(pending) == len(buffers):
                finish()
            if sending:
                if job.deed in ("kill", "stop") and number == count // 2:
                    base.strike(job.deed)
                if pause:
                    time.sleep(min(pause, base.remaining(end)))
                if buffer.numel() >= STAMPED:
                    buffer[:8].view(self._torch.int64).fill_(number)
            self._tag += 1
            words = lost % (number + 1, count, self._peer)
            pending.append((self._begin(sending, buffer, words), buffer, number))
        while pending:
            finish()
        return done

    # -- data

    def _pattern(self, src: int, dst: int, size: int) -> Any:
        torch = self._torch
        steps = torch.arange(PERIOD, dtype=torch.int64, device=self._engine.device)
        tile = (steps * 7919 + src * 104729 + dst * 1299709 + 1) % 251
        return tile.to(torch.uint8).repeat(size // PERIOD + 1)[:size].contiguous()

    def _check(self, buffer: Any, expected: Any, number: int) -> Optional[str]:
        if expected.numel() >= STAMPED:
            expected[:8].view(self._torch.int64).fill_(number)
        if self._torch.equal(buffer, expected):
            return None
        wrong = (buffer != expected).nonzero()
        return "%d of %d bytes are wrong in message %d, the first at offset %d" % (
            len(wrong),
            buffer.numel(),
            number + 1,
            int(wrong[0]),
        )

    # -- one direction

    def send(self, job: PairJob, end: float) -> Measured:
        """Be the source: probe, tell the plan, warm up, tell the number of timed messages, send them, ping."""
        note = self._bytes(8)
        pattern = self._pattern(self._me, self._peer, job.bytes)
        probe = pattern[: min(job.bytes, PROBE)].clone()
        self._put(probe, end, "first message")
        seconds = []
        for _ in range(PROBES):
            began = time.perf_counter()
            self._put(probe, end)
            self._take(note, end, "answer")
            seconds.append(time.perf_counter() - began)
        size, warmup = self._plan(job, probe.numel() / max(1e-9, min(seconds)), end)
        self._put(self._numbers(size, warmup, job.latency_iters), end, "plan")
        buffers = [pattern[:size].clone(), pattern[:size].clone()]
        began = time.perf_counter()
        self._stream(buffers, warmup, end, True, PairJob(size, 0, 0, 0))
        self._take(note, end, "answer")
        each = (time.perf_counter() - began) / warmup
        each = max(each, size / job.rate if job.rate else 0.0)
        count = base.fitting(each, min(BUDGET, base.remaining(end) / 3), job.iters)
        lead = 0 if each > SLOW else 1
        self._put(self._numbers(count, lead), end, "plan")
        if job.deed == "corrupt":
            for buffer in buffers:
                buffer[size // 2] ^= 0xFF
        self._stream(buffers, count + lead, end, True, job)
        self._take(note, end, "answer")
        return Measured(size, None, self._ping(job.latency_iters, end))

    def _plan(self, job: PairJob, rate: float, end: float) -> Tuple[int, int]:
        """Return message size and warm-up count: what was asked, smaller where it would outlast the deadline."""
        size = job.bytes
        if job.rate:
            size = max(1, min(size, int(job.rate * BUDGET / 4)))
            return size, 1
        affordable = int(rate * base.remaining(end) / 8)
        if affordable < size:
            size = max(min(size, PROBE), base.rounded(affordable))
        return size, max(1, job.warmup)

    def receive(self, job: PairJob, end: float) -> Measured:
        """Be the destination: check what comes, and time the messages between the plan and the last one."""
        note = self._bytes(8)
        expected = self._pattern(self._peer, self._me, job.bytes)
        probe = self._bytes(min(job.bytes, PROBE))
        self._take(probe, end, "first message")
        for _ in range(PROBES):
            self._take(probe, end)
            self._put(note, end, "answer")
        self._wrong = None
        if not self._torch.equal(probe, expected[: probe.numel()]):
            self._wrong = "the first message is wrong"
        header = self._numbers(0, 0, 0)
        self._take(header, end, "plan")
        size, warmup, pings = (int(value) for value in header)
        good = 1 <= size <= job.bytes and 1 <= warmup <= max(1, job.warmup) and 0 <= pings <= 1000000
        self._expect(good, "%d bytes, %d to warm up, %d pings" % (size, warmup, pings))
        expected = expected[:size].clone()
        buffers = [self._bytes(size), self._bytes(size)]
        self._stream(buffers, warmup, end, False, job)
        self._put(note, end, "answer")
        self._wrong = self._wrong or self._check(buffers[(warmup - 1) % 2], expected, warmup - 1)
        counter = self._numbers(0, 0)
        self._take(counter, end, "plan")
        began = time.perf_counter()
        count, lead = (int(value) for value in counter)
        self._expect(1 <= count <= job.iters and lead in (0, 1), "%d messages of at most %d" % (count, job.iters))
        done = self._stream(buffers, count + lead, end, False, job)
        self._put(note, end, "answer")
        last = count + lead - 1
        self._wrong = self._wrong or self._check(buffers[last % 2], expected, last)
        self._pong(pings, end)
        if self._wrong:
            raise Failed(VERIFY, self._wrong, kind=ErrorKind.VERIFY)
        if not lead:
            done.insert(0, began)
        times = tuple(done[turn + 1] - done[turn] for turn in range(count))
        return Measured(size, size * count / max(1e-9, done[-1] - done[0]), None, None, times, self._engine.way)

    def _expect(self, good: bool, what: str) -> None:
        if not good:
            raise Failed(TRANSFER, "the source announced %s" % what, kind=ErrorKind.PROTOCOL)

    # -- both directions

    def both(self, size: int, count: int, leading: bool, end: float) -> float:
        """Send and receive each message at once; timed by the clock."""
        counter = self._numbers(size, count)
        if leading:
            self._put(counter, end, "plan")
        else:
            self._take(counter, end, "plan")
            said, most = [int(value) for value in counter], count
            self._expect(said[0] == size and 1 <= said[1] <= most, "%d x %d bytes both ways" % (said[1], said[0]))
            count = said[1]
        out, into = self._pattern(self._me, self._peer, size), self._bytes(size)
        lost = "the data did not flow both ways at once with rank %d" % self._peer
        began = 0.0
        for number in range(count + 1):
            self._tag += 1
            try:
                works = self._engine.exchange(self._group, out, self._other, into, self._other, self._tag)
            except Exception as error:
                raise failure(TRANSFER, lost, error) from None
            for work in works:
                self._wait(work, end, lost)
            if number == 0:
                began = time.perf_counter()
        seconds = time.perf_counter() - began
        if not self._torch.equal(into, self._pattern(self._peer, self._me, size)):
            raise Failed(VERIFY, "what rank %d sent meanwhile came wrong" % self._peer, kind=ErrorKind.VERIFY)
        return size * count / max(1e-9, seconds)

    def _ping(self, most: int, end: float) -> Optional[float]:
        ball = self._numbers(1)
        trips: List[float] = []
        stop = time.perf_counter() + LATENCY_BUDGET
        for number in range(most):
            last = number == most - 1 or (number >= 4 and time.perf_counter() > stop)
            ball[0] = 0 if last else 1
            began = time.perf_counter()
            self._put(ball, end, "ping")
            self._take(ball, end, "pong")
            trips.append(time.perf_counter() - began)
            if last:
                break
        return statistics.median(trips) / 2 if trips else None

    def _pong(self, most: int, end: float) -> None:
        ball = self._numbers(1)
        for _ in range(most):
            self._take(ball, end, "ping")
            last = int(ball[0]) == 0
            self._put(ball, end, "pong")
            if last:
                return

    def transport(self, sending: bool) -> Tuple[Optional[str], Optional[str], Optional[str]]:
        """Return how the data went, where the engine knows, and the two data addresses."""
        src, dst = (self._own, self._other) if sending else (self._other, self._own)
        return self._engine.way_of(src, dst, sending), self._engine.address, self._peer_address or None

    def close(self, broken: bool) -> Optional[str]:
        """Let go of the group; with gloo its sockets close, and a peer that waits on them sees that."""
        group, self._group = self._group, None
        if group is not None and not self._inside:
            self._engine.discard(group, broken)
        return None
