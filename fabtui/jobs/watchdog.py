"""Watchdog of a running job: decides from several signals that it hangs, once until it goes on again. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from fabtui.jobs.hang_signals import (
    IDLE,
    GpuClock,
    Pulse,
    RasClock,
    Reading,
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

#: Time (s) that a job may compile and load before its first sign of work.
WARM_UP = 900.0
#: Bytes of files between two samples that show a checkpoint, or data that is loaded.
_FILE_WORK = 4 << 20
#: Signals whose progress excludes a hang although logs show none: an evaluation may print nothing.
_VETOES = (Signal.ITERATIONS, Signal.GPUS, Signal.TRAFFIC, Signal.RAS)
#: Both are read from the same logs, and count as one.
_LOG = (Signal.OUTPUT, Signal.ITERATIONS)


class Phase(StrEnum):
    """State of the watchdog."""

    WARM_UP = "warm-up"
    WATCHING = "watching"
    PAUSED = "paused"
    HANG = "hang"


class Verdict(NamedTuple):
    """Result of a sample.

    Attributes:
        phase: The state now.
        readings: What each signal shows.
        fired: True if the job hangs since this sample: at most once until it goes on.
        recovered: True if a job that hung goes on since this sample.
        why: Why it is in this state, for users.
    """

    phase: Phase
    readings: tuple[Reading, ...]
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

    def take(self, pulse: Pulse) -> Verdict:
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
            return Verdict(Phase.PAUSED if pause else Phase.WATCHING, readings, False, recovered, why)
        if not self._worked and self._age + pulse.when - self._began < WARM_UP and not pulse.timeout:
            return Verdict(Phase.WARM_UP, readings, False, False, "it has not begun to work yet")
        return self._decided(pulse, readings)

    def _speaks(self, pulse: Pulse) -> bool:
        """Return True if a job whose silence was the reason has printed something since."""
        if self._hangs_since is None or not self._silent or pulse.quiet is None:
            return False
        return pulse.quiet < pulse.when - self._hangs_since

    def _decided(self, pulse: Pulse, readings: tuple[Reading, ...]) -> Verdict:
        found = firing(readings)
        sources = {"log" if one.signal in _LOG else one.signal for one in found}
        # Clocks that started again after a pause count from then on.
        quiet = min(pulse.quiet or 0.0, pulse.when - self._since)
        silent = any(one.signal is Signal.OUTPUT for one in found) and quiet >= 2 * output_limit(pulse, self._idle)
        why = "; ".join(one.text for one in found)
        if self._hangs_since is not None:
            return Verdict(Phase.HANG, readings, False, False, why)
        if len(sources) < 2 and not silent:
            return Verdict(Phase.WATCHING, readings, False, False, why)
        self._hangs_since, self._silent = pulse.when, len(sources) < 2
        return Verdict(Phase.HANG, readings, True, False, why)

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
