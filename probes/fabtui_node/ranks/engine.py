"""Interface of an engine, with the sequence and the limits of transfers and collectives that all engines share.

Methods raise `Failed` unless noted otherwise. ``end`` is the monotonic time of a deadline.
"""

from __future__ import annotations

import itertools
import statistics
from typing import Any, Callable, Dict, List, Optional, Tuple

from fabtui_node.protocol import ErrorKind, Message
from fabtui_node.ranks import base
from fabtui_node.ranks.base import TRANSFER, VERIFY, Failed, PairJob, Rank, Store, Task
from fabtui_node.ranks.measure.host_link import HostSteps
from fabtui_node.ranks.measure.verify import TWICE, DataDifference, TransferShape, shape

#: The other rank, and the maximum number of CTAs (0: the library's default).
Key = Tuple[int, int]
#: Timed messages (s) of a source that the lab throttles.
THROTTLED_BUDGET = 0.2
#: Maximum duration (s) of one message of a source that the lab throttles.
THROTTLED_MESSAGE = 0.05
#: Duration (s) of a full message from which on the first timed one is not preceded by an untimed one.
#: Smaller ones may be in a queue at the other end before their time begins.
SLOW = 0.01
#: Maximum number of timed iterations: NCCL ranks agree on it as a float32.
MAX_TIMED = 1000
#: Sizes of the first two messages; these and larger ones are answered, until the rate is known.
#: The second one is smaller: sockets, queues and shapers swallow the first, and its time does not show a slow link.
FIRST_BYTES, SECOND_BYTES = 64 << 10, 16 << 10
#: Maximum number of answered messages, with those that are sent again.
MOST_PROBES = 32
#: Minimum number of messages of the chosen size for which there is time.
MESSAGES = 8
#: Minimum duration (s) of an answered message whose rate is known well enough, and its share of that of a chosen one.
PROBED, PROBED_SHARE = 0.05, 0.25
#: Minimum size of a message, for very slow links.
LEAST_BYTES = 1 << 10
#: Setup message: size, warm-up count and round trips; then number of timed messages, of untimed ones before, and, where
#: the message is smaller than requested, the duration (ns) of one until its answer, else 0.
#: A warm-up count of 0 announces one message that is answered, and another setup message.
Setup = Tuple[int, int, int]


def probed_rate(asked: int, send: Callable[[int], float], longest: float, known: Tuple[int, float] = (0, 0.0)) -> float:
    """Return the rate (bytes per second) of answered messages, whose size grows up to ``asked`` while they are fast.

    ``send`` sends one of a size and returns its duration (s), ``longest`` is the time for one of those to be chosen;
    ``known`` are size and duration of an earlier one.
    """
    size, seconds = known
    enough = max(PROBED, PROBED_SHARE * longest)
    if not size:
        send(min(asked, FIRST_BYTES))
    while True:
        growth = 16 if seconds < enough / 16 else 4
        near = growth * size >= asked and asked * seconds <= longest * size
        if size and (seconds > enough or near or size >= asked):
            return size / max(seconds, 1e-9)
        size = min(asked, max(growth * size, FIRST_BYTES) if size else SECOND_BYTES)
        seconds = send(size)
        if seconds > enough:
            # A lost packet is repeated after 0.2 s, or later: that does not make a link slow.
            seconds = min(seconds, send(size))


def affordable(asked: int, most: float) -> int:
    """Return the size of messages: as requested, or a power of two of at most ``most`` bytes."""
    if most >= asked:
        return asked
    return max(min(asked, LEAST_BYTES), 1 << max(0, int(most).bit_length() - 1))


