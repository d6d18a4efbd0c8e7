"""Brings the grid up to date with the model: which cells are drawn anew, and when all of them are."""

from __future__ import annotations

import time
from collections.abc import Callable

from fabtui.screen.blocks import BlockSource
from fabtui.screen.flashes import Flashes
from fabtui.screen.grid import GridView
from fabtui.screen.scope import Scope

#: Seconds between two frames that are drawn anew because a median moved a little.
_SETTLE = 0.5
#: Seconds after which it is looked whether lit cells have to go out.
_FLICKER = 0.2
#: Seconds a frame may spend on looking at cells that are not in sight.
_SEARCH = 0.004


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

    def draw(self, scope: Scope) -> None:
        """Have the grid draw what changed in what it shows since the last time."""
        source, index = scope.source, scope.index
        changed = source.model.drain_changes()
        if scope.take_axis():
            source.take_medians()
            self._flashes.forget(source)
            self._grid.show(scope.shown())
            return
        now = time.monotonic()
        touched = self._flashes.over(source, now)
        much, moved = source.read_medians()
        if changed is None or much or (moved and now - self._settled > _SETTLE):
            self._settled = now
            source.take_medians()
            if changed is None:
                index.forget()
            else:
                index.rejudge()
            self._grid.reread()
        elif moved:
            self._again(_SETTLE)
        if changed:
            positions = source.positions(changed)
            index.touch(positions)
            self._flashes.take(source, positions, now)
            touched += positions
        index.step(_SEARCH)
        blocks = index.drain_blocks()
        shown = scope.shown()
        self._grid.update_cells(shown.shown_at(blocks if isinstance(shown, BlockSource) else touched))
        if self._flashes.lit:
            self._again(_FLICKER)
