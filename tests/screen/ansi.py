"""Reads terminal text back into cells."""

import re
from typing import NamedTuple

from rich._palettes import EIGHT_BIT_PALETTE

_CODE = re.compile(r"\x1b\[([0-9;]*)m")
#: Underlined, reversed, struck through: what is seen on a blank.
_SEEN = {4, 7, 9}


class Cell(NamedTuple):
    character: str
    attributes: frozenset[int]
    foreground: str
    background: str


class Pen:
    def __init__(self) -> None:
        self.attributes: set[int] = set()
        self.foreground = self.background = "default"

    def take(self, codes: str) -> None:
        numbers = [int(number or 0) for number in codes.split(";")]
        while numbers:
            self._take(numbers.pop(0), numbers)

    def _take(self, number: int, more: list[int]) -> None:
        if number == 0:
            self.attributes, self.foreground, self.background = set(), "default", "default"
        elif number < 10:
            self.attributes.add(number)
        elif number == 22:
            self.attributes -= {1, 2}
        elif number in (23, 24, 25, 27, 29):
            self.attributes.discard(number - 20)
        elif number == 38:
            self.foreground = _color(more)
        elif number == 48:
            self.background = _color(more)
        elif number == 39:
            self.foreground = "default"
        elif number == 49:
            self.background = "default"
        elif 30 <= number < 38 or 90 <= number < 98:
            self.foreground = f"ansi {number % 10 + (8 if number >= 90 else 0)}"
        elif 40 <= number < 48 or 100 <= number < 108:
            self.background = f"ansi {number % 10 + (8 if number >= 100 else 0)}"
        else:
            raise AssertionError(f"code {number}")

    def draw(self, character: str) -> Cell:
        return Cell(character, frozenset(self.attributes), self.foreground, self.background)


def strip_codes(text: str) -> str:
    return _CODE.sub("", text)


def cells_of(text: str) -> list[Cell]:
    """The cells that a terminal would show, blanks without a foreground."""
    pen = Pen()
    found: list[Cell] = []
    for at, part in enumerate(_CODE.split(text)):
        if at % 2:
            pen.take(part)
            continue
        for character in part:
            cell = pen.draw(character)
            hidden = character == " " and not pen.attributes & _SEEN
            found.append(cell._replace(foreground="") if hidden else cell)
    return found


def _color(numbers: list[int]) -> str:
    if numbers.pop(0) == 5:
        index = numbers.pop(0)
        if index < 16:
            return f"ansi {index}"
        red, green, blue = EIGHT_BIT_PALETTE[index]
    else:
        red, green, blue = numbers.pop(0), numbers.pop(0), numbers.pop(0)
    return f"#{red:02x}{green:02x}{blue:02x}"
