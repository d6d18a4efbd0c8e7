"""The keys of the grid."""

from __future__ import annotations

from textual.binding import Binding, BindingType

KEYS: list[BindingType] = [
    Binding("up,k", "move(-1, 0)", id="grid.up", show=False, tooltip="a row up"),
    Binding("down,j", "move(1, 0)", id="grid.down", show=False, tooltip="a row down"),
    Binding("left,h", "move(0, -1)", id="grid.left", show=False, tooltip="a column to the left"),
    Binding("right,l", "move(0, 1)", id="grid.right", show=False, tooltip="a column to the right"),
    Binding("home,0", "edge('left')", id="grid.first-column", show=False, tooltip="the first column"),
    Binding("end,dollar_sign", "edge('right')", id="grid.last-column", show=False, tooltip="the last column"),
    Binding("g,ctrl+home", "edge('top')", id="grid.first-row", show=False, tooltip="the first row"),
    Binding("G,ctrl+end", "edge('bottom')", id="grid.last-row", show=False, tooltip="the last row"),
    Binding("pageup,ctrl+u", "page(-1)", id="grid.page-up", show=False, tooltip="a screen up"),
    Binding("pagedown,ctrl+d", "page(1)", id="grid.page-down", show=False, tooltip="a screen down"),
    Binding("greater_than_sign,full_stop", "widen(1)", id="grid.wider", show=False, tooltip="wider cells"),
    Binding(
        "less_than_sign,comma", "widen(-1)", id="grid.narrower", show=False, tooltip="narrower cells, or half ones"
    ),
]
