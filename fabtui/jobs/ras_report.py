"""Reports of NCCL RAS: communicators with the operations that their ranks have launched, and silent processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fabtui.jobs.who_is_behind import (
    Answer,
    Gap,
    JobPlace,
    at_rank,
    causes_first,
    ranks_text,
    stack_command,
    state_command,
    suspects,
)
from fabtui.nodeset import count

#: NCCL 2.24 and 2.25 count all collectives together.
ANY = "collective"


class Process(NamedTuple):
    """A process that RAS misses; ``dead``: RAS has given it up, which it never takes back."""

    pid: int
    node: str
    gpus: str
    dead: bool


class RasGroup(NamedTuple):
    """A row of the table of communicators in the text: communicators of the same shape and state."""

    number: int
    communicators: int
    nodes: int
    ranks_per_node: str
    ranks_per_communicator: int
    ranks: int
    status: str
    errors: str


@dataclass
class RasCommunicator:
    """A communicator.

    Attributes:
        name: Its hash, 16 hexadecimal digits.
        size: The number of its ranks, or None.
        places: Where its ranks run, by rank, as far as the report lists them.
        counts: How many operations a rank has launched, by operation and rank.
        tallies: How many ranks have launched how many operations, by operation and number of operations. The text lists
            not all ranks of a tally.
        silent: Ranks without data: ``dead``, ``unresponsive`` or ``missing``.
        errors: What ranks report, by rank.
        states: States of ranks that differ: ``INIT``, ``NOCOMM`` and others, by rank.
    """

    name: str
    size: int | None = None
    places: dict[int, JobPlace] = field(default_factory=dict)
    counts: dict[str, dict[int, int]] = field(default_factory=dict)
    tallies: dict[str, dict[int, int]] = field(default_factory=dict)
    silent: dict[int, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)

    def place(self, rank: int) -> JobPlace:
        """Return where a rank runs."""
        return self.places.get(rank, JobPlace(rank))

    def gaps(self) -> list[Gap]:
        """Return the operations that some ranks have launched and others have not: the lowest number is behind.

        NCCL lists the smaller side, which may be the one that is ahead.
        """
        found = []
        for operation, counts in self.counts.items():
            tallies = self.tallies.get(operation, {})
            numbers = {*counts.values(), *tallies}
            if len(numbers) < 2:
                continue
            low = min(numbers)
            behind = tuple(self.place(rank) for rank, number in counts.items() if number == low)
            waiting = tuple(self.place(rank) for rank, number in counts.items() if number > low)
            unlisted = max(0, tallies.get(low, 0) - len(behind))
            name = f"communicator {self.name}"
            found.append(Gap(operation, low + 1, name, self.size, behind, unlisted, waiting, max(numbers)))
        return found


@dataclass
class RasReport:
    """A report of NCCL RAS; what the report does not contain is None or empty."""

    nccl: str | None = None
    cuda_runtime: int | None = None
    cuda_driver: int | None = None
    time: str | None = None
    seconds: float | None = None
    timeouts: int = 0
    nodes: int | None = None
    processes: int | None = None
    gpus: int | None = None
    groups: list[RasGroup] = field(default_factory=list)
    communicators: dict[str, RasCommunicator] = field(default_factory=dict)
    missing: list[Process] = field(default_factory=list)
    complete: bool = False

    def hosts(self) -> list[str]:
        """Return the nodes of its ranks and processes, as RAS names them: by address."""
        places = [place.node for one in self.communicators.values() for place in one.places.values()]
        return list(dict.fromkeys(node for node in [*places, *(one.node for one in self.missing)] if node))

    def rename(self, names: Mapping[str, str]) -> None:
        """Replace the addresses of nodes by their names, as far as they are known."""
        for one in self.communicators.values():
            for rank, place in one.places.items():
                one.places[rank] = place._replace(node=names.get(place.node, place.node))
        self.missing = [one._replace(node=names.get(one.node, one.node)) for one in self.missing]


#: Maximum number of silent ranks that get a sentence, and of commands.
_MOST = 4
#: What RAS counts, after ``NCCL_NUM_FUNCTIONS``.
BLIND = (
    "RAS counts Broadcast, Reduce, AllGather, ReduceScatter and AllReduce only: a hang in send or recv (pipelines,"
    " all-to-all) does not show here; flight recorder dumps and stacks show it"
)
_FOREVER = "RAS gives up a process that is silent for 60 s, and does not notice if it goes on later"
_SILENT = {
    "dead": "RAS considers it dead",
    "unresponsive": "it does not answer RAS: it is stopped, or its node is cut off",
    "missing": "RAS has no data of it: it is stopped, busy, or its node is cut off",
}


def answer(report: RasReport, earlier: RasReport | None = None) -> Answer:
    """Return who is behind; with an earlier report of the same job, also whether the job moves."""
    every = list(report.communicators.values())
    silent = [(one, rank, why) for one in every for rank, why in one.silent.items()]
    places = list({one.place(rank).process: one.place(rank) for one, rank, _ in silent}.values())
    gaps = [gap for one in every for gap in one.gaps()]
    growth = None if earlier is None else _growth(report, earlier)
    if growth is not None:
        # Ranks that still launch operations are late only for the moment.
        gaps = [gap for gap in gaps if not any((gap.group, place.rank) in growth for place in gap.behind)]
    gaps = causes_first(gaps)
    sentences = [*_silent(silent, report), *_errors(every), *(gap.sentence() for gap in gaps[:1])]
    if len(gaps) > 1:
        sentences.append(f"{len(gaps) - 1} more counts differ; where late ranks wait elsewhere, that is a consequence")
    if not sentences:
        sentences = [_all_agree(report) if growth is None or not growth else "no rank stays behind"]
    moves = _movement(growth, bool(gaps))
    late = suspects(gaps)
    commands = [at_rank(place, state_command(place)) for place in places[:_MOST]]
    commands += [at_rank(place, stack_command(place)) for place in late[:_MOST]]
    if not commands and not growth:
        first = [place for one in every[:1] for place in list(one.places.values())[:2]]
        commands = [at_rank(place, stack_command(place)) for place in first]
    blind = [] if gaps or silent or growth else [BLIND]
    hangs = None if growth is None else _stands(bool(gaps), bool(growth), bool(silent))
    named = tuple(dict.fromkeys([*places, *late]))
    return Answer([*sentences, *moves, *blind], list(dict.fromkeys(commands)), hangs, named)


def _stands(late: bool, grew: bool, silent: bool) -> bool | None:
    """Return whether the job hangs, from two reports; None if nothing moves and nothing is late: it may be idle."""
    return True if late else False if grew else True if silent else None


def _silent(silent: list[tuple[RasCommunicator, int, str]], report: RasReport) -> list[str]:
    """Return a sentence for each process that RAS has no data of, and what that does not mean."""
    found: dict[str, None] = {}
    processes: dict[Any, list[tuple[RasCommunicator, int, str]]] = {}
    for one in silent:
        place = one[0].place(one[1])
        processes.setdefault((one[0].name, one[1]) if place.pid is None else place.process, []).append(one)
    for (communicator, rank, why), *others in processes.values():
        size = "" if communicator.size is None else f" ({communicator.size} ranks)"
        more = f" and of {count(len(others), 'more communicator')}" if others else ""
        who = f"{_process(communicator.place(rank))}, rank {rank} of communicator {communicator.name}{size}{more}"
        found.setdefault(f"{who}: {_SILENT[why]}")
    if not silent:
        for process in report.missing:
            place = JobPlace(0, process.node, process.pid, process.gpus)
            found.setdefault(f"{_process(place)}: {_SILENT['dead' if process.dead else 'missing']}")
    sentences = list(found)[:_MOST]
    if len(found) > _MOST:
        sentences.append(f"{len(found) - _MOST} more ranks are silent")
    if any(why == "dead" for _, _, why in silent) or any(process.dead for process in report.missing):
        sentences.append(_FOREVER)
    return sentences


def _process(place: JobPlace) -> str:
    if place.pid is None:
        return "a process that RAS does not name"
    return f"process {place.pid} on {place.node}" + (f" (GPU {place.gpu})" if place.gpu else "")


def _errors(communicators: list[RasCommunicator]) -> list[str]:
    found = []
    for one in communicators:
        texts: dict[str, list[JobPlace]] = {}
        for rank, text in one.errors.items():
            texts.setdefault(text, []).append(one.place(rank))
        found += [f"{ranks_text(places)} of communicator {one.name}: {text}" for text, places in texts.items()]
    return found[:_MOST]


def _all_agree(report: RasReport) -> str:
    mismatched = [row for row in report.groups if row.errors != "OK"]
    if mismatched:
        return f"{count(sum(row.communicators for row in mismatched), 'communicator')}: {mismatched[0].errors}"
    number = len(report.communicators) or sum(row.communicators for row in report.groups)
    if not number:
        return "RAS has no communicator: the job has not formed one yet, or has ended"
    counts = {
        f"{operation} {max(numbers.values())}": None
        for one in report.communicators.values()
        for operation, numbers in one.counts.items()
        if numbers and max(numbers.values())
    }
    shown = f" ({', '.join(list(counts)[:5])})" if number == 1 and counts else ""
    return f"in {count(number, 'communicator')} all ranks have launched the same number of each collective{shown}"


def _movement(growth: dict[tuple[str, int], str] | None, late: bool) -> list[str]:
    """Return whether the job moves, as far as it is known."""
    if growth is None:
        alone = "one report does not show whether the job moves: counts of running ranks differ for moments; ask again"
        return [alone] if late else []
    if late:
        return ["the late ranks launched nothing between two reports"]
    return [f"the job moves: {next(iter(growth.values()))}"] if growth else ["no count grew between two reports"]


def _growth(report: RasReport, earlier: RasReport) -> dict[tuple[str, int], str] | None:
    """Return what grew between two reports, by communicator and rank; None if they have no count in common."""
    grown = {}
    compared = False
    for name, one in report.communicators.items():
        before = earlier.communicators.get(name)
        for operation, counts in one.counts.items():
            old = before.counts.get(operation, {}) if before else {}
            for rank in counts.keys() & old.keys():
                compared = True
                if counts[rank] > old[rank]:
                    text = f"{operation} of communicator {name} went from {old[rank]} to {counts[rank]} on rank {rank}"
                    grown[f"communicator {name}", rank] = text
    return grown if compared else None
