"""Lines of ready terminal text.

Textual turns a line of styled segments into escape sequences each time it is drawn. A grid of thousands of cells that
change many times a second cannot afford that: here a line is made as finished text once, with codes only where the
style changes, and its segments come into being only if something asks for them (a screenshot, a dialog over the grid).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from rich._palettes import EIGHT_BIT_PALETTE
from rich.color import Color, ColorSystem
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from fabtui.presentation.cell_levels import Slot

RESET = "\x1b[0m"
#: What ends each attribute.
OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "9": "29"}
_NAMES = {"1": "bold", "2": "dim", "3": "italic", "4": "underline", "5": "blink", "7": "reverse", "9": "strike"}


class Codes(NamedTuple):
    """A style as terminal codes: attributes, foreground, background."""

    attributes: frozenset[str]
    foreground: str
    background: str


#: What a terminal draws with after a reset.
PLAIN = Codes(frozenset(), "39", "49")

#: Colours of the 256-colour palette that are the same everywhere; half as long to name as by red, green and blue.
_INDEX = {EIGHT_BIT_PALETTE[index]: index for index in range(16, 256)}


@lru_cache(4096)
def codes_of(style: Style, system: ColorSystem | None) -> Codes:
    """Return the codes of a style for a number of colours; None for none at all."""
    attributes = frozenset(code for code, name in _NAMES.items() if getattr(style, name))
    return Codes(attributes, _color(style, system, True), _color(style, system, False))


def _color(style: Style, system: ColorSystem | None, foreground: bool) -> str:
    color = style.color if foreground else style.bgcolor
    if color is None or color.is_default or system is None:
        return "39" if foreground else "49"
    if color.triplet is not None and system is ColorSystem.TRUECOLOR:
        return rgb(38 if foreground else 48, *color.triplet)
    return ";".join(color.downgrade(system).get_ansi_codes(foreground))


def rgb(ground: int, red: int, green: int, blue: int) -> str:
    """Return the shortest code of a colour; ``ground`` is 38 for the foreground, 48 for the background."""
    index = _INDEX.get(ColorTriplet(red, green, blue))
    return f"{ground};2;{red};{green};{blue}" if index is None else f"{ground};5;{index}"


@lru_cache(4096)
def change(before: Codes, after: Codes) -> str:
    """Return the shortest escape sequence from one style to another, "" when nothing changes."""
    had, want = before.attributes, after.attributes
    codes = sorted({OFF[code] for code in had - want})
    if "22" in codes:
        # Ends bold and dim alike.
        had -= {"1", "2"}
    codes += sorted(want - had)
    if before.foreground != after.foreground:
        codes.append(after.foreground)
    if before.background != after.background:
        codes.append(after.background)
    if not codes:
        return ""
    # From a reset on there may be less to say.
    anew = ["0", *sorted(want), *(code for code in after[1:] if code not in PLAIN)]
    return f"\x1b[{min(';'.join(codes), ';'.join(anew), key=len)}m"


Runs = list[tuple[int, str]]

#: What two cells that share a character are drawn with; see `half_slot`.
UPPER, LOWER, BLANK = "▀", "▄", " "
_HALVES_FROM = 32
_HALF_SLOTS = 32 * 33


def half_slot(upper: int, lower: int) -> int:
    """Return the number that stands in runs for a character of two cells, one above the other."""
    return _HALVES_FROM * (upper + 1) + lower


def pack(strip: Strip, system: ColorSystem | None) -> None:
    """Give a strip of segments its terminal text, with codes only for what changes from segment to segment.

    Textual would write every segment's whole style and a reset after it: three times as much. The strip stays as it is
    otherwise; one that was drawn already, or has links, is left alone.
    """
    if strip._render_cache is not None:
        return
    parts: list[str] = []
    now = PLAIN
    for text, style, control in strip._segments:
        if control or (style is not None and style.link):
            return
        want = PLAIN if style is None else codes_of(style, system)
        if not want.attributes and text.isspace():
            # Blanks have no foreground.
            want = Codes(want.attributes, now.foreground, want.background)
        parts += (change(now, want), text)
        now = want
    parts.append(RESET)
    strip._render_cache = "".join(parts)


#: Slots whose colour, where they have no background, is that of their character.
_FILLED_BY_TEXT = frozenset({Slot.GONE})


class GlyphCells(NamedTuple):
    """What cells too narrow for a number show, by their slot.

    Attributes:
        texts: The text of a cell.
        edges: The text of a cell that is the first of its node.
    """

    texts: tuple[str, ...]
    edges: tuple[str, ...]


class Palette:
    """The style of each slot, and the shortest escape sequences from any one to any other.

    Args:
        base: The style of the screen itself.
        ramp: The Rich style of each slot by its key, laid over the base.
        system: How many colours the terminal has; None for none at all.
    """

    def __init__(self, base: Style, ramp: dict[str, str], system: ColorSystem | None) -> None:
        self.system = system
        if system is None:
            base = base.without_color
        self.styles: list[Style] = [base + Style.parse(ramp.get(slot.key) or "none") for slot in Slot]
        codes = [codes_of(style, system) for style in self.styles]
        self._base = base
        self._halves: dict[int, tuple[str, Style]] = {}
        self._half_changes: dict[int, str] = {}
        self._glyph_cells: dict[GlyphCells, list[list[str]]] = {}
        #: From a slot's style to another's; the last row, which is row -1, is from a terminal that was reset.
        self.changes: list[list[str]] = [[change(before, after) for after in codes] for before in (*codes, PLAIN)]

    def style(self, slot: int) -> Style:
        """Return the style of a slot, or that of two in one character."""
        if slot < _HALVES_FROM:
            return self.styles[slot]
        return self._half(slot)[1]

    def half_text(self, slot: int) -> str:
        """Return the character of two cells, one above the other."""
        return self._half(slot)[0]

    @property
    def halves(self) -> bool:
        """Whether cells can be told apart by their colours alone, as those have to be that share a character."""
        shown = (Slot.GOOD, Slot.PARTLY, Slot.SLOW, Slot.FAILED)
        return self.system is not None and all(self._fill(slot) is not None for slot in shown)

    def _half(self, slot: int) -> tuple[str, Style]:
        known = self._halves.get(slot)
        if known is None:
            upper, lower = (self._fill(half) for half in (slot // _HALVES_FROM - 1, slot % _HALVES_FROM))
            base = self._base
            if upper is None and lower is None:
                known = BLANK, base
            elif upper is None:
                known = LOWER, base + Style(color=lower)
            elif lower is None:
                known = UPPER, base + Style(color=upper)
            elif upper == lower:
                known = BLANK, base + Style(bgcolor=upper)
            else:
                known = UPPER, base + Style(color=upper, bgcolor=lower)
            self._halves[slot] = known
        return known

    def _fill(self, slot: int) -> Color | None:
        """Return the colour of a slot where there is no room for a character; None for the screen's own."""
        style = self.styles[slot]
        color = style.color if style.reverse else style.bgcolor
        if color is None or color.is_default or color == self._base.bgcolor:
            if slot == Slot.CURSOR:
                return Color.parse("bright_white")
            color = style.color if slot in _FILLED_BY_TEXT else None
        return None if color is None or color.is_default else color

    def ready_halves(self, upper: bytes, lower: bytes) -> str:
        """Return two rows as terminal text, two cells a character, after a reset."""
        slots = [_HALVES_FROM * (a + 1) + b for a, b in zip(upper, lower, strict=True)]
        known = self._half_changes
        keys = [_HALF_SLOTS * a + b for a, b in zip([0, *slots[:-1]], slots, strict=True)]
        try:
            return "".join([known[key] for key in keys])
        except KeyError:
            for key in keys:
                known[key] = self._half_change(*divmod(key, _HALF_SLOTS))
            return "".join([known[key] for key in keys])

    def _half_change(self, before: int, slot: int) -> str:
        """Return what makes a character of two cells after another one; 0 stands for a terminal that was reset."""
        text, style = self._half(slot)
        now = codes_of(self._half(before)[1], self.system) if before else PLAIN
        return change(now, codes_of(style, self.system)) + text

    def ready(self, runs: Iterable[tuple[int, str]]) -> str:
        """Return runs as terminal text, with a code only where the style changes."""
        parts: list[str] = []
        row, before = self.changes[-1], -1
        for slot, text in runs:
            if slot != before:
                parts.append(row[slot])
                row, before = self.changes[slot], slot
            parts.append(text)
        parts.append(RESET)
        return "".join(parts)

    def ready_cells(self, slots: bytes, texts: Iterable[str], before: int) -> str:
        """Return cells as terminal text, after something in the style of a slot, five times as fast as `ready`."""
        changes = self.changes
        befores = bytes((before,)) + slots[:-1]
        return "".join([changes[a][b] + text for a, b, text in zip(befores, slots, texts, strict=True)])

    def ready_glyphs(self, slots: bytes, before: int, glyphs: GlyphCells, marked: Iterable[int]) -> str:
        """Return cells that show their slot's glyph alone as terminal text; twice as fast again.

        Args:
            slots: The cells.
            before: The slot of what stands before them.
            glyphs: What cells show.
            marked: Which of them are the first of a node.
        """
        cells = self._glyph_cells.get(glyphs)
        if cells is None:
            cells = self._glyph_cells[glyphs] = [
                [change + text for change, text in zip(row, glyphs.texts, strict=True)] for row in self.changes
            ]
        befores = bytes((before,)) + slots[:-1]
        parts = [cells[a][b] for a, b in zip(befores, slots, strict=True)]
        for at in marked:
            parts[at] = self.changes[befores[at]][slots[at]] + glyphs.edges[slots[at]]
        return "".join(parts)


