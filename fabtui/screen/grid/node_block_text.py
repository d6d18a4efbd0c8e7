"""Text for a block of two nodes: its name and the number of pairs per verdict."""

from __future__ import annotations

from fabtui.presentation.cell_levels import RANKS, Glyphs, Slot
from fabtui.presentation.wording import MUTED, Part
from fabtui.screen.grid.severity import NOTHING, RANK
from fabtui.screen.grid.view_state import ViewState

_OK = frozenset(RANK[slot] for slot in (Slot.GOOD, Slot.FAIR, Slot.LOW, Slot.P2P, Slot.SHM, Slot.RDMA, Slot.SOCKET))
_STYLES = {Slot.FAILED: "bold $error", Slot.TIMEOUT: "bold $error", Slot.SLOW: "bold $warning"}


def block_parts(scope: ViewState, a: int, b: int, glyphs: Glyphs) -> list[Part]:
    """Return the number of pairs of a block per verdict, worst first."""
    index = scope.index
    cells = index.cells(a, b)
    counts = index.counts(a, b)
    ok = sum(counts.get(rank, 0) for rank in (*_OK, RANK[Slot.OTHER]))
    parts: list[Part] = []
    for rank in range(len(RANKS) - 1, NOTHING, -1):
        slot = RANKS[rank]
        if rank in _OK or slot is Slot.OTHER or not counts.get(rank):
            continue
        word = "node gone" if slot is Slot.GONE else slot.key
        parts.append((f"{glyphs.of_slot[slot]} {counts[rank]} {word}  ", _STYLES.get(slot, "")))
    if ok:
        parts.append((f"{ok} ok  ", "$primary"))
    left = cells - int(index.tested[a, b])
    if left > 0:
        hiding = scope.filter is not None and scope.filter.by_cell
        parts.append((f"{left} {'not shown' if hiding else 'untested'}  ", MUTED))
    return [*parts, (f"of {cells} pair{'s' if cells != 1 else ''}", MUTED)]


def block_name(scope: ViewState, a: int, b: int) -> str:
    """Return the name of a block: ``n060 > n061``."""
    seats = scope.blocks.axis.seats
    return f"{seats[a].label} > {seats[b].label}" if a != b else f"within {seats[a].label}"
