"""Verdict about a running job: its state, the state of each rank, who is behind, and by which evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from fabtui.diagnosis.job.who_is_behind import JobPlace, StackBranch, ranks_text
from fabtui.exit_status import ALL_OK, BAD, NOT_TESTED
from fabtui.nodeset import count, fold


class JobState(StrEnum):
    """State of a running job."""

    HANGS = "hangs"
    SLOW = "slow"  #: It moves, held up by a rank.
    DIVERGES = "diverges"  #: It moves, but its ranks call different collectives.
    MOVES = "moves"
    PAUSED = "paused"  #: It writes a checkpoint, reads data, or is suspended.
    STARTING = "starting"
    ENDED = "ended"
    UNKNOWN = "unknown"


class RankState(StrEnum):
    """State of a rank."""

    COMPUTING = "computing"
    WAITING = "waiting"  #: In a collective, for another rank.
    AWAITED = "awaited"  #: The others wait for it.
    STOPPED = "stopped"  #: By a signal.
    NOT_STARTED = "not started"
    DEAD = "dead"
    IDLE = "idle"
    UNKNOWN = "unknown"


class RankRow(NamedTuple):
    """A rank of the job now; None where a value is unknown."""

    place: JobPlace
    endpoint: str  #: ``n061:1``: node and GPU, or rank within the node.
    state: RankState
    why: str  #: What shows its state: ``100 % at 126 W, NVLink 0``.
    utilization: float | None = None  #: Percent of its GPUs, the mean.
    power: float | None = None  #: W of its GPUs, the sum.
    nvlink: float | None = None  #: Bytes per second over the NVLinks of its GPUs, both directions.
    nic: float | None = None  #: Bytes per second over the NICs of its node, both directions.
    cpu: float | None = None  #: Share of a processor that its main thread takes.

    @property
    def rank(self) -> int:
        return self.place.rank


class SourceReading(NamedTuple):
    """Finding of a source of evidence."""

    name: str  #: ``NVML``, ``/proc``, ``RAS``, ``stacks``, ``flight recorder``, ``log``, ``Inspector``, ``kernel``...
    text: str  #: What it saw.
    blind: str  #: What it cannot see, or "".
    at: float  #: When (epoch seconds).
    suspects: tuple[JobPlace, ...] = ()  #: The ranks that it names.


class JobVerdict(NamedTuple):
    """Verdict about a running job, from all sources."""

    state: JobState
    since: float  #: Start of the state (epoch seconds), as far as it was seen.
    at: float  #: Time of the evidence (epoch seconds).
    job: str  #: Id of its Slurm job, or "".
    nodes: tuple[str, ...]
    ranks: tuple[RankRow, ...]  #: By rank.
    behind: tuple[JobPlace, ...] = ()  #: The ranks that the others wait for, the first one first.
    where: str = ""  #: What these ranks do: ``is stopped``, ``sleeps in hrtimer_nanosleep``.
    sources: tuple[SourceReading, ...] = ()
    fabric: str = ""  #: Whether the fabric shows any sign.
    next: tuple[str, ...] = ()  #: Commands to type next.
    per_minute: float | None = None  #: Iterations per minute, if a log shows them.
    needs: str = ""  #: What the evidence lacks, and what would give it; "" if it suffices.
    world: int | None = None  #: Number of ranks of the job, None if unknown.
    settled: bool = False  #: Whether more samples of the same sources will hardly change it.
    note: str = ""  #: What happened besides: ``rank 1 wrote files for 0:11 before``.
    quiet: float = 0.0  #: Time (s) since the last progress of a job that moves.
    struck: bool = False  #: Whether a kernel has reported that a GPU of it cannot be trusted.

    longer: bool = False  #: Whether its state began before the first sample.
    uneven: bool = False  #: Whether a port or NVLinks of its nodes carry less than their peers.
    process: int | None = None  #: A process of it, where other jobs run on its nodes.
    beside: str = ""  #: What these do.
    failed: bool = False  #: Whether it has ended by an error.
    stacks: tuple[StackBranch, ...] = ()  #: The stacks of its ranks as a prefix tree.

    @property
    def bad(self) -> bool:
        """True if the job hangs, is held up, has failed, or computes what nobody wants."""
        return self.failed or self.state in (JobState.HANGS, JobState.SLOW, JobState.DIVERGES)

    @property
    def alerts(self) -> bool:
        """True if it comes before all that tests show: it is bad, or will be."""
        return self.bad or self.struck

    @property
    def seconds(self) -> float:
        """Time (s) that it has been in this state, as far as it was seen."""
        return max(0.0, self.at - self.since)

    @property
    def duration(self) -> str:
        """Duration of its state: ``0:14``, ``0:14 or longer`` if it began before the first sample."""
        return f"{clock(max(1.0, self.seconds))} or longer" if self.longer else clock(self.seconds)

    @property
    def lasts(self) -> bool:
        """True if it has been in this state for a second, or was in it before the first sample."""
        return self.longer or self.seconds >= 1

    @property
    def title(self) -> str:
        """The job, in a few words: ``the job on n060,n061 (32 ranks)``."""
        ranks = self.world or len(self.ranks)
        size = f" ({count(ranks, 'rank')})" if ranks else ""
        name = f"job {self.job}" if self.job else "the job"
        name += f" of process {self.process}" if self.process is not None and not self.job else ""
        return f"{name} on {fold(self.nodes)}{size}" if self.nodes else f"{name}{size}"

    @property
    def sentence(self) -> str:
        following = f"; next: {self.next[0]}" if self.next and self.alerts else ""
        lacks = f"; {self.needs}" if self.needs and self.bad else ""
        beside = f"; also, {self.beside}" if self.beside else ""
        return f"{self.title} {self.statement}{lacks}{beside}{following}"

    @property
    def statement(self) -> str:
        """Statement about the job, without its name: ``has been hanging for 0:14: rank 9 on n061:1 is stopped``."""
        return "; ".join(filter(None, (self._statement(), self.note)))

    def _statement(self) -> str:
        named = f"{who(self.behind, self.ranks)} {self.where}".strip()
        match self.state:
            case JobState.HANGS:
                words = f"has been hanging for {self.duration}" if self.lasts else "hangs"
            case JobState.PAUSED:
                words = f"has been paused for {self.duration}" if self.lasts else "is paused"
            case JobState.SLOW | JobState.STARTING:
                words = f"is {self.state}"
            case JobState.MOVES:
                pace = "" if self.per_minute is None else f": {self.per_minute:.3g} iterations/min"
                return "; ".join(filter(None, (f"is making progress{pace}", named)))
            case JobState.DIVERGES:
                return f"is making progress, but {named}"
            case JobState.ENDED:
                return f"has failed: {named}" if self.failed else "has ended"
            case _:
                return f"is in an unknown state: {self.needs or 'nothing has been observed yet'}"
        return words + (f": {named}" if named else "")


def exit_code(verdict: JobVerdict | None) -> int:
    """Return 3 without a verdict, or if too little was seen for one; 1 if the job is bad; else 0."""
    if verdict is None or verdict.state is JobState.UNKNOWN:
        return NOT_TESTED
    return BAD if verdict.bad else ALL_OK


def who(places: Sequence[JobPlace], rows: Iterable[RankRow]) -> str:
    """Return ranks with their nodes, a single one with its endpoint: ``rank 9 on n061:1``."""
    if len(places) != 1:
        return ranks_text(places) if places else ""
    (place,) = places
    where = next((row.endpoint for row in rows if row.place == place), place.node)
    # Dumps do not name their nodes.
    return f"rank {place.rank} on {where}" if where else f"rank {place.rank}"


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds: ``0:14``, ``1:02:03``."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
