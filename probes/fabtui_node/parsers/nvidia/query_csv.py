"""``nvidia-smi --query-...= --format=csv``: a header of field names, then a line for each GPU, process or page."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.nvidia.values import (
    bare,
    command_line,
    complain,
    failure,
    field_text,
    is_noise,
    number,
    reasons,
    truth,
    unit,
    whole,
)

_MAX_ROWS = 4096
_HEADER = re.compile(r"[a-z][a-z0-9_.]{1,80}(?: \[[^\]]{1,12}\])?")
_COLUMN = re.compile(r"([a-z][a-z0-9_.]{1,80})(?: \[([^\]]{1,12})\])?")
_COMMENT = re.compile(r"\s{1,20}#\s.{0,400}$")
_ASKED = re.compile(r"--query-[a-z-]{2,20}=([a-z0-9_.,]{1,2000})")
_NUMBERS = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,9})?(?: ?(?:%|[A-Za-z/]{1,6}))?", re.ASCII)
_SIMPLE = ("index", "name", "uuid", "count", "timestamp", "serial", "pstate", "pid", "gsp_mode")
#: Fields whose text only looks like a number.
_TEXTS = ("version", "uuid", "serial", "name", "bus_id", "pci.", "timestamp", "image", "cap", "id", "attr")

_UNITS = {
    "temperature.gpu": "C", "utilization.gpu": "%", "memory.used": "MiB", "memory.total": "MiB", "power.draw": "W",
    "power.limit": "W", "clocks.sm": "MHz", "clocks.max.sm": "MHz", "pcie.link.width.current": "lanes",
    "pcie.link.width.max": "lanes", "remapped_rows.correctable": "rows", "remapped_rows.uncorrectable": "rows",
}  # fmt: skip


def _split(line: str) -> List[str]:
    return [cell.strip() for cell in line.split(",")]


def _is_header(line: str) -> bool:
    cells = _split(line)
    if not all(_HEADER.fullmatch(cell[:100]) for cell in cells):
        return False
    return any(set("._") & set(cell) for cell in cells) or all(cell in _SIMPLE for cell in cells)


def _value(column: str, word: str) -> Any:
    """Return the value of a cell: a number, a boolean, a list of reasons, or text; None if it is empty."""
    if column.endswith(("_reasons.active", "_reasons.supported")):
        named = reasons(word)
        return field_text(word) if named is None else named
    if column.rpartition(".")[2].startswith(_TEXTS) or column.startswith(_TEXTS):
        return field_text(word)
    if _NUMBERS.fullmatch(word):
        count = whole(word)
        return number(word) if count is None else count
    if column.startswith(("remapped_rows.", "retired_pages.")) and truth(word) is not None:
        return truth(word)
    return field_text(word)


def _columns(line: str) -> Tuple[List[str], Dict[str, str]]:
    names, units = [], {}
    for cell in _split(line):
        match = _COLUMN.fullmatch(cell[:100])
        names.append(match[1] if match else cell[:100])
        if match and match[2]:
            units[names[-1]] = match[2]
    return names, units


def _row(columns: List[str], cells: List[str], units: Dict[str, str]) -> Dict[str, Any]:
    row: Dict[str, Any] = {}
    errors = {}
    for column, word in zip(columns, cells):  # noqa: B905 - Python 3.8 knows no strict=
        row[column] = _value(column, word)
        if wrong := failure(word):
            row[column] = None
            errors[column] = wrong
        elif type(row[column]) in (int, float) and (printed := unit(word)):
            units.setdefault(column, printed)
    for column in columns[len(cells) :]:
        row[column] = None
    if errors:
        row["errors"] = errors
    return row


def parse_csv(text: str) -> Reading:
    """Return the rows of a query: ``{"columns", "rows": [{column: value, "errors": {column: word}}], "units"}``.

    The columns come from the header, or with ``noheader`` from the command line if the text begins with it. A number
    is a number in the unit of its column; ``[N/A]`` and the like are None; what a lost GPU prints in place of a
    value is in ``errors``. ``name`` may hold no comma.
    """
    notes = Notes()
    columns: Optional[List[str]] = None
    units: Dict[str, str] = {}
    rows: List[Dict[str, Any]] = []
    beside: List[str] = []
    for line in text.splitlines():
        asked = _ASKED.search(line[:3000]) if command_line(line) is not None else None
        if asked:
            columns = asked[1].split(",")
        if is_noise(line):
            continue
        comment = _COMMENT.search(line[:3000])
        if comment:
            notes.puzzled(comment[0])
            line = line[: comment.start()]
        if _is_header(line[:3000]):
            columns, units = _columns(line)
        elif columns is None or ("," not in line and len(columns) > 1):
            beside.append(line)
        elif len(rows) < _MAX_ROWS:
            cells = _split(line)
            if len(cells) != len(columns):
                notes.warn("a line has %d values for %d columns" % (len(cells), len(columns)))
                notes.puzzled(line)
            if len(cells) <= len(columns):
                rows.append(_row(columns, cells, units))
    errors = complain("\n".join(beside), notes)
    for line in [] if errors else beside:
        notes.puzzled(line)
    if columns is None and beside and not errors:
        notes.warn("no header, so the fields are unknown")
    for number_, row in enumerate(rows):
        for column, word in row.get("errors", {}).items():
            notes.warn("line %d: %s is %s" % (number_ + 1, column, word))
    return notes.reading({"columns": columns or [], "rows": rows, "units": units, "errors": errors})


def parse_remapped(text: str) -> Reading:
    """Return ``parse_csv`` of remapped rows, with a warning for each GPU on which something is the matter."""
    reading = parse_csv(text)
    notes = Notes()
    notes.warnings, notes.unknown = reading.warnings, reading.unknown
    for row in reading.values["rows"]:
        which = row.get("gpu_bus_id") or row.get("gpu_uuid") or row.get("gpu_serial") or "a GPU"
        if row.get("remapped_rows.failure"):
            notes.warn("%s: remapping a row of its memory failed" % which)
        if row.get("remapped_rows.pending"):
            notes.warn("%s: a row of its memory will be remapped at the next GPU reset" % which)
    return notes.reading(reading.values)


def _header_of(text: str) -> str:
    for line in text.splitlines()[:20]:
        if "," in line and _is_header(line[:3000]):
            return line
    return ""


def _likely_remapped(text: str) -> float:
    if "remapped_rows." in _header_of(text):
        return 0.97
    return 0.8 if "--query-remapped-rows" in text[:2000] else 0.0


def _likely_csv(text: str) -> float:
    head = _header_of(text)
    if "remapped_rows." in head and "index" not in bare(head).split(","):
        return 0.5
    known = (
        "gpu",
        "uuid",
        "pci.",
        "index",
        "name",
        "memory.",
        "pcie.",
        "utilization.",
        "clocks",
        "temperature.",
        "ecc.",
    )
    if head and any(cell.startswith(known) for cell in _split(head)):
        return 0.9
    return 0.7 if re.search(r"nvidia-smi\b.{0,80}--query-", text[:2000]) else 0.0


FORMATS = [
    Format("nvidia-smi-query", "fields of GPUs as CSV", _likely_csv, parse_csv, _UNITS),
    Format(
        "nvidia-smi-remapped-rows", "rows of GPU memory that were remapped", _likely_remapped, parse_remapped, _UNITS
    ),
]
