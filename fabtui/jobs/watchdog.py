"""Watchdog of a running job: decides from several signals that it hangs, once until it continues. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from fabtui.diagnosis.running_job.ras_report import RasReport
from fabtui.jobs.monitor.report import JobReport
from fabtui.model.facts.node_view import number
from fabtui.sanitize import one_line

# Signals of a job that hangs or makes progress: output, iterations, GPUs, traffic, RAS counts, PyTorch's watchdog.
# Each has its own clock, and each can be unknown: without a visible log there is no output, without a driver no GPU.

#: A log is idle after IDLE seconds and at least _IDLE_ITERATIONS usual iterations without output; an iteration is late
#: after _LATE_ITERATIONS usual ones.
IDLE = 180.0
_IDLE_ITERATIONS = 5.0
_LATE_ITERATIONS = 3.0
#: Least time (s) without an iteration: lines arrive in blocks, and logs are read now and then.
_LEAST_LATE = 30.0
#: An iteration shows progress for this time (s), or for this many usual intervals.
_RECENT, _RECENT_ITERATIONS = 10.0, 1.5
#: Time (s) in which GPUs and traffic must not change, and least number of samples in it.
WINDOW = 60.0
_SAMPLES = 4
#: Utilization (percent) of a kernel that spins, and share of the range of power that it takes at most.
_SPINNING = 99
_SPINNING_POWER = 0.4
#: Power of a GPU is flat within this share of it or this many W; memory is constant within this many bytes.
_FLAT, _FLAT_WATTS, _SAME_MEMORY = 0.05, 10.0, 16 << 20
#: A power that has been seen is of work if it is this many W above the lowest one.
_WORK_WATTS = 50.0
#: Traffic counts as none below this share of the largest rate that was seen, which must be this large (bytes/s).
_NO_TRAFFIC = 0.01
_REAL_TRAFFIC = 1e6
#: Least time (s) between two RAS reports that are compared.
_RAS_APART = 10.0


class Signal(StrEnum):
    """Sources of what is known about progress."""

    OUTPUT = "output"
    ITERATIONS = "iterations"
    GPUS = "GPUs"
    TRAFFIC = "traffic"
    RAS = "RAS"
    TORCH = "PyTorch"


class State(StrEnum):
    """Outcome of a signal."""

    HANG = "hang"
    PROGRESS = "progress"
    UNKNOWN = "unknown"


class HangReading(NamedTuple):
    """Outcome of one signal at one time, with the words for users."""

    signal: Signal
    state: State
    text: str


class GpuPulse(NamedTuple):
    """A GPU at one time: node and number, utilization (percent), memory in use (bytes), power (W), None if unknown."""

    node: str
    number: int
    utilization: int | None
    used: int | None
    power: float | None


class RasPulse(NamedTuple):
    """Launched collectives by communicator, operation and rank, and whether ranks differ or are silent."""

    counts: Mapping[tuple[str, str, int], int]
    differ: bool


class Pulse(NamedTuple):
    """Everything that is known of a job at one time. Unknown values are None."""

    when: float  #: Time (s) on a clock that only goes forward.
    quiet: float | None = None  #: How long (s) no output has grown, on all nodes.
    interval: float | None = None  #: Usual time (s) between two printed iterations.
    late: float | None = None  #: How long (s) ago the last iteration was printed.
    gpus: tuple[GpuPulse, ...] = ()  #: The GPUs of the job.
    traffic: Mapping[str, int] | None = None  #: Bytes so far by node, over all NICs and NVLinks.
    ras: RasPulse | None = None  #: Report of RAS.
    timeout: str = ""  #: The line of PyTorch's watchdog, if it has reported a timeout; else "".
    files: Mapping[str, int] | None = None  #: Bytes so far by node that ranks have read from and written to files.
    suspended: bool = False  #: Whether the scheduler has suspended the job.


def output_limit(pulse: Pulse, idle: float = IDLE) -> float:
    """Return the time (s) without output that is too long."""
    return max(idle, _IDLE_ITERATIONS * (pulse.interval or 0.0))


def output(pulse: Pulse, since: float, idle: float = IDLE) -> HangReading:
    """Return what the output shows; ``since``: when the clocks of a job that was paused started again."""
    if pulse.quiet is None:
        return HangReading(Signal.OUTPUT, State.UNKNOWN, "")
    quiet = min(pulse.quiet, pulse.when - since)
    if quiet < output_limit(pulse, idle):
        return HangReading(Signal.OUTPUT, State.UNKNOWN, "")
    return HangReading(Signal.OUTPUT, State.HANG, f"no output from any node for {duration(pulse.quiet)}")


def iterations(pulse: Pulse, since: float) -> HangReading:
    """Return what the printed iterations show."""
    if pulse.interval is None or pulse.late is None:
        return HangReading(Signal.ITERATIONS, State.UNKNOWN, "")
    late, limit = min(pulse.late, pulse.when - since), max(_LEAST_LATE, _LATE_ITERATIONS * pulse.interval)
    if late >= limit:
        text = f"no iteration for {duration(pulse.late)}, usually one every {duration(pulse.interval)}"
        return HangReading(Signal.ITERATIONS, State.HANG, text)
    recent = pulse.late < max(_RECENT, _RECENT_ITERATIONS * pulse.interval)
    state = State.PROGRESS if recent else State.UNKNOWN
    return HangReading(Signal.ITERATIONS, state, f"an iteration {duration(pulse.late)} ago")


class GpuClock:
    """GPUs of a job over the last minute: a collective that waits spins at full utilization and little, flat power."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, int], list[tuple[float, GpuPulse]]] = {}
        self._power: dict[tuple[str, int], tuple[float, float]] = {}

    def take(self, pulse: Pulse) -> HangReading:
        """Take a sample; return what the GPUs show."""
        for gpu in pulse.gpus:
            key = gpu.node, gpu.number
            kept = self._samples.setdefault(key, [])
            kept.append((pulse.when, gpu))
            # One sample before the window, so that the window is covered.
            while len(kept) > 2 and kept[1][0] <= pulse.when - WINDOW:
                del kept[0]
            if gpu.power is not None:
                low, high = self._power.get(key, (gpu.power, gpu.power))
                self._power[key] = min(low, gpu.power), max(high, gpu.power)
        for key in [key for key, kept in self._samples.items() if pulse.when - kept[-1][0] > WINDOW]:
            # The node does not answer any more.
            del self._samples[key]
        kinds = [self._kind(key, kept) for key, kept in self._samples.items()]
        if "working" in kinds:
            return HangReading(Signal.GPUS, State.PROGRESS, f"{kinds.count('working')} GPUs work")
        if "spinning" in kinds and "unknown" not in kinds:
            text = f"{kinds.count('spinning')} of {len(kinds)} GPUs spin: full utilization, little and flat power"
            return HangReading(Signal.GPUS, State.HANG, text)
        return HangReading(Signal.GPUS, State.UNKNOWN, "")

    def clear(self) -> None:
        """Forget the samples, but not the range of power."""
        self._samples.clear()

    def _kind(self, key: tuple[str, int], kept: list[tuple[float, GpuPulse]]) -> str:
        uses = [gpu.utilization for _, gpu in kept if gpu.utilization is not None]
        watts = [gpu.power for _, gpu in kept if gpu.power is not None]
        used = [gpu.used for _, gpu in kept if gpu.used is not None]
        if not uses or len(uses) < len(kept):
            return "unknown"
        low, high = self._power.get(key, (0.0, 0.0))
        flat = bool(watts) and max(watts) - min(watts) <= max(_FLAT_WATTS, _FLAT * max(watts))
        much = high - low >= _WORK_WATTS and watts and watts[-1] > low + _SPINNING_POWER * (high - low)
        if max(uses) and ((watts and not flat) or much):
            return "working"
        if len(kept) < _SAMPLES or kept[-1][0] - kept[0][0] < WINDOW:
            return "unknown"
        if max(uses) == 0:
            return "idle"
        constant = bool(used) and max(used) - min(used) <= _SAME_MEMORY
        # Without a sample of work there is nothing to compare the power with.
        little = high - low >= _WORK_WATTS and max(watts, default=high) <= low + _SPINNING_POWER * (high - low)
        return "spinning" if flat and constant and little and min(uses) >= _SPINNING else "unknown"


