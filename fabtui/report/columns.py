"""Rows of text in columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Return rows as lines, each column as wide as its widest cell and two blanks apart, two blanks before the first.

    Args:
        rows: The cells; all rows have the same number.
        left: The columns that are aligned to the left; the others are to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            f"{cell:<{width}}" if at in left else f"{cell:>{width}}"
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
