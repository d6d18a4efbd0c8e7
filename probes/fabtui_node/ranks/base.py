"""Engine interface: tasks, failures, results, and the links, groups and endpoints that an engine provides."""

from __future__ import annotations

import os
import signal
import statistics
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks.controller_channel import Board, Store

if TYPE_CHECKING:
    from fabtui_node.messages import Times

CONNECT, TRANSFER, VERIFY = "connect", "transfer", "verify"
MAX_TEXT = 4000


class Failed(Exception):
    """A phase of a test failed.

    Attributes:
        phase: ``connect``, ``transfer`` or ``verify``.
        text: The reason, for a person.
        timeout: True if a deadline passed and nothing else is known.
        raw: Output of the library, if any.
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
    def from_error(cls, phase: str, error: Exception, prefix: str = "") -> Failed:
        """Return the failure of a phase that an exception ended; a `Failed` is returned unchanged."""
        if isinstance(error, Failed):
            return error
        kind = kind_of(error)
        return cls(phase, prefix + describe(error), kind is ErrorKind.TIMEOUT, kind=kind)


Fault = NamedTuple("Fault", [("src", int), ("dst", int), ("kind", str), ("rate", Optional[float])])

Rank = NamedTuple("Rank", [("rank", int), ("index", int), ("uuid", Optional[str])])


class TransferResult(NamedTuple):
    """One direction of a pair, as measured at one end.

    Attributes:
        bytes: Size of one message as sent.
        rate: Bytes per second, at the receiving end.
        latency: Half a round trip (s), at the sending end.
        raw: Library output worth showing.
        times: Duration (s) of each timed message, at the receiving end.
        peer_transport: Transport that the sending end reported, at the receiving end.
    """

    bytes: int
    rate: Optional[float] = None
    latency: Optional[float] = None
    raw: Optional[str] = None
    times: Tuple[float, ...] = ()
    peer_transport: Optional[str] = None


class CollectiveResult(NamedTuple):
    """One message size of a collective.

    Attributes:
        sent: Bytes of the message as sent: the requested size, rounded to what the ranks divide.
        seconds: Average duration of one iteration (s).
        fastest: Duration of the fastest iteration (s).
        wrong: Number of wrong values among those checked.
        transport: Transports used, worst first.
        algorithm: Algorithm and protocol that the library reported.
    """

    sent: int
    seconds: float
    fastest: float
    wrong: int
    transport: Optional[str] = None
    algorithm: Optional[str] = None


class PairJob(NamedTuple):
    """Parameters of one direction.

    Attributes:
        bytes: Size of one message.
        iters: Maximum number of timed messages.
        warmup: Number of messages before them.
        latency_iters: Number of round trips of a small message; 0 skips the latency.
        rate: Bytes per second to throttle the source to (injected by the lab).
        fault: ``corrupt``, ``kill`` or ``stop`` at the source (injected by the lab).
    """

    bytes: int
    iters: int
    warmup: int
    latency_iters: int
    rate: Optional[float] = None
    fault: Optional[str] = None


class Task:
    """A pair or group in progress at one endpoint: store prefix, deadline, cancellation."""

    def __init__(self, number: int, prefix: str, deadline: float, store: Store) -> None:
        self.id = number
        self.prefix = prefix
        self.deadline = deadline
        self.began = time.monotonic()
        self.end = self.began + deadline
        self.cancelled = False
        self._store = store
        self.board = Board(store, prefix, self)

    def cancel(self) -> None:
        """Stop waiting for peers; thread-safe."""
        self.cancelled = True
        self._store.cancel(self)


class Link:
    """A connection between two endpoints, over which one direction at a time is tested."""

    def send(self, job: PairJob, end: float) -> TransferResult:
        """Act as the source of one direction.

        Raises:
            Failed: The transfer failed.
        """
        raise NotImplementedError

    def drop(self, end: float) -> None:
        """Act as a source that sends nothing (injected by the lab)."""

    def receive(self, job: PairJob, end: float) -> TransferResult:
        """Act as the destination of one direction.

        Raises:
            Failed: The transfer failed, or the data is wrong. After phase ``verify`` the link still works.
        """
        raise NotImplementedError

    def bidirectional(self, size: int, count: int, leading: bool, end: float) -> float:
        """Send and receive at once; return the received bytes per second.

        Args:
            size: Bytes of a message, the same at both ends.
            count: Messages in each direction, as planned by the leading end.
            leading: Whether this end sends the count to the other one.
            end: Monotonic time of the deadline.

        Raises:
            Failed: The transfer failed, or the data is wrong.
        """
        raise NotImplementedError

    def transport(self, sending: bool) -> Tuple[Optional[str], Optional[str], Optional[str]]:
        """Return the transport of a direction, this end's address and the peer's address, where known."""
        return None, None, None

    def log(self) -> Optional[str]:
        """Return the library's output about this connection that is worth showing."""
        return None

    def close(self, broken: bool) -> Optional[str]:
        """Release the connection, without waiting if it is ``broken``; return the error of that, if any."""
        return None


