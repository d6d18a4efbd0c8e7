"""The whole grid in a few lines: where the part in sight is, and where the trouble is."""

from __future__ import annotations

from rich.color import ColorSystem
from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from fabtui.presentation.cell_levels import Glyphs, Slot
from fabtui.screen.grid.severity import BAD_FROM, NOTHING, RANKS
from fabtui.screen.terminal.ansi_strips import Palette, Runs, half_slot, pack

#: Maximum number of tiles across and down.
MOST_TILES = 44


def _slot(rank: int, lit: bool) -> Slot:
    if rank >= BAD_FROM:
        return RANKS[rank]
    if lit:
        return Slot.GOOD if rank > NOTHING else Slot.LOW
    return Slot.SKIPPED if rank > NOTHING else Slot.PAD


class Minimap(Widget):
    """A map of the grid. The part in sight is lit; a click goes there.

    Args:
        glyphs: The characters to draw with.
    """

    DEFAULT_CSS = """
    Minimap { width: 20; height: 10; }
    """
    ALLOW_SELECT = False

    class Pointed(Message):
        """A place on the map was clicked, given as shares of its height and width."""

        def __init__(self, down: float, right: float) -> None:
            super().__init__()
            self.down = down
            self.right = right

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._ramp: dict[str, str] = {}
        self._system: ColorSystem | None = None
        self._palette: Palette | None = None
        self._tiles: list[bytes] = []
        self._lit = (range(0), range(0))
        self._title = ""
        self._strips: list[Strip] = []

    def paint_with(self, ramp: dict[str, str], system: ColorSystem | None) -> None:
        """Draw with a ramp and a number of colours from now on."""
        self._ramp, self._system = ramp, system
        self._palette = None
        self._strips = []
        self.refresh()

    @property
    def halves(self) -> bool:
        """Whether a line holds two rows of tiles."""
        return not self._glyphs.plain and self._colors().halves

    def _colors(self) -> Palette:
        if self._palette is None:
            self._palette = Palette(self.rich_style, self._ramp, self._system)
        return self._palette

    def put(self, title: str, found: list[bytes], lit: tuple[range, range]) -> None:
        """Show tiles, and which of them are in sight."""
        if (title, found, lit) == (self._title, self._tiles, self._lit):
            return
        self._title, self._tiles, self._lit = title, found, lit
        self._strips = []
        self.refresh()

    def _lines(self) -> list[Runs]:
        lit_rows, lit_columns = self._lit
        slots = [
            [_slot(rank, row in lit_rows and column in lit_columns) for column, rank in enumerate(line)]
            for row, line in enumerate(self._tiles)
        ]
        if not self.halves:
            return [[(slot, self._text(slot)) for slot in line] for line in slots]
        blank = [Slot.PAD] * (len(slots[0]) if slots else 0)
        pairs = zip(slots[::2], [*slots[1::2], blank], strict=False)
        return [[(half_slot(a, b), "") for a, b in zip(upper, lower, strict=True)] for upper, lower in pairs]

    def _text(self, slot: Slot) -> str:
        return {Slot.GOOD: "o", Slot.LOW: "_", Slot.SKIPPED: "."}.get(slot, self._glyphs.of_slot[slot])

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of the map."""
        width, height = self.size
        if len(self._strips) != height or (self._strips and self._strips[0].cell_length != width):
            palette = self._colors()
            title = f" {self._title}"[:width]
            lines: list[Runs] = [[(Slot.HEADER, f"{title:<{width}}")]]
            for line in self._lines():
                runs: Runs = [(Slot.PAD, " ")]
                runs += [(slot, text or palette.half_text(slot)) for slot, text in line]
                lines.append([*runs, (Slot.PAD, " " * (width - 1 - len(line)))])
            blank: Runs = [(Slot.PAD, " " * width)]
            lines = [*lines, *([blank] * height)][:height]
            self._strips = []
            for runs in lines:
                strip = Strip([Segment(text, palette.style(slot)) for slot, text in runs if text], width)
                pack(strip, self._system)
                self._strips.append(strip)
        return [strip.crop(crop.x, crop.right) for strip in self._strips[crop.y : crop.bottom]]

    def on_click(self, event: events.Click) -> None:
        """Go to where was clicked."""
        down = 2 * (event.y - 1) + 0.5 if self.halves else event.y - 1
        right = event.x - 1
        if self._tiles and 0 <= down < len(self._tiles) and 0 <= right < len(self._tiles[0]):
            self.post_message(self.Pointed(down / len(self._tiles), right / len(self._tiles[0])))
