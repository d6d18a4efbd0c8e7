"""Observer of a running job: asks its nodes what the ranks do, once a second, and emits the answers as evidence.

Every node has its own loop and its own deadline, so that one that does not answer delays no other. All probes are
passive: nothing is started on a GPU, written, or sent between nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any

from fabtui.diagnosis.job.flight_recorder import answer as flight_answer
from fabtui.diagnosis.job.inspector import conclusion as inspector_conclusion
from fabtui.diagnosis.job.job_verdict import JobState, JobVerdict
from fabtui.diagnosis.job.judge import job_verdict
from fabtui.diagnosis.job.logs.report import JobReport
from fabtui.model.events import JobEvidence
from fabtui.model.facts.node_view import dicts, number
from fabtui.model.job_evidence import JobSource
from fabtui.model.job_sample import is_at_work
from fabtui.sanitize import one_line
from fabtui.session.event_pipeline import EventPump
from fabtui.session.running_job.inquiry import ClientOf, Reply, ask_node, taken_from, texts_of
from fabtui.session.running_job.monitor import JobMonitor
from fabtui.session.running_job.stack_tool import stacks

#: Time (s) between two samples of a node. With more nodes than this machine asks in it, samples are further apart.
EVERY, _NODES_EACH_SECOND = 1.0, 128
#: Part of a processor of a node that its samples may take while the job is well; maximum time (s) between two then.
_SHARE, _RAREST = 0.01, 5.0
#: Time (s) between two looks at a node that has no rank.
_IDLE_EVERY = 10.0
#: Deadlines (s) of the probes.
_ACTIVITY, _RAS, _STACKS, _DUMPS, _KERNEL, _INSPECTOR, _NETWORK = 4.0, 20.0, 12.0, 20.0, 12.0, 6.0, 5.0
#: Time (s) for dumps that ranks write when they are asked to, with what it takes to send them.
WRITING = 60.0
#: Time (s) between two questions to RAS, and where nobody listens. The larger the report, the rarer the question.
_RAS_EVERY, _RAS_AGAIN, _RAS_BYTES_EACH_SECOND = 1.0, 30.0, 200_000
#: Nodes that are asked for RAS at the same time, until one answers, and nodes whose stacks are read.
_RAS_TOGETHER, _MOST_STACKS = 4, 64
#: Time (s) between two verdicts, from the first sample to the first stacks, and between two readings of stacks.
_JUDGE_EVERY, _STACKS_AFTER, _STACKS_EVERY = 0.5, 3.0, 60.0
#: Time (s) between two readings of the logs, and of the files of NCCL's Inspector.
_LOGS_EVERY = 5.0
INSPECTOR_EVERY = 5.0
#: Time (s) between two looks at the sockets of the ranks, and while the job is well.
_NETWORK_EVERY, _NETWORK_RARELY = 2.0, 10.0
#: Variable of a rank that names the folder of these files.
_FOLDER = "NCCL_INSPECTOR_DUMP_DIR"
#: Rank in the name of a log: ``rank3.log``, ``rank_3.err``; and maximum number of failures in logs.
_RANK_IN_NAME, _MOST_FAILURES = re.compile(r"rank[._-]?(\d{1,6})[^/]*$"), 8
#: Kind of error line (`fabtui.diagnosis.job.logs.error_lines`) of PyTorch's watchdog.
_TIMEOUT = "collective_timeout"
#: Time (s) from the first sample in which all are recorded, and time between recorded ones of a job that is well then.
_ALL_RECORDED, _RECORDED_EVERY = 60.0, 10.0
#: Maximum time (s) from the start of a session until the verdict is taken as it is, and most of it that counts before
#: the first question: a rank that is late shows after 8 s.
SETTLE, _BEFORE = 13.0, 4.0


_Work = Coroutine[Any, Any, None]


class JobObserver:
    """Observes the ranks on nodes, and emits what the sources show.

    Of all ranks, those of the Slurm jobs ``job`` count if it is given, and of all sources, one ``source`` is asked.
    Without a ``monitor``, no logs are read.
    """

    def __init__(
        self,
        pump: EventPump,
        client_of: ClientOf,
        job: str = "",
        monitor: JobMonitor | None = None,
        source: JobSource | None = None,
    ) -> None:
        self.verdict: JobVerdict | None = None  #: The latest verdict; None before the first one, and without a job.
        self._pump = pump
        self._client_of = client_of
        self._job = job
        self._monitor = monitor
        self._source = source
        self.writes = False  #: Whether ranks are to write dumps when these are read next.
        #: Why nodes have not shown what their ranks do, by node: those that have not answered yet.
        self.silent: dict[str, str] = {}
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._beside: list[asyncio.Task[None]] = []
        self._first: dict[str, asyncio.Event] = {}
        self._busy: set[str] = set()
        self._seen: dict[str, float] = {}  #: When a node had a rank the last time.
        self._without: dict[str, Mapping[str, Any]] = {}  #: Latest sample of each node that has had no rank yet.
        self._cost: dict[str, float] = {}  #: Processor time (s) of the latest sample of a node.
        self._logs_read: set[str] = set()  #: Nodes whose kernel's log was read.
        self._problems: set[tuple[str, str]] = set()
        self._started: float | None = None
        self._began: float | None = None
        self._settled = asyncio.Event()
        self._stacks_read = float("-inf")
        self._ras_node = ""
        self._diagnosed: list[Any] | None = None  #: What RAS found in its diagnostics, which are asked for once.
        self._recorded: dict[tuple[str, JobSource], float] = {}
        self._logged: JobState | None = None

    @property
    def _well(self) -> bool:
        return self.verdict is not None and self.verdict.settled and not self.verdict.bad

    @property
    def nodes(self) -> list[str]:
        """The nodes where ranks were seen, or GPUs are in use."""
        return [node for node in self._followed if node in self._seen]

    def follow(self, nodes: Iterable[str], *, busy: bool = False, once: bool = False) -> None:
        """Observe nodes from now on.

        Args:
            nodes: The nodes; those that are observed already stay as they are.
            busy: Whether GPUs that processes without a rank use count as well.
            once: Whether nodes without a rank are left alone from then on, because they are tested.
        """
        for node in nodes:
            if busy:
                self._busy.add(node)
            if node not in self._followed or self._followed[node].done():
                self._first[node] = asyncio.Event()
                self.silent[node] = "no answer yet"
                self._followed[node] = asyncio.create_task(self._follow(node, once=once))
        if self._followed and self._started is None:
            # The start of the session may be still on its way to the model.
            before = time.time() - (self._pump.model.started or time.time())
            self._started = asyncio.get_running_loop().time() - min(max(0.0, before), _BEFORE)
        if self._followed and not self._beside:
            works = {JobSource.RAS: self._poll_ras, JobSource.INSPECTOR: self._poll_inspector}
            works |= {JobSource.KERNEL: self._read_kernels, JobSource.NETWORK: self._poll_network}
            works |= {JobSource.LOG: self._read_logs} if self._monitor is not None else {}
            self._beside = [asyncio.create_task(work()) for work in (self._judge, *self._asked(works))]

    def _asked(self, works: Mapping[JobSource, Callable[[], _Work]]) -> list[Callable[[], _Work]]:
        return [work for source, work in works.items() if self._source in (None, source)]

    async def answered(self, within: float) -> None:
        """Wait until a node has answered, or none can be reached, but no longer than some time (s)."""
        until = asyncio.get_running_loop().time() + within
        while len(self.silent) == len(self._first) and asyncio.get_running_loop().time() < until:
            if all(first.is_set() for first in self._first.values()):
                break
            await asyncio.sleep(0.05)

    async def settled(self, until: float | None = None) -> JobVerdict | None:
        """Return the verdict once it is settled, or at a time of the loop; None without a job.

        By default that time is `SETTLE` after the start of the session.
        """
        if self._started is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._started + SETTLE if until is None else until):
                await asyncio.gather(*(first.wait() for first in self._first.values()))
                if self._seen:
                    await self._settled.wait()
        return await self.decided()

    async def decided(self) -> JobVerdict | None:
        """Return the verdict from all evidence so far; None without a job."""
        await self._pump.flush()
        self.verdict = job_verdict(self._pump.model)
        return self.verdict

    async def complete(self, within: float) -> JobVerdict | None:
        """Ask the sources that are not asked all the time, for at most some time (s); return the verdict."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self.ask()
        return await self.decided()

    async def ask(self) -> None:
        self._stacks_read = asyncio.get_running_loop().time()
        works = {JobSource.STACKS: self._read_stacks, JobSource.FLIGHT: self._read_dumps}
        works |= {JobSource.KERNEL: self._read_kernel}
        await asyncio.gather(*(work() for work in self._asked(works)))

    async def close(self) -> None:
        tasks = [*self._followed.values(), *self._beside]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, node: str, *, once: bool) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self._take(await self._one(node, "activity", _ACTIVITY), began)
            self._first[node].set()
            if once and node not in self._seen:
                break
            every = max(EVERY, len(self._seen) / _NODES_EACH_SECOND, self._affordable(node))
            known = began - self._seen.get(node, float("-inf")) < _IDLE_EVERY
            await asyncio.sleep(max(0.1, (every if known else _IDLE_EVERY) - (loop.time() - began)))

    def _affordable(self, node: str) -> float:
        """Return the least time (s) per sample of a node; a job in trouble is sampled each second."""
        return min(_RAREST, self._cost.get(node, 0.0) / _SHARE) if self._well else 0.0

    async def _one(self, node: str, probe: str, deadline: float, args: Mapping[str, Any] | None = None) -> Reply:
        return await ask_node(self._client_of, node, probe, {**(args or {}), "job": self._job}, deadline)

    def _take(self, reply: Reply, now: float) -> None:
        node, value = reply.node, reply.value
        if value is None:
            if node in self.silent:
                self.silent[node] = reply.problem
            if (node, reply.problem) not in self._problems:
                self._problems.add((node, reply.problem))
                self._pump.log("warning", f"its ranks cannot be observed: {reply.problem}", node)
            return
        self.silent.pop(node, None)
        self._cost[node] = number(value.get("cost")) or 0.0
        used = node in self._busy and any(gpu.get("pids") for gpu in dicts(value.get("gpus")))
        if used or any(
            is_at_work(bool(rank.get("gpus")), number(rank.get("cpu_all"))) for rank in dicts(value.get("ranks"))
        ):
            self._seen[node] = now
        if node not in self._seen:
            self._without[node] = value
        if self._seen:
            # A node whose ranks have ended reports that, too. So does a node without ranks beside the nodes of the job.
            self._began = now if self._began is None else self._began
            if node in self._seen:
                self._emit(node, JobSource.ACTIVITY, value)
            for other, latest in self._without.items():
                self._emit(other, JobSource.ACTIVITY, latest)
            self._without.clear()

    def _emit(self, node: str, source: JobSource, value: Mapping[str, Any]) -> None:
        """Emit evidence; of a job that has been well for a while, not all that is read each second is recorded."""
        now = asyncio.get_running_loop().time()
        rare = self._well and now - (self._began or now) > _ALL_RECORDED
        often = rare and source in (JobSource.ACTIVITY, JobSource.RAS, JobSource.NETWORK)
        recorded = not often or now - self._recorded.get((node, source), float("-inf")) >= _RECORDED_EVERY
        if recorded:
            self._recorded[node, source] = now
        self._pump.emit(JobEvidence(node=node, source=str(source), value=dict(value)), recorded=recorded)

    async def _judge(self) -> None:
        """Decide again and again; read stacks where ranks make no progress, or nothing else shows what they do."""
        loop = asyncio.get_running_loop()
        revision = -1
        reading: asyncio.Task[Any] | None = None
        try:
            while True:
                await asyncio.sleep(_JUDGE_EVERY)
                model = self._pump.model
                if self._began is None or revision == model.job.revision:
                    continue
                revision, self.verdict = model.job.revision, job_verdict(model)
                self._note()
                still = self.verdict is not None and self.verdict.state in (JobState.HANGS, JobState.UNKNOWN)
                now = loop.time()
                if still and now - self._began >= _STACKS_AFTER and now - self._stacks_read >= _STACKS_EVERY:
                    reading = asyncio.create_task(self.complete(_STACKS))
        finally:
            if reading is not None:
                reading.cancel()

    def _note(self) -> None:
        verdict = self.verdict
        if verdict is None or not verdict.settled:
            self._settled.clear()
            return
        self._settled.set()
        if verdict.state is not self._logged:
            self._logged = verdict.state
            self._pump.log("warning" if verdict.alerts else "info", one_line(verdict.sentence, 500))

    async def _read_stacks(self) -> None:
        await self._each(list(self._followed)[:_MOST_STACKS], "stacks", JobSource.STACKS, _STACKS)

    async def _read_kernel(self) -> None:
        """Emit what the kernels of all nodes have reported since the job started."""
        self._logs_read.update(self._followed)
        await self._each(list(self._followed)[:_MOST_STACKS], "evidence", JobSource.KERNEL, _KERNEL)

    async def _read_kernels(self) -> None:
        """Emit for each node with a rank what its kernel reported before the first sample, which shows later ones."""
        while True:
            await asyncio.sleep(_JUDGE_EVERY)
            if fresh := [node for node in self.nodes if node not in self._logs_read]:
                self._logs_read.update(fresh)
                await self._each(fresh, "evidence", JobSource.KERNEL, _KERNEL)

    async def recorders(self, nodes: Iterable[str]) -> list[Reply]:
        """Return the answers of nodes about their flight recorders; no rank writes a dump."""
        return await asyncio.gather(*(self._one(node, "flight", _DUMPS) for node in nodes))

    async def _read_dumps(self) -> None:
        """Emit what the flight recorder dumps show that ranks have written already, or write now."""
        writes, self.writes = self.writes, False
        arguments = {"write": True, "within": _DUMPS} if writes else {"existing": True}
        deadline = WRITING if writes else _DUMPS
        replies = await asyncio.gather(*(self._one(node, "flight", deadline, arguments) for node in self._followed))
        taken = await taken_from(replies)
        if not taken.dumps and not (writes and taken.places):
            return
        who = flight_answer(taken.dumps, taken.places)
        if writes:
            who.sentences.extend(taken.problems)
            # A rank that writes no dump is stopped, or hangs in the driver.
            silent = tuple(place for rank, place in taken.places.items() if rank not in taken.dumps)
            who = who._replace(suspects=who.suspects or silent)
        self._emit("", JobSource.FLIGHT, who.evidence())

    async def _each(
        self,
        nodes: Iterable[str],
        probe: str,
        source: JobSource,
        deadline: float,
        args: Mapping[str, Any] | None = None,
    ) -> None:
        """Ask nodes at the same time, and emit each answer as it comes."""

        async def one(node: str) -> None:
            ask = partial(self._one, node, probe, deadline)
            reply = await (stacks(ask) if source is JobSource.STACKS else ask(args))
            await self._first[node].wait()
            if reply.value is not None and node in self._seen:
                self._emit(node, source, reply.value)

        await asyncio.gather(*map(one, nodes))

    async def _some_rank(self) -> None:
        while not self._seen:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    async def _poll_ras(self) -> None:
        await self._some_rank()
        while True:
            size = await self._read_ras()
            await asyncio.sleep(_RAS_AGAIN if size is None else max(_RAS_EVERY, size / _RAS_BYTES_EACH_SECOND))

    async def _read_ras(self) -> int | None:
        """Emit a report of RAS; return its size, None if no node has one."""
        known = [self._ras_node] if self._ras_node else self.nodes[:_RAS_TOGETHER]
        more = {"diagnostics": self._diagnosed is None}
        self._ras_node = ""
        asked = [asyncio.create_task(self._one(node, "ras", _RAS, more)) for node in known]
        try:
            for answer in asyncio.as_completed(asked):
                reply = await answer
                if texts := texts_of(reply):
                    self._ras_node = reply.node
                    value = reply.value or {}
                    self._diagnosed = value.get("diagnosed") if self._diagnosed is None else self._diagnosed
                    value |= {"text": texts[-1], "diagnosed": self._diagnosed or []}
                    self._emit(reply.node, JobSource.RAS, value)
                    return len(texts[-1])
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return None

    async def _poll_network(self) -> None:
        """Emit what the sockets of the ranks show, more often where the job is not known to be well."""
        loop = asyncio.get_running_loop()
        probed: dict[str, float] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                every = _NETWORK_RARELY if self._well else _NETWORK_EVERY
                due = [node for node in self.nodes if loop.time() - probed.get(node, float("-inf")) >= every]
                for node in due:
                    # The first look is quick; later ones try stuck paths, and see what the ranks wait for.
                    args = {"longer": node in probed}
                    probed[node] = loop.time()
                    group.create_task(self._each([node], "job-network", JobSource.NETWORK, _NETWORK, args))
                await asyncio.sleep(_JUDGE_EVERY)

    async def _poll_inspector(self) -> None:
        """Emit who comes last to collectives by the files of NCCL's Inspector, where the ranks name its folder."""
        while True:
            await asyncio.sleep(INSPECTOR_EVERY)
            nodes = [node for node in self.nodes if self._has_inspector(node)][:_MOST_STACKS]
            replies = await asyncio.gather(*(self._one(node, "inspector", _INSPECTOR) for node in nodes))
            values = {reply.node: reply.value for reply in replies if reply.value and reply.value.get("ranks")}
            if values:
                self._emit("", JobSource.INSPECTOR, await asyncio.to_thread(inspector_conclusion, values))

    def _has_inspector(self, node: str) -> bool:
        latest = self._pump.model.job.latest(node)
        return latest is not None and any(dict(one.process.env).get(_FOLDER) for one in latest.ranks)

    async def _read_logs(self) -> None:
        await self._some_rank()
        while True:
            await self.read_logs()
            await asyncio.sleep(_LOGS_EVERY)

    async def read_logs(self) -> None:
        """Emit what the logs show now."""
        if self._monitor is not None and (value := log_value(await self._monitor.refresh())):
            self._emit("", JobSource.LOG, value)


