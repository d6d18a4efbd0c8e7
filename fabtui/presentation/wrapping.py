"""Layout of text: tables whose cells are padded, and lines made of styled parts."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Collection, Sequence

from fabtui.presentation.wording import MUTED, Part, plain

#: Ends of clauses, items and words of a line, the best place for a cut first.
_ENDS = ("; ", "  ", ": ", ", ", " ")
#: Style of the heading of a section: no colour that a verdict has.
HEADING = "bold $secondary"
#: Texts of cells without a value.
NOTHING = ("", "-")

Line = list[Part]
Lines = list[Line]
Rows = Sequence[Sequence[str]]


def text_width(text: str) -> int:
    """Return the number of columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    shown = [sign for sign in text if not unicodedata.combining(sign)]
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in shown)


def padded(rows: Rows, left: Collection[int] = (0,), widest: int | None = None) -> list[list[str]]:
    """Return padded cells of rows; columns of text are ``left``; cells longer than ``widest`` widen no column."""
    widths = [max(map(text_width, column)) for column in zip(*rows, strict=True)]
    if widest is not None:
        widths = [min(width, widest) for width in widths]
    return [[fill(cell, widths[at], at in left) for at, cell in enumerate(row)] for row in rows]


def aligned(
    rows: Rows, left: Collection[int] = (0,), *, gap: str = "  ", indent: str = "  ", widest: int | None = None
) -> list[str]:
    return [indent + gap.join(cells).rstrip() for cells in padded(rows, left, widest)]


def filled(rows: Rows, nothing: Collection[str] = NOTHING) -> list[int]:
    return [at for at, column in enumerate(zip(*rows, strict=True)) if any(cell not in nothing for cell in column)]


def fill(text: str, width: int, left: bool) -> str:
    blanks = " " * (width - text_width(text))
    return text + blanks if left else blanks + text


class TableLine(Line):
    """Line of a table: its cells, each with the width of its column. All lines of a table are wrapped alike."""

    def __init__(self, indent: Part, cells: Sequence[tuple[Line, int]], gap: str) -> None:
        super().__init__([indent])
        self.indent, self.cells, self.gap = indent, cells, gap
        for cell, width in cells[:-1]:
            self += [*cell, (" " * (width - text_width(plain(cell))) + gap, "")]
        self += cells[-1][0]

    def wrapped(self, width: int, indent: int) -> Lines:
        """Return its pieces, cut between cells; a cell that fits no line begins where the one before it ends."""
        pieces: list[list[tuple[Line, int]]] = [[]]
        used = len(self.indent[0])
        for cell, column in self.cells:
            if pieces[-1] and used + column > width >= indent + column:
                pieces.append([])
                used = indent
            pieces[-1].append((cell, column))
            used += column + len(self.gap)
        lines: Lines = [
            TableLine(self.indent if not at else (" " * indent, ""), cells, self.gap) for at, cells in enumerate(pieces)
        ]
        return [piece for line in lines for piece in wrapped([*line], width, indent)]


def section(title: str, note: str = "") -> Lines:
    return [[], [(title, HEADING), (f"  {note}" if note else "", MUTED)]]


def beside(left: Lines, right: Lines, width: int) -> Lines:
    """Return two columns of lines side by side; lines too long for their column are wrapped."""
    half = (width - 3) // 2
    a, b = stacked(left, half), stacked(right, half)
    pairs = itertools.zip_longest(a, b, fillvalue=Line())
    return [[*one, (" " * (half - len(plain(one)) + 3), ""), *other] for one, other in pairs]


def stacked(lines: Lines, width: int, indent: int = 12) -> Lines:
    return [piece for line in lines for piece in wrapped(line, width, indent)]


def wrapped(line: Line, width: int, indent: int = 12) -> Lines:
    """Return a line in pieces of at most ``width`` characters, all but the first of them indented."""
    if isinstance(line, TableLine):
        return line.wrapped(width, min(indent, width // 3))
    pieces: Lines = [[]]
    room = width
    fresh = True
    indent = min(indent, width // 3)
    for text, style in line:
        while len(text) > room:
            cut = _last_gap(text, room)
            if cut <= 0:
                # A word longer than a line is cut; any other begins the next line.
                cut = room if fresh else 0
            pieces[-1].append((text[:cut], style))
            text = text[cut:].lstrip()
            pieces.append([(" " * indent, "")])
            room = width - indent
            fresh = True
        pieces[-1].append((text, style))
        room -= len(text)
        fresh = fresh and not text
    return pieces


def _last_gap(text: str, room: int) -> int:
    """Return the last gap between words that fit, -1 without one; a number stays with its unit."""
    cut = text.rfind(" ", 1, room + 1)
    before = text.rfind(" ", 1, max(1, cut))
    return before if before > 0 and text[before + 1 : cut].replace(".", "", 1).isdecimal() else cut


def clipped(parts: Line, width: int, ellipsis: str) -> Line:
    kept: Line = []
    left = width
    for text, style in parts:
        if len(text) > left:
            if left > 1:
                kept.append((text[: left - 1] + ellipsis, style))
            return kept
        kept.append((text, style))
        left -= len(text)
    return kept


def in_clauses(parts: Line, width: int, ellipsis: str) -> Line:
    """Return parts cut like `clipped`, but after a whole clause or word, if that leaves two thirds of the line."""
    if len(plain(parts)) <= width:
        return parts
    kept = clipped(parts, width - 1, "")
    text = plain(kept)
    for mark in _ENDS:
        if 3 * (cut := text.rfind(mark)) >= 2 * width:
            return [*clipped(kept, cut + 1, ""), (f" {ellipsis}", MUTED)]
    return clipped(parts, width, ellipsis)


def whole(lines: Lines, height: int) -> Lines:
    """Return as many lines as fit, and none whose continuation, which is indented, does not."""
    end = min(height, len(lines))
    while 0 < end < len(lines) and plain(lines[end])[:2].isspace():
        end -= 1
    return lines[:end]


def between(left: Line, right: Line, width: int, ellipsis: str) -> Line:
    """Return parts at both ends of a line; if room is short, the left ones are cut."""
    kept = clipped(left, max(0, width - len(plain(right)) - 1), ellipsis)
    return [*kept, (" " * max(1, width - len(plain(kept)) - len(plain(right))), ""), *right]
