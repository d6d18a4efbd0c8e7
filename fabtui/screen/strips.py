"""Lines of ready terminal text.

Textual turns a line of styled segments into escape sequences each time it is drawn. A grid of thousands of cells that
change many times a second cannot afford that: here a line is made as finished text once, with codes only where the
style changes, and its segments come into being only if something asks for them (a screenshot, a dialog over the grid).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from fabtui.screen.levels import Slot

Runs = list[tuple[int, str]]

_RESET = "\x1b[0m"
_ATTRIBUTES = (("bold", "1"), ("dim", "2"), ("italic", "3"), ("underline", "4"), ("blink", "5"), ("reverse", "7"))


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
        self._changes: dict[tuple[int, int], str] = {}

    def change(self, before: int, after: int) -> str:
        """Return the escape sequence from one slot's style to another's; ``before`` -1 is a terminal that was reset."""
        key = (before, after)
        known = self._changes.get(key)
        if known is None:
            known = self._changes[key] = self._between(None if before < 0 else self.styles[before], self.styles[after])
        return known

    def _between(self, before: Style | None, after: Style) -> str:
        had = set() if before is None else _attributes(before)
        want = _attributes(after)
        codes: list[str] = []
        if had - want:
            codes.append("0")
            before, had = None, set()
        codes.extend(code for code in sorted(want - had))
        for foreground in (True, False):
            old = self._color(before, foreground)
            new = self._color(after, foreground)
            if old != new:
                codes.extend(new)
        return f"\x1b[{';'.join(codes)}m" if codes else ""

    def _color(self, style: Style | None, foreground: bool) -> Sequence[str]:
        color = None if style is None else style.color if foreground else style.bgcolor
        if color is None or color.is_default or self.system is None:
            return ("39",) if foreground else ("49",)
        return color.downgrade(self.system).get_ansi_codes(foreground)

    def ready(self, runs: Runs) -> str:
        """Return a line as terminal text."""
        parts: list[str] = []
        add = parts.append
        changes = self._changes
        before = -1
        for slot, text in runs:
            if slot != before:
                code = changes.get((before, slot))
                add(self.change(before, slot) if code is None else code)
                before = slot
            add(text)
        add(_RESET)
        return "".join(parts)


def _attributes(style: Style) -> set[str]:
    return {code for name, code in _ATTRIBUTES if getattr(style, name)}


class ReadyStrip(Strip):
    """A strip that carries its terminal text from the start and makes its segments when they are asked for.

    Args:
        runs: Slots with their texts, left to right, that together fill ``width`` cells.
        width: How many cells wide it is.
        palette: The palette that the slots are of.
    """

    __slots__ = ("_palette", "_plain", "_runs")

    def __init__(self, runs: Runs, width: int, palette: Palette) -> None:
        # Strip.__init__ makes seven caches; the plain strip has them if it ever comes to be.
        self._runs = runs
        self._palette = palette
        self._plain: Strip | None = None
        self._cell_length = width
        self._cell_count = None
        self._link_ids = set()
        self._render_cache = palette.ready(runs)

    @property
    def plain(self) -> Strip:
        """The same line as a strip of segments."""
        if self._plain is None:
            styles = self._palette.styles
            self._plain = Strip([Segment(text, styles[slot]) for slot, text in self._runs if text], self._cell_length)
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
