"""Snapshot as CSV, with text that no spreadsheet runs as a formula."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, BinaryIO

from fabtui.export.atomic_write import write_atomically
from fabtui.export.snapshot_rows import COLUMNS, INTEGERS, NUMBERS, rows
from fabtui.model.session_model import Model

_FORMULA_STARTS = "=+-@\t\r\uff1d\uff0b\uff0d\uff20"
_MARK = "'"


def escaped(text: str) -> str:
    """Return a text cell that no spreadsheet runs: an apostrophe precedes what resembles a formula.

    A text that begins with an apostrophe gets a second one, so that `unescaped` restores it exactly.
    """
    first = text.lstrip()[:1]
    risky = text[:1] in ("\t", "\r") or (first != "" and first in _FORMULA_STARTS)
    return _MARK + text if risky or text.startswith(_MARK) else text


def unescaped(text: str) -> str:
    """Return the text that `escaped` was given."""
    return text[1:] if text.startswith(_MARK) else text


def _cell(name: str, value: Any) -> Any:
    if value is None:
        return ""
    if name in INTEGERS:
        return int(value)
    return float(value) if name in NUMBERS else escaped(value)


def write_csv(model: Model, path: Path) -> int:
    """Write the measurements of a model, one per row, whole or not at all.

    Numbers are written with every digit; unknown values are empty cells.

    Args:
        model: The session.
        path: The file; an existing one is replaced.

    Returns:
        Number of rows.

    Raises:
        OSError: The file cannot be written.
    """
    found = rows(model)

    def write(file: BinaryIO) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([_cell(name, row[name]) for name in COLUMNS] for row in found)
        # Without detaching, the wrapper would close the file.
        text.detach()

    write_atomically(path, write)
    return len(found)