class TrafficClock:
    """Traffic of all NICs and NVLinks of a job over the last minute, against the most that was seen."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, Mapping[str, int]]] = []
        self._most = 0.0

    def take(self, pulse: Pulse) -> HangReading:
        """Take a sample; return what the traffic shows."""
        if pulse.traffic:
            self._samples.append((pulse.when, pulse.traffic))
        elif self._samples and pulse.when - self._samples[-1][0] > WINDOW:
            self._samples.clear()
        window = max(WINDOW, _IDLE_ITERATIONS * (pulse.interval or 0.0))
        while len(self._samples) > 2 and self._samples[1][0] <= pulse.when - window:
            del self._samples[0]
        rates = [
            _grown(before[1], after[1]) / (after[0] - before[0])
            for before, after in zip(self._samples, self._samples[1:], strict=False)
            if after[0] > before[0]
        ]
        self._most = max([self._most, *rates])
        if not rates or self._most < _REAL_TRAFFIC:
            return HangReading(Signal.TRAFFIC, State.UNKNOWN, "")
        if max(rates) >= _NO_TRAFFIC * self._most:
            state = State.PROGRESS if rates[-1] >= _NO_TRAFFIC * self._most else State.UNKNOWN
            return HangReading(Signal.TRAFFIC, state, "NICs and NVLinks transfer data")
        covered = self._samples[-1][0] - self._samples[0][0] >= window
        text = f"no traffic on NICs and NVLinks for {duration(window)}, {self._most / 1e9:.3g} GB/s before"
        return HangReading(Signal.TRAFFIC, State.HANG if covered else State.UNKNOWN, text if covered else "")

    def clear(self) -> None:
        """Forget the samples, but not the largest rate."""
        self._samples.clear()


class RasClock:
    """RAS reports, compared with one at least 10 s before."""

    def __init__(self) -> None:
        self._before: tuple[float, RasPulse] | None = None
        self._reading = HangReading(Signal.RAS, State.UNKNOWN, "")
        self._at = float("-inf")

    def take(self, pulse: Pulse) -> HangReading:
        """Take a report if there is one; return what the last two show, unless that is long ago."""
        if pulse.ras is None:
            known = pulse.when - self._at <= 2 * WINDOW
            return self._reading if known else HangReading(Signal.RAS, State.UNKNOWN, "")
        self._at = pulse.when
        before = self._before
        if before is None:
            self._before = pulse.when, pulse.ras
        elif grown(pulse.ras, before[1]):
            self._before = pulse.when, pulse.ras
            self._reading = HangReading(Signal.RAS, State.PROGRESS, "ranks launch collectives")
        elif pulse.when - before[0] >= _RAS_APART:
            state = State.HANG if pulse.ras.differ else State.UNKNOWN
            text = f"no rank has launched a collective for {duration(pulse.when - before[0])}, and their counts differ"
            self._reading = HangReading(Signal.RAS, state, text if state is State.HANG else "")
        return self._reading

    def clear(self) -> None:
        """Forget the reports."""
        self._before = None
        self._reading = HangReading(Signal.RAS, State.UNKNOWN, "")


def torch(pulse: Pulse) -> HangReading:
    """Return what PyTorch's watchdog shows."""
    if not pulse.timeout:
        return HangReading(Signal.TORCH, State.UNKNOWN, "")
    return HangReading(Signal.TORCH, State.HANG, f"PyTorch's watchdog: {pulse.timeout}")


