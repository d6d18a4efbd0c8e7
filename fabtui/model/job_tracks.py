"""Activity of each rank and GPU of a running job over time: rates, ranges and the last time of each kind of work."""

from __future__ import annotations

from collections.abc import Iterable

from fabtui.model.job_sample import GpuSample, JobSample, RankProcess, RankSample

#: Utilization (percent) up to which a GPU is idle, and from which a kernel may spin.
IDLE, SPINNING = 5.0, 90.0
#: Utilization of SMs (percent) below which a busy GPU spins: a collective that waits takes under 1 %.
_SPINNING_SM = 5.0
#: A GPU that spins takes at most this share of its power limit, or of the range of power that was seen.
_LIMIT_SHARE, _RANGE_SHARE = 0.3, 0.2
#: Least range of power (W) that shows work and rest.
_RANGE = 50.0
#: Least traffic (bytes/s) over NVLinks that counts, and least share of the largest rate.
_NVLINK, _SHARE = 1e6, 0.01
#: Least largest rate (bytes/s) of the NICs of a node whose traffic counts.
_NIC = 50e6
#: Share of a processor of a rank that works on it alone.
BUSY = 0.3
#: Bytes per second of files that show a checkpoint, or data that is loaded.
_FILES = 1 << 20
#: Maximum number of processes that are followed.
_MOST = 32_768
#: Time (s) for which processes that have ended are remembered once there are too many.
_KEPT = 60.0
#: Time (s) without activity that is a pause, and longest pause that may be usual.
_PAUSE, USUAL = 3.0, 20.0


class GpuTrack:
    """A GPU over time."""

    def __init__(self) -> None:
        self.low: float | None = None  #: Least power (W) that was seen.
        self.high: float | None = None  #: Largest power (W) that was seen.
        self.nvlink: float | None = None  #: Bytes per second over its NVLinks, both directions.
        self._fastest = 0.0
        self.spins = False  #: Whether a kernel spins: it is busy, takes little power, and transfers nothing.
        self.idle = False  #: Whether it is idle.
        self.works: bool | None = None  #: Whether it computes or transfers; None if unknown.

    def take(self, before: GpuSample | None, now: GpuSample, seconds: float) -> None:
        if now.power is not None:
            self.low = now.power if self.low is None else min(self.low, now.power)
            self.high = now.power if self.high is None else max(self.high, now.power)
        self.nvlink = None
        if before is not None and seconds > 0:
            counts = [(before.tx, now.tx), (before.rx, now.rx)]
            moved = [after - was for was, after in counts if was is not None and after is not None]
            self.nvlink = sum(max(0, one) for one in moved) / seconds if moved else None
        self._fastest = max(self._fastest, self.nvlink or 0.0)
        transfers = (self.nvlink or 0.0) > max(_NVLINK, _SHARE * self._fastest)
        self.idle = now.utilization is not None and now.utilization <= IDLE and not transfers
        calm = self._is_calm(now)
        self.spins = not transfers and calm is True and (now.utilization or 0.0) >= SPINNING
        self.works = transfers or (None if calm is None else not self.idle and not self.spins)

    def _is_calm(self, now: GpuSample) -> bool | None:
        """Return True if a busy GPU computes nothing, as far as power and SMs show; None if unknown."""
        if now.utilization is None:
            return None
        if now.utilization < SPINNING:
            return False
        if now.sm is not None:
            return now.sm < _SPINNING_SM
        most = _LIMIT_SHARE * now.limit if now.limit else 0.0
        # A GPU that has not been seen at rest has no range.
        if self.low is not None and self.high is not None and self.high >= max(2 * self.low, self.low + _RANGE):
            most = max(most, self.low + _RANGE_SHARE * (self.high - self.low))
        return None if now.power is None or not most else now.power <= most


