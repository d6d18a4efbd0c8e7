"""Strips with finished terminal text.

Textual turns a line of styled segments into escape sequences each time it is drawn. That is too slow for a grid of
thousands of cells. Here the text of a line is made once, with codes only where the style changes. Segments are made
only on demand, for example for a screenshot or a dialog over the grid.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

from rich.color import Color, ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from fabtui.presentation.cell_levels import CellStyle, Glyphs
from fabtui.sanitize import drawable

RESET = "\x1b[0m"
_ATTRIBUTES = {"1": "bold", "2": "dim", "3": "italic", "4": "underline", "5": "blink", "7": "reverse", "9": "strike"}
#: Colours of the 256-colour palette that are the same in all terminals; their codes are half as long as RGB.
_INDEX = {Color.from_ansi(index).get_truecolor(): index for index in range(16, 256)}


def codes_of(style: Style, system: ColorSystem | None) -> str:
    """Return the escape sequence of a style after any other; ``system`` is None for no colours."""
    codes = ["0", *(code for code, name in _ATTRIBUTES.items() if getattr(style, name))]
    for color, foreground in ((style.color, True), (style.bgcolor, False)):
        if color is None or color.is_default or system is None:
            continue
        if color.triplet in _INDEX and system is ColorSystem.TRUECOLOR:
            codes.append(f"{38 if foreground else 48};5;{_INDEX[color.triplet]}")
        else:
            codes += color.downgrade(system).get_ansi_codes(foreground)
    return f"\x1b[{';'.join(codes)}m"


Runs = list[tuple[int, str]]

#: Characters for two cells in one line; see `half_style`.
UPPER, LOWER, BLANK = "▀", "▄", " "
_HALVES_FROM = 32


def half_style(upper: int, lower: int) -> int:
    """Return the number that represents two cells, one above the other, in runs."""
    return _HALVES_FROM * (upper + 1) + lower


#: Slots filled with the colour of their character if they have no background, or that of a healthy cell.
_FILLED_BY_TEXT = frozenset({CellStyle.GONE, CellStyle.FEW, CellStyle.SLOW})


class _Codes(dict[int, str]):
    """Escape sequence of each slot, made when it is first drawn."""

    def __init__(self, palette: Palette) -> None:
        self._palette = palette

    def __missing__(self, slot: int) -> str:
        code = self[slot] = codes_of(self._palette.style(slot), self._palette.system)
        return code


class Palette:
    """Style of each slot, with its escape sequence.

    ``ramp`` has the Rich style of each slot by its key, applied over ``base``; ``system`` is None for no colours.
    """

    def __init__(self, base: Style, ramp: dict[str, str], system: ColorSystem | None) -> None:
        self.system = system
        if system is None:
            base = base.without_color
        self.styles: list[Style] = [base + Style.parse(ramp.get(slot.key) or "none") for slot in CellStyle]
        self._base = base
        self._halves: dict[int, tuple[str, Style]] = {}
        self._codes = _Codes(self)

    def style(self, slot: int) -> Style:
        return self.styles[slot] if slot < _HALVES_FROM else self._half(slot)[1]

    def strip(self, runs: Runs, width: int | None) -> Strip:
        return ReadyStrip(runs, width, self)

    def segments(self, runs: Runs) -> list[Segment]:
        merged = groupby(runs, itemgetter(0))
        segments = [Segment(drawable("".join(text for _, text in cells)), self.style(slot)) for slot, cells in merged]
        return [segment for segment in segments if segment.text]

    def half_text(self, slot: int) -> str:
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
        healthy = self.styles[CellStyle.GOOD].bgcolor if slot in _FILLED_BY_TEXT else None
        if color is None or color.is_default or color in (self._base.bgcolor, healthy):
            color = style.color if slot in _FILLED_BY_TEXT else None
        return None if color is None or color.is_default else color

    def ready(self, runs: Runs) -> str:
        if not "".join([text for _, text in runs]).isprintable():
            runs = [(slot, drawable(text)) for slot, text in runs]
        before, codes = -1, self._codes
        return "".join([text if slot == before else codes[before := slot] + text for slot, text in runs]) + RESET


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
        if (self._ramp, self._system) != (other._ramp, other._system):
            self.paint_with(other._ramp, other._system)
