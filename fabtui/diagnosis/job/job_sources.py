"""Sources of evidence about a running job: their findings, and the ranks that they name."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.job.job_verdict import SourceReading
from fabtui.diagnosis.job.ras_report import RasCommunicator, RasReport, answer, report_of
from fabtui.diagnosis.job.who_is_behind import (
    JobPlace,
    RankStack,
    StackBranch,
    grouped,
    has,
    plural,
    rank_stacks,
    ranks_of,
    ranks_text,
    stack_tree,
)
from fabtui.diagnosis.knowledge import xids
from fabtui.diagnosis.knowledge.error_catalogue import of_line
from fabtui.diagnosis.knowledge.log_causes import failure_in
from fabtui.model.facts.node_view import dicts, number, text
from fabtui.model.job_evidence import JobEvidenceLog, JobSource
from fabtui.model.job_sample import GpuSample
from fabtui.model.job_tracks import GpuTrack, RankTrack
from fabtui_node.parsers.base import Notes
from fabtui_node.parsers.lines import json_list, json_whole

_TITLES = {
    "gpu_lost": "GPU has fallen off the bus",
    "gpu_init": "the driver cannot initialise the GPU",
    "aer": "PCIe error",
    "iommu": "IOMMU fault",
    "machine_check": "machine check",
    "link_down": "link down",
    "module": "optical module",
    "nic_health": "adapter health",
    "nic_command": "adapter does not answer commands",
    "nic_power": "adapter lacks power",
    "nic_temperature": "adapter too hot",
    "oom": "out of memory",
}
#: Age (s) up to which a reading of a source other than the nodes' activity counts.
FRESH = 90.0
#: Time (s) after an answer of RAS at which counts that have grown by the next one grew at the latest.
_BETWEEN = 2.0
#: Time (s) for which counts do not change before they show that the job does not move.
_STANDS = 3.0
#: Time (s) after which a process that is traced is stopped.
_TRACED = 3.0
#: Time (s) for which RAS misses a rank that has ended.
_MISSING = 4.0
#: Inexactness (s) of the start of a process and of the time of a kernel report.
_INEXACT = 2.0
#: Reports that show ranks apart before they count, and maximum number of ranks that are compared.
_REPORTS, _RANKS = 8, 512
#: Maximum number of sentences of a source, and of groups of alike ranks.
_MOST, _MOST_GROUPS = 3, 4
#: Times by which an iteration takes longer than before from which a job is slow.
_SLOWER = 2.0
_COLLECTIVES_ONLY = "it does not count send and receive"
_RAS_PENDING = "waits in a send or receive that RAS does not count"
#: Wait channels of sleeping: no collective waits there.
_SLEEPS = ("hrtimer_nanosleep", "do_nanosleep", "common_nsleep", "pipe_read", "anon_pipe_read", "n_tty_read")


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values; None if none is known."""
    known = [one for one in values if one is not None]
    return sum(known) / len(known) if known else None


class JobRank(NamedTuple):
    """A rank of the judged job, with its track."""

    track: RankTrack
    place: JobPlace
    gpus: tuple[GpuSample, ...]  #: Its GPUs now.
    gpu_tracks: tuple[GpuTrack, ...]

    @property
    def spins(self) -> bool:
        """True if all its GPUs spin in a kernel that waits."""
        return bool(self.gpu_tracks) and all(one.spins for one in self.gpu_tracks)

    @property
    def idle(self) -> bool:
        """True if all its GPUs are idle."""
        return bool(self.gpu_tracks) and all(one.idle for one in self.gpu_tracks)

    @property
    def stopped(self) -> bool:
        """True if it is stopped by a signal; a debugger that reads its stack stops it for a moment."""
        since = self.track.stopped
        return self.state == "T" or (since is not None and self.track.seen - since >= _TRACED)

    @property
    def state(self) -> str:
        """State of its process: ``R``, ``S``, ``D``, ``T``, or "" if unknown."""
        return self.track.last.state if self.track.last is not None else ""

    @property
    def started(self) -> float | None:
        """Start of its process (epoch seconds), None if unknown."""
        age = self.track.last.age if self.track.last is not None else None
        return None if age is None else self.track.seen - age - _INEXACT

    @property
    def wait(self) -> str:
        """Wait channel of its main thread, or ""."""
        return (self.track.last.wait or "") if self.track.last is not None else ""

    @property
    def utilization(self) -> float | None:
        return mean_of_known([one.utilization for one in self.gpus])

    @property
    def power(self) -> float | None:
        known = [one.power for one in self.gpus if one.power is not None]
        return sum(known) if known else None


