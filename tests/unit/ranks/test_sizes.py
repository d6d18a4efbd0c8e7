"""Message sizes follow from the rate of answered messages, and a slow link costs no deadline; on a clock of its own."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from fabtui_node.ranks import engine
from fabtui_node.ranks.base import PairJob
from fabtui_node.ranks.engine import PairLink, RankGroup
from fabtui_node.ranks.measure.verify import TransferShape

MIB = 1 << 20


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


class Wire:
    """A link with a rate (bytes/s), whose bucket swallows some bytes, and which loses a packet of some sends."""

    def __init__(
        self, clock: Clock, rate: float, swallows: int = 0, lost: tuple[int, ...] = (), latency: float = 1e-5
    ) -> None:
        self._clock, self._rate, self._bucket, self._lost = clock, rate, float(swallows), lost
        self._latency = latency
        self.sizes: list[int] = []

    def send(self, size: int, count: int = 1) -> float:
        free = min(self._bucket, size * count)
        self._bucket -= free
        seconds = (size * count - free) / self._rate + self._latency
        seconds += 0.21 if len(self.sizes) in self._lost else 0.0
        self.sizes.append(size)
        self._clock.now += seconds
        return seconds


class Source(PairLink):
    def __init__(self, wire: Wire) -> None:
        super().__init__(0, 1)
        self._wire = wire
        self.setups: list[engine.Setup] = []

    def _prepare(self, job: PairJob, sending: bool) -> None:
        pass

    def _send_setup(
        self, setup: engine.Setup, end: float, transport: str | None = None, what: str = "setup message"
    ) -> None:
        self.setups.append(setup)

    def _send_warmup(self, size: int, count: int, end: float) -> float:
        return self._wire.send(size, count)

    def _send_timed(self, job: PairJob, size: int, count: int, untimed: int, end: float) -> None:
        self._wire.send(size, count + untimed)

    def _ping(self, count: int, end: float) -> list[float]:
        return []


@pytest.mark.parametrize("rate", [40e3, 400e3, 6e6, 60e6, 2e9])
@pytest.mark.parametrize(("shares", "seconds"), [(1, 5.0), (8, 10.0)])
def test_a_slow_link_has_its_value_within_the_deadline(
    monkeypatch: pytest.MonkeyPatch, rate: float, shares: int, seconds: float
) -> None:
    clock = Clock(monkeypatch)
    link = Source(Wire(clock, rate, swallows=64_000))
    job = PairJob(256 * MIB, 20, 2, 0, shares=shares)
    sent = link.send(job, clock.now + seconds)
    assert clock.now - 1000.0 < (seconds if shares == 1 else 0.5 * seconds)
    count, _, answered = link.setups[-1]
    assert count >= 1
    if rate < 1e9:
        assert sent["bytes"] < job.bytes
        assert sent["bytes"] / (answered / 1e9) == pytest.approx(rate, rel=0.05)
    else:
        assert (sent["bytes"], answered) == (job.bytes, 0)


def test_a_lost_packet_makes_no_link_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    wire = Wire(clock, 2e9, lost=(1, 4))
    sent = Source(wire).send(PairJob(256 * MIB, 20, 2, 0), clock.now + 5.0)
    assert sent["bytes"] == 256 * MIB
    assert wire.sizes[:5] == [64 << 10, 16 << 10, 16 << 10, 256 << 10, 4 * MIB]


def test_a_long_latency_makes_no_link_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs that processes share in turn answer late, and so do queues that another direction has filled."""
    clock = Clock(monkeypatch)
    sent = Source(Wire(clock, 2e9, latency=0.06)).send(PairJob(256 * MIB, 20, 2, 0), clock.now + 5.0)
    assert sent["bytes"] == 256 * MIB


def test_ranks_that_wait_for_a_core_send_whole_messages_in_a_large_world(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    sent = Source(Wire(clock, 1e9, latency=0.02)).send(PairJob(4 * MIB, 20, 2, 0, shares=30), clock.now + 10.0)
    assert sent["bytes"] == 4 * MIB


class Group(RankGroup):
    def __init__(self, wire: Wire) -> None:
        super().__init__([0, 1, 2], 0)
        self._wire = wire

    def _allocate(self, form: TransferShape) -> Any:
        return None

    def _iteration(self, form: TransferShape, buffer: Any, end: float) -> Callable[[], Any]:
        return lambda: self._wire.send(form.bytes)

    def _fill(self, form: TransferShape, buffer: Any, end: float) -> None:
        pass

    def _timed(self, form: TransferShape, times: int, run: Callable[[], Any], end: float) -> list[float]:
        return [run() for _ in range(times)]

    def _wrong(self, form: TransferShape, buffer: Any, rounds: int, end: float) -> int:
        return 0

    def _minimum(self, number: int, end: float) -> int:
        return number

    def _transports(self) -> str | None:
        return None


@pytest.mark.parametrize("rate", [40e3, 400e3, 6e6, 60e6, 2e9])
def test_the_sizes_of_a_collective_follow_from_the_rate(monkeypatch: pytest.MonkeyPatch, rate: float) -> None:
    clock = Clock(monkeypatch)
    group, end = Group(Wire(clock, rate, swallows=64_000)), clock.now + 10.0
    sizes = [4 * MIB, 32 * MIB, 256 * MIB]
    reports = [group.collective("all_reduce", size, 20, 2, end) for size in sizes]
    assert clock.now < end
    for size, report in zip(sizes, reports, strict=True):
        assert report["sent"] / report["seconds"] == pytest.approx(rate, rel=0.05)
        assert report["tested"] <= size
    if rate > 1e9:
        assert [report["tested"] for report in reports] == sizes


def test_small_messages_of_a_collective_say_little_about_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    group, end = Group(Wire(clock, 2e9)), clock.now + 10.0
    assert group.collective("all_reduce", 8, 20, 2, end)["tested"] == 8
    assert group.collective("all_reduce", 256 * MIB, 20, 2, end)["tested"] == 256 * MIB
