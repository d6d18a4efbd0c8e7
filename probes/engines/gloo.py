"""CPU ranks over torch.distributed's gloo: thread ranks, a process group a pair, meeting through the carried store.

The only module of the node side that imports torch, and only inside the rank host.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from datetime import timedelta
from typing import Any, Callable, List, Optional, Tuple

from fabtui_probes.engines import base
from fabtui_probes.engines.base import CONNECT, TRANSFER, VERIFY, Failed, Measured, PairJob, Rank, Reduced, Task
from fabtui_probes.engines.channel import StoreError
from fabtui_probes.engines.gloo_store import carried_store

CONNECT_TRIES = 5
"""gloo tries a full mesh this often, each with the group's timeout, before it gives up."""

BUDGET = 0.2
"""Seconds of timed messages in one direction; fewer messages are sent where they would take longer."""

LATENCY_BUDGET = 0.05
PROBE = 65536
"""Bytes of the first message: it tells how long a whole one would take."""

PERIOD = 4099
"""Length of the data pattern: prime, so that a block that lands in the wrong place is seen."""

OVERTIME = 1.0
"""Seconds past its deadline after which a wait in gloo is left behind."""

STAMPED = 64
"""Messages of at least this many bytes carry their number in their first 8 bytes."""


def leavable(task: Task, work: Callable[[], Any], phase: str, end: float) -> Any:
    """Return what ``work`` returns, or leave it behind when the task is called off or hangs past its end.

    gloo's waits happen in C++ and cannot be called off, so the work runs in a thread of its own (about 50 us each).
    """
    box: List[Any] = []
    done = threading.Event()

    def body() -> None:
        try:
            box.append((work(), None))
        except BaseException as error:
            box.append((None, error))
        done.set()

    threading.Thread(target=body, daemon=True).start()
    while not done.wait(0.05):
        if task.cancelled:
            raise Failed(phase, "called off: a peer is gone")
        if time.monotonic() > end + OVERTIME:
            raise Failed(phase, "gloo still waits %.0f s after the deadline" % OVERTIME, timeout=True)
    value, error = box[0]
    if error is not None:
        raise error
    return value


class GlooEngine(base.Engine):
    """gloo over TCP between the data addresses."""

    name = "gloo"

    def load(self) -> str:
        """Import torch and open gloo's device on this node's data address."""
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        began = time.monotonic()
        import torch
        import torch.distributed as dist

        self.seconds["import"] = time.monotonic() - began
        if not dist.is_available() or not hasattr(dist, "ProcessGroupGloo"):
            raise RuntimeError("torch %s was built without gloo" % torch.__version__)
        torch.set_num_threads(1)
        self.torch, self.dist = torch, dist
        self.carried = carried_store(dist)
        gloo: Any = dist.ProcessGroupGloo
        self.options_type: Any = getattr(gloo, "_Options", None) or gloo.Options
        self.group_type: Any = gloo
        began = time.monotonic()
        self.device = dist.ProcessGroupGloo.create_device(hostname=self.address)
        self.seconds["device"] = time.monotonic() - began
        return "torch %s" % torch.__version__

    def attach(self, rank: Rank) -> base.Endpoint:
        """Return a CPU rank; there is nothing to prepare."""
        return GlooEndpoint(rank, self)

    def group(self, task: Task, prefix: str, rank: int, size: int, end: float) -> Any:
        """Make a process group whose full mesh gives up by ``end``."""
        left = base.remaining(end, 0.05)
        options = self.options_type()
        options._timeout = timedelta(seconds=max(0.05, left / CONNECT_TRIES))
        options._devices = [self.device]
        options._threads = 1
        store = self.carried(self.store, task.prefix + prefix, task, end)
        try:
            return self.group_type(store, rank, size, options)
        except Exception as error:
            raise _failed(CONNECT, "gloo could not connect", error) from None


class GlooEndpoint(base.Endpoint):
    """A CPU rank."""

    def __init__(self, rank: Rank, engine: GlooEngine) -> None:
        super().__init__(rank)
        self._engine = engine

    def run(self, task: Task, work: Callable[[], Any], phase: str, end: float) -> Any:
        """Run a phase so that it can be left behind."""
        return leavable(task, work, phase, end)

    def connect(self, task: Task, peer: int, peer_address: str, attempt: int, end: float) -> base.Link:
        """Make a process group of two."""
        me = self.rank.rank
        group = self._engine.group(task, "link%d/" % attempt, 0 if me < peer else 1, 2, end)
        return GlooLink(self._engine, group, me, peer, peer_address)

    def join(self, task: Task, ranks: List[int], end: float) -> base.Group:
        """Make a process group of many."""
        group = self._engine.group(task, "group/", ranks.index(self.rank.rank), len(ranks), end)
        return GlooGroup(self._engine, group, ranks.index(self.rank.rank), len(ranks))


