"""A frame in fewer bytes, for whom a slow ssh line makes wait.

Textual writes a frame strip by strip, each from a reset terminal, and each blank as a character. Here the lines of a
finished frame are read back and written anew: a style code names only what changes, from one strip and line to the
next, and blanks are erased at once rather than written, where the terminal erases to the background that it draws
with. A frame with anything in it besides text, styles and places is left as it is, and so is a line that would take
long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len

from fabtui.screen.terminal.ansi import OFF, PLAIN, RESET, Codes, change, rgb

#: What is not understood: a sequence other than a place or a style, a control character.
_ODD = re.compile(r"\x1b(?!\[[0-9;]*[Hm])|[\x00-\x09\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
_PLACE = re.compile(r"\x1b\[(\d+);(\d+)H")
_STYLE = re.compile(r"\x1b\[([0-9;]*)m")
#: Blanks of which it can pay to say how many they are: passing over five of them takes four characters.
_BLANKS = re.compile(r"( {5,}| +$)")
#: A line of the grid with more style codes than this would take longer to read than it saves.
_MOST_STYLES = 60
#: Underlined, blinking, reversed, struck through: attributes that may show on a blank.
_SEEN = frozenset("4579")
_ATTRIBUTES = frozenset("1234579")
_ENDED = {"22": frozenset("12"), **{off: frozenset(on) for on, off in OFF.items() if off != "22"}}
_DEFAULT = "49"
#: From here to the end of the line.
_ERASE = "\x1b[K"


class _Strange(Exception):
    """Something in a frame is not understood."""


class _Piece(NamedTuple):
    """Some text in one style; of a blank's style only the background counts."""

    codes: Codes
    text: str
    blank: bool


def compact(frame: str, width: int, *, erases: bool) -> str:
    """Return a frame that looks the same in fewer bytes, or the same one where it is not understood.

    Args:
        frame: Text, styles and places as Textual writes them; wherever it goes to another place, the terminal is reset.
        width: Columns of the terminal.
        erases: Whether the terminal erases to the background that it draws with, which few do not.
    """
    if _ODD.search(frame):
        return frame
    before, *found = _PLACE.split(frame)
    if before or not found:
        return frame
    parts: list[str] = []
    now = PLAIN
    try:
        for line, column, text in zip(found[0::3], found[1::3], found[2::3], strict=True):
            # A line break goes nowhere: a place follows it.
            text = text.removesuffix("\n")
            parts.append(_place(line, column))
            if text:
                text, now = _line(text, now, int(column), width, erases)
                parts.append(text)
    except _Strange:
        return frame
    return "".join(parts) + _reset(now)


def _reset(now: Codes) -> str:
    return RESET if now != PLAIN else ""


def _place(line: str, column: str) -> str:
    if column == "1":
        return "\x1b[H" if line == "1" else f"\x1b[{line}H"
    return f"\x1b[{line};{column}H"


@lru_cache(1024)
def _line(text: str, now: Codes, column: int, width: int, erases: bool) -> tuple[str, Codes]:
    """Return what is at a place as terminal text, and the style after it.

    Raises:
        _Strange: It is not understood.
    """
    if "\n" in text:
        raise _Strange
    to_edge = column + cell_len(_STYLE.sub("", text)) == width + 1
    if to_edge and text.count("\x1b") <= _MOST_STYLES:
        return _shortest(_pieces(text), now, column == 1, erases)
    if not text.endswith(RESET):
        raise _Strange
    return _reset(now) + text, PLAIN


# -- reading ----------------------------------------------------------------------------------------------------------


def _pieces(line: str) -> list[_Piece]:
    pieces: list[_Piece] = []
    codes = PLAIN
    for at, part in enumerate(_STYLE.split(line)):
        if at % 2:
            codes = _styled(codes, part)
        elif part:
            _add(pieces, codes, part)
    if codes != PLAIN:
        raise _Strange
    return pieces


def _add(pieces: list[_Piece], codes: Codes, text: str) -> None:
    if codes.attributes & _SEEN:
        pieces.append(_Piece(codes, text, False))
        return
    for part in _BLANKS.split(text) if "     " in text or text[-1] == " " else (text,):
        if not part:
            continue
        piece = _Piece(codes, part, not part.strip(" "))
        last = pieces[-1] if pieces else None
        if last is not None and last.blank and piece.blank and last.codes.background == codes.background:
            pieces[-1] = _Piece(last.codes, last.text + part, True)
        else:
            pieces.append(piece)