class JobGroup(NamedTuple):
    """The ranks of one job."""

    ranks: tuple[JobRank, ...]  #: Those that run, by rank.
    gone: tuple[JobPlace, ...]  #: Those whose process has ended or is missing, while others run.
    job: str
    world: int | None
    nodes: tuple[str, ...]
    now: float  #: Time of the latest sample.
    first: float  #: Time of the first sample.
    left: tuple[JobPlace, ...] = ()  #: Processes of earlier jobs that are left on its nodes.

    def place(self, found: JobPlace) -> JobPlace:
        """Return the rank that a source means: by its process, else by its number."""
        alike = [one for one in self.ranks if one.place.pid == found.pid and one.place.pid is not None]
        if len(alike) > 1:
            alike = [one for one in alike if one.place.rank == found.rank or one.place.node == found.node]
        alike = alike or [one for one in self.ranks if one.place.rank == found.rank and found.pid is None]
        return alike[0].place if len(alike) == 1 else found

    def shares(self, rank: JobRank) -> bool:
        """Return True if a GPU of a rank is shared with a different rank, which may be the one that uses it."""
        node, own = rank.place.node, set(rank.track.process.gpus)
        others = (one for one in self.ranks if one is not rank and one.place.node == node)
        return any(own & set(one.track.process.gpus) for one in others)

    def rank(self, place: JobPlace) -> JobRank | None:
        return next((one for one in self.ranks if one.place == place), None)


def nvml(group: JobGroup) -> SourceReading | None:
    """Return what the GPUs show: those that are idle while others spin are awaited."""
    known = [one for one in group.ranks if one.gpu_tracks]
    if not known:
        return None
    spins, idle = [one for one in known if one.spins], [one for one in known if one.idle]
    rest = [one for one in known if not one.spins and not one.idle]
    parts = [_gpus(some, verb) for some, verb in ((spins, "waits in a kernel"), (idle, "is idle"), (rest, "works"))]
    moved = [one.nvlink for rank in known for one in rank.gpu_tracks if one.nvlink is not None]
    if moved:
        parts.append(f"NVLink {rate(sum(moved))}")
    blind = "" if not spins or idle or rest else "all GPUs wait, which does not show for which rank"
    suspects = tuple(one.place for one in idle) if spins and len(spins) + len(rest) >= 1 and idle else ()
    return SourceReading("NVML", "; ".join(filter(None, parts)), blind, group.now, suspects if not rest else ())


def _gpus(ranks: Sequence[JobRank], verb: str) -> str:
    if not ranks:
        return ""
    several = sum(len(one.gpu_tracks) for one in ranks) > 1
    uses = [one.utilization for one in ranks if one.utilization is not None]
    watts = [one.power for one in ranks if one.power is not None]
    at = f" at {_span(watts, 'W')}" if watts else ""
    gpus = f"GPU{'s' * several} of {ranks_of(one.place for one in ranks)}"
    return f"{gpus} {plural(verb) if several else verb}" + (f" ({_span(uses, '%')}{at})" if uses else "")


def _span(values: Sequence[float], unit: str) -> str:
    low, high = round(min(values)), round(max(values))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def rate(value: float) -> str:
    for size, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B/s"


