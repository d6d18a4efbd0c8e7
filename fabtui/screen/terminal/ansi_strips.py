"""Strips with finished terminal text.

Textual turns a line of styled segments into escape sequences each time it is drawn. That is too slow for a grid of
thousands of cells. Here the text of a line is made once, with codes only where the style changes. Segments are made
only on demand, for example for a screenshot or a dialog over the grid.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

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
#: Place before the first slot of a line: a terminal after a reset.
_AFTER_RESET = -1


def half_style(upper: int, lower: int) -> int:
    """Return the number that represents two cells, one above the other, in runs."""
    return _HALVES_FROM * (upper + 1) + lower


#: Slots filled with the colour of their character if they have no background.
_FILLED_BY_TEXT = frozenset({CellStyle.GONE, CellStyle.SLOW})


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
        self._halves: dict[int, tuple[str, Style]] = {}
        self._changes = _Changes(self)

    def style(self, slot: int) -> Style:
        """Return the style of a slot, or of two slots in one character."""
        return self.styles[slot] if slot < _HALVES_FROM else self._half(slot)[1]

    def strip(self, runs: Runs, width: int | None) -> Strip:
        """Return a line whose terminal text has codes only where the style changes."""
        return ReadyStrip(runs, width, self)

    def segments(self, runs: Runs) -> list[Segment]:
        merged = groupby(runs, itemgetter(0))
        segments = [Segment(drawable("".join(text for _, text in cells)), self.style(slot)) for slot, cells in merged]
        return [segment for segment in segments if segment.text]

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

    def ready(self, runs: Runs) -> str:
        """Return runs as terminal text, with codes only where the style changes."""
        if not "".join([text for _, text in runs]).isprintable():
            runs = [(slot, drawable(text)) for slot, text in runs]
        parts: list[str] = []
        before = _AFTER_RESET
        for slot, text in runs:
            if slot != before:
                parts.append(self._changes[before, slot])
                before = slot
            parts.append(text)
        return "".join(parts) + RESET


class _Changes(dict[tuple[int, int], str]):
    """Escape sequences between two slots, made when they are first needed."""

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self._palette = palette

    def __missing__(self, slots: tuple[int, int]) -> str:
        palette = self._palette
        before, after = (PLAIN if at < 0 else codes_of(palette.style(at), palette.system) for at in slots)
        self[slots] = codes = change(before, after)
        return codes


class ReadyStrip(Strip):
    """Strip with finished terminal text, whose segments are made on demand."""

    __slots__ = ("_made", "_palette", "_runs")
    _made: list[Segment] | None

    def __init__(self, runs: Runs, width: int | None, palette: Palette) -> None:
        self._runs, self._palette = runs, palette
        super().__init__((), width)
        self._render_cache = palette.ready(runs)
        self._link_ids = set()

    @property
    def _segments(self) -> list[Segment]:
        if self._made is None:
            self._made = self._palette.segments(self._runs)
        return self._made

    @_segments.setter
    def _segments(self, _: list[Segment]) -> None:
        self._made = None


class PaintedWidget(Widget):
    """Widget drawn with the ramp of the grid."""

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
        self.refresh()

    def paint_as(self, other: PaintedWidget) -> None:
        """Take over the colours of another widget."""
        if (self._ramp, self._system) != (other._ramp, other._system):
            self.paint_with(other._ramp, other._system)
