"""Matrices as values: what every format calls them, so that they are shown and exported alike."""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.lines import number, whole

#: More rows or columns than this are not a matrix of GPUs.
MOST = 4096


def matrix(title: str, unit: str, rows: list[str], columns: list[str], cells: list[list[Any]]) -> dict[str, Any]:
    """Return a matrix: its title, the unit of its cells, the names of rows and columns, and the cells by row."""
    return {"title": title, "unit": unit, "rows": rows, "columns": columns, "cells": cells}


def is_matrix(value: Any) -> bool:
    """Return True if a value is a matrix."""
    return isinstance(value, dict) and {"rows", "columns", "cells"} <= value.keys() and isinstance(value["cells"], list)


def column_numbers(words: list[str]) -> list[int] | None:
    """Return the numbers of a heading, ``0 1 2 ...``, ascending; None if the words are not one."""
    found = [number for word in words if (number := whole(word)) is not None and number >= 0]
    return found if 0 < len(words) == len(found) <= MOST and found == sorted(set(found)) else None


def cells_of(words: list[str], width: int) -> tuple[str, list[float | None]] | None:
    """Return the name and the cells of a row of ``width`` cells; None if the words are not such a row.

    A cell may be ``N/A``. Negative numbers are none that any test here prints.
    """
    if len(words) != width + 1 or not re.fullmatch(r"[\w.:-]{1,80}", words[0]):
        return None
    cells = [None if word == "N/A" else number(word) for word in words[1:]]
    if any((cell is None and word != "N/A") or (cell or 0) < 0 for cell, word in zip(cells, words[1:], strict=True)):
        return None
    return words[0], cells
