"""Reports of NCCL RAS: communicators with the operations that their ranks have launched, and silent processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fabtui.jobs.who_is_behind import Gap, Place

#: NCCL 2.24 and 2.25 count all collectives together.
ANY = "collective"


class Process(NamedTuple):
    """A process that RAS misses; ``dead``: RAS has given it up, which it never takes back."""

    pid: int
    node: str
    gpus: str
    dead: bool


class Group(NamedTuple):
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
class Communicator:
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
    places: dict[int, Place] = field(default_factory=dict)
    counts: dict[str, dict[int, int]] = field(default_factory=dict)
    tallies: dict[str, dict[int, int]] = field(default_factory=dict)
    silent: dict[int, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)

    def place(self, rank: int) -> Place:
        """Return where a rank runs."""
        return self.places.get(rank, Place(rank))

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
    groups: list[Group] = field(default_factory=list)
    communicators: dict[str, Communicator] = field(default_factory=dict)
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
