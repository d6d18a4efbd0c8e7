"""Session that only observes a running job: links to its nodes, an observer, a model, and a recording if wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace

from fabtui import __version__
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.job.job_verdict import JobState, JobVerdict
from fabtui.diagnosis.job.logs.report import JobReport
from fabtui.errors import InputError, argument
from fabtui.model.events import NodeState, NodeUpdate, PhaseStart, SessionEnd, SessionStart
from fabtui.model.job_evidence import JobSource
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line
from fabtui.scheduler.slurm import GpuUse, JobStatus, gpu_use
from fabtui.session.event_pipeline import EventPump, Journal
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.session.options import SessionOptions, connector_options
from fabtui.session.running_job.inquiry import ClientOf, read_messages
from fabtui.session.running_job.monitor import JobMonitor
from fabtui.session.running_job.observer import WRITING, JobObserver
from fabtui.transport.connector import Connector
from fabtui.transport.link import NodeUnreachable

#: Time (s) after which a node that was not reached is tried again.
RETRY = 60.0
#: Maximum time (s) of a snapshot from the first answer of a node, for which it waits longer, as a login may take its
#: time on a busy machine.
SNAPSHOT, _LOGIN = 5.0, 45.0
#: Time (s) for the logs of a job that no longer has a process.
_LOGS = 15.0
#: Time (s) without progress after which a job hangs in a snapshot.
PATIENCE = 3.5
#: Time (s) since the last progress after which a job may have begun to hang.
_SILENT = 1.5


class JobSession:
    """Session about a running job, made by `observed`."""

    def __init__(
        self,
        options: SessionOptions,
        pump: EventPump,
        client_of: ClientOf,
        monitor: JobMonitor | None = None,
        source: JobSource | None = None,
    ) -> None:
        self.model: Model = pump.model
        self.pump = pump
        self._options = options
        self._reached: dict[str, str] = {}
        self._client_of = client_of
        self._monitor = monitor
        self.observer = JobObserver(pump, self._client, options.job, monitor, source)
        if monitor is not None:
            monitor.client_of, monitor.running = self._client, lambda: self.observer.verdict

    async def _client(self, node: str) -> NodeClient:
        """Return the link to a node; note in the model whether it is reached."""
        try:
            client = await self._client_of(node)
        except ProbeFailed as failed:
            if self._reached.get(node) != failed.text:
                self._reached[node] = failed.text
                self.pump.emit(NodeUpdate(node=node, state=NodeState.FAILED, text=failed.text))
            raise
        if self._reached.get(node) != "":
            self._reached[node] = ""
            self.pump.emit(NodeUpdate(node=node, state=NodeState.READY, backend=client.link.backend))
        return client

    @property
    def report(self) -> JobReport | None:
        """The report from logs and Slurm; None where they were not read."""
        return None if self._monitor is None else self._monitor.report

    @property
    def ended(self) -> bool:
        report, verdict = self.report, self.observer.verdict
        by_slurm = report is not None and report.status.stage == "ended"
        return by_slurm or (verdict is not None and verdict.settled and verdict.state is JobState.ENDED)

    def problems(self) -> list[str]:
        return [f"{node}: {text}" for node, text in self._reached.items() if text]

    def unread(self) -> list[str]:
        """Return why nodes could not be reached or have not answered so far."""
        silent = (f"{node}: {text}" for node, text in self.observer.silent.items() if not self._reached.get(node))
        return [*self.problems(), *silent]

    def unread_logs(self) -> list[str]:
        """Return why no log was read, if some were to be."""
        if self._monitor is None:
            return []
        report, query = self._monitor.report, self._monitor.query
        if report is None:
            return ["the logs were not read"]
        where = ", ".join(query.logs) or "where Slurm writes them"
        return [] if report.facts.logs.files else [f"no logs were found: {one_line(where, 200)}"]

    def start(self) -> None:
        self.observer.follow(self._options.hosts, busy=True)

    async def snapshot(self, within: float = SNAPSHOT) -> JobVerdict | None:
        """Ask all sources at the same time; return the verdict once it is settled, or after a time (s).

        A job that was silent lately, or not seen to move yet, is observed somewhat longer.
        """
        self.start()
        within = WRITING if self.observer.writes else within
        loop = asyncio.get_running_loop()
        await self.observer.answered(_LOGIN)
        until = loop.time() + within
        async with asyncio.TaskGroup() as group:
            others = group.create_task(self.observer.complete(within + PATIENCE))
            # A verdict of NVML and /proc alone may come sooner; what the others show belongs to the snapshot.
            await self.observer.settled(until)
            await asyncio.wait({others}, timeout=max(0.0, until - loop.time()))
            verdict = await self.observer.decided()
            if verdict is not None and verdict.state in (JobState.HANGS, JobState.UNKNOWN):
                # The stacks are worth it.
                await asyncio.wait({others}, timeout=max(0.0, until + PATIENCE - loop.time()))
            others.cancel()
        while (verdict := await self.observer.decided()) is not None and loop.time() < until + PATIENCE:
            # It may have begun to hang.
            late = verdict.state is JobState.SLOW and not verdict.settled
            known = not late and verdict.state not in (JobState.STARTING, JobState.UNKNOWN)
            if known and verdict.quiet <= _SILENT:
                break
            await asyncio.sleep(0.5)
        if verdict is None:
            # Without a process, the logs have the answer.
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOGS):
                    await self.observer.read_logs()
            verdict = await self.observer.decided()
        return verdict


@asynccontextmanager
async def observed(
    options: SessionOptions,
    notice: Callable[[str], None],
    monitor: JobMonitor | None = None,
    patience: float | None = None,
    source: JobSource | None = None,
) -> AsyncIterator[JobSession]:
    """Yield a session about the job on the nodes of the options, recorded if these name a file.

    It hangs after a time (s) without progress, ``patience``. Without a ``monitor``, no logs are read. One ``source``,
    if given, is the only one that is asked.

    Raises:
        InputError: The recording cannot be written.
    """
    pump = EventPump(Model(), None if options.record is None else Journal(options.record))
    pumping = asyncio.create_task(pump.run())
    try:
        # No tests, and no preflight.
        recorded = {**options.recorded(), "probes": [], "patience": patience}
        pump.emit(SessionStart(nodes=list(options.hosts), options=recorded, version=__version__))
        async with links_to(options, notice) as links:
            session = JobSession(options, pump, links.client, monitor, source)
            try:
                yield session
            finally:
                await session.observer.close()
                pump.emit(PhaseStart(name="done", total=0))
                await pump.flush()
                pump.emit(SessionEnd(exit=diagnose(pump.model).code))
                await pump.flush()
    finally:
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)
        await pump.drain()


class JobLinks:
    """Links to nodes that stay open for further questions."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._clients: dict[str, NodeClient] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def close(self) -> None:
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
            task = self._reading.pop(node)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._clients.pop(node).link.close()
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
    async with connector:
        links = JobLinks(connector)
        try:
            yield links
        finally:
            await links.close()


