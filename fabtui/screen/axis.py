"""The rows and columns of the grid, in the order they are drawn."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len

from fabtui.fabric.model import Model
from fabtui.fabric.text import one_line

_NAME_LIMIT = 64


@dataclass(frozen=True, slots=True)
class Seat:
    """A row and column.

    Attributes:
        node: The node's name as the model has it.
        label: The node's name fit for drawing: each character one cell wide.
        index: The endpoint's index on its node as text; ``-`` where the node has no endpoint.
        number: The endpoint's number, or None where the node has no endpoint (yet).
        first: Whether it is the first of its node.
        gone: Whether the node failed or was lost.
    """

    node: str
    label: str
    index: str
    number: int | None
    first: bool
    gone: bool

    @property
    def name(self) -> str:
        """What the screen calls it, for example ``n060:3``."""
        return f"{self.label}:{self.index}"


def fit_text(text: str, limit: int = _NAME_LIMIT) -> str:
    """Return a name from outside on one line, each character one cell wide, so that columns stay columns."""
    cleaned = one_line(text, limit)
    if cleaned.isascii():
        return cleaned
    return "".join(character if cell_len(character) == 1 else "?" for character in cleaned)


class Axis:
    """The seats in order: nodes as the user gave them, each with its endpoints; a node without any has one empty seat.

    Args:
        seats: The seats.
    """

    def __init__(self, seats: list[Seat]) -> None:
        self.seats = seats
        self.size = len(seats)
        self.position: dict[int, int] = {seat.number: at for at, seat in enumerate(seats) if seat.number is not None}
        self.starts: list[int] = [at for at, seat in enumerate(seats) if seat.first]
        self.label_width = max((len(seat.label) for seat in seats), default=0)
        self.index_width = max((len(seat.index) for seat in seats), default=1)
        self._by_name = {(seat.node, seat.index): at for at, seat in enumerate(seats)}

    @classmethod
    def of_model(cls, model: Model) -> Axis:
        """Return the axis of a model as it is now."""
        seats: list[Seat] = []
        names = list(model.nodes)
        names.extend(dict.fromkeys(e.node for e in model.endpoints if e.node not in model.nodes))
        for node in names:
            record = model.nodes.get(node)
            gone = record is not None and record.state.gone
            label = fit_text(node)
            first = True
            for endpoint in model.endpoints_of(node):
                index = "-" if endpoint.kind == "none" else str(endpoint.index)
                seats.append(Seat(node, label, index, endpoint.number, first, gone))
                first = False
            if first:
                seats.append(Seat(node, label, "-", None, True, gone))
        return cls(seats)

    def find(self, seat: Seat) -> int | None:
        """Return where a seat of an earlier axis is now, or None."""
        return self._by_name.get((seat.node, seat.index))
