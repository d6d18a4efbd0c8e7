"""CPU ranks over gloo of torch.distributed: one thread per rank, one process group and one port per pair.

Groups meet through the controller's store; results are checked completely. torch is imported here and in no other
module of the node side, and only in the rank host.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import os
import threading
import time
from datetime import timedelta
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base
from fabtui_node.ranks.base import CONNECT, TRANSFER, Failed, PairJob, Rank, Store, Task
from fabtui_node.ranks.engine import Engine, PairLink, RankEndpoint, RankGroup, Setup
from fabtui_node.ranks.measure import verify
from fabtui_node.ranks.measure.host_link import HostSteps
from fabtui_node.ranks.measure.verify import ADDING, TransferShape, arrived
from fabtui_node.ranks.torch.carried_store import carried_store, failure

#: How gloo carries all data.
TRANSPORT = "TCP"
#: Maximum duration (s) of all round trips.
LATENCY_BUDGET = 0.05
#: Length of the data pattern: prime, so that data in the wrong place is noticed.
PERIOD = 4099
#: Bytes that are compared at once.
COMPARED = 16 << 20
#: Size from which on messages carry their number in their first 8 bytes.
STAMPED = 64
#: Tags for the messages of one pair of ranks; torch matches messages by tag.
TAGS = 1 << 20
#: Seconds past its deadline after which a wait in torch is abandoned.
OVERTIME = 1.0
#: Times gloo tries to connect a full mesh, each with the group's timeout, before it gives up.
CONNECT_TRIES = 5
#: Number of stores that are kept after their groups were let go.
RETIRED = 64
#: The numbers of this rank and of its peer.
Ends = Tuple[int, int]


def finish(work: Any, end: float) -> None:
    """Wait until work is done; raises what torch raises."""
    work.wait(timedelta(seconds=base.remaining(end, 0.001)))


def exchange(group: Any, out: Any, to: int, into: Any, source: int, tag: int) -> List[Any]:
    """Begin to send to one rank and to receive from another at once; return the works to wait for."""
    return [group.recv([into], source, tag), group.send([out], to, tag)]


class TorchLink(PairLink):
    """Two ranks of a process group: their global numbers, those within it, and their data addresses, where known.

    ``inside``: the group has more links, and closes later.
    """

    by_median = True
    budget = 0.2

    def __init__(
        self,
        engine: GlooEngine,
        group: Any,
        ends: Ends,
        indices: Ends,
        addresses: Tuple[Optional[str], Optional[str]] = (None, None),
        inside: bool = False,
    ) -> None:
        super().__init__(*ends)
        self._engine = engine
        self._torch = engine.torch
        self._group = group
        self._other = indices[1]
        self._addresses = addresses
        self._inside = inside
        self._tag = 0
        self._wrong: Optional[str] = None
        self._expected: Any = None
        self._buffers: List[Any] = []

    def _bytes(self, size: int) -> Any:
        return self._torch.zeros(size, dtype=self._torch.uint8)

    def _numbers(self, *numbers: int) -> Any:
        return self._torch.tensor(numbers, dtype=self._torch.int64)

    def _wait(self, work: Any, end: float, what: str, late: Optional[ErrorKind] = None) -> None:
        left = base.remaining(end, 0.001)
        try:
            finish(work, end)
        except Exception as error:
            raise failure(TRANSFER, what, error, left, late) from None

    def _put(self, tensor: Any, end: float, what: str = "message") -> None:
        self._tag += 1
        lost = "the %s to rank %d was not sent" % (what, self._peer)
        self._wait(self._begin(True, tensor, lost), end, lost)

    def _take(self, tensor: Any, end: float, what: str = "message", late: Optional[ErrorKind] = None) -> None:
        self._tag += 1
        lost = "no %s came from rank %d" % (what, self._peer)
        self._wait(self._begin(False, tensor, lost), end, lost, late)

    def _begin(self, sending: bool, tensor: Any, lost: str) -> Any:
        try:
            return (self._group.send if sending else self._group.recv)([tensor], self._other, self._tag)
        except Exception as error:
            raise failure(TRANSFER, lost, error) from None

    def _send_setup(
        self, setup: Setup, end: float, transport: Optional[str] = None, what: str = "setup message"
    ) -> None:
        self._put(self._numbers(*setup), end, what)

    def _receive_setup(self, end: float, what: str = "setup message") -> Setup:
        numbers = self._numbers(0, 0, 0)
        self._take(numbers, end, what, ErrorKind.SETUP_MISSING if what == "setup message" else None)
        first, second, third = (int(value) for value in numbers)
        return first, second, third

    def _stream(self, buffers: List[Any], count: int, end: float, sending: bool, job: PairJob) -> List[float]:
        """Send or receive numbered messages; one is always in progress while the one before is finished.

        The buffers are used in turn; ``job`` has the fault that the lab injects at the source. Return when each message
        was done, by ``time.perf_counter``.
        """
        pending: List[Tuple[Any, Any, int]] = []
        done: List[float] = []
        lost = "message %d of %d to rank %d was not sent" if sending else "message %d of %d did not come from rank %d"
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
                if job.fault in ("kill", "stop") and number == count // 2:
                    base.signal_self(job.fault)
                if pause:
                    time.sleep(min(pause, base.remaining(end)))
                if buffer.numel() >= STAMPED:
                    buffer[:8].view(self._torch.int64).fill_(number)
            self._tag += 1
            text = lost % (number + 1, count, self._peer)
            pending.append((self._begin(sending, buffer, text), buffer, number))
        while pending:
            finish()
        return done

    def _pattern(self, src: int, dst: int, size: int) -> Any:
        torch = self._torch
        steps = torch.arange(PERIOD, dtype=torch.int64)
        begin = (src * 104729 + dst * 1299709 + self.test * 15485863 + 1) % 251
        tile = (steps * 7919 + begin) % 251
        return tile.to(torch.uint8).repeat(size // PERIOD + 1)[:size].contiguous()

    def _check(self, buffer: Any, number: int) -> None:
        expected = self._expected[: buffer.numel()]
        head = expected[:8].clone()
        if expected.numel() >= STAMPED:
            expected[:8].view(self._torch.int64).fill_(number)
        wrong, first = self._wrong_bytes(buffer, expected)
        expected[:8].copy_(head)
        if self._wrong is None and wrong:
            what, checked = "byte" if wrong == 1 else "bytes", verify.checked_text(buffer.numel(), buffer.numel())
            self._wrong = "%d %s wrong in %s, the first at %d of message %d" % (wrong, what, checked, first, number + 1)

    def _wrong_bytes(self, buffer: Any, expected: Any) -> Tuple[int, int]:
        """Return the number of bytes that differ, and the offset of the first; part by part, to spare memory."""
        wrong, first = 0, -1
        for at in range(0, buffer.numel(), COMPARED):
            differ = buffer[at : at + COMPARED] != expected[at : at + COMPARED]
            count = int(differ.sum())
            if count and not wrong:
                first = at + int(differ.nonzero()[0])
            wrong += count
        return wrong, first

    def _prepare(self, job: PairJob, sending: bool) -> None:
        ends = (self._rank, self._peer) if sending else (self._peer, self._rank)
        self._expected, self._note = self._pattern(*ends, job.bytes), self._bytes(8)
        self._wrong = None

    def _send_warmup(self, size: int, count: int, end: float) -> float:
        self._buffers = [self._expected[:size].clone() for _ in range(2)]
        began = time.perf_counter()
        self._stream(self._buffers, count, end, True, PairJob(size, 0, 0, 0))
        self._take(self._note, end, "answer")
        return time.perf_counter() - began

    def _receive_warmup(self, size: int, count: int, end: float) -> None:
        self._buffers = [self._bytes(size), self._bytes(size)]
        self._stream(self._buffers, count, end, False, PairJob(size, 0, 0, 0))
        self._put(self._note, end, "answer")
        self._check(self._buffers[(count - 1) % 2], count - 1)

    def _send_timed(self, job: PairJob, size: int, count: int, untimed: int, end: float) -> None:
        if job.fault == "corrupt":
            for buffer in self._buffers:
                buffer[size // 2] ^= 0xFF
        self._stream(self._buffers, count + untimed, end, True, job)
        self._take(self._note, end, "answer")

    def _receive_timed(self, size: int, count: int, untimed: int, end: float) -> List[float]:
        done = [] if untimed else [time.perf_counter()]
        done += self._stream(self._buffers, count + untimed, end, False, PairJob(size, 0, 0, 0))
        self._put(self._note, end, "answer")
        last = count + untimed - 1
        self._check(self._buffers[last % 2], last)
        return [done[turn + 1] - done[turn] for turn in range(count)]

    def _exchange(self, size: int, count: int, end: float) -> float:
        self._wrong = None
        out, into = self._pattern(self._rank, self._peer, size), self._bytes(size)
        lost = "no data in both directions at once with rank %d" % self._peer
        began = 0.0
        for number in range(count + 1):
            self._tag += 1
            try:
                works = exchange(self._group, out, self._other, into, self._other, self._tag)
            except Exception as error:
                raise failure(TRANSFER, lost, error) from None
            for work in works:
                self._wait(work, end, lost)
            if number == 0:
                began = time.perf_counter()
        seconds = time.perf_counter() - began
        if self._wrong_bytes(into, self._pattern(self._peer, self._rank, size))[0]:
            self._wrong = "the data that rank %d sent at the same time is wrong" % self._peer
        return seconds

    def _difference(self, size: int, end: float) -> Optional[verify.DataDifference]:
        return None if self._wrong is None else verify.DataDifference(ErrorKind.VERIFY, self._wrong)

    def _ping(self, count: int, end: float) -> List[float]:
        ball = self._numbers(1)
        trips: List[float] = []
        stop = time.perf_counter() + LATENCY_BUDGET
        for number in range(count):
            last = number == count - 1 or (number >= 4 and time.perf_counter() > stop)
            ball[0] = 0 if last else 1
            began = time.perf_counter()
            self._put(ball, end, "ping")
            self._take(ball, end, "pong")
            trips.append(time.perf_counter() - began)
            if last:
                break
        return trips

    def _pong(self, count: int, end: float) -> None:
        ball = self._numbers(1)
        for _ in range(count):
            self._take(ball, end, "ping")
            last = int(ball[0]) == 0
            self._put(ball, end, "pong")
            if last:
                return

    def _forget(self) -> None:
        self._expected, self._buffers = None, []

    def renew(self, task: Task) -> None:
        self._engine.renew(self._group, task)

    def transport(self, sending: bool) -> Tuple[Optional[str], Optional[str], Optional[str]]:
        here, there = self._addresses
        return TRANSPORT, here or self._engine.address, there or None

    def close(self, broken: bool) -> None:
        """Release the group; with gloo its sockets close, and a peer that waits on them notices."""
        group, self._group = self._group, None
        if group is not None and not self._inside:
            self._engine.discard(group)


class TorchGroup(RankGroup):
    """A process group of many ranks."""

    def __init__(self, engine: GlooEngine, group: Any, rank: int, ranks: List[int], test: int) -> None:
        super().__init__(ranks, ranks.index(rank))
        self._test = test  # Its data depends on it.
        self._engine = engine
        self._torch, self._dist = engine.torch, engine.dist
        self._group = group
        self._rank, self._size = rank, len(ranks)
        self._links: Dict[int, TorchLink] = {}

    def connect(self, peers: List[int], end: float) -> None:
        """Send each peer a small message and receive one of each, in the order in which both sides reach it."""
        note = self._torch.zeros(8, dtype=self._torch.uint8)
        received = note.clone()
        for turn in range(1, self._size):
            # In turn t every rank sends t ranks up and receives from t ranks down: no ring of ranks that wait.
            to, source = (self._me + turn) % self._size, (self._me - turn) % self._size
            sends, receives = self._ranks[to] in peers, self._ranks[source] in peers
            try:
                works = [self._group.recv([received], source, TAGS - 1)] if receives else []
                works += [self._group.send([note], to, TAGS - 1)] if sends else []
                for work in works:
                    finish(work, end)
            except Exception as error:
                what = "no connection to rank %d or rank %d" % (self._ranks[to], self._ranks[source])
                raise failure(CONNECT, what, error) from None

    def link(self, peer: int) -> PairLink:
        """Return the link to another rank within this group; both directions share it, and its tags."""
        if peer not in self._links:
            ends, indices = (self._rank, peer), (self._me, self._ranks.index(peer))
            self._links[peer] = TorchLink(self._engine, self._group, ends, indices, inside=True)
            self._links[peer].test = self._test
        return self._links[peer]

    def _allocate(self, form: TransferShape) -> Any:
        return self._torch.empty(form.bytes // 4, dtype=self._torch.float32)

    def _iteration(self, form: TransferShape, buffer: Any, end: float) -> Callable[[], List[Any]]:
        group, dist, me = self._group, self._dist, self._me
        own = buffer[me * form.values : (me + 1) * form.values]
        if form.kind == "all_reduce":
            return lambda: [group.allreduce([buffer], dist.AllreduceOptions())]
        if form.kind == "all_gather":
            return lambda: [group._allgather_base(buffer, own)]
        if form.kind == "reduce_scatter":
            return lambda: [group._reduce_scatter_base(own, buffer)]
        if form.kind == "broadcast":
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = 0, 0
            return lambda: [group.broadcast([buffer], options)]
        if form.kind == "alltoall":
            out = self._torch.cat([self._copied(me, rank, form.values) for rank in range(self._size)])
            return lambda: [group.alltoall_base(buffer, out, [], [])]
        after, before = (me + 1) % self._size, (me - 1) % self._size
        out = self._copied(me, after, form.values)
        return lambda: exchange(group, out, after, buffer, before, TAGS)

    def _timed(self, form: TransferShape, times: int, run: Callable[[], List[Any]], end: float) -> List[float]:
        laps = []
        began = time.monotonic()
        try:
            for _ in range(times):
                start = time.perf_counter()
                for work in run():
                    finish(work, end)
                laps.append(time.perf_counter() - start)
        except Exception as error:
            what = "%s of %d bytes did not finish" % (form.kind, form.bytes)
            raise failure(TRANSFER, what, error, time.monotonic() - began) from None
        return laps

    def _minimum(self, number: int, end: float) -> int:
        note = self._torch.tensor([number], dtype=self._torch.int64)
        options = self._dist.AllreduceOptions()
        options.reduceOp = self._dist.ReduceOp.MIN
        try:
            finish(self._group.allreduce([note], options), end)
        except Exception as error:
            raise failure(TRANSFER, "not all ranks reached the barrier", error) from None
        return int(note[0])

    def _transports(self) -> Optional[str]:
        return TRANSPORT

    def _repeated(self, tile: Any, count: int) -> Any:
        return tile.to(self._torch.float32).repeat(count // tile.numel() + 1)[:count]

    def _copied(self, src: int, dst: int, count: int) -> Any:
        """Return what one rank sends to another: integers that float32 holds, unique per place and pair of ranks."""
        steps = self._torch.arange(PERIOD, dtype=self._torch.int64)
        return self._repeated(steps * 1024 + (src * 37 + dst * 101 + self._test * 211 + 1) % 1024, count)

    def _fill(self, form: TransferShape, buffer: Any, end: float) -> None:
        me, chunk = self._me, form.values
        if form.kind in ADDING:
            steps = self._torch.tensor(verify.steps(self._test))
            buffer.copy_(self._repeated(steps + me, buffer.numel()))
            return
        buffer.fill_(-1.0)
        if form.kind == "all_gather":
            buffer[me * chunk : (me + 1) * chunk].copy_(self._copied(me, me, chunk))
        elif form.kind == "broadcast" and me == 0:
            buffer.copy_(self._copied(0, 0, chunk))

    def _wrong(self, form: TransferShape, buffer: Any, rounds: int, end: float) -> int:
        me = self._me
        if form.kind not in ADDING:
            wrong = 0
            for piece in arrived(form, me):
                got = buffer[piece.offset // 4 : (piece.offset + piece.length) // 4]
                wrong += int((got != self._copied(piece.src, piece.dst, got.numel())).sum())
            return wrong
        total, rounding = verify.expected_sums(form.kind, self._size, rounds, me, self._test)
        expected = self._repeated(self._torch.tensor(total), buffer.numel())
        if form.kind == "reduce_scatter":
            own = slice(me * form.values, (me + 1) * form.values)
            buffer, expected = buffer[own], expected[own]
        if not rounding:
            return int((buffer != expected).sum())
        return int((~self._torch.isclose(buffer, expected, rtol=rounding, atol=0.0)).sum())

    def close(self, broken: bool) -> None:
        self._links.clear()
        group, self._group = self._group, None
        if group is not None:
            self._engine.discard(group)


class TorchHostSteps(HostSteps):
    """Copies within the memory of the host, and products of whole numbers: what a CPU rank shows by itself."""

    def __init__(self, torch: Any, size: int) -> None:
        self._torch = torch
        self._buffers = [torch.arange(size // 8, dtype=torch.int64) for _ in range(2)]

    def copy(self, way: str, size: int, count: int, end: float) -> float:
        source, target = (buffer[: size // 8] for buffer in self._buffers)
        began = time.perf_counter()
        for _ in range(count * (2 if way == "both" else 1)):
            target.copy_(source)
        return time.perf_counter() - began

    def wrong(self, end: float) -> int:
        return int((self._buffers[0] != self._buffers[1]).sum())

    def product(self, seconds: float, end: float) -> Tuple[float, int]:
        whole = (self._torch.arange(1 << 16) % 13).reshape(256, 256)
        factor, right = whole.to(self._torch.float32), whole @ whole
        began = time.perf_counter()
        result = factor @ factor
        return 2 * 256**3 / max(time.perf_counter() - began, 1e-9), int((result.to(self._torch.int64) != right).sum())


class TorchEndpoint(RankEndpoint):
    """A rank over torch.distributed."""

    def __init__(self, rank: Rank, engine: GlooEngine) -> None:
        super().__init__(rank)
        self._engine = engine

    def run(self, task: Task, work: Callable[[], Any], phase: str, end: float) -> Any:
        """Return the result of ``work``, or abandon it when the task is cancelled or it hangs past its end.

        Torch's waits are in C++ and cannot be cancelled, so the work runs in a thread of its own (about 50 us each).
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
                raise Failed(phase, "cancelled: a peer is gone", kind=ErrorKind.CANCELLED)
            if time.monotonic() > end + OVERTIME:
                raise Failed(phase, "torch still waits %.0f s after the deadline" % OVERTIME, timeout=True)
        value, error = box[0]
        if error is not None:
            raise error
        return value

    def connect(
        self, task: Task, peer: int, peer_address: str, attempt: int, end: float, ctas: Optional[int] = None
    ) -> PairLink:
        me = self.rank.rank
        indices = (0, 1) if me < peer else (1, 0)
        group = self._engine.group(task, "link%d/" % attempt, indices[0], 2, end, self.rank.address)
        return TorchLink(self._engine, group, (me, peer), indices, (self.rank.address, peer_address))

    def host_steps(self, size: int) -> HostSteps:
        return TorchHostSteps(self._engine.torch, size)

    def join(self, task: Task, ranks: List[int], end: float, channels: Optional[int] = None) -> RankGroup:
        own = self.rank.address
        group = self._engine.group(task, "group/", ranks.index(self.rank.rank), len(ranks), end, own)
        return TorchGroup(self._engine, group, self.rank.rank, ranks, task.id)


