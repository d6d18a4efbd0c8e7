"""Watchdog of a running job: decides from several signals that it hangs, once until it continues. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from fabtui.jobs.hang_signals import (
    IDLE,
    GpuClock,
    GpuPulse,
    HangReading,
    Pulse,
    RasClock,
    RasPulse,
    Signal,
    State,
    TrafficClock,
    duration,
    file_bytes,
    firing,
    iterations,
    output,
    output_limit,
    torch,
)
from fabtui.jobs.monitor.report import JobReport
from fabtui.jobs.ras_report import RasReport
from fabtui.model.facts.node_view import number
from fabtui.sanitize import one_line

#: Time (s) that a job may compile and load before its first sign of work.
WARM_UP = 900.0
#: Bytes of files between two samples that show a checkpoint, or data that is loaded.
_FILE_WORK = 4 << 20
#: Signals whose progress excludes a hang although logs show none: an evaluation may print nothing.
_VETOES = (Signal.ITERATIONS, Signal.GPUS, Signal.TRAFFIC, Signal.RAS)
#: Both are read from the same logs, and count as one.
_LOG = (Signal.OUTPUT, Signal.ITERATIONS)


class WatchdogPhase(StrEnum):
    """State of the watchdog."""

    WARM_UP = "warm-up"
    WATCHING = "watching"
    PAUSED = "paused"
    HANG = "hang"


class WatchdogVerdict(NamedTuple):
    """Result of a sample.

    Attributes:
        phase: The state now.
        readings: What each signal shows.
        fired: True if the job hangs since this sample: at most once until it continues.
        recovered: True if a job that hung continues since this sample.
        why: Why it is in this state, for users.
    """

    phase: WatchdogPhase
    readings: tuple[HangReading, ...]
    fired: bool
    recovered: bool
    why: str


class Watchdog:
    """Takes samples of a job and decides whether it hangs.

    A hang needs two signals that agree and none that shows progress, or silence for twice the time. A job that still
    warms up, reads or writes files, or is suspended does not hang.

    Args:
        age: How long (s) the job runs already at the first sample, None if unknown.
        idle: Time (s) without output that is too long at least.
    """

    def __init__(self, age: float | None = None, idle: float = IDLE) -> None:
        self._age = age or 0.0
        self._idle = idle
        self._began: float | None = None
        self._worked = False
        #: When it was decided that the job hangs, and whether its silence alone was the reason.
        self._hangs_since: float | None = None
        self._silent = False
        #: A timeout that PyTorch's watchdog reported before the job went on.
        self._old_timeout = ""
        #: The clocks of output and iterations start again after a pause.
        self._since = float("-inf")
        self._last: Pulse | None = None
        self._gpus = GpuClock()
        self._traffic = TrafficClock()
        self._ras = RasClock()

    def take(self, pulse: Pulse) -> WatchdogVerdict:
        """Take a sample and decide."""
        self._began = pulse.when if self._began is None else self._began
        readings = (
            output(pulse, self._since, self._idle),
            iterations(pulse, self._since),
            self._gpus.take(pulse),
            self._traffic.take(pulse),
            self._ras.take(pulse),
            torch(pulse._replace(timeout="") if pulse.timeout == self._old_timeout else pulse),
        )
        pause = self._pause(pulse)
        self._last = pulse
        progress = [one for one in readings if one.state is State.PROGRESS and one.signal in _VETOES]
        goes_on = bool(pause or progress) or self._speaks(pulse)
        recovered = self._hangs_since is not None and goes_on
        if pause or recovered:
            self._restart(pulse)
        if goes_on:
            self._hangs_since = None
            self._old_timeout = pulse.timeout
        self._worked = self._worked or bool(progress)
        if goes_on:
            why = pause or (progress[0].text if progress else "there is output again")
            return WatchdogVerdict(
                WatchdogPhase.PAUSED if pause else WatchdogPhase.WATCHING, readings, False, recovered, why
            )
        if not self._worked and self._age + pulse.when - self._began < WARM_UP and not pulse.timeout:
            return WatchdogVerdict(WatchdogPhase.WARM_UP, readings, False, False, "it has not begun to work yet")
        return self._decided(pulse, readings)

    def _speaks(self, pulse: Pulse) -> bool:
        """Return True if a job whose silence was the reason has printed something since."""
        if self._hangs_since is None or not self._silent or pulse.quiet is None:
            return False
        return pulse.quiet < pulse.when - self._hangs_since

    def _decided(self, pulse: Pulse, readings: tuple[HangReading, ...]) -> WatchdogVerdict:
        found = firing(readings)
        sources = {"log" if one.signal in _LOG else one.signal for one in found}
        # Clocks that started again after a pause count from then on.
        quiet = min(pulse.quiet or 0.0, pulse.when - self._since)
        silent = any(one.signal is Signal.OUTPUT for one in found) and quiet >= 2 * output_limit(pulse, self._idle)
        why = "; ".join(one.text for one in found)
        if self._hangs_since is not None:
            return WatchdogVerdict(WatchdogPhase.HANG, readings, False, False, why)
        if len(sources) < 2 and not silent:
            return WatchdogVerdict(WatchdogPhase.WATCHING, readings, False, False, why)
        self._hangs_since, self._silent = pulse.when, len(sources) < 2
        return WatchdogVerdict(WatchdogPhase.HANG, readings, True, False, why)

    def _pause(self, pulse: Pulse) -> str:
        """Return why a job that does nothing visible does not hang, or nothing."""
        if pulse.suspended:
            return "the scheduler has suspended the job"
        moved = file_bytes(self._last, pulse) if self._last is not None else 0
        if moved >= _FILE_WORK and self._last is not None:
            seconds = duration(pulse.when - self._last.when)
            return f"ranks read or wrote {moved / 1e6:.0f} MB of files in {seconds}: a checkpoint, or data"
        return ""

    def _restart(self, pulse: Pulse) -> None:
        self._since = pulse.when
        self._gpus.clear()
        self._traffic.clear()
        self._ras.clear()


#: Age (s) from which a sample of GPUs is too old.
_OLD = 30.0
_SUSPENDED = ("SUSPENDED", "STOPPED")
#: Kind of error line (`fabtui.jobs.monitor.error_lines`) of PyTorch's watchdog.
_TIMEOUT = "collective_timeout"


def pulse_of(
    when: float, report: JobReport, nodes: Mapping[str, Mapping[str, Any]], ras: RasReport | None = None
) -> Pulse:
    """Return the sample at ``when`` (s, a clock that only goes forward).

    Args:
        when: Time of the sample.
        report: What the logs and the scheduler show.
        nodes: Values of the probe ``pulse`` by node.
        ras: A new report of RAS, or None.
    """
    logs = report.facts.logs
    quiet, latest = logs.quiet(), logs.iterations.latest
    late = None
    if latest is not None:
        # A line that was there before the first reading is at least as old as the last growth of a log.
        late = report.facts.when - latest.seen if latest.seen is not None else quiet
    return Pulse(
        when,
        quiet,
        logs.iterations.interval,
        None if late is None else max(0.0, late),
        _gpus(report),
        _totals(nodes, "traffic"),
        None if ras is None else ras_pulse(ras),
        _timeout(report),
        _totals(nodes, "files"),
        report.status.state in _SUSPENDED,
    )


def ras_pulse(report: RasReport) -> RasPulse:
    """Return the counts of a RAS report, and whether ranks differ or are silent."""
    every = report.communicators.values()
    counts = {
        (one.name, operation, rank): launched
        for one in every
        for operation, ranks in one.counts.items()
        for rank, launched in ranks.items()
    }
    return RasPulse(counts, any(one.gaps() or one.silent for one in every) or bool(report.missing))


def _gpus(report: JobReport) -> tuple[GpuPulse, ...]:
    found = []
    for node, history in report.facts.logs.gpus.items():
        sample = history.latest
        if sample is None or sample.when is None or report.facts.when - sample.when > _OLD:
            continue
        found += [GpuPulse(node, gpu.number, gpu.utilization, gpu.used, gpu.power) for gpu in sample.gpus]
    return tuple(found)


def _timeout(report: JobReport) -> str:
    """Return the latest line of PyTorch's watchdog, with its time so that a later one differs."""
    found = [
        (error.when or 0.0, error.text)
        for file in report.facts.logs.files.values()
        for error in file.errors.kept
        if error.kind.name == _TIMEOUT
    ]
    return one_line(max(found)[1], 300) if found else ""


def _totals(nodes: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, int] | None:
    """Return a count of each node that has it, None if none has."""
    found = {node: int(count) for node, value in nodes.items() if (count := number(value.get(name))) is not None}
    return found or None


def age_of(report: JobReport, nodes: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return how long (s) a job runs: as Slurm knows it, else the age of its oldest rank."""
    if report.status.elapsed is not None:
        return report.status.elapsed
    ages = [age for value in nodes.values() if (age := number(value.get("age"))) is not None]
    return max(ages) if ages else None
