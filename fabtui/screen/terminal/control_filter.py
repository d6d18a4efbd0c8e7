"""Filters for all that is drawn: no control characters, and ASCII alone for terminals without Unicode."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from fabtui.sanitize import drawable


class ControlFilter(LineFilter):
    """Removes control and invisible characters; the last place before the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(one.text.isprintable() or one.control for one in segments):
            return segments
        return [one if one.control else one._replace(text=drawable(one.text)) for one in segments]


_HORIZONTAL = "─━═▔▁╌╍┄┅┈┉"
_VERTICAL = "│┃║▏▎▍▌▐▕"
_OTHER = {"…": ".", "•": "*", "·": ".", "●": "*", "○": "o", "▶": ">", "▼": "v", "▸": ">", "▾": "v", "✓": "+"}
#: Blocks of bars and shades; their background remains.
_BLOCKS = "▂▃▄▅▆▇█▀░▒▓"
_NAMED: Mapping[str, str] = {
    **dict.fromkeys(_HORIZONTAL, "-"),
    **dict.fromkeys(_VERTICAL, "|"),
    **dict.fromkeys(_BLOCKS, " "),
    **_OTHER,
}
_CORNERS = range(0x250C, 0x2580)


def as_ascii(text: str) -> str:
    return text if text.isascii() else "".join(map(_replaced, text))


def _replaced(character: str) -> str:
    if character.isascii():
        return character
    width = cell_len(character)
    found = _NAMED.get(character) or ("+" if ord(character) in _CORNERS else "?")
    return found.ljust(width)[:width]


class AsciiFilter(LineFilter):
    """Replaces all characters beyond ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [one if one.text.isascii() else one._replace(text=as_ascii(one.text)) for one in segments]
