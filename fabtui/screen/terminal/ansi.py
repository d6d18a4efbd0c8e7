"""Styles as a terminal takes them, and the shortest way from one to another."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from rich._palettes import EIGHT_BIT_PALETTE
from rich.color import ColorSystem
from rich.color_triplet import ColorTriplet
from rich.style import Style

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
