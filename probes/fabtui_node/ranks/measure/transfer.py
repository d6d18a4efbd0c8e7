"""Template of a transfer test between two ranks: connect, probe, warm up, time, verify; latency; both ways at once.

An engine subclasses `TransferTest` and implements how messages move; the sequence and the limits are the same for all.
"""

from __future__ import annotations

import statistics
from typing import List, Optional, Tuple

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks.base import (
    TRANSFER,
    VERIFY,
    Failed,
    Link,
    PairJob,
    TransferResult,
    floor_power_of_two,
    remaining,
    repetitions,
)

THROTTLED_BUDGET = 0.2
"""Timed messages (s) of a source that the lab throttles."""

THROTTLED_MESSAGE = 0.05
"""Maximum duration (s) of one message of a source that the lab throttles."""

SLOW = 0.01
"""Duration (s) of a message from which on the first timed one is not preceded by an untimed one."""

Setup = Tuple[int, int, int]
"""Setup message: size, warm-up count and round trips; then number of timed messages, of untimed ones before, and 0."""


class TransferTest(Link):
    """Transfer test of two ranks of a communicator or process group, which may have more ranks.

    Args:
        rank: Global number of this rank.
        peer: Global number of the other rank.
    """

    budget = 0.05
    """Timed messages (s) in one direction."""

    probe_bytes = 4 << 20
    """Maximum size of the first message, which shows how long a full one would take."""

    def __init__(self, rank: int, peer: int) -> None:
        self._rank = rank
        self._peer = peer
        self._peer_transport: Optional[str] = None

    # -- implemented by an engine; each step raises Failed

    def _send_setup(self, setup: Setup, end: float, transport: Optional[str] = None) -> None:
        raise NotImplementedError

    def _receive_setup(self, end: float) -> Setup:
        raise NotImplementedError

    def _send_probe(self, job: PairJob, end: float) -> float:
        """Send the first messages; return bytes per second."""
        raise NotImplementedError

    def _receive_probe(self, job: PairJob, end: float) -> None:
        raise NotImplementedError

    def _send_warmup(self, size: int, count: int, end: float) -> float:
        """Return the duration (s) of all warm-up messages."""
        raise NotImplementedError

    def _receive_warmup(self, size: int, count: int, end: float) -> None:
        raise NotImplementedError

    def _send_timed(self, job: PairJob, size: int, count: int, untimed: int, end: float) -> None:
        raise NotImplementedError

    def _receive_timed(self, size: int, count: int, untimed: int, end: float) -> List[float]:
        """Return the duration (s) of each timed message."""
        raise NotImplementedError

    def _exchange(self, size: int, count: int, end: float) -> float:
        """Send and receive ``count`` messages at once; return the duration (s) of all."""
        raise NotImplementedError

    def _difference(self, size: int, end: float) -> Optional[str]:
        """Return how the received data differs from what was sent; None if it does not."""
        raise NotImplementedError

    def _ping(self, count: int, end: float) -> List[float]:
        """Return the duration (s) of each round trip of a small message."""
        raise NotImplementedError

    def _pong(self, count: int, end: float) -> None:
        raise NotImplementedError

    def _forget(self) -> None:
        """Release the memory of one direction."""

    def _lap(self, name: str) -> None:
        """Mark the end of a step."""

    def _raw(self, sending: bool) -> Optional[str]:
        return None

    def _announced_transport(self) -> Optional[str]:
        """Return the transport to report to the destination, which may not know it."""
        return None

    # -- one direction

    def send(self, job: PairJob, end: float) -> TransferResult:
        """Act as the source: probe, setup, warm-up, as many timed messages as fit the budget, round trips."""
        try:
            return self._send(job, end)
        finally:
            self._forget()

    def _send(self, job: PairJob, end: float) -> TransferResult:
        rate = self._send_probe(job, end)
        size, warmup = self._affordable(job, rate, end)
        self._send_setup((size, warmup, job.latency_iters), end, self._announced_transport())
        each = self._send_warmup(size, warmup, end) / warmup
        budget = self.budget
        if job.rate:
            each, budget = max(each, size / job.rate), THROTTLED_BUDGET
        count = repetitions(each, min(budget, remaining(end) / 3), job.iters)
        untimed = 0 if each > SLOW else 1
        self._send_setup((count, untimed, 0), end)
        self._send_timed(job, size, count, untimed, end)
        self._lap("data")
        trips = self._ping(job.latency_iters, end)
        self._lap("ping")
        return TransferResult(size, None, statistics.median(trips) / 2 if trips else None, self._raw(True))

    def _affordable(self, job: PairJob, rate: float, end: float) -> Tuple[int, int]:
        """Return message size and warm-up count: as requested, or smaller if the deadline would pass."""
        size = job.bytes
        if job.rate:
            return max(1, min(size, int(job.rate * THROTTLED_MESSAGE))), 1
        affordable = int(rate * remaining(end) / 8)
        if affordable < size:
            size = max(min(size, self.probe_bytes), floor_power_of_two(affordable))
        return size, max(1, job.warmup)

    def receive(self, job: PairJob, end: float) -> TransferResult:
        """Act as the destination: time the messages between the setup and the last one, and check the data."""
        try:
            return self._receive(job, end)
        finally:
            self._forget()

    def _receive(self, job: PairJob, end: float) -> TransferResult:
        self._receive_probe(job, end)
        size, warmup, trips = self._receive_setup(end)
        self._expect(1 <= size <= job.bytes and 1 <= warmup <= max(1, job.warmup), "%d x %d bytes" % (warmup, size))
        self._expect(0 <= trips <= job.latency_iters, "%d round trips" % trips)
        self._receive_warmup(size, warmup, end)
        count, untimed, _ = self._receive_setup(end)
        self._expect(1 <= count <= job.iters and untimed in (0, 1), "%d messages" % count)
        times = self._receive_timed(size, count, untimed, end)
        self._lap("data")
        difference = self._difference(size, end)
        self._lap("check")
        self._pong(trips, end)
        self._lap("ping")
        self._verify(difference)
        rate = size * count / max(sum(times), 1e-9)
        return TransferResult(size, rate, None, self._raw(False), tuple(times), self._peer_transport)

    # -- both directions

    def bidirectional(self, size: int, count: int, leading: bool, end: float) -> float:
        """Send and receive each message at once, as NCCL applications do."""
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

    def _verify(self, difference: Optional[str]) -> None:
        if difference:
            raise Failed(VERIFY, difference, raw=self.log(), kind=ErrorKind.VERIFY)

    def _expect(self, good: bool, what: str) -> None:
        if not good:
            text = "the source announced %s" % what
            raise Failed(TRANSFER, text, raw=self.log(), kind=ErrorKind.PROTOCOL)