class ReadyStrip(Strip):
    """A strip that carries its terminal text from the start and makes its segments when they are asked for.

    Args:
        ready: The terminal text.
        width: How many cells wide it is.
        palette: The palette that it was made with.
        runs: Gives the same line as slots with their texts, left to right.
    """

    __slots__ = ("_palette", "_plain", "_runs")

    def __init__(self, ready: str, width: int, palette: Palette, runs: Callable[[], Runs]) -> None:
        # Strip.__init__ makes seven caches; the plain strip has them if it ever comes to be.
        self._runs = runs
        self._palette = palette
        self._plain: Strip | None = None
        self._cell_length = width
        self._cell_count = None
        self._link_ids = set()
        self._render_cache = ready

    @classmethod
    def of_runs(cls, runs: Runs, width: int, palette: Palette) -> ReadyStrip:
        """Return the strip of some runs."""
        return cls(palette.ready(runs), width, palette, lambda: runs)

    @property
    def plain(self) -> Strip:
        """The same line as a strip of segments."""
        if self._plain is None:
            style = self._palette.style
            self._plain = Strip([Segment(text, style(slot)) for slot, text in self._runs() if text], self._cell_length)
        return self._plain

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        """Cut it at some positions; the usual cut is at its end, and then it is itself."""
        cuts = list(cuts)
        return [self] if cuts == [self._cell_length] else self.plain.divide(cuts)


def _of_plain(name: str) -> Any:
    return property(lambda self: getattr(self.plain, name))


# Every method of Strip but those above works on these.
for _name in (
    "_segments",
    "_divide_cache",
    "_crop_cache",
    "_style_cache",
    "_filter_cache",
    "_line_length_cache",
    "_crop_extend_cache",
    "_offsets_cache",
):
    setattr(ReadyStrip, _name, _of_plain(_name))
