"""Evidence about a running job: bounded history of what its nodes showed, and the latest reading of other sources.

The value of a source is a JSON object from a node, of which nothing is trusted:

- ``activity``: the value of the probe ``activity``, read into a `JobSample`.
- ``ras``: the value of the probe ``ras`` with ``text``, the latest answer, JSON or text.
- ``stacks``, ``kernel``, ``network``: the value of the probes ``stacks``, ``evidence`` and ``job-network``.
- ``log``, of all logs together, with the node "": ``iteration``; ``interval``, the usual time (s) between iterations.
  ``late`` and ``quiet`` are the times (s) since the last iteration and output. ``timeout`` is the line of PyTorch's
  watchdog.
- ``flight``, ``inspector``, ``ras`` of a file: what a reader concludes: ``{"sentences": [text], "suspects": [{"rank",
  "node", "pid", "gpu"}], "hangs": true|false|null, "blind": text, "next": [command]}``, all optional.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from fabtui.model.events import JobEvidence
from fabtui.model.job_sample import JobSample, RankProcess, job_sample
from fabtui.model.job_tracks import JobTracks
from fabtui_node.parsers.lines import json_list

#: History of a node: every sample of the last _DENSE seconds, then one per _THIN seconds up to _LONGEST seconds.
_DENSE, _THIN, _LONGEST = 45.0, 10.0, 1800.0
#: Maximum numbers of nodes, of samples of all nodes together, and of earlier readings of another source on a node.
_MOST_NODES = 4096
_MOST_SAMPLES = 40_000
_MOST_READINGS = 4
#: Maximum number of kernel reports of a node.
_MOST_REPORTS = 64


class JobSource(StrEnum):
    """Sources of evidence about a running job."""

    ACTIVITY = "activity"
    RAS = "ras"
    STACKS = "stacks"
    FLIGHT = "flight"
    LOG = "log"
    INSPECTOR = "inspector"
    KERNEL = "kernel"
    NETWORK = "network"


class JobReading(NamedTuple):
    """Value of a source on a node, with its time (epoch seconds)."""

    time: float
    value: Mapping[str, Any]


#: Maximum numbers of readings of logs, whose iterations are counted, and of RAS, whose counts stay or grow.
_MOST_OF = {JobSource.LOG: 600, JobSource.RAS: 16}
_SOURCES = frozenset(map(str, JobSource))


class _History:
    """Samples of a node: all of the last seconds, and some of the time before."""

    def __init__(self) -> None:
        self.recent: deque[JobSample] = deque()
        self.earlier: deque[JobSample] = deque()
        self.kills: int | None = None  #: Kills for memory in the first sample that has them.

    def add(self, sample: JobSample, most: int) -> None:
        """Add the latest sample; keep at most a number of them."""
        recent, earlier = self.recent, self.earlier
        recent.append(sample)
        self.kills = sample.oom if self.kills is None else self.kills
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
        return list(self._samples)

    def samples(self, node: str) -> Sequence[JobSample]:
        """Return the samples of a node, the oldest first: all of the last seconds, some of the time before."""
        history = self._samples.get(node)
        return () if history is None else [*history.earlier, *history.recent]

    def recent(self, node: str, since: float) -> list[JobSample]:
        """Return the samples of a node since a time, as far as all of them are kept; the oldest first."""
        history = self._samples.get(node)
        kept = () if history is None else itertools.takewhile(lambda one: one.time >= since, reversed(history.recent))
        return [*kept][::-1]

    def kills(self, node: str) -> int:
        """Return the processes that the kernel killed for memory since the first sample of a node."""
        history = self._samples.get(node)
        return 0 if history is None or history.kills is None else max(0, (history.recent[-1].oom or 0) - history.kills)

    def latest(self, node: str) -> JobSample | None:
        history = self._samples.get(node)
        return None if history is None else history.recent[-1]

    def readings(self, source: JobSource) -> Iterator[tuple[str, Sequence[JobReading]]]:
        """Yield the nodes that have readings of a source other than ``activity``, with these, the oldest first."""
        return ((node, found) for (name, node), found in self._readings.items() if name == source)

    def reading(self, source: JobSource, node: str) -> JobReading | None:
        """Return the latest reading of a source other than ``activity`` on a node."""
        readings = self._readings.get((source, node))
        return readings[-1] if readings else None

    def kernel_reports(self, node: str) -> Sequence[JobReading]:
        """Return what the kernel of a node has reported since the first sample, the oldest first."""
        return self._reports.get(node, ())

    def take(self, event: JobEvidence) -> None:
        self.revision += 1
        if event.source != JobSource.ACTIVITY:
            if event.source in _SOURCES and len(self._readings) < len(_SOURCES) * _MOST_NODES:
                most = _MOST_OF.get(JobSource(event.source), _MOST_READINGS)
                kept = self._readings.setdefault((event.source, event.node), deque(maxlen=most))
                kept.append(JobReading(event.time, event.value))
            return
        if event.node not in self._samples and len(self._samples) >= _MOST_NODES:
            return
        share = max(60, _MOST_SAMPLES // (len(self._samples) + 1))
        before, sample = self.latest(event.node), job_sample(event, self._processes)
        self._samples.setdefault(event.node, _History()).add(sample, share)
        self.tracks.take(before, sample)
        reports = [one for one in json_list(event.value.get("kernel")) if isinstance(one, dict)]
        if reports:
            kept = self._reports.setdefault(event.node, deque(maxlen=_MOST_REPORTS))
            kept.extend(JobReading(event.time, one) for one in reports[-_MOST_REPORTS:])