class RankTrack:
    """Process of a rank over time; times are epoch seconds, None: never."""

    def __init__(self, process: RankProcess, first: float) -> None:
        self.process = process
        self.first = first  #: First sample.
        self.seen = first  #: Latest sample.
        self.active: float | None = None  #: It made progress: its GPU worked, or data moved.
        self.filed: float | None = None  #: It read or wrote files.
        self.filed_since: float | None = None  #: Start of the latest time in which it read or wrote files.
        self.writes = False  #: Whether it wrote, rather than read, files at last.
        self.busy: float | None = None  #: It used the processor while its GPU was idle.
        self.stopped: float | None = None  #: Since when it is stopped by a signal.
        self.file_rate: float | None = None  #: Bytes per second of files.
        self.cpu: float | None = None  #: Share of a processor of its main thread.
        self.nic: float | None = None  #: Bytes per second of the NICs of its node.
        self.last: RankSample | None = None  #: Latest sample.
        self._pauses: list[float] = []
        self._was_stopped = False

    @property
    def usual_pause(self) -> float:
        """Second longest pause (s) that ended by itself; 0 without two."""
        return self._pauses[1] if len(self._pauses) > 1 else 0.0

    @property
    def moved(self) -> float | None:
        """Latest progress or use of files."""
        return max((one for one in (self.active, self.filed) if one is not None), default=None)

    def take(self, now: RankSample, sample: JobSample, gpus: Iterable[GpuTrack], seconds: float, nic: bool) -> None:
        """Take in a sample; ``nic``: whether the NICs of the node transfer data as they do while the job works."""
        before, self.last, self.seen = self.last, now, sample.time
        mine = list(gpus)
        share, sent = None, False
        self.cpu = self.file_rate = None
        if before is not None and seconds > 0:
            self.cpu = _rate(before.cpu, now.cpu, seconds)
            share = _rate(before.cpu_all, now.cpu_all, seconds)
            rates = [_rate(before.written, now.written, seconds)]
            # What ranks without a GPU send to each other counts as reading and writing; they send nothing in a hang.
            sent = bool(_rate(before.files, now.files, seconds))
            rates += [_rate(before.files, now.files, seconds)] if mine else []
            self.file_rate = max((rate for rate in rates if rate is not None), default=None)
        moved = self.moved
        if now.state in ("T", "t"):
            self.stopped = sample.time if self.stopped is None else self.stopped
            self._was_stopped = True
        else:
            self.stopped = None
        # Processor time alone does not show progress: an endless loop takes it, too.
        if any(gpu.works for gpu in mine) or nic or (not mine and sent):
            self.active = sample.time
        if (self.file_rate or 0.0) >= _FILES and before is not None:
            if self.filed is None or sample.time - self.filed > _PAUSE:
                self.filed_since = sample.time - seconds
            self.filed = sample.time
            self.writes = (_rate(before.written, now.written, seconds) or 0.0) >= _FILES
        if mine and all(gpu.idle for gpu in mine) and (share or 0.0) >= BUSY:
            self.busy = sample.time
        if self.moved == sample.time:
            # A pause that a signal made is not usual.
            if moved is not None and not self._was_stopped and _PAUSE < sample.time - moved <= USUAL:
                self._pauses = sorted([*self._pauses, sample.time - moved], reverse=True)[:2]
            self._was_stopped = False


def _rate(before: float | None, now: float | None, seconds: float) -> float | None:
    """Return what a counter gained per second; one that started again gained nothing."""
    return None if before is None or now is None else max(0.0, now - before) / seconds


class JobTracks:
    """Tracks of all ranks and GPUs of a running job."""

    def __init__(self) -> None:
        self.ranks: dict[tuple[str, int], RankTrack] = {}  #: By node and process.
        self.gpus: dict[tuple[str, int], GpuTrack] = {}  #: By node and number.
        self._nics: dict[str, float] = {}

    def take(self, before: JobSample | None, now: JobSample) -> None:
        """Take in a sample, after the one before it of the same node."""
        seconds = 0.0 if before is None else now.clock - before.clock
        for gpu in now.gpus:
            was = None if before is None else before.gpu(gpu.number)
            self.gpus.setdefault((now.node, gpu.number), GpuTrack()).take(was, gpu, seconds)
        rate, counts = self._nic_rate(before, now, seconds)
        for rank in now.ranks:
            key = now.node, rank.process.pid
            track = self.ranks.get(key)
            if track is None or track.process.rank != rank.process.rank:
                if len(self.ranks) >= _MOST:
                    self.ranks = {one: kept for one, kept in self.ranks.items() if kept.seen >= now.time - _KEPT}
                track = self.ranks[key] = RankTrack(rank.process, now.time)
            track.process, track.nic = rank.process, rate
            mine = [found for one in rank.process.gpus if (found := self.gpus.get((now.node, one))) is not None]
            track.take(rank, now, mine, seconds, counts)

    def _nic_rate(self, before: JobSample | None, now: JobSample, seconds: float) -> tuple[float | None, bool]:
        """Return the bytes per second of the NICs of a node, and whether that is the traffic of a job that works."""
        if before is None or seconds <= 0 or not now.nics:
            return None, False
        earlier = {nic.name: nic for nic in before.nics}
        moved = 0.0
        for nic in now.nics:
            was = earlier.get(nic.name)
            if was is not None:
                moved += (_rate(was.rx, nic.rx, 1.0) or 0.0) + (_rate(was.tx, nic.tx, 1.0) or 0.0)
        rate = moved / seconds
        most = self._nics[now.node] = max(self._nics.get(now.node, 0.0), rate)
        return rate, most >= _NIC and rate > _SHARE * most