def processes(group: JobGroup) -> SourceReading:
    """Return what the processes show: stopped, ended and blocked ones, and those that sleep elsewhere than most."""
    waits: dict[str, list[JobRank]] = {}
    for one in group.ranks:
        waits.setdefault(activity(one), []).append(one)
    groups = sorted(waits.items(), key=lambda pair: len(pair[1]))
    parts = [f"{ranks_text(group.gone)} {has(len(group.gone))} ended"] if group.gone else []
    for words, some in groups[:_MOST_GROUPS]:
        parts.append(f"{ranks_text(one.place for one in some)} {words if len(some) == 1 else plural(words)}")
    stopped = [one.place for one in group.ranks if one.stopped]
    blocked = [one.place for one in group.ranks if one.state == "D"]
    asleep = [one.place for one in group.ranks if one.wait in _SLEEPS and one.state == "S"]
    odd = [one.place for one in groups[0][1]] if groups and 2 * len(groups[0][1]) < len(group.ranks) else []
    bare = not any(one.gpu_tracks for one in group.ranks)
    quiet = [some for some in (asleep, odd) if bare and some and len(some) < len(group.ranks)]
    suspects = next((some for some in (list(group.gone), stopped, blocked, *quiet) if some), [])
    if not group.gone and len(suspects) == len(group.ranks):
        suspects = []
    return SourceReading("/proc", "; ".join(parts), "", group.now, tuple(suspects))


def activity(one: JobRank) -> str:
    """Return what the process of a rank does: ``is stopped``, ``sleeps in futex_wait_queue``."""
    if one.stopped:
        return "is stopped"
    if one.state == "D":
        return "is blocked in the kernel" + (f" ({one.wait})" if one.wait else "")
    if (one.track.cpu or 0.0) >= 0.5 or one.state == "R":
        return "runs on the CPU"
    return f"sleeps in {one.wait}" if one.wait else "sleeps"


@lru_cache(maxsize=16)
def _report(answered: str) -> RasReport | None:
    report = report_of(answered, Notes())
    return report if report.communicators or report.missing else None


class RasEvidence(NamedTuple):
    """Evidence from NCCL RAS."""

    reading: SourceReading
    grew: float | None  #: Latest time at which counts had grown since the report before.
    stands: float  #: Time (s) over which counts did not change.
    differ: bool  #: Whether the counts of ranks differ or ranks are silent.
    pending: bool  #: Whether the suspects come from ranks that wait in a send or receive.
    gone: tuple[JobPlace, ...]  #: Silent ranks whose processes are no longer on their nodes.
    apart: tuple[JobPlace, ...]  #: Ranks that call other collectives than the rest, while counts grow.


def ras(log: JobEvidenceLog, group: JobGroup) -> RasEvidence | None:
    """Return what NCCL RAS shows, by the node whose report is the latest."""
    answers = [kept for _, kept in log.readings(JobSource.RAS) if group.now - kept[-1].time <= FRESH]
    reports = [
        (one.time, report)
        for one in max(answers, key=lambda kept: kept[-1].time, default=())
        if isinstance(answered := one.value.get("text"), str) and (report := _report(answered)) is not None
    ]
    if not reports or not _is_about(reports[-1][1], log, group):
        return None
    at, latest = reports[-1]
    # An answer may take seconds; the counts grew some time between two of them.
    growth = [at for at, ((_, a), (_, b)) in enumerate(pairwise(reports)) if _launched(a, b)]
    grew = min(reports[growth[-1] + 1][0], reports[growth[-1]][0] + _BETWEEN) if growth else None
    stands = at - max(reports[0][0], grew or 0.0)
    every = list(latest.communicators.values())
    differ = any(one.gaps() or one.silent for one in every) or bool(latest.missing)
    suspects, sentence, pending = _ras_suspects(latest, group)
    # Counts unchanged since then do not show that the job makes progress.
    still = reports[growth[-1] + 1 :] if growth and stands >= _STANDS else reports
    # A rank that waits in what RAS does not count is not one that has not called it.
    sentences = [] if pending else [*answer(latest, still[0][1] if len(still) > 1 else None).sentences[:_MOST]]
    sentences += _diagnosed([kept[-1].value for kept in answers])
    words = "; ".join(dict.fromkeys([sentence, *sentences] if sentence else sentences))
    blind = "" if suspects and not pending else _COLLECTIVES_ONLY
    gone = _ended(log, reports, group)
    apart = tuple(group.place(place) for place in _apart(reports))
    if apart:
        words = f"{ranks_text(apart)} are ahead in one operation and behind in another, never level; {words}"
    reading = SourceReading("RAS", words, blind, at, apart or gone or suspects)
    return RasEvidence(reading, grew, stands, differ, pending, gone, apart)


