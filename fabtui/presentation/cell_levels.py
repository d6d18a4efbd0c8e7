"""Colours, glyphs and short texts of cells."""

from __future__ import annotations

from enum import IntEnum

from fabtui.model.cell_level import BY_PATH, Level, level_of
from fabtui.model.measurement import Verdict
from fabtui.presentation.numbers import spoken
from fabtui_node.parsers.nccl.transports import transport_of


class CellStyle(IntEnum):
    """Index into a colour ramp, for the levels of cells and for what surrounds them.

    `PAD` is the default style of the screen; theme files name the others.
    """

    PAD = 0
    UNTESTED = 1
    GOOD = 2
    FAIR = 3
    LOW = 4
    SLOW = 5
    TIMEOUT = 6
    FAILED = 7
    INCONCLUSIVE = 8
    SKIPPED = 9
    RUNNING = 10
    DIAGONAL = 11
    GONE = 12
    P2P = 13
    SHM = 14
    RDMA = 15
    SOCKET = 16
    OTHER = 17
    CURSOR = 18
    HEADER = 19
    HEADER_HERE = 20
    HEADER_GONE = 21
    HEADER_NODE = 22
    FLAPPING = 23
    FLASH = 24
    PARTLY = 25
    CURSOR_SLOW = 26
    CURSOR_TIMEOUT = 27
    CURSOR_FAILED = 28

    @property
    def key(self) -> str:
        """Name in a ramp."""
        return self.name.lower().replace("_", "-")


#: Style of each level, by its number.
STYLES: tuple[CellStyle, ...] = tuple(
    CellStyle.PAD if level is Level.HIDDEN else CellStyle[level.name] for level in Level
)
#: Paths of transports in the grid.
_TRANSPORT_SLOTS = (CellStyle.P2P, CellStyle.SHM, CellStyle.RDMA, CellStyle.SOCKET, CellStyle.OTHER)

#: Slots of bad cells.
BAD = frozenset({CellStyle.SLOW, CellStyle.TIMEOUT, CellStyle.FAILED})
#: Slot of the cursor on a bad cell, which keeps the color of the verdict.
CURSOR_ON: dict[int, CellStyle] = {
    CellStyle.SLOW: CellStyle.CURSOR_SLOW,
    CellStyle.TIMEOUT: CellStyle.CURSOR_TIMEOUT,
    CellStyle.FAILED: CellStyle.CURSOR_FAILED,
}


class Glyphs:
    """Characters of the screen, each one cell wide; ``plain``: ASCII only."""

    def __init__(self, plain: bool) -> None:
        self.plain = plain
        self.bar = ("#", "-") if plain else ("█", "░")
        #: Whole, half and empty character of the bar in a cell.
        self.share = ("=", "-", ".") if plain else ("━", "╸", "─")
        self.node_edge = "|" if plain else "│"
        self.ellipsis = "~" if plain else "…"
        self.of_style: dict[int, str] = {
            **dict.fromkeys((CellStyle.PAD, CellStyle.UNTESTED, CellStyle.DIAGONAL), " "),
            # These fill most of the screen: one byte each.
            CellStyle.GOOD: ".",
            CellStyle.FAIR: "9",
            CellStyle.LOW: "8",
            CellStyle.SLOW: "!",
            CellStyle.TIMEOUT: "T",
            CellStyle.FAILED: "x",
            CellStyle.INCONCLUSIVE: "?",
            CellStyle.SKIPPED: "-",
            CellStyle.RUNNING: ">" if plain else "▸",
            CellStyle.GONE: "#" if plain else "░",
            **dict(zip(_TRANSPORT_SLOTS, "pmisu", strict=True)),
            CellStyle.FLAPPING: "~",
            CellStyle.FLASH: "*",
            CellStyle.PARTLY: ":",
            CellStyle.CURSOR_SLOW: "!",
            CellStyle.CURSOR_TIMEOUT: "T",
            CellStyle.CURSOR_FAILED: "x",
        }


def style_of(verdict: Verdict, share: float | None) -> CellStyle:
    """Return the style of a verdict; if it is ok, of its share of the class median."""
    return STYLES[level_of(verdict, share)]


def transport_style(text: str) -> tuple[CellStyle, str]:
    """Return the style and the short name of a transport named by the library."""
    found = transport_of(text)
    return STYLES[BY_PATH[found.path]], found.short


def short_number(value: float, width: int) -> str:
    """Return a number in at most ``width`` (3 or 4) characters, with as many digits as fit: 351, 46.1, .045, 12k."""
    if value >= 10**width - 0.5:
        for scale, letter in ((1e3, "k"), (1e6, "M"), (1e9, "G")):
            if value < scale * 10 ** (width - 1) - scale / 2:
                return f"{value / scale:.0f}{letter}"
        return "9" * (width - 1) + "G"
    whole = 1 if value < 9.5 else len(f"{value:.0f}")
    decimals = max(0, width - whole - 1)
    text = f"{value:.{decimals}f}"
    if len(text) > width:
        text = f"{value:.{max(0, decimals - 1)}f}"
    if value < 0.995 and text.startswith("0.") and value > 0:
        text = f"{value:.{width - 1}f}"[1:]
        return text if text.strip(".0") else "<." + "0" * (width - 3) + "1"
    return text


def short_value(value: float, unit: str, width: int) -> str:
    """Return a value in at most ``width`` (3 or 4) characters; a smaller unit is named by its first letter: 20M."""
    number, name = spoken(value, unit)
    if name == unit:
        return short_number(value, width)
    text = f"{number:.{width - 2}f}"[1:] if number < 0.95 else short_number(number, width - 1)
    return (text if text.strip(".0") else "<1") + name[0]


def full_value(value: float, unit: str) -> str:
    """Return a number for tables and panels of one unit, with the first letter of a smaller unit: 19.6M."""
    number, name = spoken(value, unit)
    return full_number(number) + (name[0] if name != unit else "")


def full_number(value: float) -> str:
    """Return a number for tables and panels: three or more significant digits."""
    if value == 0 or value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3g}"


def cell_text(slot: int, number: str, width: int, glyphs: Glyphs) -> str:
    """Return the text of a cell in exactly ``width`` characters.

    Four or more hold a number (at most ``width - 1`` characters, or "") and a mark after it; fewer the glyph only.
    """
    glyph = glyphs.of_style[slot]
    if width < 4:
        return glyph if width == 1 else f" {glyph}" if width == 2 else f" {glyph} "
    if not number:
        return f"{glyph:>{width - 1}} "
    mark = glyph if slot in MARKED else " "
    return f"{number:>{width - 1}}{mark}"


#: Slots with a mark beside the number.
MARKED = frozenset(
    {
        CellStyle.SLOW,
        CellStyle.TIMEOUT,
        CellStyle.FAILED,
        CellStyle.INCONCLUSIVE,
        CellStyle.RUNNING,
        CellStyle.GONE,
        CellStyle.FLAPPING,
    }
)


def bytes_text(count: int | None) -> str:
    """Return a message size, for example ``256 MiB``; "" for None."""
    if count is None:
        return ""
    size = float(count)
    for name in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {name}"
        size /= 1024
    return f"{size:.4g} GiB"
