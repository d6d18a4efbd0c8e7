"""Severity ranks of cells, and orders of rows and columns."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from fabtui.model.session_model import Cell
from fabtui.presentation.cell_levels import RANKS, Slot

RANK: dict[int, int] = {int(slot): rank for rank, slot in enumerate(RANKS)}
#: Table from ranks to slots for `bytes.translate`.
SLOT_OF_RANK = bytes([int(slot) for slot in RANKS] + [0] * (256 - len(RANKS)))
SLOW, TIMEOUT, FAILED = RANK[Slot.SLOW], RANK[Slot.TIMEOUT], RANK[Slot.FAILED]
#: Lowest rank of bad cells.
BAD_FROM = SLOW
#: Highest rank of cells without a result.
NOTHING = RANK[Slot.UNTESTED]


class Order(StrEnum):
    """Order of rows and columns."""

    GIVEN = "given"
    BADNESS = "badness"
    BLAME = "blame"


class BadCell(NamedTuple):
    """A bad cell by its positions."""

    row: int
    column: int
    slot: Slot
    share: float | None
    cell: Cell