class Group:
    """A connection of several endpoints."""

    def connect(self, peers: List[int], end: float) -> None:
        """Connect to these ranks at once; each of them does the same.

        Raises:
            Failed: With phase ``connect``.
        """

    def link(self, peer: int) -> Link:
        """Return a link to another rank within this group; it need not be closed."""
        raise NotImplementedError

    def collective(self, kind: str, size: int, iters: int, warmup: int, end: float) -> CollectiveResult:
        """Measure one size (bytes) of a collective of float32 values, in place where nccl-tests does so.

        Raises:
            Failed: The collective failed.
        """
        raise NotImplementedError

    def close(self, broken: bool) -> Optional[str]:
        """Release the group; return the error of that, if any."""
        return None


class Endpoint:
    """One rank. All methods are called from its own thread."""

    world_channels: Optional[int] = None
    """Maximum number of channels of a communicator made for transfers between many pairs; None without a limit."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank

    def connect(self, task: Task, peer: int, peer_address: str, attempt: int, end: float) -> Link:
        """Connect to another rank, which does the same.

        Args:
            task: The pair.
            peer: The other rank; the lower one of both has rank 0 in the link.
            peer_address: The data address of its node.
            attempt: Number of this link of the pair, the same at both ends; part of the store keys.
            end: Monotonic time of the deadline.

        Raises:
            Failed: With phase ``connect``.
        """
        raise NotImplementedError

    def prepare(self, size: int, second: bool) -> None:
        """Allocate memory for messages of a size, twice if ``second``, before other ranks depend on this one.

        Raises:
            Failed: There is not enough.
        """

    def join(self, task: Task, ranks: List[int], end: float, channels: Optional[int] = None) -> Group:
        """Connect to all ranks of a group, which do the same; ``channels`` is the maximum, if any.

        Raises:
            Failed: With phase ``connect``.
        """
        raise NotImplementedError

    def release(self, everything: bool) -> Optional[str]:
        """Release what closed links and groups left; called while no rank of this process runs a test.

        Args:
            everything: Whether healthy leftovers are released too, not only broken ones.

        Returns:
            The error of that, if any.
        """
        return None

    def run(self, task: Task, work: Callable[[], Any], phase: str, end: float) -> Any:
        """Run a phase of a task; engines whose waits cannot be cancelled from outside override it."""
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
        """Load ahead what needs neither address nor GPU memory; never raises, because `load` repeats it."""

    def load(self) -> str:
        """Load the libraries and return their versions.

        Raises:
            Exception: Any error of the library; the rank host reports it.
        """
        raise NotImplementedError

    def attach(self, rank: Rank) -> Endpoint:
        """Start a rank; called in the thread of that rank."""
        raise NotImplementedError


def remaining(end: float, minimum: float = 0.0) -> float:
    """Return the seconds until a monotonic time, at least ``minimum``."""
    return max(minimum, end - time.monotonic())


def repetitions(seconds_each: float, budget: float, maximum: int) -> int:
    """Return how many repetitions fit into a budget (s): at least 1, at most ``maximum``."""
    if seconds_each <= 0:
        return max(1, maximum)
    return max(1, min(maximum, int(budget / seconds_each)))


def floor_power_of_two(size: int) -> int:
    """Return the largest power of two that is not above ``size``; 0 if there is none."""
    return 1 << (size.bit_length() - 1) if size > 0 else 0


def kind_of(error: BaseException) -> ErrorKind:
    """Return the kind that an exception class declares as ``kind``, FAILED for any other."""
    kind = getattr(error, "kind", None)
    return kind if isinstance(kind, ErrorKind) else ErrorKind.FAILED


def describe(error: BaseException) -> str:
    """Return an error on one line: its type and message; the message alone if the class declares a ``kind``."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    if text and isinstance(getattr(error, "kind", None), ErrorKind):
        return text[:MAX_TEXT]
    return (("%s: %s" % (name, text)) if text else name)[:MAX_TEXT]


def one_line(text: str, maximum: int = 300) -> str:
    """Return a text on one line of at most ``maximum`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= maximum else line[: maximum - 3] + "..."


def summarize(times: Sequence[float]) -> Optional[Times]:
    """Return count, minimum, median, 99th percentile and maximum of durations (s); None without any."""
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


def signal_self(fault: str) -> None:
    """Kill or stop this process (injected by the lab)."""
    os.kill(os.getpid(), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)


def max_float32_sums(ranks: int, count: int) -> int:
    """Return how many in-place float32 sums over ``ranks`` can run in a row without overflow, at most ``count``."""
    bits = (ranks - 1).bit_length()
    return max(1, min(count, 100 // max(1, bits)))
