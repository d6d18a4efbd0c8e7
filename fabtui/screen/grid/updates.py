"""Brings the grid up to date with the model: which cells are drawn anew, and when all of them are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fabtui.screen.grid.cells_by_node import BlockSource
from fabtui.screen.grid.flashes import Flashes
from fabtui.screen.grid.view_state import Scope
from fabtui.screen.grid.widget import GridView

if TYPE_CHECKING:
    from fabtui.screen.grid.severity_index import SeverityIndex

#: Seconds between two frames that are drawn anew because a median moved a little.
_SETTLE = 0.5
#: Seconds between two looks at all cells because a median moved a little.
_JUDGE_ALL = 4.0
#: Seconds after which it is looked whether lit cells have to go out.
_FLICKER = 0.2
#: Seconds a frame may spend on looking at cells that are not in sight.
_SEARCH = 0.002


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
        self._judged = 0.0
        self._stale = False

    def draw(self, scope: Scope) -> None:
        """Have the grid draw what changed in what it shows since the last time."""
        source = scope.source
        changed = source.model.drain_changes()
        if scope.take_axis():
            source.take_medians()
            self._flashes.forget(source)
            self._grid.show(scope.shown())
            return
        if not source.axis.size:
            return
        index = scope.index
        now = time.monotonic()
        touched = self._flashes.over(source, now)
        much, moved = source.read_medians()
        if changed is None or much or (moved and now - self._settled > _SETTLE):
            self._settled = now
            source.take_medians()
            # Blocks show what the index knows, and are told one by one.
            if changed is None or not isinstance(scope.shown(), BlockSource):
                self._grid.reread()
        elif moved:
            self._again(_SETTLE)
        self._judge_all(index, much, moved, changed is None, now)
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

    def _judge_all(self, index: SeverityIndex, much: bool, moved: bool, anew: bool, now: float) -> None:
        """Have all cells judged again when what they are judged against has moved, but not all the time."""
        self._stale = self._stale or moved
        if anew:
            index.forget()
        elif much or (self._stale and now - self._judged > _JUDGE_ALL):
            index.rejudge()
        elif self._stale:
            self._again(_JUDGE_ALL)
            return
        else:
            return
        self._judged, self._stale = now, False
