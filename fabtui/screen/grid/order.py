"""Orders of rows and columns: as the nodes were given, by badness, by blame. Pure."""

from __future__ import annotations

from enum import StrEnum

from fabtui.screen.grid.severity_index import BAD_FROM, CellIndex

#: So many endpoints are blamed one after the other; those behind them by how many bad cells are left to each.
_BLAMED = 64


class Order(StrEnum):
    """An order of rows and columns."""

    GIVEN = "given"
    BADNESS = "badness"
    BLAME = "blame"


def by_badness(index: CellIndex) -> list[int]:
    """Return positions, rows with the most failed and timed-out cells first, then those with the most slow ones."""
    hard, soft = index.hard, index.soft
    return sorted(range(index.size), key=lambda at: (-hard[at], -soft[at], at))


def by_blame(index: CellIndex) -> list[int]:
    """Return positions, first the one that explains the most bad cells, then what explains most of what is left.

    A cell is explained by its row's endpoint and by its column's: what hangs on one bad NIC is behind that NIC, and the
    partners that looked bad with it are not blamed.
    """
    left = list(index.blame)
    found: list[int] = []
    taken = bytearray(index.size)
    while len(found) < min(_BLAMED, index.size):
        at = max(range(index.size), key=lambda position: (0 if taken[position] else left[position], -position))
        if taken[at] or left[at] <= 0:
            break
        taken[at] = 1
        found.append(at)
        for other in range(index.size):
            if not taken[other]:
                left[other] -= _bad(index, at, other) + _bad(index, other, at)
    rest = [position for position in range(index.size) if not taken[position]]
    return found + sorted(rest, key=lambda position: (-left[position], position))


def _bad(index: CellIndex, row: int, column: int) -> bool:
    ranks = index.ranks(row)
    return ranks is not None and ranks[column] >= BAD_FROM


def positions(index: CellIndex, order: Order) -> list[int]:
    """Return all positions in an order."""
    if order is Order.BADNESS:
        return by_badness(index)
    return by_blame(index) if order is Order.BLAME else list(range(index.size))


def nodes_of(index: CellIndex, order: list[int]) -> list[int]:
    """Return the nodes in the order of the first of their endpoints."""
    return list(dict.fromkeys(index.node_at[position] for position in order))