def log_value(report: JobReport) -> dict[str, Any]:
    """Return what the logs of a job show of its progress as evidence; nothing without logs."""
    logs = report.facts.logs
    quiet, latest, interval = logs.quiet(), logs.iterations.latest, logs.iterations.interval
    if quiet is None:
        return {}
    late = None
    if latest is not None:
        # A line that was there before the first reading is at least as old as the last growth of a log.
        late = max(0.0, report.facts.when - latest.seen) if latest.seen is not None else quiet
    timeouts = [
        (error.when or 0.0, error.text)
        for file in logs.files.values()
        for error in file.errors.kept
        if error.kind.name == _TIMEOUT
    ]
    return {
        "iteration": None if latest is None else latest.number,
        "interval": interval,
        "per_minute": 60 / interval if interval else None,
        "late": late,
        "quiet": quiet,
        # With its time, so that a later one differs.
        "timeout": one_line(max(timeouts)[1], 300) if timeouts else "",
        "failures": failures(report),
        **report.facts.logs.iterations.pace,
    }


def failures(report: JobReport) -> list[dict[str, Any]]:
    """Return the errors in the logs that can begin a failure, the first of each file, the earliest one first."""
    rows = [
        (error.when or 0.0, {"node": file.node, "path": file.path, "text": one_line(error.text, 300)})
        for file in report.facts.logs.files.values()
        if (error := file.errors.first) is not None and error.cause
    ]
    return [
        {**row, "rank": int(named[1]) if (named := _RANK_IN_NAME.search(str(row["path"]))) else None}
        for _, row in sorted(rows, key=lambda pair: pair[0])[:_MOST_FAILURES]
    ]
