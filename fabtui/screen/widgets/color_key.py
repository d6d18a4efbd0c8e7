"""Key of the colors and glyphs of the grid."""

from __future__ import annotations

from textual.geometry import Region
from textual.strip import Strip

from fabtui.model.layers import Layer
from fabtui.presentation.cell_levels import Slot
from fabtui.presentation.legends import meanings
from fabtui.screen.terminal.ansi_strips import PaintedWidget, ReadyStrip, Runs


class ColorKey(PaintedWidget):
    """Colors and glyphs with their meanings on one line, drawn with the ramp of the grid."""

    DEFAULT_CSS = "ColorKey { height: 1; width: 1fr; }"
    _explained = (Layer.P2P, False)
    _strip: ReadyStrip | None = None

    def redraw(self) -> None:
        self._strip = None
        self.refresh()

    def explain(self, layer: Layer, *, blocks: bool) -> None:
        """Explain the colors of a layer; ``blocks``: for blocks of cells."""
        if (layer, blocks) != self._explained:
            self._explained = (layer, blocks)
            self.redraw()

    def render_lines(self, crop: Region) -> list[Strip]:
        width = self.size.width
        if self._strip is None or self._strip.cell_length != width:
            layer, blocks = self._explained
            found = meanings(layer)
            if blocks:
                good = sum(slot in (Slot.GOOD, Slot.FAIR, Slot.LOW) for slot, _ in found)
                found.insert(good, (Slot.PARTLY, "not all tested"))
            runs: Runs = []
            left = width
            for slot, meaning in found:
                text = f" {meaning}  "
                if 3 + len(text.rstrip()) > left:
                    break
                runs.append((slot, f" {self.glyphs.of_slot[slot]} "))
                runs.append((Slot.PAD, text[: left - 3]))
                left -= 3 + len(runs[-1][1])
            runs.append((Slot.PAD, " " * max(0, left)))
            self._strip = ReadyStrip.of_runs(runs, width, self.palette)
        strip: Strip = self._strip
        return [strip if crop.width == width else strip.crop(crop.x, crop.right)] * min(1, crop.height)
