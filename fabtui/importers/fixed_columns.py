"""Tables in fixed columns, as Slurm prints them, whose cells may be empty, cut, or hold blanks."""

from __future__ import annotations

import re

_MOST_ROWS = 100_000
#: A row with a cell too wide is shifted; most rows show how a column is aligned.
_MOST_OF = 0.6


def split_table(heading: str, rows: list[str], rule: str | None = None) -> list[list[str]]:
    """Return the cells of the rows under a heading.

    Args:
        heading: The names of the columns.
        rows: The lines below.
        rule: The line of dashes under the heading, which gives each column's width; without it a column's place is
            found from where all rows have a blank.
    """
    words = [(word.start(), word.end()) for word in re.finditer(r"\S+", heading)]
    if rule is not None:
        edges = [(word.start(), word.end()) for word in re.finditer(r"-+", rule)]
        return [[row[start:end].strip() for start, end in edges] for row in rows]
    if rows and all(len(row.split()) == len(words) for row in rows[:_MOST_ROWS]):
        # No cell is empty and none holds a blank; copying may have lost the indent of the heading.
        return [row.split() for row in rows[:_MOST_ROWS]]
    cuts = [_cut(words[at], words[at + 1], rows) for at in range(len(words) - 1)]
    return [_cells(row, cuts) for row in rows[:_MOST_ROWS]]


def _cells(row: str, cuts: list[int]) -> list[str]:
    """Return the cells of a row; one that is wider than its column shifts what follows."""
    cells = []
    start = shift = 0
    for cut in cuts:
        end = cut + shift
        if row[end - 1 : end].strip() and row[end : end + 1].strip():
            end = row.find(" ", end) if " " in row[end:] else len(row)
            shift = end - cut
        cells.append(row[start:end].strip())
        start = end
    return [*cells, row[start:].strip()]


def _cut(left: tuple[int, int], right: tuple[int, int], rows: list[str]) -> int:
    """Return where to cut between two columns: by how all rows are aligned, else by how most are."""
    for share in (1.0, _MOST_OF):
        if _left_aligned(right, rows, share):
            return right[0]
        if _right_aligned(left, rows, share):
            return left[1]
    # A column to the left of its heading beside one to the right: cut in the first gap that all rows share.
    for at in range(left[1], right[1]):
        if all(_is_blank(row, at) for row in rows):
            return at
    return left[1]


def _is_blank(row: str, at: int) -> bool:
    return row[at : at + 1] in ("", " ")


def _left_aligned(word: tuple[int, int], rows: list[str], share: float) -> bool:
    """Return True if a share of the rows is blank before a column and most rows have a cell that starts there."""
    free = sum(_is_blank(row, word[0] - 1) for row in rows)
    begins = sum(_is_blank(row, word[0] - 1) and not _is_blank(row, word[0]) for row in rows)
    return free >= share * len(rows) and begins >= _MOST_OF * len(rows) > 0


def _right_aligned(word: tuple[int, int], rows: list[str], share: float) -> bool:
    return sum(_is_blank(row, word[1]) for row in rows) >= share * len(rows)
