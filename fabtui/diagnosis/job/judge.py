"""The judge of a running job: evidence of all sources in, one verdict out. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.job import job_sources as sources
from fabtui.diagnosis.job.job_network import job_network
from fabtui.diagnosis.job.job_sources import JobGroup, JobRank
from fabtui.diagnosis.job.job_verdict import JobState, JobVerdict, RankRow, RankState, clock, who
from fabtui.diagnosis.job.late_ranks import late_ranks
from fabtui.diagnosis.job.uneven_traffic import uneven_text
from fabtui.diagnosis.job.who_is_behind import (
    NO_RANK,
    JobPlace,
    has,
    ranks_of,
    ranks_text,
    stack_command,
)
from fabtui.model.job_evidence import JobEvidenceLog, JobSource
from fabtui.model.job_sample import JobSample, RankProcess, RankSample
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold
from fabtui.sanitize import one_line
from fabtui.transport.registry import command_on_node
from fabtui_node.parsers.lines import json_list, json_number

#: Time (s) without any progress after which a job hangs, unless its pauses are usually longer.
PATIENCE = 10.0
#: The same while a job has shown no progress yet and is younger than _YOUNG (s).
_STARTING, _YOUNG = 30.0, 300.0
#: The same while ranks without a GPU, of which none is missing, have done nothing at all.
_MUTE = 7.0
#: A pause may take this many times a usual one.
_USUAL_TIMES = 1.5
#: Time (s) for which a rank may compute on the processor alone, and be blocked in the kernel, while the others wait.
_BUSY, _BLOCKED = 60.0, 30.0
#: Time (s) for which the sockets of all nodes of a job are waited for.
_OTHERS = 7.0
#: Share of a processor from which a rank without a GPU computes.
_COMPUTES = 0.2
#: Time (s) since the last sign of something within which it continues.
_RECENT = 3.0
#: Time (s) for which files that ranks used are reported after they have continued.
_BEFORE = 30.0
#: Time (s) before the last progress from which a kernel report that is not grave may be the cause.
_LATELY = 60.0
#: Time (s) after which a process that has ended while others run is dead, and age of a node's sample that is too old.
_DEAD, _OLD = 4.0, 15.0
#: Maximum number of other jobs on the same nodes that are reported.
_MOST_OTHERS = 3
#: Observed time (s) after which a verdict about a job that moves is settled.
_SETTLED = 8.0

_verdicts: WeakKeyDictionary[JobEvidenceLog, tuple[int, float, JobVerdict]] = WeakKeyDictionary()
#: Sources whose readers conclude by themselves who is behind, with their names.
_READERS = ((JobSource.FLIGHT, "flight recorder"), (JobSource.RAS, "RAS"))


def job_verdict(model: Model, patience: float | None = None) -> JobVerdict | None:
    """Return the verdict about the job that runs on the nodes of a session; of several, about the worst one.

    Args:
        model: The session model.
        patience: Time (s) without any progress after which a job hangs; by default that of the session.

    Returns:
        None without evidence about a job.
    """
    log = model.job
    if not log:
        return None
    if patience is None:
        patience = json_number(model.options.get("patience")) or PATIENCE
    known = _verdicts.get(log)
    if known is not None and known[:2] == (log.revision, patience):
        return known[2]
    verdicts = [_Judge(model, group, patience).verdict() for group in _groups(log)]
    order = [JobState.HANGS, JobState.DIVERGES, JobState.SLOW, JobState.PAUSED]
    places = {state: place for place, state in enumerate(order)}
    verdicts.sort(key=lambda one: (places.get(one.state, len(order)), not one.struck, -len(one.ranks)))
    verdict = _beside_others(verdicts) if verdicts else _without_ranks(model, log)
    _verdicts[log] = (log.revision, patience, verdict)
    return verdict


def _beside_others(found: Sequence[JobVerdict]) -> JobVerdict:
    if len(found) == 1:
        return found[0]
    first, *others = (one._replace(process=one.ranks[0].place.pid) for one in found)
    texts = [f"{one.title} {one.statement}" for one in others[:_MOST_OTHERS]]
    left = len(others) - len(texts)
    return first._replace(beside="; ".join([*texts, f"{count(left, 'more job')}"] if left else texts))


def _of_readers(log: JobEvidenceLog) -> JobVerdict | None:
    """Return what files of a job show that no node was asked about: dumps of ranks, a report of RAS."""
    readings = [
        (reading, kept[-1].value)
        for source, name in _READERS
        for _, kept in log.readings(source)
        if (reading := sources.concluded(log, None, source, name)) is not None and reading.text
    ]
    if not readings:
        return None
    hangs = [pair for pair in readings if pair[1].get("hangs") is True]
    reading, value = (hangs or readings)[0]
    nodes = tuple(dict.fromkeys(place.node for place in reading.suspects if place.node))
    return JobVerdict(
        JobState.HANGS if hangs else JobState.UNKNOWN,
        reading.at,
        reading.at,
        "",
        nodes,
        (),
        behind=reading.suspects if hangs else (),
        sources=tuple(one._replace(text=one_line(one.text, 500)) for one, _ in readings),
        next=tuple(one_line(one, 500) for one in json_list(value.get("next")) if isinstance(one, str)),
        settled=True,
    )


def _without_ranks(model: Model, log: JobEvidenceLog) -> JobVerdict:
    if not log.nodes and (found := _of_readers(log)) is not None:
        return found
    logs = sources.logs(log)
    now = max((sample.time for node in log.nodes if (sample := log.latest(node)) is not None), default=model.now)
    state = JobState.ENDED if log.tracks.ranks else JobState.UNKNOWN
    needs = f"{NO_RANK} these nodes"
    verdict = JobVerdict(state, now, now, "", tuple(log.nodes), (), needs=needs, settled=True)
    if logs is None:
        return verdict
    verdict = verdict._replace(sources=(logs.reading,))
    if not logs.failures:
        return verdict
    first = logs.failures[0]
    rank = f"rank {first.rank}: " if first.rank is not None else f"{first.node}: " if first.node else ""
    step = f"fabtui explain {shlex.quote(first.path)}"
    return verdict._replace(state=JobState.ENDED, where=one_line(f"{rank}{first.text}", 300), next=(step,), failed=True)


#: What the ranks of a job have in common: its Slurm job, their number, its port; if ranks are there twice, its address.
_Key = tuple[str, int | None, str] | tuple[str, int | None, str, str]
_Members = list[tuple[JobSample, RankSample]]


def _groups(log: JobEvidenceLog) -> list[JobGroup]:
    """Return the jobs that run, with their ranks: those of one Slurm job, or of one rendezvous."""
    latest = [sample for node in log.nodes if (sample := log.latest(node)) is not None]
    now = max((sample.time for sample in latest), default=0.0)
    alike: dict[_Key, _Members] = {}
    for sample in latest:
        if now - sample.time <= _OLD:
            for rank in sample.ranks:
                alike.setdefault(_key(rank.process)[:3], []).append((sample, rank))
    members: dict[_Key, _Members] = {}
    for key, found in alike.items():
        twice = len({rank.process.rank for _, rank in found}) < len(found)
        for sample, rank in found:
            members.setdefault(_key(rank.process) if twice else key, []).append((sample, rank))
    # Processes that only have a rank (of a shell, of a test) are not a job beside one.
    at_work = {key: found for key, found in members.items() if any(one.at_work for _, one in found)}
    members, left = _without_left(at_work or members)
    groups = [_group(log, key, found, now) for key, found in members.items()]
    return [groups[0]._replace(left=left), *groups[1:]] if groups else []


def _without_left(members: dict[_Key, _Members]) -> tuple[dict[_Key, _Members], tuple[JobPlace, ...]]:
    """Return the ranks of each job, and apart the processes that an earlier job has left.

    These no longer have a connection, while the ranks of a job have one, and the job does not miss them.
    """
    joined = {key for key, rows in members.items() if any(rank.connected for _, rank in rows)}
    kept: dict[_Key, _Members] = {}
    left: list[JobPlace] = []
    for key, rows in members.items():
        numbers = {rank.process.rank for _, rank in rows if rank.connected}
        for sample, rank in rows:
            lost = rank.connected is False and joined
            if lost and (key not in joined or rank.process.rank in numbers):
                left.append(_place(rank.process))
            else:
                kept.setdefault(key, []).append((sample, rank))
    return kept, tuple(left)


def _key(process: RankProcess) -> tuple[str, int | None, str, str]:
    env = dict(process.env)
    if process.job:
        return process.job, process.world, "", ""
    address = env.get("MASTER_ADDR", "")
    # All jobs of one node may use the usual port there.
    own = process.node if not address or address.startswith("127.") or address in ("localhost", "::1") else address
    return "", process.world, env.get("MASTER_PORT", ""), env.get("PMIX_NAMESPACE", own)


def _group(log: JobEvidenceLog, key: _Key, members: _Members, now: float) -> JobGroup:
    tracks = log.tracks
    ranks = []
    for sample, one in members:
        process = one.process
        track = tracks.ranks[process.node, process.pid]
        gpus = tuple(found for number in process.gpus if (found := sample.gpu(number)) is not None)
        followed = tuple(tracks.gpus[process.node, gpu.number] for gpu in gpus)
        ranks.append(JobRank(track, _place(process), gpus, followed))
    ranks.sort(key=lambda one: (one.place.rank, one.place.node))
    nodes = tuple(dict.fromkeys(sample.node for sample, _ in members))
    first = min(one.track.first for one in ranks)
    return JobGroup(tuple(ranks), _gone(log, key, ranks, now), key[0], key[1], nodes, now, first)


def _place(process: RankProcess) -> JobPlace:
    return JobPlace(process.rank, process.node, process.pid, ",".join(map(str, process.gpus)))


def _gone(log: JobEvidenceLog, key: _Key, ranks: Sequence[JobRank], now: float) -> tuple[JobPlace, ...]:
    """Return the ranks that have ended or are missing among those of their node, while others run."""
    alive = {one.place.rank for one in ranks}
    ended_ranks = {}
    for track in log.tracks.ranks.values():
        process = track.process
        sample = log.latest(process.node)
        ended = sample is not None and track.seen < sample.time and now - track.seen >= _DEAD
        if ended and process.rank not in alive and _key(process)[: len(key)] == key:
            ended_ranks[process.rank] = _place(process)
    # Started after it had ended: torchrun numbers the ranks of a node without gaps.
    for one in ranks:
        process = one.track.process
        size = dict(process.env).get("LOCAL_WORLD_SIZE", "")
        if process.local_rank is not None and size.isdecimal() and len(size) < 5:
            start = process.rank - process.local_rank
            for rank in range(start, start + int(size)):
                if rank not in alive and rank not in ended_ranks and _long_there(one, now):
                    ended_ranks[rank] = JobPlace(rank, process.node)
    return tuple(ended_ranks[rank] for rank in sorted(ended_ranks))


def _long_there(one: JobRank, now: float) -> bool:
    """Return True if the others of a rank's node would be there as well."""
    age = one.track.last.age if one.track.last is not None else None
    return now - one.track.first >= _DEAD or (age is not None and age >= _STARTING)