class PairLink:
    """Connection of two ranks, by their global numbers, of a group, which may have more.

    An engine implements the steps of a transfer.
    """

    #: Timed messages (s) in one direction.
    budget = 0.05
    #: True if the median message counts: ranks that share cores wait for their turn now and then.
    by_median = False
    #: Number of the test, on which its data depends.
    test = 0

    def __init__(self, rank: int, peer: int) -> None:
        self._rank = rank
        self._peer = peer
        self._peer_transport: Optional[str] = None

    def _send_setup(
        self, setup: Setup, end: float, transport: Optional[str] = None, what: str = "setup message"
    ) -> None:
        raise NotImplementedError

    def _receive_setup(self, end: float, what: str = "setup message") -> Setup:
        raise NotImplementedError

    def _prepare(self, job: PairJob, sending: bool) -> None:
        raise NotImplementedError

    def _send_warmup(self, size: int, count: int, end: float) -> float:
        """Send messages; return the duration (s) until their answer."""
        raise NotImplementedError

    def _receive_warmup(self, size: int, count: int, end: float) -> None:
        raise NotImplementedError

    def _send_timed(self, job: PairJob, size: int, count: int, untimed: int, end: float) -> None:
        raise NotImplementedError

    def _receive_timed(self, size: int, count: int, untimed: int, end: float) -> List[float]:
        raise NotImplementedError

    def _exchange(self, size: int, count: int, end: float) -> float:
        """Send and receive ``count`` messages at once; return the duration (s) of all."""
        raise NotImplementedError

    def _difference(self, size: int, end: float) -> Optional[DataDifference]:
        """Return how the received data differs from what was sent; None if it does not."""
        raise NotImplementedError

    def _ping(self, count: int, end: float) -> List[float]:
        raise NotImplementedError

    def _pong(self, count: int, end: float) -> None:
        raise NotImplementedError

    def _forget(self) -> None:
        """Release the memory of one direction."""

    def pause(self) -> None:
        """Prepare for the time until the next test, between which a link may be kept."""

    def renew(self, task: Task) -> None:
        """Begin the next test."""

    def close(self, broken: bool) -> None:
        """Release the connection, without waiting if it is ``broken``."""
        raise NotImplementedError

    def _lap(self, name: str) -> None:
        """Mark the end of a step."""

    def _announced_transport(self) -> Optional[str]:
        return None

    def transport(self, sending: bool) -> Tuple[Optional[str], Optional[str], Optional[str]]:
        """Return the transport of a direction, this end's address and the peer's address, where known."""
        raise NotImplementedError

    def raw(self, sending: bool) -> Optional[str]:
        """Return the library's output about a direction that passed, and the durations of its steps."""
        return None

    def log(self) -> Optional[str]:
        """Return the library's output about this connection that is worth showing."""
        return None

    def send(self, job: PairJob, end: float) -> Message:
        """Act as the source: probe, setup, warm-up, as many timed messages as fit the budget, round trips."""
        try:
            self._prepare(job, True)
            size, warmup = self._chosen(job, end)
            self._send_setup((size, warmup, job.latency_iters), end, self._announced_transport())
            each = self._send_warmup(size, warmup, end) / warmup
            budget = self.budget
            if job.rate:
                each, budget = max(each, size / job.rate), THROTTLED_BUDGET
            count = base.repetitions(each, min(budget, base.remaining(end) / 3), job.iters)
            untimed = 0 if each > SLOW and size == job.bytes else 1
            # On a slow link the other end may have the next message in a queue when its time begins.
            self._send_setup((count, untimed, round(each * 1e9) if size < job.bytes else 0), end)
            self._send_timed(job, size, count, untimed, end)
            self._lap("data")
            trips = self._ping(job.latency_iters, end)
            self._lap("ping")
            latency = statistics.median(trips) / 2 if trips else None
            return {"bytes": size, "rate": None, "latency": latency, "times": None, "transport": None}
        finally:
            self._forget()

    def _chosen(self, job: PairJob, end: float) -> Tuple[int, int]:
        """Return message size and warm-up count: as requested, or smaller if the deadline would pass."""
        names = itertools.chain(["first byte"], itertools.repeat("setup message"))

        def longest() -> float:
            return base.remaining(end) / max(MESSAGES, 4 * job.shares)

        def send(size: int) -> float:
            self._send_setup((size, 0, 0), end, what=next(names))
            return self._send_warmup(size, 1, end)

        rate = probed_rate(job.bytes, send, longest())
        if job.rate:
            return max(1, min(job.bytes, int(job.rate * THROTTLED_MESSAGE))), 1
        return affordable(job.bytes, rate * longest()), max(1, job.warmup)

    def receive(self, job: PairJob, end: float) -> Message:
        """Act as the destination: time the messages between the setup and the last one, and check the data.

        After a failure with phase ``verify`` the link still works.
        """
        try:
            self._prepare(job, False)
            size, warmup, trips = self._receive_setup(end, "first byte")
            for _ in range(MOST_PROBES):
                if warmup:
                    break
                self._expect(1 <= size <= job.bytes, "a probe of %d bytes" % size)
                self._receive_warmup(size, 1, end)
                size, warmup, trips = self._receive_setup(end)
            self._expect(1 <= size <= job.bytes and 1 <= warmup <= max(1, job.warmup), "%d x %d bytes" % (warmup, size))
            self._expect(0 <= trips <= job.latency_iters, "%d round trips" % trips)
            self._receive_warmup(size, warmup, end)
            count, untimed, answered = self._receive_setup(end)
            self._expect(1 <= count <= job.iters and untimed in (0, 1) and answered >= 0, "%d messages" % count)
            times = self._receive_timed(size, count, untimed, end)
            self._lap("data")
            difference = self._difference(size, end)
            self._lap("check")
            self._pong(trips, end)
            self._lap("ping")
            self._verify(difference)
            typical = statistics.median(times) if self.by_median and times else sum(times) / count
            rate, transport = size / max(answered / 1e9 or typical, 1e-9), self._peer_transport
            summary = base.summarize(times)
            return {"bytes": size, "rate": rate, "latency": None, "times": summary, "transport": transport}
        finally:
            self._forget()

    def bidirectional(self, size: int, count: int, leading: bool, end: float) -> float:
        """Send and receive each message at once, as NCCL applications do; return the received bytes per second.

        The size is the same at both ends; the leading end plans the number of messages and sends it to the other one.
        """
        if leading:
            self._send_setup((size, count, 0), end)
        else:
            planned = self._receive_setup(end)
            good = planned[0] == size and 1 <= planned[1] <= count
            self._expect(good, "%d x %d bytes both ways" % (planned[1], planned[0]))
            count = planned[1]
        seconds = self._exchange(size, count, end)
        difference = self._difference(size, end)
        self._lap("both ways")
        self._verify(difference)
        return size * count / max(seconds, 1e-9)

    def _verify(self, difference: Optional[DataDifference]) -> None:
        if difference is not None:
            raise Failed(VERIFY, difference.text, raw=self.log(), kind=difference.kind)

    def _expect(self, good: bool, what: str) -> None:
        if not good:
            text = "the source announced %s" % what
            raise Failed(TRANSFER, text, raw=self.log(), kind=ErrorKind.PROTOCOL)


