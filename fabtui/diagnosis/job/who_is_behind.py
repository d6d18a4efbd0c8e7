"""Ranks that are behind in a job: where they run, operations that some have not called, the answer in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any, NamedTuple

from fabtui.model.facts.node_view import dicts
from fabtui.nodeset import count, ranges
from fabtui.sanitize import one_line
from fabtui_node.parsers.lines import json_number

#: Maximum number of nodes that a sentence names.
_MOST_NODES = 3


#: Why nothing is known of a job.
NO_RANK = "no process with a rank (RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK) is visible to this user on"
#: Verbs about one rank, and about several.
_PLURALS = {"is": "are", "has": "have", "runs": "run", "sleeps": "sleep", "waits": "wait", "works": "work"}
#: Maximum number of frames that a line shows, and of characters of one.
_SHOWN, _LONGEST = 4, 200
STOPPED = "stopped (kill -CONT resumes it)"
#: Share of a processor from which a main thread is busy.
_BUSY = 0.5


class JobPlace(NamedTuple):
    """A rank of a communicator or process group, and where it runs."""

    rank: int  #: Its number in the communicator or group.
    node: str = ""  #: Name or address of the node; "" if unknown.
    pid: int | None = None  #: Its process on the node, or None.
    gpu: str = ""  #: Its GPUs as nvidia-smi numbers them (``5`` or ``4,5``); "" if unknown.

    @property
    def process(self) -> tuple[str, int | None, str] | int:
        """Identity of the process in all communicators, or its rank where the process is unknown."""
        return self.rank if self.pid is None else (self.node, self.pid, self.gpu)


def ranks_of(places: Iterable[JobPlace]) -> str:
    """Return ranks by number: ``rank 9``, ``ranks 8-11``."""
    numbers = {place.rank for place in places}
    return f"rank{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"


def ranks_text(places: Iterable[JobPlace]) -> str:
    """Return ranks with their nodes: ``rank 1 on n061``, ``ranks 8-11 on n062 and 16 on n063``."""
    nodes: dict[str, list[int]] = {}
    for place in sorted(places, key=lambda place: place.rank):
        nodes.setdefault(place.node, []).append(place.rank)
    every = [rank for ranks in nodes.values() for rank in ranks]
    word = "rank" if len(set(every)) == 1 else "ranks"
    if len(nodes) > _MOST_NODES:
        return f"{word} {ranges(every)} on {count(len(nodes), 'node')}"
    texts = [ranges(ranks) + (f" on {node}" if node else "") for node, ranks in nodes.items()]
    return f"{word} {' and '.join(texts)}"


def has(places: int) -> str:
    return "has" if places == 1 else "have"


def plural(words: str) -> str:
    """Return what one rank does as words about several: ``runs on the CPU`` as ``run on the CPU``."""
    verb, space, rest = words.partition(" ")
    return _PLURALS.get(verb, verb) + space + rest


class UnmatchedOperation(NamedTuple):
    """An operation that some ranks have called and others have not."""

    operation: str  #: Its name as the source writes it: ``AllReduce``, ``all_reduce``.
    number: int  #: Its number in the communicator or group: the first that not all have called.
    group: str  #: The communicator or process group, for users.
    size: int | None  #: The number of ranks of the group, or None.
    behind: tuple[JobPlace, ...]  #: The ranks that have not called it, as far as they are listed.
    unlisted: int  #: How many more have not called it.
    waiting: tuple[JobPlace, ...]  #: The ranks that have called it, as far as they are listed.
    highest: int  #: The last operation that a rank has called.
    text: str = ""  #: The sentence about it, where the source knows more than this.

    def sentence(self) -> str:
        if self.text:
            return self.text
        size = "" if self.size is None else f" ({self.size} ranks)"
        number = len(self.behind) + self.unlisted
        who = ranks_text(self.behind) if self.behind else f"{self.unlisted} ranks that the report does not name"
        more = f" and {self.unlisted} more" if self.behind and self.unlisted else ""
        last = f"last {self.number - 1}" if self.number > 1 else "none so far"
        return (
            f"{self.operation} {self.number} of {self.group}{size}: {who}{more} {has(number)} not called it ({last});"
            f" the others are at {self.highest}"
        )


def causes_first(gaps: Iterable[UnmatchedOperation]) -> list[UnmatchedOperation]:
    """Return gaps with those first whose late ranks wait for nobody: a rank that waits elsewhere is a consequence."""
    listed = list(gaps)
    waiting = {place.process for gap in listed for place in gap.waiting}

    def order(gap: UnmatchedOperation) -> tuple[bool, int]:
        return all(place.process in waiting for place in gap.behind), -len(gap.waiting)

    return sorted(listed, key=order)


def suspects(gaps: Iterable[UnmatchedOperation]) -> list[JobPlace]:
    """Return the late ranks of the first gap, without those that wait in another group."""
    ordered = causes_first(gaps)
    waiting = {place.process for gap in ordered for place in gap.waiting}
    late = list(ordered[0].behind) if ordered else []
    return [place for place in late if place.process not in waiting] or late


class WhoIsBehind(NamedTuple):
    """Answer to the question who is behind."""

    sentences: list[str]  #: The answer, the most important sentence first.
    next: list[str]  #: Commands to type next, each with its node.
    hangs: bool | None  #: True if a rank is behind, silent or failed; None if the source does not show it.
    suspects: tuple[JobPlace, ...] = ()  #: The ranks that it names, on whose nodes the cause is to be looked for.

    def values(self) -> dict[str, Any]:
        return {"answer": self.sentences, "next": self.next, "hangs": self.hangs, "behind": self._behind()}

    def evidence(self, blind: str = "") -> dict[str, Any]:
        """Return it as evidence about a running job, with what its source cannot see."""
        values = {"sentences": self.sentences, "suspects": self._behind(), "next": self.next}
        return {**values, "hangs": self.hangs, "blind": blind}

    def _behind(self) -> list[dict[str, Any]]:
        return [place._asdict() for place in self.suspects]


def stack_command(place: JobPlace) -> str:
    """Return the command that shows where a rank is, as typed on its node."""
    if place.pid is None:
        return "py-spy dump --pid PID (or cat /proc/PID/wchan, /proc/PID/status)"
    return f"py-spy dump --pid {place.pid}"


def state_command(place: JobPlace) -> str:
    """Return the command that shows whether the process of a rank is there, stopped or in the driver."""
    if place.pid is None:
        return "ps -eo pid,stat,wchan:32,etime,args"
    return f"ps -o pid,stat,wchan:32,etime,args -p {place.pid}"


def at_rank(place: JobPlace, command: str) -> str:
    """Return a command with the node or, if that is unknown, the rank."""
    if place.pid is None:
        return f"on the node of rank {place.rank}: {command}"
    return f"ssh {place.node} {command}" if place.node else command


class RankStack(NamedTuple):
    """Place in the program of a rank."""

    place: JobPlace  #: Its rank, node and process.
    #: Functions from the innermost, such as ``all_reduce (distributed_c10d.py:3068)``; none if unknown.
    frames: tuple[str, ...]
    activity: str  #: What the kernel shows: ``running``, ``sleeping in hrtimer_nanosleep``, ``stopped``.


def rank_stacks(node: str, value: Mapping[str, Any]) -> list[RankStack]:
    """Return the ranks in a value of the probe ``stacks``."""
    stacks = []
    for one in dicts(value.get("ranks")):
        if isinstance(one.get("rank"), int) and isinstance(one.get("pid"), int):
            names = tuple(f"{frame.get('name')} ({frame.get('site')})" for frame in dicts(one.get("frames")))
            stacks.append(RankStack(JobPlace(one["rank"], node, one["pid"]), names, _activity(one)))
    return stacks


def grouped(stacks: Iterable[RankStack]) -> list[list[RankStack]]:
    """Return ranks with equal stacks together, the smallest group first."""
    groups: dict[tuple[str, ...], list[RankStack]] = {}
    for one in sorted(stacks, key=lambda one: one.place.rank):
        # What the kernel shows changes from moment to moment; it counts only where nothing better is known.
        known = one.frames and one.activity != STOPPED
        groups.setdefault(one.frames if known else (one.activity,), []).append(one)
    return sorted(groups.values(), key=len)


class StackBranch(NamedTuple):
    """Functions that ranks share, as a branch of the prefix tree of their stacks."""

    depth: int  #: Number of branches above it.
    ranks: tuple[int, ...]
    frames: tuple[str, ...]  #: From the outermost.
    activity: str  #: What the kernel shows of ranks whose stack ends here, or "".

    def lines(self, most: int | None = _SHOWN) -> list[str]:
        """Return it, cleaned, as STAT writes it: ``3:[0,2-3] step (train.py:9)``.

        At most ``most`` functions are on one line; without a maximum, each has a line of its own.
        """
        head = f"{'  ' * self.depth}{len(self.ranks)}:[{ranges(self.ranks)}] "
        frames = [one_line(frame, _LONGEST) for frame in self.frames]
        end = [one_line(self.activity, _LONGEST)] if self.activity else []
        if most is not None:
            return [head + " > ".join([*(["..."] if len(frames) > most else []), *frames[-most:], *end])]
        first, *rest = [*frames, *end] or [""]
        return [head + first, *(" " * (2 * self.depth + 2) + frame for frame in rest)]


def stack_tree(stacks: Iterable[RankStack], depth: int = 0, above: int = 0) -> list[StackBranch]:
    """Return the stacks of ranks as a prefix tree: a branch follows the one that it leaves, the smallest one first.

    ``above`` is the number of functions of the branches above, from the outermost.
    """
    apart: dict[str, list[RankStack]] = {}
    for one in stacks:
        rest = one.frames[: len(one.frames) - above]
        apart.setdefault(rest[-1] if rest else one.activity, []).append(one)
    branches = []
    for rows in sorted(apart.values(), key=lambda rows: (len(rows), rows[0].place.rank)):
        further = zip(*(one.frames[::-1][above:] for one in rows), strict=False)
        shared = tuple(names[0] for names in takewhile(lambda names: len(set(names)) == 1, further))
        ends = [one for one in rows if len(one.frames) == above + len(shared)]
        does = {one.activity for one in ends} if len(ends) == len(rows) else set()
        branches.append(
            StackBranch(depth, tuple(sorted(one.place.rank for one in rows)), shared, "; ".join(sorted(does)))
        )
        if len(ends) < len(rows):
            branches += stack_tree(rows, depth + 1, above + len(shared))
    return branches


def _activity(one: Mapping[str, Any]) -> str:
    """Return what the kernel shows of a main thread."""
    state, wait, cpu = one.get("state"), one.get("wait"), json_number(one.get("cpu"))
    if state in ("T", "t"):
        return STOPPED
    if cpu is not None and cpu >= _BUSY:
        return "running"
    where = f" in {wait}" if isinstance(wait, str) else ""
    return f"waiting for the driver or a file system{where}" if state == "D" else f"sleeping{where}"