class GlooLink(base.Link):
    """A process group of two ranks."""

    def __init__(self, engine: GlooEngine, group: Any, me: int, peer: int, peer_address: str) -> None:
        self._torch = engine.torch
        self._group = group
        self._me, self._peer = me, peer
        self._other = 1 if me < peer else 0
        self._addresses = (engine.address, peer_address)
        self._tag = 0

    # -- messages

    def _wait(self, work: Any, end: float, what: str) -> None:
        left = base.remaining(end, 0.001)
        try:
            work.wait(timedelta(seconds=left))
        except Exception as error:
            raise _failed(TRANSFER, "%s within %.1f s" % (what, left), error) from None

    def _put(self, tensor: Any, end: float, what: str = "message") -> None:
        self._tag += 1
        work = self._group.send([tensor], self._other, self._tag)
        self._wait(work, end, "the %s to rank %d was not taken" % (what, self._peer))

    def _take(self, tensor: Any, end: float, what: str = "message") -> None:
        self._tag += 1
        work = self._group.recv([tensor], self._other, self._tag)
        self._wait(work, end, "no %s came from rank %d" % (what, self._peer))

    def _stream(self, buffers: List[Any], count: int, end: float, sending: bool, pause: float) -> None:
        """Send or receive numbered messages, one always on its way while the one before is finished."""
        pending: List[Tuple[Any, Any, int]] = []

        def finish() -> None:
            work, buffer, number = pending.pop(0)
            verb = (
                "message %d of %d to rank %d was not taken" if sending else "message %d of %d did not come from rank %d"
            )
            self._wait(work, end, verb % (number + 1, count, self._peer))
            if not sending and buffer.numel() >= STAMPED:
                stamp = int(buffer[:8].view(self._torch.int64).item())
                if stamp != number:
                    raise Failed(VERIFY, "message %d of %d carries the number %d" % (number + 1, count, stamp))

        for number in range(count):
            buffer = buffers[number % len(buffers)]
            if len(pending) == len(buffers):
                finish()
            if sending:
                if pause:
                    time.sleep(min(pause, base.remaining(end)))
                if buffer.numel() >= STAMPED:
                    buffer[:8].view(self._torch.int64).fill_(number)
            self._tag += 1
            start = self._group.send if sending else self._group.recv
            pending.append((start([buffer], self._other, self._tag), buffer, number))
        while pending:
            finish()

    # -- data

    def _pattern(self, src: int, dst: int, size: int) -> Any:
        torch = self._torch
        tile = (torch.arange(PERIOD, dtype=torch.int64) * 7919 + src * 104729 + dst * 1299709 + 1) % 251
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
        torch = self._torch
        note = torch.zeros(8, dtype=torch.uint8)
        pattern = self._pattern(self._me, self._peer, job.bytes)
        probe = pattern[: min(job.bytes, PROBE)].clone()
        self._put(probe, end, "first message")
        began = time.perf_counter()
        self._put(probe, end)
        self._take(note, end, "answer")
        size, warmup = self._plan(job, probe.numel() / max(1e-9, time.perf_counter() - began), end)
        header = torch.tensor([size, warmup, job.latency_iters], dtype=torch.int64)
        self._put(header, end, "plan")
        buffers = [pattern[:size].clone(), pattern[:size].clone()]
        began = time.perf_counter()
        self._stream(buffers, warmup, end, True, 0.0)
        self._take(note, end, "answer")
        each = (time.perf_counter() - began) / warmup
        pause = size / job.rate if job.rate else 0.0
        budget = min(BUDGET, base.remaining(end) / 3)
        count = base.fitting(max(each, pause), budget, job.iters)
        self._put(torch.tensor([count], dtype=torch.int64), end, "plan")
        self._stream(buffers, count, end, True, pause)
        self._take(note, end, "answer")
        return Measured(size, None, self._ping(job.latency_iters, end), None)

    def _plan(self, job: PairJob, rate: float, end: float) -> Tuple[int, int]:
        """Return message size and warm-up count: what was asked, smaller where it would outlast the deadline."""
        size = job.bytes
        if job.rate:
            size = max(1, min(size, int(job.rate * BUDGET / 4)))
            return size, 1
        affordable = int(rate * base.remaining(end) / 8)
        if affordable < size:
            size = max(min(size, PROBE), affordable)
        return size, max(1, job.warmup)

    def receive(self, job: PairJob, end: float) -> Measured:
        """Be the destination: check what comes, and time the messages between the plan and the last one."""
        torch = self._torch
        note = torch.zeros(8, dtype=torch.uint8)
        expected = self._pattern(self._peer, self._me, job.bytes)
        probe = torch.zeros(min(job.bytes, PROBE), dtype=torch.uint8)
        self._take(probe, end, "first message")
        self._take(probe, end)
        self._put(note, end, "answer")
        wrong = None if torch.equal(probe, expected[: probe.numel()]) else "the first message is wrong"
        header = torch.zeros(3, dtype=torch.int64)
        self._take(header, end, "plan")
        size, warmup, pings = (int(value) for value in header)
        if not (1 <= size <= job.bytes and 1 <= warmup <= max(1, job.warmup) and 0 <= pings <= 1000000):
            raise Failed(VERIFY, "the source announced %d bytes, %d to warm up, %d pings" % (size, warmup, pings))
        expected = expected[:size].clone()
        buffers = [torch.zeros(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)]
        self._stream(buffers, warmup, end, False, 0.0)
        self._put(note, end, "answer")
        wrong = wrong or self._check(buffers[(warmup - 1) % 2], expected, warmup - 1)
        counter = torch.zeros(1, dtype=torch.int64)
        self._take(counter, end, "plan")
        began = time.perf_counter()
        count = int(counter[0])
        if not 1 <= count <= job.iters:
            raise Failed(VERIFY, "the source announced %d messages of at most %d" % (count, job.iters))
        self._stream(buffers, count, end, False, 0.0)
        seconds = time.perf_counter() - began
        self._put(note, end, "answer")
        wrong = wrong or self._check(buffers[(count - 1) % 2], expected, count - 1)
        self._pong(pings, end)
        if wrong:
            raise Failed(VERIFY, wrong)
        return Measured(size, size * count / max(1e-9, seconds), None, None)

    def _ping(self, most: int, end: float) -> Optional[float]:
        torch = self._torch
        ball = torch.ones(1, dtype=torch.int64)
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
        ball = self._torch.ones(1, dtype=self._torch.int64)
        for _ in range(most):
            self._take(ball, end, "ping")
            last = int(ball[0]) == 0
            self._put(ball, end, "pong")
            if last:
                return

    def transport(self, sending: bool) -> Tuple[Optional[str], Optional[str], Optional[str]]:
        """Return TCP and the two data addresses."""
        return "TCP", self._addresses[0], self._addresses[1]

    def close(self, broken: bool) -> Optional[str]:
        """Drop the group; its sockets close with it, and a peer that waits on them sees that."""
        self._group = None
        return None


