"""Side panel beside the grid."""

from __future__ import annotations

from textual.content import Content

from fabtui.presentation.wrapping import Lines
from fabtui.screen.widgets.text_line import TextLine

#: Width with the edges. A wide screen allows more.
PANEL_WIDTH = 48
PANEL_WIDTHS = (80, 64, PANEL_WIDTH)
#: Width of the edges.
PANEL_EDGES = 3


class SidePanel(TextLine):
    """Summary of the cursor's pair, findings, classes, sweep and worst pairs."""

    DEFAULT_CSS = """
    SidePanel {
        width: 48; height: 100%; padding: 0 1; border-left: vkey $secondary 60%; text-wrap: nowrap; overflow: hidden;
    }
    SidePanel.-plain { border: none; padding: 0 1 0 2; }
    """

    def put(self, lines: Lines) -> None:
        """Show lines that fit."""
        self.show(Content("\n").join(Content.assemble(*line) for line in lines))
