"""A second layer of the same pairs, next to the grid."""

from __future__ import annotations

import time
from collections.abc import Set as AbstractSet

from fabtui.model.endpoints import PairClass
from fabtui.model.layers import Layer
from fabtui.screen.grid.cells import EndpointCells
from fabtui.screen.grid.navigation import ZOOM_WORDS, ViewState, Zoom
from fabtui.screen.grid.updates import REDRAW_INTERVAL
from fabtui.screen.grid.widget import GridView


def other_layer(layer: Layer) -> Layer:
    """Return the layer shown next to another: world next to p2p, and p2p next to all others."""
    return Layer.WORLD if layer is Layer.P2P else Layer.P2P


def can_compare(view: ViewState) -> bool:
    """Return True if the other layer has values, or will be tested, and the grid shows endpoint pairs."""
    model, other = view.source.model, other_layer(view.source.layer)
    return (
        view.zoom is Zoom.GPUS
        and not view.shows_ranks
        and (model.plans(other) or any(model.median(other, kind) is not None for kind in PairClass))
    )


class SecondLayer(GridView, can_focus=False):
    """Another layer with the rows, columns and cursor of the grid; clicks move the cursor of the grid."""

    DEFAULT_CSS = "SecondLayer { margin-left: 1; }"
    _leader: GridView | None = None
    _shown: tuple[object, ...] = ()
    _redrawn = 0.0

    def move_to(self, row: int, column: int) -> None:
        if self._leader is not None:
            self._leader.move_to(row, column)

    def follow(self, view: ViewState, leader: GridView, changed: AbstractSet[tuple[int, int]] | None) -> None:
        """Show the other layer of the leader's pairs; ``changed``: changed cells since the last call, None for all."""
        self._leader, layer = leader, other_layer(view.source.layer)
        seen = (view.source.axis, view.source.row_at, view.source.column_at, view.filter, layer)
        if len(seen) != len(self._shown) or any(a is not b for a, b in zip(seen, self._shown, strict=True)):
            self._shown = seen
            source = EndpointCells(view.source.model, layer, self.glyphs)
            source.filter = view.filter
            source.show_in(view.source.row_at, view.source.column_at, view.source.groups)
            self.show(source)
        elif isinstance(self.source, EndpointCells):
            self._update(self.source, changed)
        corner = (str(layer), "row>col")
        leader_corner = (str(view.source.layer), "row>col")
        if (corner, leader_corner) != (self.corner, leader.corner):
            self.corner, leader.corner = corner, leader_corner
            leader.refresh()
        if self.cell_width != leader.cell_width:
            self.cell_width, self._layout = leader.cell_width, None
            self.reread()
        with self.prevent(GridView.Moved):
            super().move_to(leader.row, leader.column)

    def leave(self, view: ViewState, leader: GridView) -> None:
        """Take back the corner of the leader once the second layer is hidden."""
        if self._shown:
            self._shown = ()
            leader.corner = ("ranks", "") if view.shows_ranks else (ZOOM_WORDS[view.zoom], "row>col")
            leader.refresh()

    def _update(self, source: EndpointCells, changed: AbstractSet[tuple[int, int]] | None) -> None:
        far, moved = source.read_medians()
        now = time.monotonic()
        if changed is None or far or (moved and now - self._redrawn > REDRAW_INTERVAL):
            self._redrawn = now
            source.take_medians()
            self.reread()
        elif changed:
            self.update_cells(source.shown_at(source.take_changes(changed)))
