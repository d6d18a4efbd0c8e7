"""Key of the colors and glyphs of the grid."""

from __future__ import annotations

from rich.color import ColorSystem
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from fabtui.model.layers import Layer
from fabtui.presentation.cell_levels import Glyphs, Slot
from fabtui.presentation.legends import meanings
from fabtui.screen.terminal.ansi_strips import Palette, ReadyStrip, Runs


class ColorKey(Widget):
    """Colors and glyphs with their meanings on one line, drawn with the ramp of the grid."""

    DEFAULT_CSS = """
    ColorKey { height: 1; width: 1fr; }
    """
    ALLOW_SELECT = False

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._ramp: dict[str, str] = {}
        self._system: ColorSystem | None = None
        self._explained = (Layer.P2P, False)
        self._strip: ReadyStrip | None = None

    def paint_with(self, ramp: dict[str, str], system: ColorSystem | None) -> None:
        """Set the color ramp and the number of colors."""
        self._ramp, self._system = ramp, system
        self._strip = None
        self.refresh()

    def explain(self, layer: Layer, *, blocks: bool) -> None:
        """Explain the colors of a layer; ``blocks``: for blocks of cells."""
        if (layer, blocks) != self._explained:
            self._explained = (layer, blocks)
            self._strip = None
            self.refresh()

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
                runs.append((slot, f" {self._glyphs.of_slot[slot]} "))
                runs.append((Slot.PAD, text[: left - 3]))
                left -= 3 + len(runs[-1][1])
            runs.append((Slot.PAD, " " * max(0, left)))
            self._strip = ReadyStrip.of_runs(runs, width, Palette(self.rich_style, self._ramp, self._system))
        strip: Strip = self._strip
        return [strip if crop.width == width else strip.crop(crop.x, crop.right)] * min(1, crop.height)
