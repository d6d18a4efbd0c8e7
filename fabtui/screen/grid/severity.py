"""Severity ranks of cells, and orders of rows and columns."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from fabtui.model.session_model import Cell
from fabtui.presentation.cell_levels import Slot

#: Slots from the least to the most severe; a block of cells shows the most severe of its slots.
RANKS: tuple[Slot, ...] = (
    Slot.PAD,
    Slot.DIAGONAL,
    Slot.UNTESTED,
    Slot.P2P,
    Slot.SHM,
    Slot.RDMA,
    Slot.SOCKET,
    Slot.OTHER,
    Slot.GOOD,
    Slot.FAIR,
    Slot.LOW,
    Slot.GONE,
    Slot.SKIPPED,
    Slot.RUNNING,
    Slot.INCONCLUSIVE,
    Slot.FLAPPING,
    Slot.SLOW,
    Slot.TIMEOUT,
    Slot.FAILED,
)
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
