"""Cells that light up for a moment because a new result is not what the one before was."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from fabtui.model.layers import Layer, pair_layers
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model
from fabtui.screen.grid.cells_by_endpoint import ModelSource

#: Seconds that a cell is lit.
SECONDS = 0.8
#: A value that moved by no more than this share of it is the same.
SAME = 0.1
#: Results older than this are no news.
_NEWS = 2.0
#: Of more changes at once than this none is lit: a sweep fills the grid.
_MOST = 400

Position = tuple[int, int]


class Flashes:
    """Keeps which cells are lit, and until when."""

    def __init__(self) -> None:
        self._until: deque[tuple[float, Position]] = deque()
        self._seen: dict[Position, float] = {}

    @property
    def lit(self) -> bool:
        """Whether any cell is lit."""
        return bool(self._until)

    def take(self, source: ModelSource, changed: Iterable[Position], now: float) -> bool:
        """Light those of the changed cells that have another result than before; say whether any is lit.

        Args:
            source: The cells.
            changed: Rows and columns.
            now: The time on a clock that goes on, in seconds.
        """
        positions = list(changed)
        if len(positions) > _MOST:
            return self.lit
        for at in positions:
            latest = self._latest(source, at)
            if latest is None or self._seen.get(at) == latest.time:
                continue
            self._seen[at] = latest.time
            source.flashing.add(at)
            self._until.append((now + SECONDS, at))
        return self.lit

    def _latest(self, source: ModelSource, at: Position) -> Measurement | None:
        """Return the latest result of a cell when it is news."""
        seats = source.axis.seats
        src, dst = seats[at[0]].number, seats[at[1]].number
        model = source.model
        if src is None or dst is None or src == dst:
            return None
        layer = source.layer if source.layer in pair_layers() else Layer.P2P
        history = model.history(layer, str(model.endpoints[src]), str(model.endpoints[dst]))
        if len(history) < 2 or model.now - history[-1].time > _NEWS:
            return None
        return history[-1] if differs(model, history[-2], history[-1]) else None

    def over(self, source: ModelSource, now: float) -> list[Position]:
        """Put out the cells whose time is over, and return them."""
        ended = []
        while self._until and self._until[0][0] <= now:
            _, at = self._until.popleft()
            if all(at != other for _, other in self._until):
                source.flashing.discard(at)
                ended.append(at)
        return ended

    def forget(self, source: ModelSource) -> None:
        """Put all out: rows and columns are others now."""
        source.flashing.clear()
        self._until.clear()
        self._seen.clear()


def differs(model: Model, before: Measurement, after: Measurement) -> bool:
    """Say whether two results of a pair are not the same."""
    if before.asked_bytes != after.asked_bytes:
        return False
    if model.verdict(before) is not model.verdict(after):
        return True
    if before.value is None or after.value is None:
        return before.value is not after.value
    return abs(after.value - before.value) > SAME * abs(before.value)