def grown(after: RasPulse, before: RasPulse) -> bool:
    """Return True if a rank has launched something between two reports."""
    return any(number > before.counts.get(key, number) for key, number in after.counts.items())


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Return the bytes between two samples; a counter that started again counts as nothing."""
    return sum(max(0, after[node] - before[node]) for node in after.keys() & before.keys())


def file_bytes(before: Pulse, after: Pulse) -> int:
    """Return the bytes that ranks have read from and written to files between two samples."""
    return _grown(before.files or {}, after.files or {})


def firing(readings: Iterable[HangReading]) -> list[HangReading]:
    """Return the signals of a hang."""
    return [reading for reading in readings if reading.state is State.HANG]


def duration(seconds: float) -> str:
    """Return a time for users: ``45 s``, ``4 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
    """Result of a sample."""

    phase: WatchdogPhase  #: The state now.
    readings: tuple[HangReading, ...]  #: What each signal shows.
    fired: bool  #: True if the job hangs since this sample: at most once until it continues.
    recovered: bool  #: True if a job that hung continues since this sample.
    why: str  #: Why it is in this state, for users.


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
        # Iterations were printed before the first sample, if the watch began after the hang.
        self._worked = self._worked or bool(progress) or (pulse.interval is not None and pulse.late is not None)
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
    found = {node: int(count) for node, value in nodes.items() if (count := number(value.get(name))) is not None}
    return found or None


def age_of(report: JobReport, nodes: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return how long (s) a job runs: as Slurm knows it, else the age of its oldest rank."""
    if report.status.elapsed is not None:
        return report.status.elapsed
    ages = [age for value in nodes.values() if (age := number(value.get("age"))) is not None]
    return max(ages) if ages else None
