"""Tables as CSV, whose cells no spreadsheet runs, and times as all files have them."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fabtui.export.atomic_write import write_bytes

_FORMULA_STARTS = "=+-@\t\r\uff1d\uff0b\uff0d\uff20"
_MARK = "'"


def when(seconds: float) -> str | None:
    """Return a time as ISO 8601 in UTC to the millisecond, or None if unknown."""
    if not seconds:
        return None
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def escaped(text: str) -> str:
    """Return a text cell that no spreadsheet runs: an apostrophe precedes what resembles a formula.

    A text that begins with an apostrophe gets a second one, so that `unescaped` restores it exactly.
    """
    first = text.lstrip()[:1]
    risky = text[:1] in ("\t", "\r") or (first != "" and first in _FORMULA_STARTS)
    return _MARK + text if risky or text.startswith(_MARK) else text


def unescaped(text: str) -> str:
    return text[1:] if text.startswith(_MARK) else text


def table_text(columns: Sequence[str], table: Iterable[Iterable[Any]]) -> str:
    """Return a table as CSV; None is an empty cell, and no spreadsheet runs a text as a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([escaped(cell) if isinstance(cell, str) else cell for cell in row] for row in table)
    return text.getvalue()


def write_table(path: Path, columns: Sequence[str], table: Iterable[Iterable[Any]]) -> None:
    """Write a table as CSV, whole or not at all (OSError)."""
    data = table_text(columns, table).encode("utf-8", "backslashreplace")
    write_bytes(path, data)
