"""Tables as plain text: every cell padded to the width of its column."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence

#: Texts of cells without a value.
NOTHING = ("", "-")


def text_width(text: str) -> int:
    """Return the number of columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def padded(rows: Sequence[Sequence[str]], left: Collection[int] = (0,), widest: int | None = None) -> list[list[str]]:
    """Return the cells of rows (of one length), padded; columns of text are ``left``, the others align to the right.

    Longer cells than ``widest`` widen no column.
    """
    widths = [max(map(text_width, column)) for column in zip(*rows, strict=True)]
    if widest is not None:
        widths = [min(width, widest) for width in widths]
    return [[fill(cell, widths[at], at in left) for at, cell in enumerate(row)] for row in rows]


def aligned(
    rows: Sequence[Sequence[str]],
    left: Collection[int] = (0,),
    *,
    gap: str = "  ",
    indent: str = "  ",
    widest: int | None = None,
) -> list[str]:
    """Return rows as lines of aligned columns, see `padded`."""
    return [indent + gap.join(cells).rstrip() for cells in padded(rows, left, widest)]


def filled(rows: Sequence[Sequence[str]], nothing: Collection[str] = NOTHING) -> list[int]:
    return [at for at, column in enumerate(zip(*rows, strict=True)) if any(cell not in nothing for cell in column)]


def fill(text: str, width: int, left: bool) -> str:
    """Return a text with blanks up to a width, after it or before it."""
    blanks = " " * (width - text_width(text))
    return text + blanks if left else blanks + text
