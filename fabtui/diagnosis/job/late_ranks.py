"""Ranks that hold up a job that moves: by utilization and clock of their GPUs, or by their use of processors."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from fabtui.diagnosis.job.job_sources import JobGroup, JobRank, mean_of_known
from fabtui.diagnosis.job.who_is_behind import JobPlace
from fabtui.model.facts.node_view import dicts, number
from fabtui.model.job_evidence import JobEvidenceLog, JobSource
from fabtui.model.job_sample import GpuSample, JobSample, RankSample
from fabtui_node.parsers.lines import json_object, json_whole

#: Samples of this time (s) show a rank that holds up the others; least number of them.
_WINDOW, _FEWEST = 8.0, 5
#: Utilization of a late rank's GPUs against the median of the others, their least utilization (percent), and power of
#: a late rank against theirs: with less work it would take less.
_LATE, _WAITING, _SAME_POWER = 0.6, 85.0, 0.8
#: Clock (MHz) of a GPU that is limited, against the median of the others.
_SLOWER = 0.8
#: Processor time of a late rank without a GPU against the most of the others, and its least share of a processor.
_TIMES, _BUSY = 3.0, 0.2
#: Share of the time by which the latest rank waits less than any other.
_APART = 0.4
#: Maximum number of ranks whose samples are compared: windows of thousands take long.
_MOST = 256


class LateRanks(NamedTuple):
    """Ranks that hold up a job."""

    places: tuple[JobPlace, ...]  #: The latest one first.
    where: str  #: What shows it: ``is late: GPU busy 27 %, the others wait at 98 %``.
    since: float  #: Since when it shows, as far back as samples go.


def late_ranks(log: JobEvidenceLog, group: JobGroup) -> LateRanks | None:
    """Return the ranks that hold up a job, or None."""
    if len(group.ranks) < 2:
        return None
    if all(one.gpus for one in group.ranks):
        return _by_clock(log, group) or _by_utilization(log, group)
    return None if any(one.gpus for one in group.ranks) else _by_processor(log, group) or _by_waiting(log, group)


def _by_utilization(log: JobEvidenceLog, group: JobGroup) -> LateRanks | None:
    """Return ranks whose GPUs work less than those of the others, at no less power: these spin while they wait."""
    now = {one.place: one.utilization or 0.0 for one in group.ranks}
    most = _LATE * max(now.values())
    odd = [one for one in group.ranks if now[one.place] <= most]
    if not odd or 2 * len(odd) > len(group.ranks):
        return None
    rest = [one for one in group.ranks if now[one.place] > most]
    rows = {one.place: _worked(log, group, one) for one in [*odd, *rest][:_MOST]}
    worked = {place: row for place, row in rows.items() if row is not None}
    if len(worked) < len(rows):
        return None
    usual = median(sorted(use for use, _ in worked.values())[len(worked) // 2 :])
    late = sorted((place for place, (use, _) in worked.items() if use <= _LATE * usual), key=lambda one: worked[one][0])
    if not late or usual < _WAITING or 2 * len(late) > len(worked):
        return None
    power = median(watts for place, (_, watts) in worked.items() if place not in late)
    if any(worked[place][1] < _SAME_POWER * power for place in late):
        return None
    where = f"late: GPU busy {worked[late[0]][0]:.0f} %, the others wait at {usual:.0f} %"
    where = f"{'is' if len(late) == 1 else 'are'} {where}"
    return LateRanks(tuple(late), where, _since(log, group, late[0], _LATE * usual))


def _worked(log: JobEvidenceLog, group: JobGroup, one: JobRank) -> tuple[float, float] | None:
    """Return median utilization and power of a rank's GPUs in the window; None if it has not worked throughout."""
    samples = _window(log, group, one)
    rows = [(use, watts) for sample in samples for use, watts in [_means(sample, one)] if use is not None and watts]
    active = one.track.active
    if not samples or len(rows) < _FEWEST or active is None or group.now - active > _WINDOW - 2:
        return None
    if any(use < 1 for use, _ in rows):
        return None
    return median(use for use, _ in rows), median(watts for _, watts in rows)


def _window(log: JobEvidenceLog, group: JobGroup, one: JobRank) -> list[JobSample]:
    """Return the samples of the window; none if they do not cover it."""
    samples = log.recent(one.place.node, group.now - _WINDOW)
    return samples if len(samples) >= _FEWEST and samples[-1].time - samples[0].time >= _WINDOW - 2 else []


def _since(log: JobEvidenceLog, group: JobGroup, place: JobPlace, most: float) -> float:
    """Return since when the GPUs of a rank are used at most by ``most`` percent."""
    rank, since = group.rank(place), group.now
    for sample in reversed(log.samples(place.node)):
        use = _means(sample, rank)[0] if rank is not None else None
        if use is None or use > most:
            break
        since = sample.time
    return since