class _Named(NamedTuple):
    """The ranks that the others wait for, and what they do."""

    behind: tuple[JobPlace, ...]
    where: str = ""
    needs: str = ""
    struck: Severity | None = None  #: Severity of the report of the kernel that names them.
    step: tuple[str, str] | None = None  #: Node and command that show more.


class _Judge:
    """Judges one job."""

    def __init__(self, model: Model, group: JobGroup, patience: float) -> None:
        self._model, self._log, self._group = model, model.job, group
        self._patience = patience
        self._now = group.now
        self._ras = sources.ras(self._log, group)
        if self._ras is not None and self._ras.gone:
            ranks = {place.rank: place for place in (*self._ras.gone, *group.gone)}
            group = self._group = group._replace(gone=tuple(ranks[rank] for rank in sorted(ranks)))
        self._logs = sources.logs(self._log)
        self._nvml = sources.nvml(group)
        self._processes = sources.processes(group)
        self._stacks = sources.stacks(self._log, group)
        self._flight = sources.concluded(self._log, group, JobSource.FLIGHT, "flight recorder")
        self._inspector = sources.concluded(self._log, group, JobSource.INSPECTOR, "Inspector")
        self._kernel = sources.kernel(self._log, group, self._processes.suspects)
        self._network = job_network(self._log, group, {end.address: end.node for end in model.endpoints if end.address})

    def verdict(self) -> JobVerdict:
        group = self._group
        stopped = [one for one in group.ranks if one.stopped]
        if stopped and len(stopped) == len(group.ranks):
            halted = max(one.track.stopped or self._now for one in stopped)
            return self._made(JobState.PAUSED, halted, _Named((), "all ranks are stopped (suspended)"))
        if stopped or group.gone:
            return self._made(JobState.HANGS, self._silent_since(stopped), self._named())
        network = self._network
        if network is not None and network.stuck:
            verdict = self._made(JobState.HANGS, network.since, _Named((), network.stuck, step=network.next))
            # The other end of a path shows its direction.
            return verdict._replace(settled=network.whole or self._now - group.first >= _OTHERS)
        since = self._moved()
        quiet = self._now - (group.first if since is None else since)
        if (paused := self._paused(since, quiet)) is not None:
            return paused
        if self._ras_stands():
            assert self._ras is not None
            return self._made(JobState.HANGS, self._now - self._ras.stands, self._named())
        if quiet >= self._limit(since):
            if absent := self._absent():
                self._group = group = group._replace(gone=absent)
                return self._made(JobState.HANGS, since or group.first, self._named())
            computing = self._computing()
            if since is None and computing:
                # The usual time of an iteration is unknown.
                return self._made(JobState.UNKNOWN, group.first, _Named((), "", self._unproven(quiet, computing)))
            verdict = self._made(JobState.HANGS, since or group.first, self._named())
            # Whether a rank that is not seen has ended shows after a while.
            whole = len(group.ranks) == (group.world or len(group.ranks))
            return verdict._replace(settled=whole or self._now - group.first >= _OTHERS)
        if since is None:
            needs = f"no progress for {quiet:.0f} s so far"
            state, lacks = (JobState.STARTING, "") if self._young() else (JobState.UNKNOWN, needs)
            return self._made(state, group.first, _Named((), "", lacks))
        if self._ras is not None and self._ras.apart:
            return self._made(JobState.DIVERGES, group.first, _Named(self._ras.apart, self._different()))
        if network is not None and network.slow:
            verdict = self._made(JobState.SLOW, group.first, _Named((), network.slow, step=network.next))
            return verdict._replace(settled=network.whole or self._now - group.first >= _OTHERS)
        if (late := late_ranks(self._log, group)) is not None:
            return self._made(JobState.SLOW, late.since, _Named(late.places, late.where))
        if self._logs is not None and self._logs.slowed:
            verdict = self._made(JobState.SLOW, group.first, _Named((), self._logs.slowed))
            # A rank that is late shows after a while.
            return verdict._replace(settled=self._now - group.first >= _SETTLED)
        return self._made(JobState.MOVES, group.first, self._struck(Severity.WARN), quiet)

    def _silent_since(self, stopped: Sequence[JobRank]) -> float:
        times: list[float] = [one.track.stopped for one in stopped if one.track.stopped is not None]
        for place in self._group.gone:
            track = self._log.tracks.ranks.get((place.node, place.pid or 0))
            times.append(track.seen if track is not None else self._group.first)
        return min(times, default=self._now)

    def _moved(self) -> float | None:
        """Return when the job made progress last, by any source; None if no source has seen any."""
        times: list[float | None] = [one.track.moved for one in self._group.ranks]
        times += [self._ras.grew if self._ras is not None else None]
        times += [self._logs.moved if self._logs is not None else None]
        times += [self._network.moves if self._network is not None else None]
        return max((one for one in times if one is not None), default=None)

    def _limit(self, since: float | None) -> float:
        """Return the time (s) without progress that is too long."""
        group = self._group
        usual = min((one.track.usual_pause for one in group.ranks), default=0.0)
        limit = max(self._patience, _USUAL_TIMES * usual)
        if since is None and self._mute():
            limit = min(limit, _MUTE)
        elif since is None and self._young():
            limit = max(limit, _STARTING)
        if any(one.state == "D" for one in group.ranks):
            limit = max(limit, _BLOCKED)
        # Nobody waits for a job of one rank, and one that nobody measures may work unseen.
        alone = group.world == 1 or (group.world is None and len(group.ranks) == 1)
        return float("inf") if alone or not self._measured() else limit

    def _young(self) -> bool:
        """Return True if the job may still compile and load."""
        if self._network is not None and self._network.worked:
            return False
        ages = [one.track.last.age for one in self._group.ranks if one.track.last is not None]
        return any(age is not None and age < _YOUNG for age in ages)

    def _mute(self) -> bool:
        """Return True if no rank is missing or has a GPU: what compiles or loads uses the processor or files."""
        group = self._group
        return group.world == len(group.ranks) and not any(one.gpu_tracks for one in group.ranks)

    def _computing(self) -> list[JobRank]:
        """Return the ranks without a GPU that use the processor: they may be within a long iteration."""
        return [one for one in self._group.ranks if not one.gpu_tracks and (one.track.cpu or 0.0) >= _COMPUTES]

    def _unproven(self, quiet: float, computing: Sequence[JobRank]) -> str:
        whole = len(computing) == len(self._group.ranks)
        ranks = who([one.place for one in computing], self._rows(JobState.UNKNOWN, ()))
        does = "runs on the CPU" if len(computing) == 1 else "run on the CPU"
        does = f"all ranks {does}" if whole else f"{ranks} {does}, the others wait"
        text = f"no sign of progress for at least {clock(quiet)}: {does}"
        return f"{text}; the log of the job (--logs) or a longer look (--for 60) would show whether it moves"

    def _measured(self) -> bool:
        """Return True if progress would be seen: of GPUs, or of ranks that need none."""
        known = [track.works for one in self._group.ranks for track in one.gpu_tracks]
        bare = [one.track.cpu for one in self._group.ranks if not one.gpu_tracks]
        return any(one is not None for one in (*known, *bare))

    def _ras_stands(self) -> bool:
        """Return True if counts of RAS differ and stay while nothing but processor time shows progress."""
        if self._ras is None or not self._ras.differ or self._ras.stands < self._patience:
            return False
        working = any(track.works for one in self._group.ranks for track in one.gpu_tracks)
        recent = self._logs is not None and self._logs.moved is not None and self._now - self._logs.moved < _RECENT
        return not working and not recent

    def _paused(self, since: float | None, quiet: float) -> JobVerdict | None:
        """Return the verdict about ranks that write files or compute alone while the others wait."""
        group = self._group
        active = max((one.track.active for one in group.ranks if one.track.active is not None), default=None)
        still = _since(active, self._now)
        writing = [one for one in group.ranks if _since(one.track.filed, self._now) <= _RECENT]
        bare = not any(one.gpu_tracks for one in group.ranks)
        others = (one.track.cpu or 0.0 for one in group.ranks if one not in writing)
        if writing and (still >= _RECENT - 1 or (bare and max(others, default=0.0) < 0.1)):
            places = tuple(one.place for one in writing) if len(writing) < len(group.ranks) else ()
            began = min(one.track.filed_since or self._now for one in writing)
            return self._made(JobState.PAUSED, max(began, active or 0.0), _Named(places, _files(writing, not places)))
        busy = [one for one in group.ranks if _since(one.track.busy, self._now) <= _RECENT]
        allowed = _BUSY if since is not None else 900.0
        if busy and quiet >= _RECENT and quiet < allowed:
            places = tuple(one.place for one in busy) if len(busy) < len(group.ranks) else ()
            where = "computes on the CPU while the others wait" if len(places) == 1 else "compute on the CPU"
            state = JobState.STARTING if since is None else JobState.PAUSED
            return self._made(state, since or group.first, _Named(places, where if places else f"all ranks {where}"))
        return None

    # -- who is behind ------------------------------------------------------------------------------------------------

    def _named(self) -> _Named:
        group = self._group
        struck = self._struck(Severity.BAD)
        if group.gone:
            if struck.behind and set(struck.behind) <= set(group.gone):
                return struck
            words = [one.text for one in self._failures() if one.rank in {place.rank for place in group.gone}]
            return _Named(
                group.gone, f"{has(len(group.gone))} ended while the others run" + ": ".join(["", *words[:1]])
            )
        stopped = tuple(one.place for one in group.ranks if one.stopped)
        if stopped:
            return _Named(stopped, "is stopped" if len(stopped) == 1 else "are stopped")
        if struck.behind:
            return struck
        if (silent := self._silent_nodes()) is not None:
            return silent
        if (failed := self._failed()) is not None:
            return failed
        ranked = [self._nvml, self._flight, self._ras.reading if self._ras else None]
        ranked += [self._stacks.reading if self._stacks else None, self._processes]
        naming = [one for one in (*ranked, self._inspector) if one is not None and one.suspects]
        if not naming:
            return _Named((), "", self._lacks())
        first = naming[0]
        behind = first.suspects
        # Idle ranks that a second source names as well come first.
        for other in naming[1:]:
            both = tuple(place for place in behind if place in other.suspects)
            behind = (*both, *(place for place in behind if place not in both)) if both else behind
        apart = [one for one in naming[1:] if not set(one.suspects) & set(behind)]
        doubt = "; ".join(f"{one.name} names {ranks_of(one.suspects)} instead" for one in apart)
        return _Named(behind, self._where(behind), doubt)

    def _silent_nodes(self) -> _Named | None:
        """Return which nodes give no answer while ranks are missing."""
        group = self._group
        missing = (group.world or 0) - len(group.ranks) - len(group.gone)
        times = {name: sample.time for name in self._model.nodes if (sample := self._log.latest(name)) is not None}
        silent = [
            name for name in self._model.nodes if self._now - times.get(name, 0.0) > _OLD and not self._bare(name)
        ]
        if missing <= 0 or not silent or self._now - group.first < _DEAD:
            return None
        verb = "gives" if len(silent) == 1 else "give"
        seen = f"{missing} of {count(group.world or 0, 'rank')} {'is' if missing == 1 else 'are'} not seen"
        return _Named((), f"{fold(silent)} {verb} no answer; {seen}", step=(silent[0], "uptime"))

    def _failures(self) -> tuple[sources.LogFailure, ...]:
        return self._logs.failures if self._logs is not None else ()

    def _failed(self) -> _Named | None:
        """Return the rank whose log has the earliest error, where its process is still there."""
        for failure in self._failures():
            for one in self._group.ranks:
                if one.place.rank == failure.rank:
                    return _Named((one.place,), f"has failed: {failure.text}")
        return None

    def _bare(self, node: str) -> bool:
        """Return True if a node has answered that it has no rank."""
        sample = self._log.latest(node)
        return sample is not None and not sample.ranks

    def _absent(self) -> tuple[JobPlace, ...]:
        """Return the ranks that no node has, where all nodes of the job have answered: they have ended."""
        group = self._group
        missing = sorted(set(range(min(group.world or 0, 1 << 16))) - {one.place.rank for one in group.ranks})
        whole = self._network is not None and self._network.within
        if not missing or not whole or self._silent_nodes() is not None or self._now - group.first < _DEAD:
            return ()
        bare = [name for name in self._model.nodes if self._bare(name)]
        alike = len(missing) % len(bare) == 0 if bare else False
        share = len(missing) // len(bare) if alike else 0
        return tuple(JobPlace(rank, bare[at // share] if alike else "") for at, rank in enumerate(missing))

    def _where(self, behind: Sequence[JobPlace]) -> str:
        rank = self._group.rank(behind[0])
        if self._ras is not None and self._ras.reading.suspects and "different collectives" in self._ras.reading.text:
            return self._different()
        if rank is None:
            return ""
        does = sources.activity(rank)
        if len(behind) > 1:
            return "are awaited"
        tree = self._stacks.tree if self._stacks is not None else ()
        if frames := [one.frames[-1] for one in tree if one.frames and behind[0].rank in one.ranks]:
            does = f"is in {one_line(frames[-1], 120)}"
        if self._ras is not None and self._ras.pending and behind[0] in self._ras.reading.suspects:
            does = "has not matched a send or receive of the others"
        return does

    def _different(self) -> str:
        named = self._ras.reading.suspects if self._ras is not None else ()
        return "call different collectives" if len(named) != 1 else "calls a different collective from the others"

    def _before(self) -> str:
        """Return which ranks used files shortly before, or ""."""
        users = [one for one in self._group.ranks if _since(one.track.filed, self._now) <= _BEFORE]
        seconds = max(((one.track.filed or 0.0) - (one.track.filed_since or 0.0) for one in users), default=0.0)
        if seconds < _RECENT:
            return ""
        whole = len(users) == len(self._group.ranks)
        ranks = "all ranks" if whole else ranks_text(one.place for one in users)
        did = "wrote" if all(one.track.writes for one in users) else "read or wrote"
        return f"{ranks} {did} files for {clock(seconds)} just before"

    def _struck(self, least: Severity) -> _Named:
        """Return the ranks that a report of the kernel is about: the first that is grave enough, or came lately."""
        since = self._moved() or self._group.first
        kept = [one for one in self._kernel.reports if one.severity.rank <= least.rank or one.when >= since - _LATELY]
        alike = tuple(dict.fromkeys(one.place for one in kept if one.text == kept[0].text))
        gone = bool(alike) and alike[0] in self._group.gone
        return _Named(alike, kept[0].where(len(alike), gone), struck=kept[0].severity) if kept else _Named(())

    def _lacks(self) -> str:
        group = self._group
        if all(one.spins for one in group.ranks):
            text = "not enough evidence: all GPUs wait in a collective, send or receive"
        else:
            text = "not enough evidence: no source separates the ranks"
        would = []
        if self._flight is None:
            would.append("PyTorch's flight recorder (TORCH_NCCL_TRACE_BUFFER_SIZE=2000)")
        if self._stacks is None or self._stacks.reading.blind:
            would.append("stacks (py-spy on the nodes, or here: pip install 'fabtui[stacks]')")
        if self._ras is None and any(one.gpu_tracks for one in group.ranks):
            would.append("NCCL RAS (NCCL 2.24 or later)")
        return text + (f"; {' or '.join(would)} would show it" if would else "")

    # -- the verdict --------------------------------------------------------------------------------------------------

    def _made(self, state: JobState, since: float, named: _Named, quiet: float = 0.0) -> JobVerdict:
        """Return a verdict; ``quiet`` is the time (s) since the last progress of a job that moves."""
        group = self._group
        grave = named if named.struck is not None else self._struck(Severity.BAD)
        notes = [self._before() if state is JobState.MOVES else ""]
        rows = self._rows(state, named.behind)
        moves = state in (JobState.MOVES, JobState.SLOW)
        uneven = uneven_text(self._model, group.nodes, self._now) if moves else ""
        notes += [
            uneven,
            _left_text(group.left),
            f"{who(grave.behind, rows)} {grave.where}" if grave.behind and grave is not named else "",
        ]
        sure = state in (JobState.HANGS, JobState.SLOW, JobState.DIVERGES, JobState.PAUSED)
        # A job that starts may hang; one that moved a moment ago, too.
        even = state is JobState.MOVES and quiet < _RECENT
        settled = sure or (even and self._now - group.first >= _SETTLED)
        read = [self._stacks.reading if self._stacks else None, self._nvml, self._processes]
        read += [self._ras.reading if self._ras else None, self._flight, self._inspector]
        read += [self._logs.reading if self._logs else None, self._kernel.reading]
        read += [self._network.reading if self._network else None]
        return JobVerdict(
            state,
            since,
            self._now,
            group.job,
            group.nodes,
            rows,
            named.behind,
            named.where,
            tuple(one._replace(text=one_line(one.text, 500)) for one in read if one is not None and one.text),
            self._kernel.fabric,
            self._next(state, named),
            self._logs.per_minute if self._logs is not None else None,
            named.needs,
            group.world,
            settled,
            "; ".join(filter(None, notes)),
            quiet if state is JobState.MOVES else 0.0,
            grave.struck is Severity.BAD,
            since <= group.first,
            bool(uneven),
            stacks=self._stacks.tree if self._stacks is not None else (),
        )

    def _next(self, state: JobState, named: _Named) -> tuple[str, ...]:
        if state is JobState.PAUSED or (not named.behind and state not in (JobState.HANGS, JobState.SLOW)):
            return ()
        if named.step is not None:
            return (self._typed(*named.step),)
        place = named.behind[0] if named.behind else self._group.ranks[0].place
        rank = self._group.rank(place)
        if named.struck is not None and place not in self._group.gone:
            command = f"nvidia-smi -q -i {place.gpu.partition(',')[0]}"
        elif place in self._group.gone:
            command = "sudo dmesg -T | grep -iE 'out of memory|killed process|segfault|Xid' | tail"
        elif rank is not None and rank.stopped:
            command = f"kill -CONT {place.pid}"
        else:
            command = sources.stack_step(self._log, place) or stack_command(place)
        return (self._typed(place.node, command),)

    def _typed(self, node: str, command: str) -> str:
        record = self._model.nodes.get(node)
        return command_on_node(self._model.options, node, command, record.backend if record else "")

    def _rows(self, state: JobState, behind: Sequence[JobPlace]) -> tuple[RankRow, ...]:
        rows = [self._row(one, state, behind) for one in self._group.ranks]
        young = state is JobState.STARTING
        for place in self._group.gone:
            shown = RankState.NOT_STARTED if young else RankState.DEAD
            number = place.gpu.partition(",")[0] or str(place.rank)
            rows.append(RankRow(place, f"{place.node}:{number}", shown, "its process has ended"))
        return tuple(sorted(rows, key=lambda row: (row.rank, row.place.node)))

    def _row(self, one: JobRank, state: JobState, behind: Sequence[JobPlace]) -> RankRow:
        shown, why = RankState.COMPUTING, sources.activity(one)
        use, power = one.utilization, one.power
        if one.gpus and use is not None:
            why = f"GPU {use:.0f} %" + (f" at {power:.0f} W" if power is not None else "") + f"; {why}"
        stands = state in (JobState.HANGS, JobState.PAUSED, JobState.SLOW, JobState.STARTING)
        if one.stopped:
            shown = RankState.STOPPED
        elif one.place in behind and state in (JobState.HANGS, JobState.SLOW, JobState.PAUSED, JobState.DIVERGES):
            shown = RankState.AWAITED
        elif one.spins or state is JobState.SLOW or (stands and not one.gpu_tracks):
            shown = RankState.WAITING
        elif one.idle:
            shown = RankState.IDLE
        elif one.gpu_tracks and all(track.works is None for track in one.gpu_tracks):
            shown = RankState.UNKNOWN
        links = [track.nvlink for track in one.gpu_tracks if track.nvlink is not None]
        nvlink, track = sum(links) if links else None, one.track
        return RankRow(one.place, track.process.endpoint, shown, why, use, power, nvlink, track.nic, track.cpu)


def _left_text(left: Sequence[JobPlace]) -> str:
    if not left:
        return ""
    nodes = {place.node: [one.pid for one in left if one.node == place.node] for place in left}
    places = ", ".join(f"{node}: pid {', '.join(map(str, pids[:_MOST_OTHERS]))}" for node, pids in nodes.items())
    processes = "a process of an earlier job is" if len(left) == 1 else f"{len(left)} processes of earlier jobs are"
    return f"{processes} left on {places}"


def _files(ranks: Sequence[JobRank], whole: bool) -> str:
    verb = "s" if len(ranks) == 1 and not whole else ""
    does = f"write{verb}" if all(one.track.writes for one in ranks) else f"read{verb} or write{verb}"
    total = sum(one.track.file_rate or 0.0 for one in ranks)
    return f"{'all ranks ' if whole else ''}{does} files" + (f", {sources.rate(total)}" if total else "")


def _since(when: float | None, now: float) -> float:
    return float("inf") if when is None else now - when
