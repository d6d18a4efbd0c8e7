"""Report about a job at one time: state, a row a node, findings, iteration times, settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from fabtui.diagnosis.finding import Finding, Severity
from fabtui.diagnosis.job.job_verdict import JobState, JobVerdict
from fabtui.diagnosis.job.logs.gpu_history import NodeGpus
from fabtui.diagnosis.job.logs.job_logs import JobLogs, Stream
from fabtui.exit_status import ALL_OK, BAD, NOT_TESTED
from fabtui.scheduler.slurm import JobStatus

Verdict = Literal["healthy", "suspect", "hangs", "waiting", "ended", "failed", "unknown"]


class NodeRow(NamedTuple):
    """State of a node within a job. Unknown values are None."""

    node: str  #: Its name.
    state: str  #: ``ok``, ``suspect`` or ``no logs``.
    quiet: float | None  #: How long (s) its output has not grown.
    stream: Stream | None  #: The kind of output that was written last.
    iteration: str  #: The last iteration it has printed, such as ``30/50``; "" if it prints none.
    sample: NodeGpus | None  #: Its GPUs.
    sample_age: float | None  #: How old (s) that sample is.
    errors: int  #: Number of lines with errors.
    ranks: int | None  #: Number of its ranks, where the node was asked.


@dataclass(frozen=True)
class NodeFacts:
    """Answer of a node itself, over an open link."""

    #: The ranks of its processes, each with a state of the kernel (``R``, ``S``, ``D``, ``T``).
    ranks: tuple[tuple[int, str], ...] | None = None
    most_ranks: int = 0  #: The largest number of ranks so far.
    #: Since when (s since the epoch) there are fewer ranks than that; None if there are not.
    fewer_since: float | None = None
    addresses: tuple[str, ...] = ()  #: Its network addresses.
    problem: str = ""  #: Why it did not answer, or "".


@dataclass(frozen=True)
class JobFacts:
    """Everything that the rules look at."""

    status: JobStatus  #: What the scheduler knows.
    logs: JobLogs  #: The content of the logs.
    idle: float = 180.0  #: Time (s) without any output after which a job counts as silent.
    when: float = 0.0  #: Now (s since the epoch, our clock).
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)  #: Answers of the nodes themselves.
    #: Names and addresses of nodes by node, as Slurm and the name service know them; also of nodes that are not in the
    #: job.
    addresses: Mapping[str, frozenset[str]] = field(default_factory=dict)
    full: tuple[str, ...] = ()  #: Folders of logs in which nothing can be written for lack of space.

    @property
    def silence_limit(self) -> float:
        """Time (s) without output from any node that is too long: five printed iterations, at least ``idle``."""
        return max(self.idle, 5.0 * (self.logs.iterations.interval or 0.0))

    @property
    def shows_work(self) -> bool:
        """True if an iteration, a sample of GPUs or a rank was seen; files without errors may be no logs of a job."""
        samples = any(one.latest is not None for one in self.logs.gpus.values())
        ranks = any(one.ranks for one in self.nodes.values())
        return self.logs.iterations.latest is not None or samples or ranks


@dataclass(frozen=True)
class JobReport:
    """A job at one time."""

    facts: JobFacts  #: What the rules have looked at; ``facts.logs`` has the ends of the files.
    rows: tuple[NodeRow, ...]  #: One for each node.
    findings: tuple[Finding, ...]  #: What is wrong, the most severe first.
    unread: tuple[str, ...] = ()  #: What could not be read, one line each.
    running: JobVerdict | None = None  #: What its ranks do, None where they were not observed.

    @property
    def status(self) -> JobStatus:
        return self.facts.status

    @property
    def wrong(self) -> list[Finding]:
        return [one for one in self.findings if one.severity is not Severity.NOTE]

    @property
    def verdict(self) -> Verdict:
        stage = self.status.stage
        if stage == "waiting":
            return "waiting"
        if stage == "ended" and self.status.state != "COMPLETED":
            return "failed"
        running = self.running if stage == "running" or not self.status.job else None
        hangs = running is not None and running.state is JobState.HANGS
        if hangs or any(one.facts.get("hangs") for one in self.findings):
            return "hangs"
        if self.wrong or (running is not None and running.bad):
            return "suspect"
        if stage == "ended":
            return "ended"
        # Logs without a job of a scheduler speak for themselves.
        known = stage == "running" or (not self.status.job and self.facts.shows_work)
        return "healthy" if known else "unknown"

    @property
    def exit_code(self) -> int:
        """Return 1 if something is wrong, else 3 if something could not be read, else 0."""
        if self.verdict in ("suspect", "hangs", "failed"):
            return BAD
        return NOT_TESTED if self.unread or self.verdict == "unknown" else ALL_OK