def _diagnosed(answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what NCCL's own diagnostics of the running job found, where it offers them."""
    lines = [line for one in answers for line in json_list(one.get("diagnosed")) if isinstance(line, str)]
    meant = [of_line(meaning, line) for line in dict.fromkeys(lines) if (meaning := failure_in(line)) is not None]
    return [f"NCCL's diagnostics: {one.text} ({one.code})" for one in meant[:_MOST]]


def _is_about(report: RasReport, log: JobEvidenceLog, group: JobGroup) -> bool:
    """Return True if a report is about the processes of a job: RAS of a different job may listen on the node, too."""
    every = list(report.communicators.values())
    pids = {place.pid for one in every for place in one.places.values()} | {one.pid for one in report.missing}
    if pids & {place.pid for place in (*(one.place for one in group.ranks), *group.gone)}:
        return True
    # In a container, RAS may number processes differently from the node.
    most = max((one.size or len(one.places) for one in every), default=0)
    return not pids & {pid for _, pid in log.tracks.ranks} and (group.world is None or most <= group.world)


def _ended(log: JobEvidenceLog, reports: Sequence[tuple[float, RasReport]], group: JobGroup) -> tuple[JobPlace, ...]:
    """Return the ranks that RAS misses for some time, and whose processes are not on nodes that show the others."""
    lately = [report for when, report in reports if reports[-1][0] - when <= _MISSING]
    if reports[-1][0] - reports[0][0] < _MISSING or not all(
        any(one.silent for one in report.communicators.values()) for report in lately
    ):
        # A job that ends loses its ranks one after the other.
        return ()
    report = lately[-1]
    nodes: dict[str, str] = {}
    for source in (JobSource.RAS, JobSource.KERNEL):
        for node, kept in log.readings(source):
            nodes.update(dict.fromkeys(addresses_of(kept[-1].value), node))
    alive = {(one.place.node, one.place.pid) for one in group.ranks}
    found: dict[JobPlace, None] = {}
    for one in report.communicators.values():
        places = {rank: place._replace(node=nodes.get(place.node, place.node)) for rank, place in one.places.items()}
        # In a container, RAS may number processes differently from the node.
        known = {place.node for rank, place in places.items() if (place.node, place.pid) in alive}
        for rank in one.silent:
            place = places.get(rank)
            if place is not None and place.node in known and (place.node, place.pid) not in alive:
                found.setdefault(place)
    return tuple(found)


def _apart(reports: Sequence[tuple[float, RasReport]]) -> list[JobPlace]:
    """Return the ranks that are ahead in one operation and behind in another in report after report.

    Ranks that are late are behind in all operations, and others are even with each other now and then.
    """
    if len(reports) < _REPORTS or reports[-1][0] - reports[0][0] < _REPORTS - 1:
        return []
    for name, latest in reports[-1][1].communicators.items():
        rows = [one for _, report in reports[-_REPORTS:] if (one := report.communicators.get(name)) is not None]
        if len(rows) < _REPORTS or not _launched(reports[-_REPORTS][1], reports[-1][1]):
            continue
        ranks = sorted({rank for counts in latest.counts.values() for rank in counts})[:_RANKS]
        odd = [rank for rank in ranks[1:] if _crossed(rows, ranks[0], rank)]
        if odd:
            # If most differ from the first one, it is the odd one.
            chosen = odd if 2 * len(odd) < len(ranks) else ranks[:1] if len(odd) == len(ranks) - 1 > 1 else ranks
            return [latest.place(rank) for rank in chosen]
    return []


def _crossed(rows: Sequence[RasCommunicator], one: int, other: int) -> bool:
    """Return True if a rank is never even with a second one, ahead and behind in two operations."""
    signs: dict[str, set[int]] = {}
    for row in rows:
        apart = {name: counts.get(one, 0) - counts.get(other, 0) for name, counts in row.counts.items()}
        if not any(apart.values()):
            return False
        for name, number_ in apart.items():
            signs.setdefault(name, set()).add((number_ > 0) - (number_ < 0))
    ahead = any(1 in found and -1 not in found for found in signs.values())
    behind = any(-1 in found and 1 not in found for found in signs.values())
    return ahead and behind


def _launched(before: RasReport, after: RasReport) -> bool:
    """Return True if a rank has launched a collective between two reports."""
    for name, one in after.communicators.items():
        old = before.communicators.get(name)
        if old is None:
            continue
        for operation, counts in one.counts.items():
            known = old.counts.get(operation, {})
            if any(launched > known.get(rank, launched) for rank, launched in counts.items()):
                return True
    return False


def _ras_suspects(report: RasReport, group: JobGroup) -> tuple[tuple[JobPlace, ...], str, bool]:
    """Return the ranks that RAS names, a sentence about them, and whether they follow from a send or receive."""
    for one in report.communicators.values():
        silent = [group.place(one.place(rank)) for rank in one.silent]
        if silent and len(silent) < (one.size or len(one.places)):
            return tuple(dict.fromkeys(silent)), "", False
    for one in report.communicators.values():
        if crossed := one.diverging():
            places = tuple(group.place(place) for place in crossed)
            counts = "; ".join(f"rank {place.rank}: {_counts(one, place.rank)}" for place in crossed[:_MOST])
            return places, f"ranks call different collectives ({counts})", False
    for one in report.communicators.values():
        for gap in one.gaps():
            behind = [group.place(place) for place in gap.behind]
            ahead = [group.place(place) for place in gap.waiting]
            found = [rank for place in behind if (rank := group.rank(place)) is not None]
            if found and len(found) == len(behind) and all(rank.spins and not group.shares(rank) for rank in found):
                # It has launched something that RAS does not count, and waits in it: its partner is ahead.
                named = tuple(ahead) if len(ahead) == 1 else ()
                return named, f"{ranks_text(behind)} {_RAS_PENDING}", True
            if behind:
                return tuple(behind), "", False
    return (), "", False


def _counts(one: RasCommunicator, rank: int) -> str:
    return ", ".join(f"{name} {counts[rank]}" for name, counts in one.counts.items() if counts.get(rank))


class StackEvidence(NamedTuple):
    """Evidence from the stacks of the ranks."""

    reading: SourceReading
    tree: tuple[StackBranch, ...]


def stacks(log: JobEvidenceLog, group: JobGroup) -> StackEvidence | None:
    """Return where the ranks are in their programs; a few apart from most are named."""
    found: list[RankStack] = []
    at = 0.0
    for node, kept in log.readings(JobSource.STACKS):
        if group.now - kept[-1].time <= FRESH:
            at = max(at, kept[-1].time)
            found += [one._replace(place=group.place(one.place)) for one in rank_stacks(node, kept[-1].value)]
    mine = [one for one in found if group.rank(one.place) is not None]
    if not mine:
        return None
    groups = grouped(mine)
    apart = groups[0] if len(groups) > 1 and 2 * len(groups[0]) < len(mine) else []
    blind = "" if any(one.frames for one in mine) else _without_frames(log)
    tree = stack_tree(mine)
    words = "; ".join(line.strip() for branch in tree[: 2 * _MOST_GROUPS] for line in branch.lines())
    suspects = tuple(one.place for one in apart if one.frames)
    return StackEvidence(SourceReading("stacks", words, blind, at, suspects), tuple(tree))


def _without_frames(log: JobEvidenceLog) -> str:
    """Return why no function is known."""
    rows = [row for _, kept in log.readings(JobSource.STACKS) for row in dicts(kept[-1].value.get("ranks"))]
    problems = dict.fromkeys(text(row.get("problem")) or "" for row in rows)
    return "; ".join([*filter(None, problems)][:_MOST]) or "no tool (py-spy, pystack) shows Python frames there"


def stack_step(log: JobEvidenceLog, place: JobPlace) -> str:
    """Return the command that shows of a rank, or lets a tool show, what its stack so far does not; "" for py-spy."""
    reading = log.reading(JobSource.STACKS, place.node)
    rows = dicts(reading.value.get("ranks")) if reading is not None else []
    row = next((one for one in rows if one.get("pid") == place.pid), {})
    if allow := text(row.get("allow")):
        return allow
    bare = str(row.get("problem", "")).startswith("neither") or row.get("sent") is True
    return f"sudo cat /proc/{place.pid}/stack" if bare else ""


def concluded(log: JobEvidenceLog, group: JobGroup | None, source: JobSource, name: str) -> SourceReading | None:
    """Return what a reader of files concludes; ``group``: the ranks that it is about, where they are known."""
    sentences: list[str] = []
    suspects: dict[JobPlace, None] = {}
    at, blind = 0.0, ""
    for _, kept in log.readings(source):
        value = kept[-1].value
        at, blind = max(at, kept[-1].time), blind or (text(value.get("blind")) or "")
        sentences += [one for one in json_list(value.get("sentences")) if isinstance(one, str)][:_MOST]
        for one in dicts(value.get("suspects")):
            if isinstance(rank := one.get("rank"), int):
                place = JobPlace(rank, text(one.get("node")) or "", json_whole(one.get("pid")))
                suspects.setdefault(place if group is None else group.place(place))
    return SourceReading(name, "; ".join(sentences[:_MOST]), blind, at, tuple(suspects)) if at else None


class LogEvidence(NamedTuple):
    """Evidence from the logs of the job."""

    reading: SourceReading
    moved: float | None  #: Time of the latest iteration.
    per_minute: float | None  #: Iterations per minute, usually.
    failures: tuple[LogFailure, ...] = ()  #: The earliest one first.
    slowed: str = ""  #: Time of an iteration that has become a multiple of what it was, as a clause; "" otherwise.


class LogFailure(NamedTuple):
    """Error in the log of a job that can begin a failure."""

    rank: int | None  #: Its rank by the name of the log, None if unknown.
    node: str  #: Its node by the name of the log, or "".
    text: str  #: The line.
    path: str  #: The log.


def logs(log: JobEvidenceLog) -> LogEvidence | None:
    """Return what the logs show, by the latest reading."""
    readings = [kept[-1] for _, kept in log.readings(JobSource.LOG)]
    if not readings:
        return None
    last = max(readings, key=lambda one: one.time)
    interval, late = number(last.value.get("interval")), number(last.value.get("late"))
    stuck = text(last.value.get("timeout"))
    per_minute = number(last.value.get("per_minute")) or (60.0 / interval if interval else None)
    quiet = number(last.value.get("quiet"))
    output = f"last output {quiet:.3g} s ago" if quiet is not None else ""
    parts = [f"last iteration {late:.3g} s ago" if late is not None else output, stuck or ""]
    if interval is not None:
        parts.insert(1, f"usually one every {interval:.3g} s")
    failures = tuple(
        LogFailure(json_whole(row.get("rank")), *(text(row.get(name)) or "" for name in ("node", "text", "path")))
        for row in dicts(last.value.get("failures"))
    )
    parts += [f"{failures[0].path.rpartition('/')[2]}: {failures[0].text}" if failures else ""]
    reading = SourceReading("log", "; ".join(filter(None, parts)), "", last.time)
    moved = None if late is None else last.time - late
    return LogEvidence(reading, moved, per_minute, failures, _slowed(last.value))


def _slowed(value: Mapping[str, Any]) -> str:
    lately, before = number(value.get("lately")), number(value.get("before"))
    if not lately or not before or lately < _SLOWER * before:
        return ""
    return f"an iteration takes {lately:.3g} s, {lately / before:.2g} times as long as before ({before:.3g} s)"


class RankReport(NamedTuple):
    """Report of a kernel about a rank or its GPU."""

    place: JobPlace
    text: str  #: What its GPU reported: ``Xid 79: GPU has fallen off the bus``; "" if it was killed for memory.
    at: str  #: Time of day on its node, or "".
    severity: Severity  #: Bad: it cannot be trusted until it is reset.
    when: float  #: Epoch seconds.

    def where(self, ranks: int, gone: bool) -> str:
        """Return what struck a number of ranks; ``gone``: their processes have ended."""
        if not self.text:
            return f"{'was' if ranks == 1 else 'were'} killed by the OOM killer"
        gpus = "on a GPU" if ranks == 1 else "on GPUs"
        verb = f"{has(ranks)} ended," if gone else "is" if ranks == 1 else "are"
        return f"{verb} {gpus} that reported {self.text}" + (f" ({self.at})" if self.at else "")


class KernelEvidence(NamedTuple):
    """Evidence from the kernels of the nodes and their cgroups."""

    reading: SourceReading | None
    reports: Sequence[RankReport]  #: What struck ranks, the gravest first, the latest of these first.
    fabric: str  #: Whether the fabric shows any sign.


def kernel(log: JobEvidenceLog, group: JobGroup, named: Iterable[JobPlace]) -> KernelEvidence:
    """Return what the kernels report about the nodes of the job."""
    sentences: list[str] = []
    struck: list[RankReport] = []
    at = 0.0
    clean = up = 0
    for node in group.nodes:
        for report in log.kernel_reports(node):
            at = max(at, report.time)
            sentences.append(f"{node}: {_reported(report.value)}")
            struck += _struck(report.value, node, group, report.time)
        if kills := log.kills(node):
            at = max(at, group.now)
            sentences.append(f"{node}: OOM kills in the job's cgroup: {kills}")
            struck += [RankReport(one, "", "", Severity.BAD, group.now) for one in group.gone if one.node == node]
        reading = log.reading(JobSource.KERNEL, node)
        if reading is not None:
            here = [one.place for one in group.ranks if one.place.node == node]
            evidence = node_evidence(node, reading.value, [*here, *(place for place in named if place.node == node)])
            sentences += [f"{sign.place}: {sign.text}" for sign in evidence.signs]
            for one in dicts(reading.value.get("events")):
                if (age := number(one.get("age"))) is not None:
                    struck += _struck(one, node, group, reading.time - age)
            at = max(at, reading.time)
            clean += not evidence.signs and evidence.log == "yes"
            up += any(port.get("state") == "Active" for port in dicts(reading.value.get("ports")))
    sentences = list(dict.fromkeys(sentences))
    fabric = "; ".join(sentences[:_MOST])
    if not sentences and clean:
        ports = ", no RDMA port down" if up else ""
        fabric = f"no sign of a fabric fault: no Xid, PCIe or link report{ports}"
    text_ = "; ".join(sentences[:_MOST]) or fabric
    struck.sort(key=lambda one: (one.severity is not Severity.BAD, -one.when))
    return KernelEvidence(SourceReading("kernel", text_, "", at or group.now) if text_ else None, struck, fabric)


def _reported(value: Mapping[str, Any]) -> str:
    is_xid = value.get("kind") == "xid"
    name = f"Xid {value.get('code')}" if is_xid else ""
    meaning = xids.meaning(value.get("code"), str(value.get("text", ""))) if is_xid else ""
    words = meaning or text(value.get("text")) or ""
    return ": ".join(filter(None, (name, words))) or str(value.get("kind"))[:40]


def _struck(value: Mapping[str, Any], node: str, group: JobGroup, when: float) -> list[RankReport]:
    """Return what a kernel report means for the ranks that it is about, if they ran at the time."""
    kind, gpu, pid = value.get("kind"), value.get("gpu"), value.get("pid")
    if kind in ("xid", "gpu_lost") and isinstance(gpu, int):
        severity = xids.severity(value) if kind == "xid" else Severity.BAD
        words, at = _reported(value), text(value.get("at")) or ""
        # An earlier job may have left it in the kernel's log.
        running = [one.place for one in group.ranks if when >= (one.started or 0.0)]
        hit = [place for place in (*running, *group.gone) if place.node == node and str(gpu) in place.gpu.split(",")]
        return [RankReport(place, words, at, severity, when) for place in hit]
    if kind == "oom":
        gone = [place for place in group.gone if place.node == node and place.pid == pid]
        return [RankReport(place, "", "", Severity.BAD, when) for place in gone]
    return []


class Sign(NamedTuple):
    """Report of a node that may explain why a rank is stuck."""

    place: str  #: Endpoint or node: ``n062:0``, ``n062 mlx5_3``.
    text: str  #: What and when: ``Xid 79 at 12:03: GPU has fallen off the bus``.
    own: bool  #: True if it is about a GPU of a late rank.


class NodeEvidence(NamedTuple):
    """Evidence of a node."""

    signs: tuple[Sign, ...]  #: What may explain it, the most likely first.
    log: str  #: ``yes``, ``not permitted`` or ``unknown``: whether the kernel's log was read.


def plain_address(address: str) -> str:
    """Return an IP address in one way of writing, without a zone; other texts as they are."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0].strip("[]"))
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def addresses_of(value: Mapping[str, Any]) -> list[str]:
    """Return the addresses that lead to a node alone, from a value of the probe ``evidence`` or ``ras``."""
    listed = value.get("addresses")
    addresses = [plain_address(one) for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    return [one for one in addresses if not one.startswith(("127.", "fe80:")) and one != "::1"]


def node_evidence(node: str, value: Mapping[str, Any], places: Iterable[JobPlace]) -> NodeEvidence:
    """Return the evidence in a value of the probe ``evidence`` about some places of a node."""
    here = {place.pid: place for place in places if place.node == node and place.pid is not None}
    gpus = {gpu for place in here.values() for gpu in place.gpu.split(",") if gpu}
    signs = [*_events(node, dicts(value.get("events")), gpus, set(here)), *_down(node, dicts(value.get("ports")))]
    signs.sort(key=lambda sign: not sign.own)
    return NodeEvidence(tuple(signs), text(value.get("log")) or "unknown")


def _events(node: str, events: list[dict[str, Any]], gpus: set[str], pids: set[int]) -> list[Sign]:
    """Return the latest report of each kind and device, GPUs and processes of late ranks first."""
    found: dict[tuple[str, Any, str], Sign] = {}
    for one in events:
        kind, code = text(one.get("kind")) or "", one.get("code")
        gpu = str(one["gpu"]) if isinstance(one.get("gpu"), int) else ""
        device = text(one.get("interface")) or text(one.get("bus"))
        where = f"{node}:{gpu}" if gpu else " ".join(filter(None, (node, device)))
        name = f"Xid {code}" if kind == "xid" else f"SXid {code}" if kind == "sxid" else _TITLES.get(kind, kind)
        meaning = xids.meaning(code, str(one.get("text", ""))) if kind == "xid" else ""
        reported = meaning or text(one.get("text")) or ""
        words = f"{name} at {text(one.get('at')) or 'an unknown time'}" + (f": {reported}" if reported else "")
        found[kind, code, where] = Sign(where, words, gpu in gpus or one.get("pid") in pids)
    return list(found.values())


def _down(node: str, ports: list[dict[str, Any]]) -> list[Sign]:
    if not any(port.get("state") == "Active" for port in ports):
        return []
    signs = []
    for port in ports:
        name, state, physical = (text(port.get(key)) or "unknown" for key in ("name", "state", "physical_state"))
        # A port that is switched off or has no cable is so by intention more often than not.
        if state in ("Down", "Initializing", "Armed") and physical != "Disabled":
            words = f"port {name} is {state} (physical state {physical}) while others are Active"
            signs.append(Sign(node, words, False))
    return signs