def options_for(options: SessionOptions, status: JobStatus) -> SessionOptions:
    return replace(
        options,
        hosts=options.hosts or status.nodes,
        job=status.job,
        placements=dict(status.placements),
        fallback=options.fallback if status.placements else "",
        origin=f"nodes of job {status.job}: squeue",
        probes=("host",),
    )


@asynccontextmanager
async def reported(
    monitor: JobMonitor,
    options: SessionOptions,
    notice: Callable[[str], None],
    *,
    ask_nodes: bool = True,
    patience: float | None = PATIENCE,
    check: Callable[[Sequence[str]], None] = lambda nodes: None,
) -> AsyncIterator[JobReport]:
    """Yield the first report; the monitor may be refreshed meanwhile. The ranks of a job that runs are observed.

    ``check`` is called with the nodes before they are asked, and may raise `InputError`.

    Raises:
        InputError: Slurm does not know the job and it has no logs: probably a wrong number.
    """
    report, query = await monitor.refresh(), monitor.query
    if report.status.stage == "unknown" and not report.facts.logs.files:
        if not report.status.problem:
            raise InputError(f"{argument('logs')}: no logs were found: {one_line(', '.join(query.logs), 200)}")
        known = f"the logs of a job that Slurm has forgotten: {argument('logs')} FOLDER"
        raise InputError(f"{report.status.problem}; {known}")
    async with AsyncExitStack() as stack:
        if ask_nodes and (report.status.stage == "running" or (query.nodes and not query.job)):
            linked = options_for(options, report.status)
            check(linked.hosts)
            session = await stack.enter_async_context(observed(linked, notice, monitor, patience))
            await session.snapshot()
            report = await monitor.refresh()
        yield report