@lru_cache(2048)
def _styled(before: Codes, text: str) -> Codes:
    """Return the style after a style code."""
    attributes, foreground, background = before
    numbers = iter(text.split(";"))
    for number in numbers:
        if number in ("", "0"):
            attributes, foreground, background = PLAIN
        elif number in _ATTRIBUTES:
            attributes |= {number}
        elif number in _ENDED:
            attributes -= _ENDED[number]
        elif number == "38":
            foreground = _extended(38, numbers)
        elif number == "48":
            background = _extended(48, numbers)
        elif number[:-1] in ("3", "9"):
            foreground = number
        elif number[:-1] in ("4", "10"):
            background = number
        else:
            raise _Strange
    return Codes(attributes, foreground, background)


def _extended(ground: int, numbers: Iterator[str]) -> str:
    """Return the code of a colour of the palette, or of one by red, green and blue."""
    try:
        kind = next(numbers)
        if kind == "2":
            return rgb(ground, int(next(numbers)), int(next(numbers)), int(next(numbers)))
        if kind == "5":
            return f"{ground};5;{int(next(numbers))}"
    except (ValueError, StopIteration):
        pass
    raise _Strange


# -- writing ----------------------------------------------------------------------------------------------------------


def _shortest(pieces: Sequence[_Piece], now: Codes, whole: bool, erases: bool) -> tuple[str, Codes]:
    """Return the pieces up to the right edge as terminal text, and the style after them.

    Args:
        pieces: The pieces.
        now: The style before them.
        whole: Whether they are the whole line.
        erases: Whether the terminal erases to the background that it draws with.
    """
    ways = [_in_order(pieces, now, None)]
    tail = pieces[-1]
    if tail.blank and (erases or tail.codes.background == _DEFAULT):
        text, after = _in_order(pieces[:-1], now, None)
        blank = _blank_in(after, tail.codes.background)
        ways.append((text + change(after, blank) + _ERASE, blank))
    background = _most_blank(pieces)
    if whole and background is not None and (erases or background == _DEFAULT):
        # The whole line is erased, and blanks of that background are passed over.
        blank = _blank_in(now, background)
        for write in (_in_order, _by_style):
            text, after = write(pieces, blank, background)
            ways.append((change(now, blank) + _ERASE + text, after))
    return min(ways, key=lambda way: len(way[0]))


def _most_blank(pieces: Sequence[_Piece]) -> str | None:
    """Return the background of most blanks, or None where there are none."""
    count: dict[str, int] = {}
    for codes, text, blank in pieces:
        if blank:
            count[codes.background] = count.get(codes.background, 0) + len(text)
    return max(count, key=count.__getitem__, default=None)


def _in_order(pieces: Sequence[_Piece], now: Codes, erased: str | None) -> tuple[str, Codes]:
    """Return pieces as terminal text from left to right, and the style after them.

    Args:
        pieces: The pieces.
        now: The style before them.
        erased: The background that the line was erased to, or None.
    """
    parts: list[str] = []
    last = len(pieces) - 1
    for at, (codes, text, blank) in enumerate(pieces):
        want = _blank_in(now, codes.background) if blank else codes
        if blank and codes.background == erased:
            over = _over(len(text)) if at < last else ""
            if want != now or len(over) < len(text):
                parts.append(over)
                continue
        parts += (change(now, want), text)
        now = want
    return "".join(parts), now


def _by_style(pieces: Sequence[_Piece], now: Codes, erased: str) -> tuple[str, Codes]:
    """Return the pieces of an erased line as terminal text, those of one style after those of another."""
    places: dict[Codes, list[tuple[int, str]]] = {}
    at = 0
    for codes, text, blank in pieces:
        if not text.isascii():
            # A terminal that takes a character to be wider would draw one style over the other.
            return _in_order(pieces, now, erased)
        if not blank or codes.background != erased:
            places.setdefault(codes, []).append((at, text))
        at += len(text)
    parts: list[str] = []
    here = 0
    for codes, found in places.items():
        parts.append(change(now, codes))
        now = codes
        for at, text in found:
            if at < here:
                parts.append("\r")
                here = 0
            parts += (_over(at - here), text)
            here = at + len(text)
    return "".join(parts), now


def _over(count: int) -> str:
    """Return what passes over so many characters."""
    return f"\x1b[{count}C" if count > 1 else "\x1b[C" if count else ""


def _blank_in(now: Codes, background: str) -> Codes:
    """Return a style for blanks that is as near as can be to the one there is."""
    return Codes(now.attributes - _SEEN, now.foreground, background)
