"""Monitor of one job: asks Slurm, reads its logs here or on the nodes, and reports. Nothing is started or changed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

from fabtui.diagnosis.job.job_verdict import JobVerdict
from fabtui.diagnosis.job.logs import job_logs
from fabtui.diagnosis.job.logs.job_logs import JobLogs
from fabtui.diagnosis.job.logs.job_rules import STALE, report_of
from fabtui.diagnosis.job.logs.report import JobFacts, JobReport, NodeFacts
from fabtui.diagnosis.job.logs.settings import LIBRARIES, is_variable, joined
from fabtui.errors import argument
from fabtui.nodeset import fold
from fabtui.sanitize import one_line
from fabtui.scheduler.slurm import JobStatus, node_addresses, status_of
from fabtui.session.options import JobQuery
from fabtui.session.running_job.inquiry import ClientOf, ask_node
from fabtui.transport.link import Message
from fabtui_node.system import log_files

#: Least time (s) between two questions to Slurm: sites forbid more.
ASK_EVERY = 5.0
#: Deadline (s) of a node, and of all names.
NODE_DEADLINE, NAMES_DEADLINE = 10.0, 3.0
#: Maximum time (s) of a search for logs.
_SEARCH = 5.0
#: Bytes of a log that are read at first, and of all logs in one reading.
BUDGET = log_files.Budget(2 << 20, 16 << 20)
#: Maximum number of nodes whose names are looked up.
_MOST_NAMES = 256
#: Maximum number of folders of logs whose free space is read.
_MOST_FOLDERS = 32
#: Maximum size (characters) of the parts of files in an answer of a node.
_MOST_TEXT = 8 << 20
#: Maximum number of variables of the ranks of a node.
_MOST_VARIABLES = 100


class _Read(NamedTuple):
    """Result of reading on this machine: paths, parts, problems, the time, and folders without space."""

    paths: list[str]
    parts: list[Message]
    problems: list[str]
    now: float
    full: tuple[str, ...]


class _Place(NamedTuple):
    """Patterns of files, and which of the files that match may be read."""

    patterns: list[str]
    access: log_files.Access


class _Places(NamedTuple):
    """Places of logs that the user names, and those that Slurm names."""

    user: _Place
    slurm: _Place


class JobMonitor:
    """Watches one job; `refresh` reads what is new and returns the report.

    Nodes are asked over links: all of them if ``every`` is set, else those without logs or a ``.gpu`` file here.
    """

    def __init__(
        self,
        query: JobQuery,
        client_of: ClientOf | None = None,
        *,
        every: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.query = query
        #: The latest report; None before the first `refresh`.
        self.report: JobReport | None = None
        self.client_of = client_of
        #: Returns what the ranks do, where they are observed.
        self.running: Callable[[], JobVerdict | None] = lambda: None
        #: Whether all nodes are asked.
        self.every = every
        self._one = asyncio.Lock()
        self._clock = clock
        self._status = JobStatus(query.job)
        self._asked: float | None = None
        self._logs = JobLogs(query.nodes)
        self._nodes: dict[str, NodeFacts] = {}
        self._addresses: Mapping[str, frozenset[str]] | None = None

    @property
    def linked(self) -> bool:
        return self.client_of is not None

    async def refresh(self, *, lost: bool = False) -> JobReport:
        """Read what is new and return the report; Slurm is asked at most every `ASK_EVERY` seconds.

        Where a node was ``lost``, it is asked at once: what runs on the nodes ends with the job.
        """
        async with self._one:
            return await self._refresh(lost)

    async def _refresh(self, lost: bool) -> JobReport:
        await self._ask_slurm(at_once=lost)
        places = self._places()
        # A thread cannot be interrupted: the search in it ends when nobody waits for it.
        ended = threading.Event()
        try:
            search = log_files.Search(_SEARCH, ended.is_set)
            read = await asyncio.to_thread(_read, places, self._logs.known(""), search)
        finally:
            ended.set()
        if not self._logs.nodes:
            self._logs.nodes = list(self._status.nodes) or job_logs.guessed_nodes(read.paths, self._status.outputs)
        for part in read.parts:
            self._logs.take("", [part], read.now)
            # A megabyte takes 40 ms.
            await asyncio.sleep(0)
        if self.client_of is not None and (self._status.stage == "running" or not self.query.job):
            before = {node for node, facts in self._nodes.items() if facts.problem}
            await self._ask_nodes(places)
            if any(facts.problem for node, facts in self._nodes.items() if node not in before):
                await self._ask_slurm(at_once=True)
        if self._addresses is None and self._logs.settings.values("MASTER_ADDR"):
            self._addresses = await asyncio.to_thread(_addresses, self._status.nodes)
        facts = JobFacts(
            *(self._status, self._logs, self.query.idle, time.time(), dict(self._nodes), self._addresses or {}),
            full=read.full,
        )
        self.report = replace(report_of(facts, self._unread(read)), running=self.running())
        return self.report

    async def _ask_slurm(self, *, at_once: bool = False) -> None:
        now = self._clock()
        if not self.query.job or self._status.stage == "ended":
            return
        if at_once or self._asked is None or now - self._asked >= ASK_EVERY:
            self._asked = now
            self._status = await asyncio.to_thread(status_of, self.query.job, self._status)
            if self._status.nodes and not self.query.nodes:
                self._logs.nodes = list(self._status.nodes)

    @property
    def _is_of_another_user(self) -> bool:
        return self._status.owner != os.getuid()

    def _places(self) -> _Places:
        """Return the patterns of the user and those of Slurm, and which of the files that match may be read.

        Who submits a job names its output, without a right to that file: it has to belong to that user.
        """
        status, visible = self._status, self.query.assistant
        fields, outputs = status.letters, status.outputs
        if visible and self._is_of_another_user:
            outputs = ()
        if self.query.logs:
            # The output of the batch script has what srun prints about its tasks.
            paths = [job_logs.pattern_of(path, fields, literal=True) for path in outputs if path.startswith("/")]
        else:
            paths = job_logs.usual_patterns(outputs, fields)
        owner = (-1 if status.owner is None else status.owner) if self._is_of_another_user else None
        own = _Place(job_logs.patterns(self.query.logs, fields), log_files.Access(None, visible))
        return _Places(own, _Place(paths, log_files.Access(owner, visible)))

    async def _ask_nodes(self, places: _Places) -> None:
        needed = self._needed()
        asked = self._logs.nodes if self.every else list(needed)
        await asyncio.gather(*(self._ask_node(node, places if needed.get(node) else None) for node in asked))

    def _needed(self) -> dict[str, bool]:
        """Return the nodes that have something not visible here; True if their logs are missing."""
        # With --logs, the output of the batch script does not replace those of the nodes.
        batch = set(self._status.outputs) if self.query.logs else set()
        here = {file.node for (reader, path), file in self._logs.files.items() if not reader and path not in batch}
        gpus = {file.node for (reader, _), file in self._logs.files.items() if not reader and file.stream == "gpu"}
        needed = {node: node not in here and "" not in here for node in self._logs.nodes}
        return {node: logs for node, logs in needed.items() if logs or node not in gpus}

    async def _ask_node(self, node: str, places: _Places | None) -> None:
        assert self.client_of is not None
        before = self._nodes.get(node, NodeFacts())
        known = [[path, one.inode, one.offset] for path, one in self._logs.known(node).items()]
        wanted = not before.addresses
        args = {"known": known, "job": self.query.job, "addresses": wanted, "prefixes": list(LIBRARIES)}
        if places is not None:
            args |= {"patterns": places.user.patterns, "outputs": places.slurm.patterns}
            args |= places.slurm.access._asdict()
        reply = await ask_node(self.client_of, node, "job", args, NODE_DEADLINE, _MOST_TEXT)
        if reply.value is None:
            self._nodes[node] = NodeFacts(most_ranks=before.most_ranks, problem=reply.problem)
            return
        try:
            self._nodes[node] = self._take(node, reply.value, reply.parts, before)
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            self._nodes[node] = NodeFacts(problem=f"its answer cannot be read: {type(error).__name__}")

    def _take(self, node: str, value: Message, parts: list[Message], before: NodeFacts) -> NodeFacts:
        own = [part for part in parts if not self._is_of_another(node, str(part["path"]), int(part["inode"]))]
        self._logs.take(node, own, float(value["now"]))
        files = self._logs.of(node, "gpu")
        fresh = bool(files) and (self._logs.age(files[-1]) or 0.0) <= STALE
        if isinstance(rows := value.get("gpus"), list) and rows and not fresh:
            self._logs.take_gpus(node, rows[:64], time.time())
        self._take_variables(node, value.get("variables"))
        listed = value.get("ranks")
        # A rank of a shell script may have several processes.
        ranks = {int(one["rank"]): str(one["state"])[:2] for one in (listed if isinstance(listed, list) else [])}
        addresses = tuple(str(one)[:80] for one in value.get("addresses") or before.addresses)[:64]
        most = max(before.most_ranks, len(ranks))
        since = None if len(ranks) == most else before.fewer_since or time.time()
        return NodeFacts(tuple(ranks.items()), most, since, addresses)

    def _take_variables(self, node: str, found: Any) -> None:
        """Take the variables of the ranks on a node: they count more than what its logs print."""
        for name, values in list(found.items())[:_MOST_VARIABLES] if isinstance(found, dict) else ():
            texts = [one[:200] for one in values if isinstance(one, str)] if isinstance(values, list) else []
            if texts and isinstance(name, str) and is_variable(name):
                self._logs.settings.of.setdefault(node, {})[name] = joined(texts)[:400]

    def _is_of_another(self, node: str, path: str, inode: int) -> bool:
        """Return True for a shared file: it is being read already, or it bears the name of another node."""
        if (owner := job_logs.node_of(path, self._logs.nodes)) or (node, path) in self._logs.files:
            return owner not in ("", node)
        return any(file.known is not None and file.known.inode == inode for file in self._logs.at(path))

    def _unread(self, read: _Read) -> list[str]:
        status = self._status
        unread = [status.problem] if status.problem and self.query.job else []
        unread += read.problems[:4]
        if self.query.assistant and status.outputs and self._is_of_another_user:
            unread.append(f"the output of job {status.job} belongs to another user: not read for assistants")
        absent = job_logs.missing(self.query.logs) if len(self.query.logs) > 1 else ""
        unread += [f"{absent}: no such file or folder"] if absent and not self._logs.at(absent) else []
        silent: dict[str, list[str]] = {}
        needed = self._needed()
        for node, reported in self._nodes.items():
            # A job that ends takes the node side along, which is its step.
            if reported.problem and node in needed and not (status.stage == "ended" or status.state == "COMPLETING"):
                silent.setdefault(reported.problem, []).append(node)
        unread += [f"{fold(nodes)}: {text}" for text, nodes in silent.items()]
        if not self._logs.files and status.stage not in ("waiting", "unknown"):
            where = ", ".join(self.query.logs or status.outputs) or "the job has no output files"
            unread.append(f"no logs were found ({where}); name them with {argument('logs')}")
        return [one_line(text, 500) for text in unread]


def _read(places: _Places, known: Mapping[str, log_files.Known], search: log_files.Search) -> _Read:
    paths: dict[tuple[int, int], str] = {}
    accesses: dict[str, log_files.Access] = {}
    for place in places:
        for path in search.find(place.patterns):
            with contextlib.suppress(OSError):
                about = os.stat(path) if job_logs.is_log(path) else None
                if about is None or not stat.S_ISREG(about.st_mode):
                    continue
                accesses.setdefault(path, place.access)
                # A file is read once, under its own name rather than the one of a link.
                other = paths.setdefault((about.st_dev, about.st_ino), path)
                if other != path and os.path.islink(other) and accesses[other] == accesses[path]:
                    paths[about.st_dev, about.st_ino] = path
    parts: list[Message] = []
    problems = [] if search.problem is None else [search.problem]
    for access in dict.fromkeys(place.access for place in places):
        named = [path for path in paths.values() if accesses[path] == access]
        more, unread = log_files.read(named, known, BUDGET, access)
        parts += more
        problems += unread
    named = [pattern for pattern in places.user.patterns if pattern.endswith("/*")]
    folders = dict.fromkeys(os.path.dirname(one) for one in [*paths.values(), *named])
    full = tuple(folder for folder in list(folders)[:_MOST_FOLDERS] if _is_full(folder))
    return _Read(list(paths.values()), parts, problems, time.time(), full)


def _is_full(folder: str) -> bool:
    try:
        about = os.statvfs(folder)
    except (OSError, ValueError):
        return False
    return bool(about.f_blocks) and (not about.f_bavail or (bool(about.f_files) and not about.f_favail))


def _addresses(nodes: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return names and addresses of all Slurm nodes; the name service is asked about the job's nodes. Blocks."""
    known = node_addresses()
    addresses = {node: frozenset({address}) for node, address in known.items()}
    names = [known.get(node, node) for node in nodes[:_MOST_NAMES]]
    pool = ThreadPoolExecutor(16)
    asked = [pool.submit(_look_up, name) for name in names]
    end = time.monotonic() + NAMES_DEADLINE
    for node, name, answer in zip(nodes, names, asked, strict=False):
        with contextlib.suppress(TimeoutError):
            addresses[node] = addresses.get(node, frozenset()) | {
                name,
                *answer.result(max(0.01, end - time.monotonic())),
            }
    # A name service that does not answer is left alone.
    pool.shutdown(wait=False, cancel_futures=True)
    return addresses


def _look_up(name: str) -> set[str]:
    try:
        rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {str(row[4][0]) for row in rows if not str(row[4][0]).startswith("127.")}
