"""A job that a front end shows: its report, its watchdog, and the answer to the question who is behind."""

from __future__ import annotations

import time
from collections.abc import Callable

from fabtui.jobs.hang_signals import State
from fabtui.jobs.monitor.report import JobReport
from fabtui.jobs.watchdog import Verdict
from fabtui.session.hang_report import HangReport, report_hang
from fabtui.session.hang_watch import EVERY, HangWatch
from fabtui.session.job_monitor import JobMonitor
from fabtui.session.one_probe import ClientOf, over_open_links
from fabtui.session.options import SessionOptions

#: Time (s) between two reports of RAS for a user who waits.
BETWEEN = 5.0


class JobWatch:
    """Watches a job over open links. Without links there is the report alone.

    Args:
        monitor: Reader of its logs.
        options: Its nodes and how they are reached.
        client_of: The open links to its nodes; None without any.
        clock: Clock that only goes forward.

    Attributes:
        monitor: Reader of its logs.
        verdict: What the watchdog decided last; None before the first sample.
        answer: The latest answer; None before the first one.
        answered: When the answer came, by the clock.
        asking: Whether an answer is under way.
    """

    def __init__(
        self,
        monitor: JobMonitor,
        options: SessionOptions | None = None,
        client_of: ClientOf | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.monitor = monitor
        self.verdict: Verdict | None = None
        self.answer: HangReport | None = None
        self.answered = 0.0
        self.asking = False
        self.clock = clock
        self._options, self._client_of = options, client_of
        self._hang_watch: HangWatch | None = None
        self._sampled = float("-inf")

    @property
    def linked(self) -> bool:
        """True if its nodes can be asked."""
        return self._client_of is not None and self._options is not None

    async def refresh(self) -> JobReport:
        """Read what is new and return the report; the watchdog takes a sample now and then."""
        report = self.monitor.report
        if report is None or report.status.stage == "ended" or self._client_of is None:
            self.verdict = None
            return await self.monitor.refresh()
        if self.clock() - self._sampled < EVERY:
            return await self.monitor.refresh()
        self._sampled = self.clock()
        if self._hang_watch is None:
            self._hang_watch = HangWatch(self.monitor, self._client_of, report.facts.logs.nodes, self.clock)
        sample = await self._hang_watch.sample()
        self.verdict = sample.verdict
        if sample.verdict.recovered:
            self.answer = None
        return sample.report

    async def ask(self) -> None:
        """Ask RAS, dumps of the flight recorder that are there, and the stacks of the ranks who is behind."""
        if self.asking or self._client_of is None or self._options is None:
            return
        self.asking = True
        try:
            readings = self.verdict.readings if self.verdict is not None else ()
            signals = tuple(one.text for one in readings if one.state is State.HANG)
            ask = over_open_links(self._client_of, self._options.job)
            self.answer = await report_hang(self._options, signals, ask, BETWEEN)
            self.answered = self.clock()
        finally:
            self.asking = False
