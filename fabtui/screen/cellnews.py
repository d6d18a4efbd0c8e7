"""Brings the grid up to date with the model: which cells are drawn anew, and when all of them are."""

from __future__ import annotations

import time
from collections.abc import Callable

from fabtui.screen.flashes import Flashes
from fabtui.screen.grid import GridView
from fabtui.screen.source import ModelSource
from fabtui.screen.trouble import Trouble

#: Seconds between two frames that are drawn anew because a median moved a little.
_SETTLE = 0.5
#: Seconds after which it is looked whether lit cells have to go out.
_FLICKER = 0.2


class CellNews:
    """Keeps what of the grid was drawn against which medians.

    Args:
        grid: What draws.
        again: Has the screen drawn again after some seconds.
    """

    def __init__(self, grid: GridView, again: Callable[[float], None]) -> None:
        self._grid = grid
        self._again = again
        self._settled = 0.0
        self._flashes = Flashes()

    def draw(self, source: ModelSource, trouble: Trouble) -> None:
        """Have the grid draw what changed in the source since the last time."""
        changed = source.model.drain_changes()
        if source.axis_changed():
            source.take_medians()
            self._flashes.forget(source)
            self._grid.show(source)
            trouble.forget()
            return
        now = time.monotonic()
        ended = self._flashes.over(source, now)
        if ended:
            self._grid.update_cells(ended)
        much, moved = source.read_medians()
        if changed is None or much or (moved and now - self._settled > _SETTLE):
            self._settled = now
            source.take_medians()
            trouble.forget()
            self._grid.reread()
        elif moved:
            self._again(_SETTLE)
        if changed:
            positions = source.positions(changed)
            trouble.forget_rows({row for row, _ in positions})
            self._flashes.take(source, positions, now)
            self._grid.update_cells(positions)
        if self._flashes.lit:
            self._again(_FLICKER)