class KeptLinks:
    """The kept links of one rank; used by its thread.

    Each has the name that both of its ends gave it when they made it: a link is used again only if both have the same.
    The controller bounds their number, because only it knows when nothing is in progress and both ends can let go.
    """

    def __init__(self) -> None:
        self._links: Dict[Key, Tuple[str, PairLink]] = {}

    def __len__(self) -> int:
        return len(self._links)

    def name(self, key: Key) -> Optional[str]:
        return self._links[key][0] if key in self._links else None

    def take(self, key: Key, task: Task) -> PairLink:
        link = self._links.pop(key)[1]
        link.renew(task)
        return link

    def put(self, key: Key, name: str, link: PairLink) -> None:
        """Keep a link; one that is in its place is closed."""
        self.close(key, broken=True)
        link.pause()
        self._links[key] = name, link

    def close(self, key: Key, broken: bool) -> None:
        if key in self._links:
            self._links.pop(key)[1].close(broken)

    def clear(self) -> None:
        for key in list(self._links):
            self.close(key, broken=False)


class RankGroup:
    """Connection of several ranks, by their global numbers, of which this one has the index ``me``.

    An engine implements the steps of a collective.
    """

    #: Timed iterations (s) of one size.
    budget = 1.0

    def __init__(self, ranks: List[int], me: int) -> None:
        self._ranks = ranks
        self._me = me
        #: Size of the latest message that was measured, and its duration (s).
        self._known = (0, 0.0)

    def connect(self, peers: List[int], end: float) -> None:
        raise NotImplementedError

    def link(self, peer: int) -> PairLink:
        """Return a link to another rank within this group; it need not be closed."""
        raise NotImplementedError

    def close(self, broken: bool) -> None:
        raise NotImplementedError

    def _allocate(self, form: TransferShape) -> Any:
        raise NotImplementedError

    def _iteration(self, form: TransferShape, buffer: Any, end: float) -> Callable[[], Any]:
        raise NotImplementedError

    def _fill(self, form: TransferShape, buffer: Any, end: float) -> None:
        raise NotImplementedError

    def _timed(self, form: TransferShape, times: int, run: Callable[[], Any], end: float) -> List[float]:
        """Return the duration (s) of each of ``times`` iterations in a row."""
        raise NotImplementedError

    def _wrong(self, form: TransferShape, buffer: Any, rounds: int, end: float) -> int:
        """Return the number of wrong values after ``rounds`` iterations."""
        raise NotImplementedError

    def _minimum(self, number: int, end: float) -> int:
        """Return the minimum of the numbers of all ranks; also a barrier."""
        raise NotImplementedError

    def _transports(self) -> Optional[str]:
        raise NotImplementedError

    def _algorithm(self) -> Optional[str]:
        """Return the algorithm and protocol that the library reported, if it does."""
        return None

    def _rings(self) -> List[List[int]]:
        """Return the rings of the library, as indices of ranks; none if it does not report them."""
        return []

    def _affordable(self, kind: str, asked: int, end: float) -> int:
        """Return the size (bytes) to measure, the same at all ranks: as requested, or what the deadline allows."""

        def agreed(value: float, unit: float) -> float:
            """Return the minimum of a value at all ranks, as a number of units."""
            return max(1, self._minimum(int(value / unit), end)) * unit

        def slowest(size: int, seconds: float) -> float:
            return size / agreed(size / max(seconds, 1e-9), 1.0)

        def send(size: int) -> float:
            form = shape(kind, size, len(self._ranks))
            buffer = self._allocate(form)
            self._fill(form, buffer, end)
            return slowest(size, self._timed(form, 1, self._iteration(form, buffer, end), end)[0])

        def longest() -> float:
            return agreed(base.remaining(end) / MESSAGES, 1e-4)

        size, seconds = self._known
        rate = probed_rate(asked, send, longest(), (size, slowest(size, seconds) if size else 0.0))
        return affordable(asked, rate * longest())

    def collective(self, kind: str, asked: int, iters: int, warmup: int, end: float) -> Message:
        """Measure one size (bytes) of a collective of float32 values, in place where nccl-tests does so.

        Return the part of its report that only a measurement has, see `collective.run`.
        """
        ranks = len(self._ranks)
        size = self._affordable(kind, asked, end)
        form = shape(kind, size, ranks)
        buffer = self._allocate(form)
        run = self._iteration(form, buffer, end)
        self._fill(form, buffer, end)
        each = self._timed(form, 1, run, end)[0]
        wrong = self._wrong(form, buffer, 1, end)
        for _ in range(warmup - 1):
            each = self._timed(form, 1, run, end)[0]
        count = min(MAX_TIMED, base.repetitions(each, min(self.budget, base.remaining(end) / 3), iters))
        if kind == "all_reduce":
            # Every sum multiplies the values by the number of ranks, until they overflow.
            count = base.max_float32_sums(ranks, count + 1) - 1
        self._fill(form, buffer, end)
        # Right before the timed iterations, so that the ranks start together.
        count = max(1, self._minimum(count, end))
        # One untimed iteration goes first: the first of a row takes longer.
        laps = self._timed(form, count + 1, run, end)[1:]
        wrong += self._wrong(form, buffer, count + 1, end)
        algorithm = None if kind in TWICE else self._algorithm()
        self._known = size, sum(laps) / len(laps)
        result: Message = {"tested": size, "sent": form.bytes, "seconds": self._known[1], "fastest": min(laps)}
        return {
            **result,
            "wrong": wrong,
            "transport": self._transports(),
            "algorithm": algorithm,
            "rings": self._rings(),
        }


