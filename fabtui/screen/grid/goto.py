"""Parser for the go-to prompt: ``n060:3``, ``n060:3>n061:5``, ``n060``, ``>n061:5``."""

from __future__ import annotations

from difflib import get_close_matches

from fabtui.errors import InputError
from fabtui.screen.grid.axis import Axis

#: Hint in the go-to prompt.
HINT = "n060:3, n060:3>n061:5, n060, n060>n061, >n061:5"


def read_place(text: str, axis: Axis) -> tuple[int | None, int | None]:
    """Return the positions of a row and a column; None for the one not named.

    Args:
        text: Text as entered by the user.
        axis: All endpoints.

    Raises:
        InputError: The text names no node or endpoint.
    """
    row, arrow, column = (part.strip() for part in text.partition(">"))
    if not row and not column:
        raise InputError(f"nothing to go to; expected {HINT}")
    if arrow and not column and not row:
        raise InputError(f"'>' alone; expected {HINT}")
    return (_position(row, axis) if row else None), (_position(column, axis) if column else None)


def _position(name: str, axis: Axis) -> int:
    node, colon, index = name.rpartition(":")
    nodes = {seat.node: at for at, seat in enumerate(axis.seats) if seat.first}
    nodes |= {seat.label: nodes[seat.node] for seat in axis.seats if seat.first}
    if name in nodes:
        return nodes[name]
    if not colon:
        node = name
    if node not in nodes:
        close = get_close_matches(node, list(nodes), 1, 0.6)
        raise InputError(f"there is no node {node[:60]!r}" + (f"; did you mean {close[0]}?" if close else ""))
    own = [seat for seat in axis.seats if seat.node == axis.seats[nodes[node]].node]
    for seat in own:
        if seat.index == index:
            return axis.seats.index(seat, nodes[node])
    having = own[0].index if len(own) == 1 else f"{own[0].index} to {own[-1].index}"
    raise InputError(f"there is no endpoint {name[:60]!r}; {own[0].label} has {having}")
