"""Evidence about a running job: bounded history of what its nodes showed, and the latest reading of other sources.

The value of a source is a JSON object from a node, of which nothing is trusted:

- ``activity``: the value of the probe ``activity``, taken apart into a `JobSample`.
- ``ras``: the value of the probe ``ras`` with ``text``, the latest answer, JSON or text.
- ``stacks``, ``kernel``: the value of the probes ``stacks`` and ``evidence``.
- ``log``: ``iteration``, ``interval`` (usual time (s) between iterations), ``late`` and ``quiet`` (s since the last
  iteration and output), ``timeout`` (the line of PyTorch's watchdog), of all logs together, with the node "".
- ``flight``, ``inspector``: what a reader concludes: ``{"sentences": [text], "suspects": [{"rank", "node", "pid",
  "gpu"}], "hangs": true|false|null, "blind": text}``, all optional.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from fabtui.model.events import JobEvidence
from fabtui.model.job_tracks import JobTracks
from fabtui_node.parsers.lines import json_list, json_number, json_object, json_whole

#: History of a node: every sample of the last _DENSE seconds, then one per _THIN seconds up to _LONGEST seconds.
_DENSE, _THIN, _LONGEST = 45.0, 10.0, 1800.0
#: Maximum numbers of nodes, of samples of all nodes together, and of earlier readings of another source on a node.
_MOST_NODES = 4096
_MOST_SAMPLES = 40_000
_MOST_READINGS = 4
#: Maximum number of readings of logs, whose iterations are counted over time.
_MOST_OF_LOG = 600
#: Maximum numbers of ranks, GPUs, NICs, kernel reports and variables of a sample.
_MOST_RANKS, _MOST_GPUS, _MOST_NICS, _MOST_REPORTS, _MOST_VARIABLES = 256, 64, 64, 64, 16
_TEXT = 200


class JobSource(StrEnum):
    """Sources of evidence about a running job."""

    ACTIVITY = "activity"
    RAS = "ras"
    STACKS = "stacks"
    FLIGHT = "flight"
    LOG = "log"
    INSPECTOR = "inspector"
    KERNEL = "kernel"


class RankProcess(NamedTuple):
    """Process of a rank: what does not change while it runs."""

    node: str
    rank: int
    pid: int
    local_rank: int | None
    world: int | None  #: Number of ranks of the job.
    name: str  #: Name of the program.
    gpus: tuple[int, ...]  #: Its GPUs as NVML numbers them.
    job: str  #: Id of its Slurm job, or "".
    env: tuple[tuple[str, str], ...] = ()  #: Some variables of its environment.

    @property
    def endpoint(self) -> str:
        """Endpoint of the rank: ``n061:1``, by its GPU, else by its rank within the node."""
        index = self.gpus[0] if self.gpus else self.rank if self.local_rank is None else self.local_rank
        return f"{self.node}:{index}"


class RankSample(NamedTuple):
    """Process of a rank at one time; None where a value is unknown."""

    process: RankProcess
    state: str  #: ``R``, ``S``, ``D``, ``T``.
    wait: str | None  #: Wait channel of its main thread.
    cpu: float | None  #: Processor time (s) of its main thread so far.
    cpu_all: float | None  #: Processor time (s) of all its threads so far.
    age: float | None  #: Time (s) since it started.
    files: int | None  #: Bytes read from and written to files so far.
    written: int | None  #: Bytes written to storage so far.


class GpuSample(NamedTuple):
    """A GPU at one time; None where a value is unknown."""

    number: int  #: As NVML numbers it.
    uuid: str
    utilization: float | None  #: Percent.
    power: float | None  #: W.
    limit: float | None  #: Power limit (W).
    clock: float | None  #: SM clock (MHz).
    throttle: tuple[str, ...]  #: Reasons why its clock is limited.
    used: int | None  #: Memory in use (bytes).
    tx: int | None  #: Bytes sent over its NVLinks so far.
    rx: int | None  #: Bytes received over its NVLinks so far.
    sm: float | None  #: Utilization of its SMs (percent) since the sample before, by GPM.
    pids: tuple[int, ...]  #: Processes with a context.


class NicSample(NamedTuple):
    """Counters of a port or an interface at one time."""

    name: str
    rx: int | None
    tx: int | None
    errors: int | None
    retransmits: int | None


class JobSample(NamedTuple):
    """A node of a running job at one time."""

    node: str
    time: float  #: Epoch seconds, of the event.
    clock: float  #: Monotonic clock (s) of the node, for rates.
    ranks: tuple[RankSample, ...]
    gpus: tuple[GpuSample, ...]
    nics: tuple[NicSample, ...]
    oom: int | None  #: Processes of the job's cgroup that the kernel has killed for memory, so far.
    problems: tuple[str, ...]  #: What could not be read.

    def gpu(self, number: int) -> GpuSample | None:
        """Return the GPU with a number."""
        return next((one for one in self.gpus if one.number == number), None)


class JobReading(NamedTuple):
    """Value of a source on a node, with its time (epoch seconds)."""

    time: float
    value: Mapping[str, Any]


_SOURCES = frozenset(map(str, JobSource))


class _History:
    """Samples of a node: all of the last seconds, and some of the time before."""

    def __init__(self) -> None:
        self.recent: deque[JobSample] = deque()
        self.earlier: deque[JobSample] = deque()

    def add(self, sample: JobSample, most: int) -> None:
        """Add the latest sample; keep at most a number of them."""
        recent, earlier = self.recent, self.earlier
        recent.append(sample)
        while sample.time - recent[0].time > _DENSE or len(recent) > most // 2:
            leaving = recent.popleft()
            if not earlier or leaving.time - earlier[-1].time >= _THIN:
                earlier.append(leaving)
        while earlier and (sample.time - earlier[0].time > _LONGEST or len(earlier) > most // 2):
            earlier.popleft()


class JobEvidenceLog:
    """History of the samples of each node, and the latest readings of other sources."""

    def __init__(self) -> None:
        self.revision = 0  #: Incremented by each reading.
        self.tracks = JobTracks()  #: What ranks and GPUs did so far.
        self._samples: dict[str, _History] = {}
        self._readings: dict[tuple[str, str], deque[JobReading]] = {}
        self._reports: dict[str, deque[JobReading]] = {}
        self._processes: dict[RankProcess, RankProcess] = {}

    def __bool__(self) -> bool:
        return bool(self._samples or self._readings)

    @property
    def nodes(self) -> list[str]:
        """Nodes with samples, in the order of their first one."""
        return list(self._samples)

    def samples(self, node: str) -> Sequence[JobSample]:
        """Return the samples of a node, the oldest first: all of the last seconds, some of the time before."""
        found = self._samples.get(node)
        return () if found is None else [*found.earlier, *found.recent]

    def latest(self, node: str) -> JobSample | None:
        """Return the latest sample of a node."""
        found = self._samples.get(node)
        return None if found is None else found.recent[-1]

    def readings(self, source: JobSource) -> Iterator[tuple[str, Sequence[JobReading]]]:
        """Yield the nodes that have readings of a source other than ``activity``, with these, the oldest first."""
        return ((node, found) for (name, node), found in self._readings.items() if name == source)

    def reading(self, source: JobSource, node: str) -> JobReading | None:
        """Return the latest reading of a source other than ``activity`` on a node."""
        found = self._readings.get((source, node))
        return found[-1] if found else None

    def kernel_reports(self, node: str) -> Sequence[JobReading]:
        """Return what the kernel of a node has reported since the first sample, the oldest first."""
        return self._reports.get(node, ())

    def take(self, event: JobEvidence) -> None:
        """Take in a reading."""
        self.revision += 1
        if event.source != JobSource.ACTIVITY:
            if event.source in _SOURCES and len(self._readings) < len(_SOURCES) * _MOST_NODES:
                most = _MOST_OF_LOG if event.source == JobSource.LOG else _MOST_READINGS
                kept = self._readings.setdefault((event.source, event.node), deque(maxlen=most))
                kept.append(JobReading(event.time, event.value))
            return
        if event.node not in self._samples and len(self._samples) >= _MOST_NODES:
            return
        share = max(60, _MOST_SAMPLES // (len(self._samples) + 1))
        before, sample = self.latest(event.node), self._sample(event)
        self._samples.setdefault(event.node, _History()).add(sample, share)
        self.tracks.take(before, sample)
        reports = [one for one in json_list(event.value.get("kernel")) if isinstance(one, dict)]
        if reports:
            kept = self._reports.setdefault(event.node, deque(maxlen=_MOST_REPORTS))
            kept.extend(JobReading(event.time, one) for one in reports[-_MOST_REPORTS:])

    def _sample(self, event: JobEvidence) -> JobSample:
        value = event.value
        ranks = []
        for one in json_list(value.get("ranks"))[:_MOST_RANKS]:
            found = self._rank(event.node, one) if isinstance(one, dict) else None
            if found is not None:
                ranks.append(found)
        gpus = [_gpu(one) for one in json_list(value.get("gpus"))[:_MOST_GPUS] if isinstance(one, dict)]
        nics = [_nic(name, one) for name, one in list(json_object(value, "nics").items())[:_MOST_NICS]]
        return JobSample(
            event.node,
            event.time,
            json_number(value.get("clock")) or event.time,
            tuple(ranks),
            tuple(one for one in gpus if one is not None),
            tuple(one for one in nics if one is not None),
            json_whole(value.get("oom")),
            tuple(_text(one) for one in json_list(value.get("problems"))[:_MOST_REPORTS] if isinstance(one, str)),
        )

    def _rank(self, node: str, value: Mapping[str, Any]) -> RankSample | None:
        rank, pid = json_whole(value.get("rank")), json_whole(value.get("pid"))
        if rank is None or pid is None:
            return None
        env = json_object(value, "env")
        process = RankProcess(
            node,
            rank,
            pid,
            json_whole(value.get("local_rank")),
            json_whole(value.get("world")),
            _text(value.get("name")),
            tuple(index for one in json_list(value.get("gpus"))[:_MOST_GPUS] if (index := json_whole(one)) is not None),
            _text(value.get("job")),
            tuple((_text(name), _text(one)) for name, one in list(env.items())[:_MOST_VARIABLES] if _text(one)),
        )
        if len(self._processes) > 4 * _MOST_NODES:
            self._processes.clear()
        return RankSample(
            # Thousands of samples share it.
            self._processes.setdefault(process, process),
            _text(value.get("state"))[:1],
            _text(value.get("wait")) or None,
            json_number(value.get("cpu")),
            json_number(value.get("cpu_all")),
            json_number(value.get("age")),
            json_whole(value.get("files")),
            json_whole(value.get("written")),
        )


def _gpu(value: Mapping[str, Any]) -> GpuSample | None:
    index = json_whole(value.get("index"))
    if index is None:
        return None
    return GpuSample(
        index,
        _text(value.get("uuid")),
        json_number(value.get("util")),
        json_number(value.get("power")),
        json_number(value.get("limit")),
        json_number(value.get("clock")),
        tuple(_text(one) for one in json_list(value.get("throttle"))[:_MOST_VARIABLES] if isinstance(one, str)),
        json_whole(value.get("used")),
        json_whole(value.get("nvlink_tx")),
        json_whole(value.get("nvlink_rx")),
        json_number(value.get("sm")),
        tuple(pid for one in json_list(value.get("pids"))[:_MOST_RANKS] if (pid := json_whole(one)) is not None),
    )


def _nic(name: Any, value: Any) -> NicSample | None:
    if not isinstance(name, str) or not isinstance(value, dict):
        return None
    return NicSample(
        name[:_TEXT],
        json_whole(value.get("rx")),
        json_whole(value.get("tx")),
        json_whole(value.get("errors")),
        json_whole(value.get("retransmits")),
    )


def _text(value: Any) -> str:
    return value[:_TEXT] if isinstance(value, str) else ""
