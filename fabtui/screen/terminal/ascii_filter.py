"""Filter for terminals without Unicode: what Textual draws itself (borders, scroll bars, its palette) in ASCII."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

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
    """Return a text of the same width in ASCII."""
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
        """Return segments in ASCII."""
        return [one if one.text.isascii() else one._replace(text=as_ascii(one.text)) for one in segments]
