"""Updates of the grid from the model: which cells are drawn again, and which ones are highlighted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from fabtui.model.layers import Layer, pair_layers
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model
from fabtui.screen.grid.cells import EndpointCells
from fabtui.screen.grid.navigation import ViewState, Zoom
from fabtui.screen.grid.severity_index import SeverityIndex
from fabtui.screen.grid.widget import GridView

#: Minimum time (s) between two full redraws for a small move of a median.
REDRAW_INTERVAL = 0.5
#: Minimum time (s) between two passes over all cells for a small move of a median.
REJUDGE_INTERVAL = 4.0
#: Time budget (s) per frame for judging cells out of view.
JUDGE_BUDGET = 0.002
#: Duration (s) of a highlight, and the interval (s) at which expired ones are removed.
HIGHLIGHT_SECONDS, HIGHLIGHT_CHECK = 0.8, 0.2
#: Maximum relative change of a value that counts as no change.
SAME_VALUE = 0.1
#: Maximum age (s) of a result that is highlighted.
MAX_HIGHLIGHT_AGE = 2.0
#: Maximum number of changes per frame that are highlighted; a sweep that fills the grid has more.
MAX_HIGHLIGHTS = 400

Position = tuple[int, int]


class Highlights:
    """Cells highlighted for a moment because a new result differs from the previous one."""

    def __init__(self) -> None:
        self.until: deque[tuple[float, Position]] = deque()  #: Highlighted cells with the time of their end.
        self._seen: dict[Position, float] = {}

    def add(self, source: EndpointCells, changed: list[Position], now: float) -> None:
        if len(changed) > MAX_HIGHLIGHTS:
            return
        for position in changed:
            latest = self._changed_result(source, position)
            if latest is not None and self._seen.get(position) != latest.time:
                self._seen[position] = latest.time
                source.highlighted.add(position)
                self.until.append((now + HIGHLIGHT_SECONDS, position))

    def _changed_result(self, source: EndpointCells, position: Position) -> Measurement | None:
        """Return the latest result of a cell if it is recent and differs from the previous one."""
        model = source.model
        src, dst = (source.axis.entries[at].number for at in position)
        if src is None or dst is None or src == dst:
            return None
        layer = source.layer if source.layer in pair_layers() else Layer.P2P
        history = model.history(layer, str(model.endpoints[src]), str(model.endpoints[dst]), most=2)
        if len(history) < 2 or model.now - history[-1].time > MAX_HIGHLIGHT_AGE:
            return None
        return history[-1] if _differs(model, history[-2], history[-1]) else None

    def expire(self, source: EndpointCells, now: float) -> list[Position]:
        ended = []
        while self.until and self.until[0][0] <= now:
            _, position = self.until.popleft()
            if all(position != other for _, other in self.until):
                source.highlighted.discard(position)
                ended.append(position)
        return ended

    def clear(self, source: EndpointCells) -> None:
        source.highlighted.clear()
        self.until.clear()
        self._seen.clear()


def _differs(model: Model, before: Measurement, after: Measurement) -> bool:
    if before.asked_bytes != after.asked_bytes:
        return False
    if model.verdict(before) is not model.verdict(after):
        return True
    if before.value is None or after.value is None:
        return before.value is not after.value
    return abs(after.value - before.value) > SAME_VALUE * abs(before.value)


class GridUpdater:
    """Draws changed cells of the model, and tracks the medians that cells were drawn with."""

    def __init__(self, grid: GridView, draw_within: Callable[[float], None]) -> None:
        self._grid = grid
        self._draw_within = draw_within
        self._highlights = Highlights()
        self._redrawn = 0.0
        self._rejudged = 0.0
        self._stale = False

    def update(self, state: ViewState) -> None:
        source = state.source
        changed = source.model.drain_changes()
        if state.take_axis():
            source.take_medians()
            self._highlights.clear(source)
            state.judge_here()
            self._grid.show(state.shown())
            return
        if not source.axis.size:
            return
        now = time.monotonic()
        touched = set(self._highlights.expire(source, now))
        far, moved = source.read_medians()
        by_node = state.zoom is Zoom.FABRIC
        if changed is None or far or (moved and now - self._redrawn > REDRAW_INTERVAL):
            self._redrawn = now
            source.take_medians()
            # Blocks show the severity index, which reports changed blocks one by one.
            if changed is None or not by_node:
                self._grid.reread()
        elif moved:
            self._draw_within(REDRAW_INTERVAL)
        self._rejudge(state.index, far=far, moved=moved, all_changed=changed is None, now=now)
        if changed:
            positions = source.take_changes(changed)
            state.index.touch(positions)
            if not by_node:
                # Blocks show no single cells.
                self._highlights.add(source, self._grid.in_view(state.shown(), positions), now)
            touched.update(positions)
        state.index.step(JUDGE_BUDGET)
        state.judge_here()
        blocks = state.index.drain_blocks()
        self._grid.update_cells(state.shown().shown_at(blocks if by_node else touched))
        if self._highlights.until:
            self._draw_within(HIGHLIGHT_CHECK)

    def _rejudge(self, index: SeverityIndex, *, far: bool, moved: bool, all_changed: bool, now: float) -> None:
        """Judge all cells again after the medians moved, at most once per `REJUDGE_INTERVAL`."""
        self._stale = self._stale or moved
        if all_changed:
            # An emptied grid would have no cell until the pass over all of them ends.
            index.rejudge(changed=True)
        elif far or (self._stale and now - self._rejudged > REJUDGE_INTERVAL):
            index.rejudge()
        elif self._stale:
            self._draw_within(REJUDGE_INTERVAL)
            return
        else:
            return
        self._rejudged, self._stale = now, False
