"""Value of the cell under the mouse, on one line over the lower edge of the grid."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Region

from fabtui.presentation.wording import plain
from fabtui.presentation.wrapping import Line
from fabtui.screen.widgets.text_line import TextLine


class CellTooltip(TextLine):
    """A line that covers the grid while the mouse is on a cell."""

    DEFAULT_CSS = """
    CellTooltip {
        overlay: screen; position: absolute; height: 1; background: $panel; color: $foreground; display: none;
    }
    """
    #: Position of the mouse.
    at = (0, 0)

    def put(self, parts: Line, grid: Region) -> None:
        """Show text at the lower edge of the grid, or at the upper edge if the mouse is at the lower one."""
        self.styles.width = len(plain(parts))
        last = grid.bottom - 1
        self.styles.offset = (grid.x, last if self.at[1] != last else grid.y)
        self.show(Content.assemble(*parts), layout=True)
        self.display = True
