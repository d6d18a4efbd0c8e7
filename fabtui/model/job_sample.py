"""A node of a running job at one time, read from an untrusted value of the probe ``activity``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from fabtui.model.events import JobEvidence
from fabtui_node.parsers.lines import json_list, json_number, json_object, json_whole

Reader = Callable[[Any], Any]

#: Maximum numbers of ranks, GPUs, NICs, problems and variables of a sample.
_MOST_RANKS, _MOST_GPUS, _MOST_NICS, _MOST_PROBLEMS, _MOST_VARIABLES = 256, 64, 64, 64, 16
_MOST_PROCESSES = 32_768
_TEXT, _LONG = 200, 400
#: Least processor time (s) of a rank without a GPU: importing PyTorch takes more.
_LEAST_CPU = 1.0
_NIC: tuple[tuple[str, Reader], ...] = tuple((name, json_whole) for name in ("rx", "tx", "errors", "retransmits"))


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
    connected: bool | None = None  #: Whether it holds a TCP connection, as each rank of several does.
    far: str = ""  #: What is far from its GPU, with the line that mends it.

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
    ranks = [_rank(event.node, rank, known) for rank in json_list(value.get("ranks"))[:_MOST_RANKS]]
    gpus = [GpuSample(*_fields(gpu, _GPU)) for gpu in json_list(value.get("gpus"))[:_MOST_GPUS] if _has(gpu, "index")]
    nics = list(json_object(value, "nics").items())[:_MOST_NICS]
    return JobSample(
        event.node,
        event.time,
        json_number(value.get("clock")) or event.time,
        tuple(rank for rank in ranks if rank is not None),
        tuple(gpus),
        tuple(
            NicSample(name[:_TEXT], *_fields(nic, _NIC))
            for name, nic in nics
            if isinstance(name, str) and isinstance(nic, dict)
        ),
        json_whole(value.get("oom")),
        _texts(value.get("problems"), _MOST_PROBLEMS),
    )


def _has(value: Any, *names: str) -> bool:
    """Return True if a value is an object with whole numbers of these names."""
    return isinstance(value, dict) and all(json_whole(value.get(name)) is not None for name in names)


def _fields(value: Mapping[str, Any], readers: Iterable[tuple[str, Reader]]) -> Iterator[Any]:
    return (reader(value.get(name)) for name, reader in readers)


def _rank(node: str, value: Any, known: dict[RankProcess, RankProcess]) -> RankSample | None:
    if not _has(value, "rank", "pid"):
        return None
    env = list(json_object(value, "env").items())[:_MOST_VARIABLES]
    variables = tuple((_text(name), _text(text)) for name, text in env if _text(text))
    process = RankProcess(node, *_fields(value, _PROCESS))._replace(env=variables)
    if len(known) > _MOST_PROCESSES:
        known.clear()
    # Thousands of samples share it.
    return RankSample(known.setdefault(process, process), *_fields(value, _RANK))


def _text(value: Any) -> str:
    return value[:_TEXT] if isinstance(value, str) else ""


def _texts(value: Any, most: int) -> tuple[str, ...]:
    return tuple(_text(text) for text in json_list(value)[:most] if isinstance(text, str))


def _numbers(value: Any, most: int) -> tuple[int, ...]:
    return tuple(index for entry in json_list(value)[:most] if (index := json_whole(entry)) is not None)


#: Names of the fields of each record in the value, in the order of its class, and what reads them.
_PROCESS: tuple[tuple[str, Reader], ...] = (
    *(("rank", json_whole), ("pid", json_whole), ("local_rank", json_whole), ("world", json_whole), ("name", _text)),
    *(("gpus", partial(_numbers, most=_MOST_GPUS)), ("job", _text)),
)
_RANK: tuple[tuple[str, Reader], ...] = (
    *(("state", lambda state: _text(state)[:1]), ("wait", lambda wait: _text(wait) or None), ("cpu", json_number)),
    *(("cpu_all", json_number), ("age", json_number), ("files", json_whole), ("written", json_whole)),
    ("connected", lambda known: known if isinstance(known, bool) else None),
    ("far", lambda value: value[:_LONG] if isinstance(value, str) else ""),
)
_GPU: tuple[tuple[str, Reader], ...] = (
    *(("index", json_whole), ("uuid", _text), ("util", json_number), ("power", json_number), ("limit", json_number)),
    *(("clock", json_number), ("throttle", partial(_texts, most=_MOST_VARIABLES)), ("used", json_whole)),
    *(("nvlink_tx", json_whole), ("nvlink_rx", json_whole), ("sm", json_number)),
    ("pids", partial(_numbers, most=_MOST_RANKS)),
)
