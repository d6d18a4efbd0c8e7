"""What the rank host and its engines agree on: tasks, deadlines, faults, links and what is measured over them."""

from __future__ import annotations

import os
import signal
import statistics
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks.controller_channel import Board, Store

CONNECT, TRANSFER, VERIFY = "connect", "transfer", "verify"
MAX_TEXT = 4000


class Failed(Exception):
    """A phase of a test did not work out.

    Attributes:
        phase: ``connect``, ``transfer`` or ``verify``.
        text: What happened, for a person.
        timeout: Whether a deadline ran out (and nothing else is known).
        raw: What the library itself printed, if anything.
        kind: The machine-readable reason.
    """

    def __init__(
        self,
        phase: str,
        text: str,
        timeout: bool = False,
        raw: Optional[str] = None,
        kind: Optional[ErrorKind] = None,
    ) -> None:
        super().__init__(text)
        self.phase = phase
        self.text = text[:MAX_TEXT]
        self.timeout = timeout
        self.raw = raw
        self.kind = kind or (ErrorKind.TIMEOUT if timeout else ErrorKind.FAILED)

    @classmethod
    def from_error(cls, phase: str, error: Exception) -> Failed:
        """Return the failure of a phase that an exception ended; one that is a `Failed` already stays as it is."""
        if isinstance(error, Failed):
            return error
        kind = kind_of(error)
        return cls(phase, describe(error), kind is ErrorKind.TIMEOUT, kind=kind)


Fault = NamedTuple("Fault", [("src", int), ("dst", int), ("kind", str), ("rate", Optional[float])])

Rank = NamedTuple("Rank", [("rank", int), ("index", int), ("uuid", Optional[str])])


class Measured(NamedTuple):
    """What one direction of a pair came to.

    Attributes:
        bytes: Of one message, as sent.
        rate: Bytes per second, at the receiving end.
        latency: Seconds, half a round trip, at the sending end.
        raw: Anything worth a line beside the numbers.
        times: Seconds of the timed messages, each, at the receiving end.
        told: What the sending end said about the way the data went, at the receiving end.
    """

    bytes: int
    rate: Optional[float] = None
    latency: Optional[float] = None
    raw: Optional[str] = None
    times: Tuple[float, ...] = ()
    told: Optional[str] = None


class Collected(NamedTuple):
    """What one size of a collective came to.

    Attributes:
        sent: Bytes of the message that was really sent: what was asked, rounded as the ranks divide it.
        seconds: Of one iteration, on average.
        fastest: Of the fastest iteration.
        wrong: Values that are not what they should be, among those looked at.
        transport: The ways the data went, in words.
        algorithm: What the library chose, in its own words, where it said so.
    """

    sent: int
    seconds: float
    fastest: float
    wrong: int
    transport: Optional[str] = None
    algorithm: Optional[str] = None


class PairJob(NamedTuple):
    """What to send in one direction.

    Attributes:
        bytes: Of one message.
        iters: Timed messages at most.
        warmup: Messages before them.
        latency_iters: Round trips of a small message; none: the latency is not measured.
        rate: Bytes per second to throttle the sending side to (a fault made by the lab).
        deed: ``corrupt``, ``kill`` or ``stop``: what the sending side does (a fault made by the lab).
    """

    bytes: int
    iters: int
    warmup: int
    latency_iters: int
    rate: Optional[float] = None
    deed: Optional[str] = None


class Task:
    """One pair or group in progress at one endpoint: its store prefix, its deadline, and whether it was called off."""

    def __init__(self, number: int, prefix: str, deadline: float, store: Store) -> None:
        self.id = number
        self.prefix = prefix
        self.deadline = deadline
        self.end = time.monotonic() + deadline
        self.cancelled = False
        self._store = store
        self.board = Board(store, prefix, self)

    def cancel(self) -> None:
        """Stop waiting for the others; safe from any thread."""
        self.cancelled = True
        self._store.cancel(self)


class Link:
    """A connection of two endpoints, over which one direction at a time is tested."""

    def send(self, job: PairJob, end: float) -> Measured:
        """Be the source of one direction.

        Raises:
            Failed: It did not work out.
        """
        raise NotImplementedError

    def drop(self, end: float) -> None:
        """Be a source that sends nothing (a fault made by the lab)."""

    def receive(self, job: PairJob, end: float) -> Measured:
        """Be the destination of one direction.

        Raises:
            Failed: It did not work out, or what came is not what was sent. After phase ``verify`` the link still works.
        """
        raise NotImplementedError

    def both(self, size: int, count: int, leading: bool, end: float) -> float:
        """Send and receive at once; return bytes received per second.

        Args:
            size: Bytes of a message; both ends name the same.
            count: Messages each way, as the leading end says it.
            leading: Whether this end tells the other one the count.
            end: Monotonic time at which to give up.

        Raises:
            Failed: It did not work out, or what came is not what was sent.
        """
        raise NotImplementedError

    def transport(self, sending: bool) -> Tuple[Optional[str], Optional[str], Optional[str]]:
        """Return how the data went in a direction, and the addresses of this end and of the other, where known."""
        return None, None, None

    def log(self) -> Optional[str]:
        """Return what the library printed about this link that is worth showing."""
        return None

    def close(self, broken: bool) -> Optional[str]:
        """Let go of it; ``broken``: nothing may be waited for. Return what went wrong with that, if anything."""
        return None


