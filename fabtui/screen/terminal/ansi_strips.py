"""Strips with finished terminal text.

Textual turns a line of styled segments into escape sequences each time it is drawn. That is too slow for a grid of
thousands of cells. Here the text of a line is made once, with codes only where the style changes. Segments are made
only on demand, for example for a screenshot or a dialog over the grid.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from rich.color import Color, ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from fabtui.presentation.cell_levels import CellStyle, Glyphs
from fabtui.sanitize import drawable

RESET = "\x1b[0m"
#: Code that ends each attribute.
OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "9": "29"}
_NAMES = {"1": "bold", "2": "dim", "3": "italic", "4": "underline", "5": "blink", "7": "reverse", "9": "strike"}


class Codes(NamedTuple):
    """Terminal codes of a style."""

    attributes: frozenset[str]
    foreground: str
    background: str


#: Style of a terminal after a reset.
PLAIN = Codes(frozenset(), "39", "49")
#: Colours of the 256-colour palette that are the same in all terminals; their codes are half as long as RGB.
_INDEX = {Color.from_ansi(index).get_truecolor(): index for index in range(16, 256)}


@lru_cache(4096)
def codes_of(style: Style, system: ColorSystem | None) -> Codes:
    """Return the codes of a style; ``system`` is None for no colours."""
    attributes = frozenset(code for code, name in _NAMES.items() if getattr(style, name))
    return Codes(attributes, _color(style, system, True), _color(style, system, False))


def _color(style: Style, system: ColorSystem | None, foreground: bool) -> str:
    color = style.color if foreground else style.bgcolor
    if color is None or color.is_default or system is None:
        return "39" if foreground else "49"
    if color.triplet in _INDEX and system is ColorSystem.TRUECOLOR:
        return f"{38 if foreground else 48};5;{_INDEX[color.triplet]}"
    return ";".join(color.downgrade(system).get_ansi_codes(foreground))


@lru_cache(4096)
def change(before: Codes, after: Codes) -> str:
    """Return the shortest escape sequence from one style to another, "" when nothing changes."""
    had, want = before.attributes, after.attributes
    codes = sorted({OFF[code] for code in had - want})
    if "22" in codes:
        # This code ends both bold and dim.
        had -= {"1", "2"}
    codes += sorted(want - had)
    if before.foreground != after.foreground:
        codes.append(after.foreground)
    if before.background != after.background:
        codes.append(after.background)
    if not codes:
        return ""
    # Starting from a reset may be shorter.
    from_reset = ["0", *sorted(want), *(code for code in after[1:] if code not in PLAIN)]
    return f"\x1b[{min(';'.join(codes), ';'.join(from_reset), key=len)}m"


Runs = list[tuple[int, str]]

#: Characters for two cells in one line; see `half_style`.
UPPER, LOWER, BLANK = "▀", "▄", " "
_HALVES_FROM = 32
_HALF_SLOTS = 32 * 33


def half_style(upper: int, lower: int) -> int:
    """Return the number that represents two cells, one above the other, in runs."""
    return _HALVES_FROM * (upper + 1) + lower


def pack(strip: Strip, system: ColorSystem | None) -> None:
    """Set the terminal text of a strip of segments, with codes only where the style changes.

    Textual would write the whole style of every segment and a reset after it, three times as much. Strips that were
    drawn already, or have links, are not changed.
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


#: Slots filled with the colour of their character if they have no background.
_FILLED_BY_TEXT = frozenset({CellStyle.GONE, CellStyle.SLOW})


class GlyphCells(NamedTuple):
    """Texts of cells that are too narrow for a number, by slot; ``edges`` is for the first cell of a node."""

    texts: tuple[str, ...]
    edges: tuple[str, ...]


