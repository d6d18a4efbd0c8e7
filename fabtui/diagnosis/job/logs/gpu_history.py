"""Use of a node's GPUs over time, from ``gpustat -i`` or from NVML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from fabtui_node.parsers.lines import json_number

_GPU = re.compile(
    r"^\[(\d{1,3})\] ([^|]{1,100})\|([^|]{0,60})\|\s{0,20}(\d{1,9}|\?{1,9}) / {1,20}(\d{1,9}|\?{1,9}) MB \|(.*)$",
    re.ASCII,
)
_PERCENT = re.compile(r"(\d{1,3}) %", re.ASCII)
_POWER = re.compile(r"(\d{1,5}) / +(?:\d{1,5}|\?{1,3}) W", re.ASCII)
#: ``n060  Wed Jun 14 16:08:12 2023  470.57.02``
_HEADER = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {1,3}(\w{3} {1,3}\d{1,2} {1,3}\d\d:\d\d:\d\d {1,3}\d{4})\b", re.ASCII
)
_MEGABYTE = 1 << 20


class Gpu(NamedTuple):
    """A GPU at one time. Unknown values are None."""

    number: int  #: Its number on the node.
    utilization: int | None  #: In percent.
    used: int | None  #: Memory in use (bytes).
    total: int | None  #: Its memory (bytes).
    power: float | None  #: In W.
    processes: bool | None  #: Whether a process uses it.

    @property
    def busy(self) -> bool | None:
        """True if a process is on it or it computes; None if neither is known."""
        if self.processes or (self.utilization or 0) > 0:
            return True
        return None if self.processes is None and self.utilization is None else False


class NodeGpus(NamedTuple):
    """The GPUs of a node at one time (s since the epoch; None if the source has no clock)."""

    when: float | None
    gpus: tuple[Gpu, ...]

    @property
    def busy(self) -> int:
        return sum(gpu.busy is True for gpu in self.gpus)


class GpuHistory:
    """Latest sample of a node, and since when its GPUs are idle."""

    def __init__(self) -> None:
        self._complete: NodeGpus | None = None
        self._lines: dict[int, Gpu] = {}
        self._when: float | None = None
        self.was_busy = False  #: Whether any sample has shown work.
        self.first_busy: float | None = None  #: Time of the first sample with work, if its source has a clock.
        self.last_busy: float | None = None  #: The same of the last one.
        self._idle_from: NodeGpus | None = None
        self._idle_count = 0

    @property
    def latest(self) -> NodeGpus | None:
        """The latest complete sample; the last lines of a text are one if they have as many GPUs as the one before."""
        if self._lines and (self._complete is None or len(self._lines) >= len(self._complete.gpus)):
            return self._sample()
        return self._complete

    @property
    def idle_samples(self) -> int:
        """Number of complete samples at the end in which no GPU is busy; 0 if one is busy now."""
        return 0 if self.latest is None or self.latest.busy else self._idle_count

    @property
    def idle_since(self) -> float | None:
        """Time of the first of these samples, if its source has a clock."""
        return self._idle_from.when if self._idle_from is not None and self.idle_samples else None

    def take_line(self, line: str) -> None:
        """Take a line of ``gpustat -i``: a header with host and date, or a GPU."""
        if header := _HEADER.search(line[:200]):
            self._end()
            self._when = _time(header[1])
        elif (gpu := gpu_of(line)) is not None:
            if gpu.number in self._lines:
                # Without a header, the first GPU begins the next sample.
                self._end()
            self._lines[gpu.number] = gpu

    def take(self, rows: Iterable[Mapping[str, Any]], when: float) -> None:
        """Take the GPUs that the probe ``job`` found by NVML at ``when``."""
        self._add(NodeGpus(when, tuple(_of_nvml(row) for row in rows if isinstance(row, Mapping))))

    def _sample(self) -> NodeGpus:
        return NodeGpus(self._when, tuple(self._lines[index] for index in sorted(self._lines)))

    def _end(self) -> None:
        if self._lines:
            self._add(self._sample())
        self._lines = {}

    def _add(self, sample: NodeGpus) -> None:
        self._complete = sample
        if sample.busy:
            self.was_busy = True
            self.first_busy = self.first_busy or sample.when
            self.last_busy = sample.when
            self._idle_from, self._idle_count = None, 0
        else:
            self._idle_from = self._idle_from or sample
            self._idle_count += 1


def idle_among(samples: Mapping[str, NodeGpus]) -> list[str]:
    """Return the nodes without a process or use of a GPU, if all GPUs of all others, at least as many, are busy."""
    idle = [
        node
        for node, sample in samples.items()
        if sample.gpus and not sample.busy and all(gpu.processes is False for gpu in sample.gpus)
    ]
    others = [sample for node, sample in samples.items() if node not in idle and sample.gpus]
    busy = all(sample.busy == len(sample.gpus) for sample in others)
    return idle if busy and len(others) >= max(1, len(idle)) else []


def gpu_of(line: str) -> Gpu | None:
    """Return the GPU of a line of gpustat, or None."""
    if not line.startswith("[") or (found := _GPU.match(line[:2000])) is None:
        return None
    middle = found[3]
    percent, power = _PERCENT.search(middle), _POWER.search(middle)
    used, total = (int(text) * _MEGABYTE if text.isascii() and text.isdecimal() else None for text in found.group(4, 5))
    return Gpu(
        int(found[1]),
        int(percent[1]) if percent else None,
        used,
        total,
        float(power[1]) if power else None,
        bool(found[6].strip()),
    )


def _of_nvml(row: Mapping[str, Any]) -> Gpu:
    names = ("index", "utilization", "memory_used", "memory", "processes")
    index, utilization, used, total, processes = (
        None if (value := json_number(row.get(name))) is None else int(value) for name in names
    )
    busy = None if processes is None else processes > 0
    return Gpu(index or 0, utilization, used, total, json_number(row.get("power")), busy)


def _time(text: str) -> float | None:
    try:
        return datetime.strptime(" ".join(text.split()), "%b %d %H:%M:%S %Y").timestamp()
    except (ValueError, OverflowError, OSError):
        return None
