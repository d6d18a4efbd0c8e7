"""Watchdog: two signals that agree report a hang once; warm-up, checkpoints and one signal alone do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fabtui.jobs.watchdog import (
    GpuPulse,
    Pulse,
    RasPulse,
    Signal,
    State,
    Watchdog,
    WatchdogPhase,
    WatchdogVerdict,
    duration,
)

STEP = 10.0
At = Callable[[float], dict[str, Any]]


def working(t: float) -> dict[str, Any]:
    """Return what a healthy job shows: an iteration of 5 s, GPUs under changing load, traffic, growing counts."""
    power = 600.0 if int(t / STEP) % 2 else 300.0
    return {
        "quiet": 1.0,
        "interval": 5.0,
        "late": 2.0,
        "gpus": tuple(GpuPulse("n060", number, 97, 60 << 30, power) for number in range(2)),
        "traffic": {"n060": int(t * 1e9)},
        "ras": counts(t),
        "files": {"n060": 1000},
    }


def counts(t: float, late: int = 0) -> RasPulse:
    return RasPulse({("ab", "AllReduce", rank): int(t) - late * (rank == 1) for rank in range(2)}, late > 0)


def hanging(since: float, only: tuple[str, ...] = ()) -> At:
    """Return what a job shows that hangs since a time: all signals, or only some, the others unknown."""

    def at(t: float) -> dict[str, Any]:
        found = {
            "quiet": t - since,
            "interval": 5.0,
            "late": t - since,
            "gpus": tuple(GpuPulse("n060", number, 100, 60 << 30, 180.0) for number in range(2)),
            "traffic": {"n060": int(since * 1e9)},
            "ras": counts(since, late=1),
            "timeout": "",
            "files": {"n060": 1000},
        }
        return {name: value for name, value in found.items() if not only or name in (*only, "interval")}

    return at


class Job:
    """A job over time, with a watchdog."""

    def __init__(self, age: float | None = 3600.0) -> None:
        self.now = 0.0
        self.dog = Watchdog(age)
        self.verdicts: list[WatchdogVerdict] = []

    def during(self, seconds: float, at: At) -> list[WatchdogVerdict]:
        found = []
        end = self.now + seconds
        while self.now < end:
            self.now += STEP
            found.append(self.dog.take(Pulse(self.now, **at(self.now))))
        self.verdicts += found
        return found


def fired(verdicts: list[WatchdogVerdict]) -> list[float]:
    """Return after how many seconds of a period a hang was reported."""
    return [(number + 1) * STEP for number, verdict in enumerate(verdicts) if verdict.fired]


@pytest.fixture
def job() -> Iterator[Job]:
    found = Job()
    assert {verdict.phase for verdict in found.during(600, working)} == {WatchdogPhase.WATCHING}
    yield found
    # No sample is decided without a reason.
    assert all(verdict.why for verdict in found.verdicts if verdict.phase is not WatchdogPhase.WATCHING)


def test_a_hang_is_reported_once_and_again_after_a_recovery(job: Job) -> None:
    verdicts = job.during(1200, hanging(job.now))
    (after,) = fired(verdicts)
    assert 30 <= after <= 120
    assert verdicts[-1].phase is WatchdogPhase.HANG
    assert "no iteration for 20 min, usually one every 5 s" in verdicts[-1].why
    assert "their counts differ" in verdicts[-1].why
    assert "2 of 2 GPUs spin" in verdicts[-1].why
    assert "no traffic on NICs and NVLinks for 60 s, 1 GB/s before" in verdicts[-1].why
    verdicts = job.during(300, working)
    assert [verdict.recovered for verdict in verdicts].count(True) == 1
    assert not fired(verdicts)
    assert len(fired(job.during(600, hanging(job.now)))) == 1


@pytest.mark.parametrize(
    ("signals", "text"),
    [
        (("late", "ras"), "no iteration"),
        (("gpus", "ras"), "GPUs spin"),
        (("quiet", "traffic"), "no output from any node"),
        (("gpus", "traffic"), "no traffic"),
    ],
)
def test_two_signals_agree(job: Job, signals: tuple[str, ...], text: str) -> None:
    verdicts = job.during(900, hanging(job.now, signals))
    assert len(fired(verdicts)) == 1
    assert text in verdicts[-1].why


@pytest.mark.parametrize("signal", ["late", "gpus", "traffic", "ras"])
def test_one_signal_alone_is_no_hang(job: Job, signal: str) -> None:
    verdicts = job.during(7200, hanging(job.now, (signal,)))
    assert not fired(verdicts)
    assert [one.state for one in verdicts[-1].readings].count(State.HANG) == 1


def test_pytorch_alone_is_no_hang_and_an_old_timeout_does_not_count(job: Job) -> None:
    timeout = {"timeout": "Watchdog caught collective operation timeout"}
    assert not fired(job.during(600, lambda _: timeout))
    # The job was restarted and works; the line is still in its log.
    assert not fired(job.during(600, lambda t: working(t) | timeout))
    since = job.now
    assert not fired(job.during(600, lambda t: hanging(since, ("late",))(t) | timeout))
    again = {"timeout": "Watchdog caught collective operation timeout, again"}
    assert len(fired(job.during(60, lambda t: hanging(since, ("late",))(t) | again))) == 1


def test_silence_and_iterations_come_from_the_same_log(job: Job) -> None:
    """Silence counts alone after twice the time: 180 s, as five iterations take less."""
    verdicts = job.during(1200, hanging(job.now, ("quiet", "late")))
    assert fired(verdicts) == [360.0]
    # One line ends the silence, and the next one counts from there.
    (spoken, *_) = job.during(STEP, lambda _: {"quiet": 1.0, "interval": 5.0, "late": 1300.0})
    assert spoken.recovered
    assert fired(job.during(1200, hanging(job.now, ("quiet", "late")))) == [360.0]


def test_an_evaluation_is_no_hang(job: Job) -> None:
    """Nothing is printed for long, but the GPUs work."""
    since = job.now

    def evaluating(t: float) -> dict[str, Any]:
        return working(t) | {"quiet": t - since, "late": t - since, "ras": counts(since), "traffic": None}

    assert not fired(job.during(3600, evaluating))


def test_a_checkpoint_is_no_hang(job: Job) -> None:
    """All ranks wait for one that writes; the clocks start again after it."""
    since = job.now

    def writing(t: float) -> dict[str, Any]:
        return hanging(since)(t) | {"files": {"n060": int(t) << 24}}

    verdicts = job.during(1800, writing)
    assert not fired(verdicts)
    assert verdicts[-1].phase is WatchdogPhase.PAUSED
    assert "a checkpoint" in verdicts[-1].why
    (after,) = fired(job.during(600, hanging(since)))
    assert after >= 30


def test_a_suspended_job_is_no_hang(job: Job) -> None:
    since = job.now
    verdicts = job.during(3600, lambda t: hanging(since)(t) | {"suspended": True})
    assert not fired(verdicts)
    assert verdicts[-1].why == "the scheduler has suspended the job"


def test_iterations_before_the_watch_count_as_work() -> None:
    """It is started after the hang: the log has iterations, and nothing has moved since."""
    job = Job(age=60.0)
    verdicts = job.during(120, hanging(-20.0))
    assert WatchdogPhase.WARM_UP not in {verdict.phase for verdict in verdicts}
    assert sum(verdict.fired for verdict in verdicts) == 1


def test_warm_up() -> None:
    """A job that compiles and loads prints nothing, and its ranks may wait for each other."""
    job = Job(age=0.0)
    verdicts = job.during(890, hanging(0.0, ("quiet", "ras")))
    assert {verdict.phase for verdict in verdicts} == {WatchdogPhase.WARM_UP}
    assert len(fired(job.during(60, hanging(0.0, ("quiet", "ras"))))) == 1
    # One that has worked before is past it.
    job = Job(age=0.0)
    job.during(60, working)
    assert fired(job.during(200, hanging(60.0)))
    # The watchdog of a job that has run for long may start when it hangs already.
    job = Job(age=7200.0)
    assert fired(job.during(60, hanging(-600.0, ("late", "ras")))) != []


def test_what_is_unknown_is_no_sign() -> None:
    job = Job(age=7200.0)
    verdicts = job.during(7200, lambda _: {})
    assert not fired(verdicts)
    assert {one.state for one in verdicts[-1].readings} == {State.UNKNOWN}
    assert {one.signal for one in verdicts[-1].readings} == set(Signal)


def test_gpus_whose_power_was_never_seen_to_be_high_are_unknown() -> None:
    job = Job(age=7200.0)
    (*_, last) = job.during(600, hanging(-600.0, ("gpus",)))
    assert {one.state for one in last.readings} == {State.UNKNOWN}


def test_a_late_ras_report_does_not_hold_forever(job: Job) -> None:
    """The service of a node may end; its last report showed progress."""
    assert len(fired(job.during(900, hanging(job.now, ("late", "gpus"))))) == 1


def test_durations() -> None:
    assert [duration(seconds) for seconds in (5.0, 99.0, 600.0, 9000.0)] == ["5 s", "99 s", "10 min", "2.5 h"]