class Palette:
    """Style of each slot, and the shortest escape sequence between any two slots.

    ``ramp`` has the Rich style of each slot by its key, applied over ``base``; ``system`` is None for no colours.
    """

    def __init__(self, base: Style, ramp: dict[str, str], system: ColorSystem | None) -> None:
        self.system = system
        if system is None:
            base = base.without_color
        self.styles: list[Style] = [base + Style.parse(ramp.get(slot.key) or "none") for slot in CellStyle]
        self._base = base
        codes = [codes_of(style, system) for style in self.styles]
        self._halves: dict[int, tuple[str, Style]] = {}
        self._half_changes: dict[int, str] = {}
        self._glyph_cells: dict[GlyphCells, list[list[str]]] = {}
        #: Escape sequence between two slots; row -1 is for a terminal after a reset.
        self.changes: list[list[str]] = [[change(before, after) for after in codes] for before in (*codes, PLAIN)]

    def style(self, slot: int) -> Style:
        """Return the style of a slot, or of two slots in one character."""
        return self.styles[slot] if slot < _HALVES_FROM else self._half(slot)[1]

    def strip(self, runs: Runs, width: int | None) -> Strip:
        merged = groupby(runs, itemgetter(0))
        segments = [Segment(drawable("".join(text for _, text in cells)), self.style(slot)) for slot, cells in merged]
        return Strip([segment for segment in segments if segment.text], width)

    def half_text(self, slot: int) -> str:
        """Return the character for two cells, one above the other."""
        return self._half(slot)[0]

    @property
    def halves(self) -> bool:
        """True if colour alone distinguishes cells, as it must for two cells in one character."""
        shown = (CellStyle.GOOD, CellStyle.PARTLY, CellStyle.SLOW, CellStyle.FAILED)
        return self.system is not None and all(self._fill(slot) is not None for slot in shown)

    def _half(self, slot: int) -> tuple[str, Style]:
        known = self._halves.get(slot)
        if known is None:
            both = slot // _HALVES_FROM - 1, slot % _HALVES_FROM
            upper, lower = map(self._fill, both)
            if upper == lower:
                known = BLANK, self._base + Style(bgcolor=upper)
            elif upper is None:
                known = LOWER, self._base + Style(color=lower)
            else:
                known = UPPER, self._base + Style(color=upper, bgcolor=lower)
            self._halves[slot] = known
        return known

    def _fill(self, slot: int) -> Color | None:
        """Return the fill colour of a slot; None for the screen's own."""
        style = self.styles[slot]
        color = style.color if style.reverse else style.bgcolor
        if color is None or color.is_default or color == self._base.bgcolor:
            color = style.color if slot in _FILLED_BY_TEXT else None
        return None if color is None or color.is_default else color

    def ready_halves(self, upper: bytes, lower: bytes) -> str:
        """Return two rows as terminal text, two cells per character, after a reset."""
        if not upper:
            return ""
        slots = [_HALVES_FROM * (a + 1) + b for a, b in zip(upper, lower, strict=True)]
        known = self._half_changes
        keys = [_HALF_SLOTS * a + b for a, b in zip([0, *slots[:-1]], slots, strict=True)]
        try:
            return "".join([known[key] for key in keys]) + RESET
        except KeyError:
            for key in keys:
                # 0 is a terminal after a reset.
                before, slot = divmod(key, _HALF_SLOTS)
                text, style = self._half(slot)
                now = codes_of(self._half(before)[1], self.system) if before else PLAIN
                known[key] = change(now, codes_of(style, self.system)) + text
            return "".join([known[key] for key in keys]) + RESET

    def ready(self, runs: Runs) -> str:
        """Return runs as terminal text, with codes only where the style changes."""
        if not "".join([text for _, text in runs]).isprintable():
            runs = [(slot, drawable(text)) for slot, text in runs]
        befores, changes = [-1, *[slot for slot, _ in runs]], self.changes
        parts = [changes[before][slot] + text for before, (slot, text) in zip(befores, runs, strict=False)]
        return "".join(parts) + RESET if runs else ""

    def ready_texts(
        self, header: tuple[int, str], slots: bytes, texts: Sequence[str], gaps: list[tuple[int, int]], padding: Runs
    ) -> str:
        """Return cells with texts; ``gaps`` are cells with blanks before them, and how many."""
        before, text = header[0], drawable(header[1])
        if not "".join(texts).isprintable():
            texts = [drawable(shown) for shown in texts]
        befores, changes = bytes((before,)) + slots, self.changes
        parts = [changes[a][b] + shown for a, b, shown in zip(befores, slots, texts, strict=False)]
        for at, blank in gaps:
            parts[at] = (
                changes[befores[at]][CellStyle.PAD] + " " * blank + changes[CellStyle.PAD][slots[at]] + texts[at]
            )
        after = [changes[befores[-1]][slot] + blank for slot, blank in padding]
        return "".join([changes[-1][before], text, *parts, *after, RESET])

    def ready_glyphs(
        self, header: tuple[int, str], slots: bytes, glyphs: GlyphCells, marked: Iterable[int], padding: Runs
    ) -> str:
        """Return cells that show only a glyph, twice as fast as `ready`; ``marked`` ones are the first of a node."""
        cells = self._glyph_cells.get(glyphs)
        if cells is None:
            cells = self._glyph_cells[glyphs] = [
                [change + text for change, text in zip(row, glyphs.texts, strict=True)] for row in self.changes
            ]
        before, text = header[0], drawable(header[1])
        befores = bytes((before,)) + slots
        parts = [cells[a][b] for a, b in zip(befores, slots, strict=False)]
        for at in marked:
            parts[at] = self.changes[befores[at]][slots[at]] + glyphs.edges[slots[at]]
        after = [self.changes[befores[-1]][slot] + blank for slot, blank in padding]
        return "".join([self.changes[-1][before], text, *parts, *after, RESET])


