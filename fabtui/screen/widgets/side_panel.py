"""What stands beside and under the grid: the cursor's pair, the worst pairs, the key of the colours, the event log."""

from __future__ import annotations

from rich.color import ColorSystem
from textual import events
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from fabtui.model.layers import Layer
from fabtui.presentation.cell_levels import Glyphs, Slot
from fabtui.presentation.legends import Meaning, meanings
from fabtui.presentation.wording import MUTED, Part, failure_text
from fabtui.presentation.wrapping import Lines
from fabtui.screen.grid.axis import Axis
from fabtui.screen.grid.severity import BadCell
from fabtui.screen.terminal.ansi_strips import Palette, ReadyStrip, Runs
from fabtui.screen.widgets.pair_text import pair_name
from fabtui.screen.widgets.text_line import TextLine

#: Characters across with its edges; on wide screens it may have more.
PANEL_WIDTH = 48
PANEL_WIDTHS = (80, 64, PANEL_WIDTH)
#: Of those, characters that are edges.
PANEL_EDGES = 3


class SidePanel(TextLine):
    """The cursor's pair in short, what is wrong, the classes, the sweep, the worst pairs of the layer."""

    DEFAULT_CSS = """
    SidePanel {
        width: 48; height: 100%; padding: 0 1; border-left: vkey $secondary 60%; text-wrap: nowrap; overflow: hidden;
    }
    SidePanel.-plain { border: none; padding: 0 1 0 2; }
    """

    def put(self, lines: Lines) -> None:
        """Show lines that fit."""
        self.show(Content("\n").join(Content.assemble(*line) for line in lines))


def worst_lines(axis: Axis, bad: list[BadCell], known: int, done: bool, glyphs: Glyphs) -> list[list[Part]]:
    """Return the worst pairs, a line each, under a line that says how many there are."""
    if not known:
        return [[("no bad pair in this layer" if done else "looking for bad pairs", MUTED)]]
    plus = "" if done else "+"
    lines: list[list[Part]] = [[(f"{known}{plus} bad in this layer", "bold"), ("   ] [ next, previous", MUTED)]]
    lines.extend(bad_line(axis, one, glyphs) for one in bad)
    return lines


def bad_line(axis: Axis, bad: BadCell, glyphs: Glyphs) -> list[Part]:
    """Return a bad pair on one line."""
    style = "$warning" if bad.slot is Slot.SLOW else "$error"
    name = pair_name(axis.seats[bad.row], axis.seats[bad.column])
    parts: list[Part] = [(f"{glyphs.of_slot[bad.slot]} ", f"bold {style}"), (f"{name:<18} ", "")]
    parts.append((f"{bad.slot.key:<8}", style))
    if bad.share is not None:
        parts.append((f" {bad.share:.2f} of class", MUTED))
    elif bad.cell.measurement is not None:
        parts.append((f" {failure_text(bad.cell.measurement, 60)}", MUTED))
    return parts


class ColorKey(Widget):
    """What the colours and glyphs mean, on one line, drawn with the grid's own ramp."""

    DEFAULT_CSS = """
    ColorKey { height: 1; width: 1fr; }
    """
    ALLOW_SELECT = False

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._ramp: dict[str, str] = {}
        self._system: ColorSystem | None = None
        self._layer = Layer.P2P
        self._blocks = False
        self._strip: ReadyStrip | None = None

    def paint_with(self, ramp: dict[str, str], system: ColorSystem | None) -> None:
        """Draw with a ramp and a number of colours from now on."""
        self._ramp, self._system = ramp, system
        self._strip = None
        self.refresh()

    def explain(self, layer: Layer) -> None:
        """Explain the colours of a layer."""
        if layer is not self._layer:
            self._layer = layer
            self._strip = None
            self.refresh()

    def show_blocks(self, on: bool) -> None:
        """Explain blocks of cells, or cells."""
        if on != self._blocks:
            self._blocks = on
            self._strip = None
            self.refresh()

    def _meanings(self) -> list[Meaning]:
        found = meanings(self._layer)
        if self._blocks:
            good = sum(slot in (Slot.GOOD, Slot.FAIR, Slot.LOW) for slot, _ in found)
            found.insert(good, (Slot.PARTLY, "not all tested"))
        return found

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the line."""
        width = self.size.width
        if self._strip is None or self._strip.cell_length != width:
            runs: Runs = []
            left = width
            for slot, word in self._meanings():
                text = f" {word}  "
                if 3 + len(text.rstrip()) > left:
                    break
                runs.append((slot, f" {self._glyphs.of_slot[slot]} "))
                runs.append((Slot.PAD, text[: left - 3]))
                left -= 3 + len(runs[-1][1])
            runs.append((Slot.PAD, " " * max(0, left)))
            self._strip = ReadyStrip.of_runs(runs, width, Palette(self.rich_style, self._ramp, self._system))
        strip: Strip = self._strip
        return [strip if crop.width == width else strip.crop(crop.x, crop.right)] * min(1, crop.height)


_ALWAYS = ("app.help", "app.quit")


class KeyBar(TextLine):
    """The keys that do something here; a click on one presses it."""

    class Pressed(Message):
        """A key's name was clicked."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._spans: list[tuple[int, int, str]] = []

    def put(self, keys: list[tuple[str, str, str]], width: int) -> None:
        """Show keys with what they do, as many as fit; help and quit always.

        Args:
            keys: Key, description and action of each, the most important first.
            width: Characters there are.
        """
        parts: list[Part] = []
        self._spans = []
        at = 0
        kept = sum(len(key) + len(word) + 3 for key, word, action in keys if action in _ALWAYS)
        for key, word, action in keys:
            text = f" {word}  "
            if action in _ALWAYS:
                kept -= len(key) + len(text)
            if at + len(key) + len(text.rstrip()) + kept > width:
                continue
            parts += [(key, "bold $primary"), (text, MUTED)]
            self._spans.append((at, at + len(key) + len(text) - 2, action))
            at += len(key) + len(text)
        self.show(Content.assemble(*parts))

    def on_click(self, event: events.Click) -> None:
        """Press the key that was clicked."""
        for start, end, action in self._spans:
            if start <= event.x < end and action:
                self.post_message(self.Pressed(action))
