"""Watchdog of a running job: samples its logs, nodes and RAS, and reports when it hangs and when it goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from fabtui.jobs.monitor.report import JobReport
from fabtui.jobs.pulse_of_job import age_of, pulse_of
from fabtui.jobs.ras_reading import report_of
from fabtui.jobs.ras_report import RasReport
from fabtui.jobs.watchdog import Verdict, Watchdog
from fabtui.session.job_monitor import JobMonitor
from fabtui.session.node_client import ProbeFailed
from fabtui.session.one_probe import ClientOf, Reply
from fabtui.session.ras_inquiry import texts_of
from fabtui_node.parsers.base import Notes

#: Time (s) between two samples, and between two questions to RAS.
EVERY = 10.0
RAS_EVERY = 20.0
#: Deadlines (s) of a node, and of RAS.
_NODE, _RAS = 8.0, 60.0


class Sample(NamedTuple):
    """A decision, with the report of the logs that it is from, and what could not be read."""

    verdict: Verdict
    report: JobReport
    unread: tuple[str, ...]


class HangWatch:
    """Watches one job.

    Args:
        monitor: Reader of its logs.
        client_of: The links to its nodes.
        nodes: Its nodes.
        clock: Clock that only goes forward.
    """

    def __init__(
        self,
        monitor: JobMonitor,
        client_of: ClientOf,
        nodes: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monitor = monitor
        self._client_of = client_of
        self._job = monitor.query.job
        self._nodes = list(nodes)
        self._clock = clock
        self._watchdog: Watchdog | None = None
        self._asking: asyncio.Task[RasReport | None] | None = None
        self._asked = float("-inf")

    async def samples(self, every: float = EVERY) -> AsyncIterator[Sample]:
        """Yield a sample from time to time until the job has ended."""
        try:
            while True:
                began = self._clock()
                found = await self.sample()
                yield found
                if found.report.status.stage == "ended":
                    return
                await asyncio.sleep(max(0.1, every - (self._clock() - began)))
        finally:
            if self._asking is not None:
                self._asking.cancel()
                await asyncio.gather(self._asking, return_exceptions=True)

    async def sample(self) -> Sample:
        """Take one sample."""
        report, answers = await asyncio.gather(
            self._monitor.refresh(), asyncio.gather(*(self._ask(node) for node in self._nodes))
        )
        values = {reply.node: reply.value for reply in answers if reply.value is not None}
        now = self._clock()
        if self._watchdog is None:
            self._watchdog = Watchdog(age_of(report, values), report.facts.idle)
        verdict = self._watchdog.take(pulse_of(now, report, values, self._ras(now)))
        unread = [f"{reply.node}: {reply.problem}" for reply in answers if reply.value is None]
        return Sample(verdict, report, (*report.unread, *unread))

    async def _ask(self, node: str) -> Reply:
        try:
            return Reply(node, await (await self._client_of(node)).probe("pulse", {"job": self._job}, _NODE), [])
        except ProbeFailed as failed:
            return Reply(node, None, [], failed.text)

    def _ras(self, now: float) -> RasReport | None:
        """Return a new report of RAS if there is one; the question may take longer than the time between samples."""
        found = None
        if self._asking is not None and self._asking.done():
            found = self._asking.result()
            self._asking = None
        if self._asking is None and now - self._asked >= RAS_EVERY:
            self._asked = now
            self._asking = asyncio.create_task(self._ask_ras())
        return found

    async def _ask_ras(self) -> RasReport | None:
        """Return the report of the first node that has one; that node is asked first the next time."""
        for node in list(self._nodes):
            parts: list[dict[str, Any]] = []
            try:
                client = await self._client_of(node)
                value = await client.probe("ras", {"wait": 0, "job": self._job}, _RAS, parts.append)
            except ProbeFailed:
                continue
            if texts := texts_of(Reply(node, value, parts)):
                self._nodes.remove(node)
                self._nodes.insert(0, node)
                return report_of(texts[-1], Notes())
        return None