class GlooEngine(Engine):
    """gloo over TCP between the data addresses."""

    name = "gloo"

    def __init__(self, address: str, store: Store, library: Optional[str]) -> None:
        super().__init__(address, store, library)
        # A group in C++ keeps only the C++ half of its store alive: the Python half is kept here.
        self._stores: Dict[int, Any] = {}
        # What a group that was let go may still use; no more are known to do that.
        self._retired: Deque[Any] = collections.deque(maxlen=RETIRED)

    def _import(self) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        # Lines that torch prints about what it raises as well, and plug-ins of further devices.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
        os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
        began = time.monotonic()
        # Heavy, and only in the rank host: not at the top of the module.
        self.torch: Any = importlib.import_module("torch")
        self.dist: Any = importlib.import_module("torch.distributed")
        self.seconds["import"] = max(self.seconds.get("import", 0.0), time.monotonic() - began)

    def warm(self) -> None:
        with contextlib.suppress(Exception):
            self._import()

    def load(self) -> str:
        """Import torch; check that it has gloo, and that its device can be opened on this node's data address."""
        self._import()
        if not self.dist.is_available() or not hasattr(self.dist, "ProcessGroupGloo"):
            raise RuntimeError("torch %s was built without gloo" % self.torch.__version__)
        self.torch.set_num_threads(1)
        self.carried = carried_store(self.dist)
        self._type: Any = self.dist.ProcessGroupGloo
        self._options: Any = getattr(self._type, "_Options", None) or self._type.Options
        began = time.monotonic()
        self._type.create_device(hostname=self.address)
        self.seconds["device"] = time.monotonic() - began
        return "torch %s" % self.torch.__version__

    def attach(self, rank: Rank) -> RankEndpoint:
        if rank.address and rank.address != self.address:
            self._type.create_device(hostname=rank.address)
        return TorchEndpoint(rank, self)

    def make(self, store: Any, rank: int, size: int, seconds: float, address: Optional[str]) -> Any:
        """Make a process group whose full mesh gives up in time.

        Each has a port of its own, which is closed with it. Connections to a port of gloo have numbers from 0 on, and
        one that comes too early is kept. At a port of all groups, a stranger would take the places of later peers.
        """
        options = self._options()
        options._timeout = timedelta(seconds=max(0.05, seconds / CONNECT_TRIES))
        options._devices = [self._type.create_device(hostname=address or self.address)]
        options._threads = 1
        return self._type(store, rank, size, options)

    def discard(self, group: Any) -> None:
        self._retired.append(self._stores.pop(id(group), None))

    def renew(self, group: Any, task: Task) -> None:
        if id(group) in self._stores:
            self._stores[id(group)].renew(task, task.end + task.deadline)

    def group(self, task: Task, prefix: str, rank: int, size: int, end: float, address: Optional[str]) -> Any:
        """Make a process group that is connected by ``end``, as `make` does; raise `Failed` if it is not formed."""
        began = time.monotonic()
        store = self.carried(self.store, task.prefix + prefix, task, end)
        try:
            group = self.make(store, rank, size, base.remaining(end, 0.05), address)
            self._stores[id(group)] = store
            return group
        except Exception as error:
            self._retired.append(store)
            what = "the process group of %d ranks was not formed" % size
            raise failure(CONNECT, what, error, time.monotonic() - began) from None