class RankEndpoint:
    """One rank, used by its own thread; without an engine's implementation, one that could not be started."""

    #: Why the rank takes part in no test.
    error: Optional[str] = None
    #: Maximum number of channels of a communicator made for transfers between many pairs; None without a limit.
    world_channels: Optional[int] = None

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.kept = KeptLinks()

    def free_memory(self) -> Optional[int]:
        """Return the GPU memory (bytes) that is free or holds its own messages; None without a GPU."""
        return None

    def connect(
        self, task: Task, peer: int, peer_address: str, attempt: int, end: float, ctas: Optional[int] = None
    ) -> PairLink:
        """Connect to another rank, which does the same; fail with phase ``connect``.

        The lower one of both has rank 0 in the link. ``attempt`` is the number of this link of the pair, the same at
        both ends; ``ctas`` is the maximum number of CTAs (channels) of the library, if any.
        """
        raise NotImplementedError

    def prepare(self, size: int, second: bool) -> None:
        """Allocate memory for messages of a size, twice if ``second``, before other ranks depend on this one."""

    def join(self, task: Task, ranks: List[int], end: float, channels: Optional[int] = None) -> RankGroup:
        """Connect to all ranks of a group, which do the same; ``channels`` is the maximum, if any."""
        raise NotImplementedError

    def release(self, groups: bool) -> Optional[str]:
        """Release what closed links left, and with ``groups`` what healthy groups left; return the error.

        Called while no rank of this process runs a test.
        """
        return None

    def host_steps(self, size: int) -> HostSteps:
        """Return the steps that show this endpoint alone, with buffers of a size."""
        raise Failed(TRANSFER, self.error or "not ready", kind=ErrorKind.NOT_READY)

    def run(self, task: Task, work: Callable[[], Any], phase: str, end: float) -> Any:
        """Run a phase of a task; engines whose waits cannot be cancelled from outside override it."""
        return work()


class Engine:
    """A way to move data between endpoints."""

    name = ""

    #: Size (bytes) of the largest message to come, if known: memory for it is allocated once.
    largest = 0

    def __init__(self, address: str, store: Store, library: Optional[str]) -> None:
        self.address = address
        self.store = store
        self.library = library
        self.seconds: Dict[str, float] = {}

    def warm(self) -> None:
        """Load ahead what needs neither address nor GPU memory; never raises, because `load` repeats it."""

    def load(self) -> str:
        """Load the libraries and return their versions; may raise anything, which the rank host reports."""
        raise NotImplementedError

    def attach(self, rank: Rank) -> RankEndpoint:
        """Start a rank; called in the thread of that rank."""
        raise NotImplementedError