class Group:
    """A connection of several endpoints."""

    def meet(self, peers: List[int], end: float) -> None:
        """Make the connections to these ranks, all at once; each of them does the same.

        Raises:
            Failed: With phase ``connect``.
        """

    def link(self, peer: int) -> Link:
        """Return a link to another rank inside of this group; closing it is not needed."""
        raise NotImplementedError

    def collective(self, kind: str, size: int, iters: int, warmup: int, end: float) -> Collected:
        """Measure one size in bytes of a collective of float32 values, in place where nccl-tests does that.

        Raises:
            Failed: It did not work out.
        """
        raise NotImplementedError

    def log(self) -> Optional[str]:
        """Return what the library printed that is worth showing."""
        return None

    def close(self, broken: bool) -> Optional[str]:
        """Let go of it."""
        return None


class Endpoint:
    """One rank. All its methods are called from its own thread."""

    world_channels: Optional[int] = None
    """How many channels a communicator has at most that is made for transfers between many pairs, where that counts."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank

    def connect(self, task: Task, peer: int, peer_address: str, attempt: int, end: float) -> Link:
        """Connect to another rank, which does the same.

        Args:
            task: The pair.
            peer: The other rank; the lower one of both has rank 0 in the link.
            peer_address: The address its node told.
            attempt: Counts the links of this pair, the same at both ends; part of the store keys.
            end: Monotonic time at which to give up.

        Raises:
            Failed: With phase ``connect``.
        """
        raise NotImplementedError

    def prepare(self, size: int, second: bool) -> None:
        """Make sure that there is memory for messages of a size, once or twice, before others rely on this rank.

        Raises:
            Failed: There is not.
        """

    def join(self, task: Task, ranks: List[int], end: float, channels: Optional[int] = None) -> Group:
        """Connect to all ranks of a group, which do the same; over so many channels at most where they have some.

        Raises:
            Failed: With phase ``connect``.
        """
        raise NotImplementedError

    def rest(self, whole: bool) -> Optional[str]:
        """Let go of what was kept of links and groups; called while no rank of this process is in a test.

        Args:
            whole: Whether what is not broken goes as well.

        Returns:
            What went wrong with that, if anything.
        """
        return None

    def run(self, task: Task, work: Callable[[], Any], phase: str, end: float) -> Any:
        """Run a phase of a task; engines whose waits cannot be called off from outside override it."""
        return work()


class Engine:
    """A way to move data between endpoints."""

    name = ""

    def __init__(self, address: str, store: Store, library: Optional[str]) -> None:
        self.address = address
        self.store = store
        self.library = library
        self.seconds: Dict[str, float] = {}

    def warm(self) -> None:
        """Load ahead what needs neither address nor GPU memory; never raises, as `load` does it again then."""

    def load(self) -> str:
        """Load what the engine needs and return its version.

        Raises:
            Exception: Anything the library throws; the rank host reports it.
        """
        raise NotImplementedError

    def attach(self, rank: Rank) -> Endpoint:
        """Make a rank ready; called in the thread of that rank."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what must not outlive the process."""


def remaining(end: float, least: float = 0.0) -> float:
    """Return the seconds until a monotonic time, never below ``least``."""
    return max(least, end - time.monotonic())


def fitting(seconds_each: float, budget: float, most: int) -> int:
    """Return how many of something fit into a budget of seconds: at least 1, at most ``most``."""
    if seconds_each <= 0:
        return max(1, most)
    return max(1, min(most, int(budget / seconds_each)))


def rounded(size: int) -> int:
    """Return the largest power of two that is not above a size in bytes; 0 for none."""
    return 1 << (size.bit_length() - 1) if size > 0 else 0


def kind_of(error: BaseException) -> ErrorKind:
    """Return the kind that an exception class declares as ``kind``, FAILED for any other."""
    kind = getattr(error, "kind", None)
    return kind if isinstance(kind, ErrorKind) else ErrorKind.FAILED


def describe(error: BaseException) -> str:
    """Return an error's type and message on one line, at most ``MAX_TEXT`` characters."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (("%s: %s" % (name, text)) if text else name)[:MAX_TEXT]


def tidy(text: str, most: int = 300) -> str:
    """Return a text on one line and no longer than ``most`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def summed_up(times: Sequence[float]) -> Optional[Dict[str, Any]]:
    """Return count, minimum, median, 99th percentile and maximum of some seconds, None of none."""
    if not times:
        return None
    ordered = sorted(times)
    return {
        "count": len(ordered),
        "min": ordered[0],
        "median": statistics.median(ordered),
        "p99": ordered[min(len(ordered) - 1, (99 * len(ordered) + 99) // 100 - 1)],
        "max": ordered[-1],
    }


def strike(deed: str) -> None:
    """End or stop this very process: a fault made by the lab, which nothing of ours shall soften."""
    os.kill(os.getpid(), signal.SIGKILL if deed == "kill" else signal.SIGSTOP)


def bounded_sums(ranks: int, count: int) -> int:
    """Return how many in-place float32 sums may follow each other without an overflow, at most ``count``."""
    bits = 0
    while 2**bits < ranks:
        bits += 1
    return max(1, min(count, 100 // max(1, bits)))
