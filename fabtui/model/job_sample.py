"""A node of a running job at one time, read from an untrusted value of the probe ``activity``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fabtui.model.events import JobEvidence
from fabtui_node.parsers.lines import json_list, json_number, json_object, json_whole

#: Maximum numbers of ranks, GPUs, NICs, problems and variables of a sample.
_MOST_RANKS, _MOST_GPUS, _MOST_NICS, _MOST_PROBLEMS, _MOST_VARIABLES = 256, 64, 64, 64, 16
_MOST_PROCESSES = 32_768
_TEXT = 200
#: Least processor time (s) of a rank without a GPU: importing PyTorch takes more.
_LEAST_CPU = 1.0


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

    @property
    def at_work(self) -> bool:
        """True if it is more than a placeholder that holds an allocation, such as ``srun sleep``."""
        return is_at_work(bool(self.process.gpus), self.cpu_all)


def is_at_work(has_gpu: bool, cpu_all: float | None) -> bool:
    """Return True if a process with a rank has a GPU, or has taken processor time (s)."""
    return has_gpu or (cpu_all or 0.0) >= _LEAST_CPU


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
        # Most nodes number theirs without gaps.
        if number < len(self.gpus) and self.gpus[number].number == number:
            return self.gpus[number]
        return next((one for one in self.gpus if one.number == number), None)


def job_sample(event: JobEvidence, known: dict[RankProcess, RankProcess]) -> JobSample:
    """Return the sample in an event of the source ``activity``; ``known`` are the processes that samples share."""
    value = event.value
    ranks = []
    for one in json_list(value.get("ranks"))[:_MOST_RANKS]:
        found = _rank(event.node, one, known) if isinstance(one, dict) else None
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
        tuple(_text(one) for one in json_list(value.get("problems"))[:_MOST_PROBLEMS] if isinstance(one, str)),
    )


def _rank(node: str, value: Mapping[str, Any], known: dict[RankProcess, RankProcess]) -> RankSample | None:
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
    if len(known) > _MOST_PROCESSES:
        known.clear()
    return RankSample(
        # Thousands of samples share it.
        known.setdefault(process, process),
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
