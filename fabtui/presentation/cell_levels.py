"""Colours, glyphs and short texts of cells."""

from __future__ import annotations

from enum import IntEnum

from fabtui.model.cell_level import BY_PATH, Level, level_of
from fabtui.model.measurement import Verdict
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
    WRONG = 26
    FEW = 27

    @property
    def key(self) -> str:
        return self.name.lower().replace("_", "-")


#: Style of each level, by its number.
STYLES = tuple(CellStyle.PAD if level is Level.HIDDEN else CellStyle[level.name] for level in Level)
#: Paths of transports in the grid.
_TRANSPORT_SLOTS = (CellStyle.P2P, CellStyle.SHM, CellStyle.RDMA, CellStyle.SOCKET, CellStyle.OTHER)

#: Slots of ok cells by their share of the usual value, where there is no room for a number.
GRADES = frozenset({CellStyle.GOOD, CellStyle.FAIR, CellStyle.LOW})
#: Slots of bad cells.
BAD = frozenset({CellStyle.SLOW, CellStyle.TIMEOUT, CellStyle.FAILED, CellStyle.WRONG})
#: Slots with a mark beside the number.
MARKED = BAD | {CellStyle.INCONCLUSIVE, CellStyle.RUNNING, CellStyle.GONE, CellStyle.FLAPPING}
#: Signs of verdicts, which mean the same in the app, in texts and in pictures: in Unicode, and in ASCII.
SIGNS = {
    Verdict.WRONG: ("≠", "#"),
    Verdict.FAILED: ("x", "x"),
    Verdict.TIMEOUT: ("T", "T"),
    Verdict.SLOW: ("▾", "!"),
    Verdict.INCONCLUSIVE: ("?", "?"),
    Verdict.SKIPPED: ("s", "s"),
}


class Glyphs:
    """Characters of the screen and of texts, each one cell wide; ``plain``: ASCII only."""

    def __init__(self, plain: bool) -> None:
        self.plain = plain
        self.bar = ("#", "-") if plain else ("█", "░")
        #: Bars of a sparkline, the lowest first.
        self.blocks = "_.-:=+*#" if plain else "▁▂▃▄▅▆▇█"
        #: Brackets around the cell of the cursor, and what replaces them in one that is too narrow.
        self.cursor = ("[", "]", "@") if plain else ("⟦", "⟧", "□")
        #: Whole, half and empty character of the bar in a cell.
        self.share = ("=", "-", ".") if plain else ("━", "╸", "─")
        self.hollow = "o" if plain else "▢"  #: Mark of a suspect.
        self.times = "x" if plain else "\u00d7"
        self.node_edge = "|" if plain else "│"
        self.ellipsis = "~" if plain else "…"
        self.arrow, self.dot, self.dash, self.differs = (">", ".", "-", "#") if plain else ("→", "·", "\u2013", "≠")
        self.of_style: dict[int, str] = {
            **{CellStyle[verdict.name]: sign[plain] for verdict, sign in SIGNS.items()},
            # The app leaves what is not tested yet blank.
            **dict.fromkeys((CellStyle.PAD, CellStyle.UNTESTED, CellStyle.DIAGONAL), " "),
            # These fill most of the screen: one byte each.
            CellStyle.GOOD: ".",
            CellStyle.FAIR: "9",
            CellStyle.LOW: "8",
            CellStyle.RUNNING: ">" if plain else "▸",
            CellStyle.GONE: "%" if plain else "░",
            **dict(zip(_TRANSPORT_SLOTS, "pmiku", strict=True)),
            CellStyle.FLAPPING: "~",
            CellStyle.FLASH: "*",
            CellStyle.PARTLY: ":",
            CellStyle.FEW: "'",
        }

    def of_severity(self, severity: str) -> str:
        return {"bad": "x", "warn": "!"}.get(severity, self.dot)


UNICODE, ASCII = Glyphs(plain=False), Glyphs(plain=True)


def style_of(verdict: Verdict, share: float | None) -> CellStyle:
    """Return the style of a verdict; if it is ok, of its share of the class median."""
    return STYLES[level_of(verdict, share)]


def transport_style(text: str) -> tuple[CellStyle, str]:
    transport = transport_of(text)
    return STYLES[BY_PATH[transport.path]], transport.short


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