def _by_clock(log: JobEvidenceLog, group: JobGroup) -> LateRanks | None:
    limited = [one for one in group.ranks if any(gpu.throttle for gpu in one.gpus)]
    if not limited or 2 * len(limited) > len(group.ranks):
        return None
    clocks = [gpu.clock for one in group.ranks if one not in limited for gpu in one.gpus if gpu.clock is not None]
    if not clocks:
        return None
    usual = median(clocks)
    found: list[tuple[float, JobRank, GpuSample]] = []
    for one in limited[:_MOST]:
        samples = _window(log, group, one)
        always = bool(samples) and all(any(gpu.throttle for gpu in _own(sample, one)) for sample in samples)
        slow = [gpu for gpu in one.gpus if gpu.throttle and gpu.clock is not None and gpu.clock <= _SLOWER * usual]
        if always and slow:
            found.append((slow[0].clock or 0.0, one, slow[0]))
    if not found:
        return None
    found.sort(key=lambda row: row[0])
    clock, _, gpu = found[0]
    places = tuple(one.place for _, one, _ in found)
    why = ", ".join(gpu.throttle)
    where = f"is slowed by its GPU, which is limited to {clock:.0f} MHz ({why}); the others run at {usual:.0f}"
    return LateRanks(places, where, group.now - _WINDOW)


def _by_processor(log: JobEvidenceLog, group: JobGroup) -> LateRanks | None:
    """Return the rank without a GPU that computes far more than the others, which wait, while all transfer data."""
    shares: dict[JobPlace, float] = {}
    for one in group.ranks[:_MOST]:
        rows = [(sample.clock, rank) for sample in _window(log, group, one) if (rank := _rank(sample, one)) is not None]
        if len(rows) < _FEWEST:
            return None
        # Without a GPU, ranks send by the calls that read and write files.
        used = [rank.files for _, rank in rows]
        sent = [None not in (was, now) and (now or 0) > (was or 0) for was, now in pairwise(used)]
        (first, start), (last, end) = rows[0], rows[-1]
        if not all(sent) or start.cpu_all is None or end.cpu_all is None or last <= first:
            return None
        shares[one.place] = (end.cpu_all - start.cpu_all) / (last - first)
    late = max(shares, key=lambda place: shares[place])
    most = max(share for place, share in shares.items() if place != late)
    if shares[late] < max(_BUSY, _TIMES * most):
        return None
    where = (
        f"is late: it computes for {100 * shares[late]:.0f} % of the time, the others for {100 * most:.0f} % at most"
    )
    return LateRanks((late,), where, group.now - _WINDOW)


def _by_waiting(log: JobEvidenceLog, group: JobGroup) -> LateRanks | None:
    """Return the rank that waits far less than all others where most wait: they wait for it."""
    seen: dict[JobPlace, Counter[str]] = {}
    for _, kept in log.readings(JobSource.NETWORK):
        for reading in kept:
            for row in dicts(reading.value.get("waits")) if group.now - reading.time <= _WINDOW else []:
                place = group.place(JobPlace(int(number(row.get("rank")) or 0), "", json_whole(row.get("pid"))))
                counts = {str(name)[:80]: json_whole(count) or 0 for name, count in json_object(row, "seen").items()}
                seen.setdefault(place, Counter()).update(counts)
    mine = {place: counts for place, counts in seen.items() if group.rank(place) is not None and counts.total()}
    if len(mine) < max(2, len(group.ranks)):
        return None
    where = sum(mine.values(), Counter[str]()).most_common(1)[0][0]
    shares = {place: counts[where] / counts.total() for place, counts in mine.items()}
    late, *others = sorted(shares, key=lambda place: shares[place])
    least = min(shares[place] for place in others)
    if not where or least - shares[late] < _APART:
        return None
    there, often = mine[late].most_common(1)[0]
    does = f"sleeps in {there}" if there else "runs on the CPU"
    text = (
        f"makes the others wait {100 * least:.0f} % of the time: it {does} ({100 * often / mine[late].total():.0f} %)"
    )
    return LateRanks((late,), text, group.now - _WINDOW)


def _rank(sample: JobSample, one: JobRank) -> RankSample | None:
    return next((each for each in sample.ranks if each.process.pid == one.place.pid), None)


def _means(sample: JobSample, one: JobRank) -> tuple[float | None, float | None]:
    gpus = _own(sample, one)
    return mean_of_known([gpu.utilization for gpu in gpus]), mean_of_known([gpu.power for gpu in gpus])


def _own(sample: JobSample, one: JobRank) -> list[GpuSample]:
    return [found for number in one.track.process.gpus if (found := sample.gpu(number)) is not None]
