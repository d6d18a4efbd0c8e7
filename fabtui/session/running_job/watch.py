"""Watch over a running job: report, watchdog, links to its nodes, and the user's command when it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self

from fabtui.diagnosis.running_job.ras_report import RasReport, report_of
from fabtui.jobs.monitor.report import JobReport
from fabtui.jobs.watchdog import State, Watchdog, WatchdogVerdict, age_of, pulse_of
from fabtui.sanitize import one_line
from fabtui.scheduler.slurm_gpus import GpuUse, gpu_use
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.session.options import SessionOptions, connector_options
from fabtui.session.running_job.evidence import HangReport, report_hang
from fabtui.session.running_job.inquiry import ClientOf, Reply, ask_node, over_open_links, read_messages, texts_of
from fabtui.session.running_job.monitor import JobMonitor
from fabtui.transport.connector import Connector
from fabtui.transport.link import NodeUnreachable
from fabtui_node.parsers.base import Notes

#: Time (s) between two reports of RAS for a user who waits.
BETWEEN = 5.0


class JobWatch:
    """Watches a job over open links. Without links there is the report alone.

    Args:
        monitor: Reader of its logs.
        options: Its nodes and how they are reached.
        client_of: The open links to its nodes; None without any.
        clock: Clock that only goes forward.
    """

    def __init__(
        self,
        monitor: JobMonitor,
        options: SessionOptions | None = None,
        client_of: ClientOf | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.monitor = monitor  #: Reader of its logs.
        self.verdict: WatchdogVerdict | None = None  #: What the watchdog decided last; None before the first sample.
        self.answer: HangReport | None = None  #: The latest answer; None before the first one.
        self.answered = 0.0  #: When the answer came, by the clock.
        self.asking = False  #: Whether an answer is under way.
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


#: Time (s) between two samples, and between two questions to RAS.
EVERY = 10.0
RAS_EVERY = 20.0
#: Deadlines (s) of a node, and of RAS.
_NODE, _RAS = 8.0, 60.0


class Sample(NamedTuple):
    """A decision, with the report of the logs that it is from, and what could not be read."""

    verdict: WatchdogVerdict
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
            self._monitor.refresh(), asyncio.gather(*(self._ask(node, "pulse", _NODE) for node in self._nodes))
        )
        values = {reply.node: reply.value for reply in answers if reply.value is not None}
        if len(values) < len(answers):
            report = await self._monitor.refresh(lost=True)
        ends = report.status.stage == "ended" or report.status.state == "COMPLETING"
        now = self._clock()
        if self._watchdog is None:
            self._watchdog = Watchdog(age_of(report, values), report.facts.idle)
        verdict = self._watchdog.take(pulse_of(now, report, values, self._ras(now)))
        unread = [f"{reply.node}: {reply.problem}" for reply in answers if reply.value is None and not ends]
        return Sample(verdict, report, (*report.unread, *unread))

    async def _ask(self, node: str, probe: str, deadline: float, **args: Any) -> Reply:
        return await ask_node(self._client_of, node, probe, {**args, "job": self._job}, deadline)

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
            if texts := texts_of(await self._ask(node, "ras", _RAS, wait=0)):
                self._nodes.remove(node)
                self._nodes.insert(0, node)
                return report_of(texts[-1], Notes())
        return None


#: Time (s) after which a node that was not reached is tried again.
RETRY = 60.0


class JobLinks:
    """Links to nodes that stay open for further questions."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._clients: dict[str, NodeClient] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._reading.values():
            task.cancel()
        await asyncio.gather(*self._reading.values(), return_exceptions=True)
        await asyncio.gather(*(client.link.close() for client in self._clients.values()), return_exceptions=True)

    async def client(self, node: str) -> NodeClient:
        """Return the open link to a node; ProbeFailed if it is not reached. Two questions at once share one link."""
        async with self._opening.setdefault(node, asyncio.Lock()):
            return await self._client(node)

    async def _client(self, node: str) -> NodeClient:
        client = self._clients.get(node)
        if client is not None and client.lost is None:
            return client
        now = asyncio.get_running_loop().time()
        when, text = self._failed.get(node, (float("-inf"), ""))
        if client is not None and client.lost is not None:
            text = client.lost.text
            await self._drop(node)
            self._failed[node] = (now, text)
            raise ProbeFailed("lost", text)
        if now - when < RETRY:
            raise ProbeFailed("lost", text)
        try:
            client = self._clients[node] = NodeClient(await self._connector.open(node))
        except NodeUnreachable as failed:
            text = one_line(failed.text, 300) + (f" (next: {one_line(failed.hint, 300)})" if failed.hint else "")
            self._failed[node] = (asyncio.get_running_loop().time(), text)
            raise ProbeFailed("lost", text) from None
        self._reading[node] = asyncio.create_task(read_messages(client))
        return client

    async def _drop(self, node: str) -> None:
        client, task = self._clients.pop(node), self._reading.pop(node)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.link.close()


@asynccontextmanager
async def links_to(options: SessionOptions, notice: Callable[[str], None]) -> AsyncIterator[JobLinks]:
    """Yield links to the nodes of a job; only GPUs that Slurm gave to it are visible there."""
    asked: asyncio.Task[GpuUse] | None = None

    async def gpus(node: str) -> Mapping[str, object] | None:
        nonlocal asked
        if asked is None:
            asked = asyncio.create_task(asyncio.to_thread(gpu_use, options.hosts, options.job))
        return (await asyncio.shield(asked)).setting(node)

    wanted: Callable[[str], Awaitable[Mapping[str, object] | None]] | None = gpus if options.job else None
    connector = Connector(connector_options(options, gpus=wanted), notice)
    async with connector, JobLinks(connector) as links:
        yield links


#: Timeout (s) of the user's command.
DEADLINE = 600.0


async def run_command(command: str, variables: Mapping[str, str], deadline: float = DEADLINE) -> str:
    """Run a command of the user's shell on this machine; return how it ended.

    It gets no input, writes to standard error, and is killed with its children after the deadline.
    """
    child = await asyncio.create_subprocess_shell(
        command,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=2,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(deadline):
            code = await child.wait()
    except (TimeoutError, asyncio.CancelledError) as ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
        if isinstance(ended, asyncio.CancelledError):
            raise
        return f"was ended after {deadline:.0f} s"
    return f"ended with exit code {code}" if code else "ended well"
