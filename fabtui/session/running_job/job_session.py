"""Session that only observes a running job: links to its nodes, an observer, a model, and a recording if wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fabtui import __version__
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.running_job.job_verdict import JobState, JobVerdict
from fabtui.model.events import NodeState, NodeUpdate, PhaseStart, SessionEnd, SessionStart
from fabtui.model.job_evidence import JobSource
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line
from fabtui.session.event_pipeline import EventPump, Journal
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.session.options import JobQuery, SessionOptions
from fabtui.session.running_job.inquiry import ClientOf
from fabtui.session.running_job.job_links import links_to
from fabtui.session.running_job.monitor import JobMonitor
from fabtui.session.running_job.observer import WRITING, JobObserver

#: Maximum time (s) of a snapshot from the first answer of a node, for which it waits longer, as a login may take its
#: time on a busy machine.
SNAPSHOT, _LOGIN = 5.0, 45.0
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
        query: JobQuery | None = None,
        source: JobSource | None = None,
    ) -> None:
        self.model: Model = pump.model
        self.pump = pump
        self._options = options
        self._reached: dict[str, str] = {}
        self._client_of = client_of
        self._monitor = None if query is None else JobMonitor(query, self._client, every=True)
        self.observer = JobObserver(pump, self._client, options.job, self._monitor, source)

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
    def ended(self) -> bool:
        """True if the job has ended, as Slurm or the nodes show it."""
        report, verdict = None if self._monitor is None else self._monitor.report, self.observer.verdict
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
            others = group.create_task(self.observer.complete(within))
            # A verdict of NVML and /proc alone may come sooner; what the others show belongs to the snapshot.
            await self.observer.settled(until)
            await asyncio.wait({others}, timeout=max(0.0, until - loop.time()))
            others.cancel()
        found = await self.observer.decided()
        while found is not None and _is_unclear(found) and loop.time() < until + PATIENCE:
            await asyncio.sleep(0.5)
            found = await self.observer.decided()
        return found


def _is_unclear(verdict: JobVerdict) -> bool:
    """Return True if a job may have begun to hang."""
    return verdict.state in (JobState.STARTING, JobState.UNKNOWN) or verdict.quiet > _SILENT


@asynccontextmanager
async def observed(
    options: SessionOptions,
    notice: Callable[[str], None],
    query: JobQuery | None = None,
    patience: float | None = None,
    source: JobSource | None = None,
) -> AsyncIterator[JobSession]:
    """Yield a session about the job on the nodes of the options, recorded if these name a file.

    Args:
        options: The nodes, how they are reached, and the recording.
        notice: Called with notices of connections.
        query: Where the logs of the job are; None to read none.
        patience: Time (s) without progress after which the job hangs; None for the usual one.
        source: The one source that is asked beside what the ranks do; None for all.

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
            session = JobSession(options, pump, links.client, query, source)
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