class GlooGroup(base.Group):
    """A process group of many ranks."""

    def __init__(self, engine: GlooEngine, group: Any, me: int, size: int) -> None:
        self._torch, self._dist = engine.torch, engine.dist
        self._group = group
        self._me, self._size = me, size

    def _reduce(self, tensor: Any, end: float, largest: bool = False) -> None:
        options = self._dist.AllreduceOptions()
        options.timeout = timedelta(seconds=base.remaining(end, 0.05))
        options.reduceOp = self._dist.ReduceOp.MAX if largest else self._dist.ReduceOp.SUM
        try:
            self._group.allreduce([tensor], options).wait(timedelta(seconds=base.remaining(end, 0.05)))
        except Exception as error:
            raise _failed(TRANSFER, "all_reduce did not finish", error) from None

    def all_reduce(self, size: int, iters: int, warmup: int, end: float) -> Reduced:
        """Check one sum exactly, then time as many as fit the budget and check what they add up to."""
        torch = self._torch
        count = max(1, size // 4)
        steps = torch.arange(count, dtype=torch.int64)
        mine = ((steps % 61) + self._me).to(torch.float32)
        total = ((steps % 61) * self._size + self._size * (self._size - 1) // 2).to(torch.float32)
        buffer = mine.clone()
        began = time.perf_counter()
        self._reduce(buffer, end)
        each = time.perf_counter() - began
        wrong = int((buffer != total).sum())
        for _ in range(warmup - 1):
            buffer.copy_(mine)
            began = time.perf_counter()
            self._reduce(buffer, end)
            each = time.perf_counter() - began
        slowest = torch.tensor([each], dtype=torch.float64)
        self._reduce(slowest, end, largest=True)
        timed = base.fitting(float(slowest[0]), min(5 * BUDGET, base.remaining(end) / 3), iters)
        # Every sum multiplies by the number of ranks: small numbers to start with, and never so many that it overflows.
        timed = base.bounded_sums(self._size, timed)
        buffer.copy_(mine)
        began = time.perf_counter()
        for _ in range(timed):
            self._reduce(buffer, end)
        seconds = (time.perf_counter() - began) / timed
        expected = total.to(torch.float64) * float(self._size) ** (timed - 1)
        wrong += int((~torch.isclose(buffer.to(torch.float64), expected, rtol=1e-4, atol=0.0)).sum())
        return Reduced(seconds, wrong, "TCP")

    def close(self, broken: bool) -> Optional[str]:
        """Drop the group."""
        self._group = None
        return None


def _failed(phase: str, what: str, error: Exception) -> Failed:
    """Return the failure in words, with gloo's own behind it."""
    said = base.describe(error)
    late = isinstance(error, StoreError) or "imed out" in said or "imeout" in said
    return Failed(phase, "%s: %s" % (what, said), late, raw=said)
