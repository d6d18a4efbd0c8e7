"""What the rank host and its engines agree on: tasks, deadlines, faults, links and what is measured over them."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from fabtui_probes.engines.channel import Board, Store

CONNECT, TRANSFER, VERIFY = "connect", "transfer", "verify"
MAX_TEXT = 4000


class Failed(Exception):
    """A phase of a test did not work out.

    Attributes:
        phase: ``connect``, ``transfer`` or ``verify``.
        text: What happened, for a person.
        timeout: Whether a deadline ran out (and nothing else is known).
        raw: What the library itself printed, if anything.
    """

    def __init__(self, phase: str, text: str, timeout: bool = False, raw: Optional[str] = None) -> None:
        super().__init__(text)
        self.phase = phase
        self.text = text[:MAX_TEXT]
        self.timeout = timeout
        self.raw = raw


Fault = NamedTuple("Fault", [("src", int), ("dst", int), ("kind", str), ("rate", Optional[float])])

Rank = NamedTuple("Rank", [("rank", int), ("index", int), ("uuid", Optional[str])])

Measured = NamedTuple(
    "Measured",
    [
        ("bytes", int),  # of one message, as sent
        ("rate", Optional[float]),  # bytes per second, at the receiving end
        ("latency", Optional[float]),  # seconds, half a round trip, at the sending end
        ("raw", Optional[str]),  # anything worth a line beside the numbers
    ],
)

Reduced = NamedTuple("Reduced", [("seconds", float), ("wrong", int), ("transport", Optional[str])])

PairJob = NamedTuple(
    "PairJob", [("bytes", int), ("iters", int), ("warmup", int), ("latency_iters", int), ("rate", Optional[float])]
)
"""What to send in one direction; ``rate`` throttles the sending side (a fault made by the lab)."""


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
    """A connection of two endpoints, made for a pair, over which one direction at a time is tested."""

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
    """A connection of several endpoints for collectives."""

    def all_reduce(self, size: int, iters: int, warmup: int, end: float) -> Reduced:
        """Measure one size in bytes, in place, float32.

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

    def join(self, task: Task, ranks: List[int], end: float) -> Group:
        """Connect to all ranks of a group, which do the same.

        Raises:
            Failed: With phase ``connect``.
        """
        raise NotImplementedError

    def rest(self) -> Optional[str]:
        """Let go of what was kept of links and groups; called while no rank of this process is in a test.

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


def describe(error: BaseException) -> str:
    """Return an error's type and message on one line, at most ``MAX_TEXT`` characters."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (("%s: %s" % (name, text)) if text else name)[:MAX_TEXT]


def bounded_sums(ranks: int, count: int) -> int:
    """Return how many in-place float32 sums may follow each other without an overflow, at most ``count``."""
    bits = 0
    while 2**bits < ranks:
        bits += 1
    return max(1, min(count, 100 // max(1, bits)))
