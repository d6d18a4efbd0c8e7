"""Rows and columns of the grid in drawing order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from rich.cells import cell_len

from fabtui.model.session_model import Model
from fabtui.presentation.domain import common_domain
from fabtui.sanitize import one_line

_NAME_LIMIT = 64


@dataclass(frozen=True, slots=True)
class Seat:
    """A row or column."""

    node: str
    #: Name for drawing: each character one cell wide, without the domain that all nodes share.
    label: str
    #: Index of the endpoint on its node as text; ``-`` if the node has no endpoint.
    index: str
    #: Number of the endpoint; None if the node has no endpoint (yet).
    number: int | None
    #: The first of its node.
    first: bool
    #: The node failed or was lost.
    gone: bool
    #: Name of the group of the seat, "" without groups.
    group: str = ""
    #: The first of its group.
    opens: bool = False

    @property
    def name(self) -> str:
        """Displayed name, for example ``n060:3``."""
        return f"{self.label}:{self.index}"


def fit_text(text: str, limit: int = _NAME_LIMIT) -> str:
    """Return an untrusted name on one line with every character one cell wide, so that columns stay aligned."""
    cleaned = one_line(text, limit)
    if cleaned.isascii():
        return cleaned
    return "".join(character if cell_len(character) == 1 else "?" for character in cleaned)


class Axis:
    """Seats in order: nodes as given, each with its endpoints; a node without endpoints has one empty seat.

    ``together``: the endpoints of each node are adjacent; ``of_nodes_alone``: each seat is a whole node.
    """

    def __init__(self, seats: list[Seat], *, together: bool = True, of_nodes_alone: bool = False) -> None:
        self.seats = seats
        self.together = together
        self.of_nodes_alone = of_nodes_alone
        self.size = len(seats)
        self.position: dict[int, int] = {seat.number: at for at, seat in enumerate(seats) if seat.number is not None}
        #: Positions of the first seats of groups.
        self.openings: list[int] = [at for at, seat in enumerate(seats) if seat.opens]
        self.starts: list[int] = [at for at, seat in enumerate(seats) if seat.first]
        self.label_width = max((len(seat.label) for seat in seats), default=0)
        self.index_width = max((len(seat.index) for seat in seats), default=0)
        self._by_name = {(seat.node, seat.index): at for at, seat in enumerate(seats)}

    @classmethod
    def of_model(cls, model: Model) -> Axis:
        seats: list[Seat] = []
        names = list(model.nodes)
        names.extend(dict.fromkeys(e.node for e in model.endpoints if e.node not in model.nodes))
        domain = common_domain(names)
        for node in names:
            gone = model.gone(node) is not None
            label = fit_text(node.removesuffix(domain))
            first = True
            for endpoint in model.endpoints_of(node):
                index = "-" if endpoint.kind == "none" else str(endpoint.index)
                seats.append(Seat(node, label, index, endpoint.number, first, gone))
                first = False
            if first:
                seats.append(Seat(node, label, "-", None, True, gone))
        return cls(seats)

    def in_order(self, positions: Iterable[int], groups: Mapping[int, str] | None = None) -> Axis:
        """Return some seats in another order; those that do not follow a seat of their node are marked as first.

        ``groups`` has the name of the group of each position.
        """
        seats: list[Seat] = []
        for position in positions:
            seat = self.seats[position]
            group = "" if groups is None else groups[position]
            opens = groups is not None and (not seats or seats[-1].group != group)
            first = opens or not seats or seats[-1].node != seat.node
            same = (seat.first, seat.group, seat.opens) == (first, group, opens)
            seats.append(seat if same else replace(seat, first=first, group=group, opens=opens))
        nodes = {seat.node for seat in seats}
        together = sum(seat.first for seat in seats) == len(nodes)
        return Axis(seats, together=together, of_nodes_alone=self.of_nodes_alone)

    def of_nodes(self) -> Axis:
        """Return an axis with one seat per node, in the same order."""
        seats = [replace(self.seats[at], index="", number=None, first=True) for at in self.starts]
        return Axis(seats, of_nodes_alone=True)

    @cached_property
    def node_at(self) -> list[int]:
        """Index of each seat's node."""
        found: list[int] = []
        for seat in self.seats:
            found.append((found[-1] if found else -1) + seat.first)
        return found

    @property
    def stacked(self) -> bool:
        """True if each column has its node's name above it, because hardly any node has two columns side by side."""
        return len(self.starts) == self.size or not self.together

    @cached_property
    def tail(self) -> int:
        """Number of characters at the end of the names in which all nodes differ."""
        labels = {seat.label for seat in self.seats}
        enough = (end for end in range(1, self.label_width) if len({label[-end:] for label in labels}) == len(labels))
        return next(enough, self.label_width)

    def find(self, seat: Seat) -> int | None:
        """Return the position of a seat of an earlier axis, or None."""
        return self._by_name.get((seat.node, seat.index))