class ReadyStrip(Strip):
    """Strip with finished terminal text; ``runs`` returns the line as slots with texts, for segments on demand."""

    __slots__ = ("_palette", "_plain", "_runs")

    def __init__(self, ready: str, width: int, palette: Palette, runs: Callable[[], Runs]) -> None:
        # Strip.__init__ makes seven caches; only the plain strip needs them.
        self._runs = runs
        self._palette = palette
        self._plain: Strip | None = None
        self._cell_length = width
        self._cell_count = None
        self._link_ids = set()
        self._render_cache = ready

    @classmethod
    def of_runs(cls, runs: Runs, width: int, palette: Palette) -> ReadyStrip:
        return cls(palette.ready(runs), width, palette, lambda: runs)

    @property
    def plain(self) -> Strip:
        """The same line as a strip of segments."""
        if self._plain is None:
            self._plain = self._palette.strip(self._runs(), self._cell_length)
        return self._plain

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        """Cut at some positions; a single cut at the end, the usual case, costs nothing."""
        cuts = list(cuts)
        return [self] if cuts == [self._cell_length] else self.plain.divide(cuts)


def _of_plain(name: str) -> Any:
    return property(lambda self: getattr(self.plain, name))


# All other methods of Strip work on these attributes.
for _name in {*Strip.__slots__} - {"_cell_length", "_cell_count", "_link_ids", "_render_cache"}:
    setattr(ReadyStrip, _name, _of_plain(_name))


class PaintedWidget(Widget):
    """Widget drawn with the ramp of the grid. Subclasses draw everything again on `redraw`."""

    ALLOW_SELECT = False

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.glyphs = glyphs
        self._ramp: dict[str, str] = {}
        self._system: ColorSystem | None = None
        self._palette: Palette | None = None

    @property
    def palette(self) -> Palette:
        if self._palette is None:
            self._palette = Palette(self.rich_style, self._ramp, self._system)
        return self._palette

    def paint_with(self, ramp: dict[str, str], system: ColorSystem | None) -> None:
        self._ramp, self._system, self._palette = ramp, system, None
        self.redraw()

    def paint_as(self, other: PaintedWidget) -> None:
        """Take over the colours of another widget."""
        if (self._ramp, self._system) != (other._ramp, other._system):
            self.paint_with(other._ramp, other._system)

    @abstractmethod
    def redraw(self) -> None:
        """Draw everything again."""
