"""Reads terminal text back into cells."""

from __future__ import annotations

import re
from typing import NamedTuple

from rich._palettes import EIGHT_BIT_PALETTE

_CODE = re.compile(r"\x1b\[([0-9;]*)m")


class Cell(NamedTuple):
    character: str
    attributes: frozenset[int]
    foreground: str
    background: str


def strip_codes(text: str) -> str:
    return _CODE.sub("", text)


def cells_of(text: str) -> list[Cell]:
    """The cells that a terminal would show, blanks without a foreground."""
    found: list[Cell] = []
    attributes: set[int] = set()
    foreground = background = "default"
    at = 0
    while at < len(text):
        code = _CODE.match(text, at)
        if code is None:
            seen = foreground if text[at] != " " or attributes & {4, 7} else ""
            found.append(Cell(text[at], frozenset(attributes), seen, background))
            at += 1
            continue
        at = code.end()
        numbers = [int(number or 0) for number in code.group(1).split(";")]
        while numbers:
            number = numbers.pop(0)
            if number == 0:
                attributes, foreground, background = set(), "default", "default"
            elif number < 10:
                attributes.add(number)
            elif number == 22:
                attributes -= {1, 2}
            elif number in (23, 24, 25, 27):
                attributes.discard(number - 20)
            elif number in (38, 48):
                color = _color(numbers)
                foreground, background = (color, background) if number == 38 else (foreground, color)
            elif number in (39, 49):
                foreground, background = ("default", background) if number == 39 else (foreground, "default")
            elif 30 <= number < 38 or 90 <= number < 98:
                foreground = f"ansi {number % 10 + (8 if number >= 90 else 0)}"
            elif 40 <= number < 48 or 100 <= number < 108:
                background = f"ansi {number % 10 + (8 if number >= 100 else 0)}"
            else:
                raise AssertionError(f"code {number} in {text!r}")
    return found


def _color(numbers: list[int]) -> str:
    if numbers.pop(0) == 5:
        red, green, blue = EIGHT_BIT_PALETTE[numbers.pop(0)]
    else:
        red, green, blue = numbers.pop(0), numbers.pop(0), numbers.pop(0)
    return f"#{red:02x}{green:02x}{blue:02x}"
