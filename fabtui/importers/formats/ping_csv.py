"""The CSV of a ping mesh as older scripts write it: a row a pair of addresses, and whether it answered."""

from __future__ import annotations

import csv
import io
from collections import Counter
from typing import Any

from fabtui.importers.matrix import matrix
from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of

COLUMNS = ("SourceNode", "SourceIP", "DestinationNode", "DestinationIP", "NetworkSegment", "Status")
_HEADING = ",".join(COLUMNS)
_OK = frozenset({"success", "succeeded", "successful", "ok", "pass", "passed", "reachable", "up", "true", "yes"})
_BAD = frozenset({"failure", "fail", "failed", "error", "unreachable", "timeout", "down", "false", "no", "ng"})
_MOST_NODES = 512


def _status(text: str) -> str:
    low = text.strip().lower()
    return "ok" if low in _OK else "failed" if low in _BAD else "unknown"


def parse(text: str) -> Reading:
    """Return ``rows`` (``src``, ``src_addr``, ``dst``, ``dst_addr``, ``segment``, ``status``), ``counts`` and more.

    ``status`` is ok, failed or unknown. ``segments`` counts what failed in each network segment; ``matrix`` shows how
    many address pairs of two nodes answer.
    """
    notes = Notes()
    rows: list[dict[str, Any]] = []
    reader = csv.reader(io.StringIO(text.lstrip("\ufeff")), skipinitialspace=True)
    try:
        if [cell.strip() for cell in next(reader, [])] != list(COLUMNS):
            notes.warn("the columns are not " + _HEADING)
            return notes.reading({"rows": [], "counts": {}, "segments": [], "matrix": None, "not_ok": []})
        for cells in reader:
            if not cells or [cell.strip() for cell in cells] == list(COLUMNS):
                continue
            if len(cells) != len(COLUMNS):
                notes.warn("a row is cut off")
                notes.puzzled(",".join(cells))
                continue
            src, src_addr, dst, dst_addr, segment, status = (cell.strip()[:253] for cell in cells)
            known = _status(status)
            if known == "unknown":
                notes.warn(f"status {status[:40]!r} is not known")
            row = {"src": src, "src_addr": src_addr, "dst": dst, "dst_addr": dst_addr}
            rows.append({**row, "segment": segment, "status": known})
    except csv.Error as error:
        notes.warn(f"the CSV cannot be read further: {error}")
    counts = dict(Counter(row["status"] for row in rows))
    if not rows:
        notes.warn("no row")
    values: dict[str, Any] = {"counts": counts, "segments": _segments(rows), "matrix": _matrix(rows)}
    # What does not answer is what people look for.
    values |= {"not_ok": [row for row in rows if row["status"] != "ok"], "rows": rows}
    return notes.reading(values)


def _segments(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = found.setdefault(row["segment"], {"segment": row["segment"], "pairs": 0, "failed": 0})
        entry["pairs"] += 1
        entry["failed"] += row["status"] == "failed"
    return list(found.values())


def _matrix(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    nodes = list(dict.fromkeys([row[side] for row in rows for side in ("src", "dst")]))
    if not nodes or len(nodes) > _MOST_NODES:
        return None
    counted: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        entry = counted.setdefault((row["src"], row["dst"]), [0, 0])
        entry[0] += row["status"] == "ok"
        entry[1] += 1
    cells: list[list[Any]] = [
        [None if (found := counted.get((src, dst))) is None else f"{found[0]}/{found[1]}" for dst in nodes]
        for src in nodes
    ]
    return matrix("address pairs that answer, of those asked", "", nodes, nodes, cells)


_LIKELY = first_of((0.99, "\\A\ufeff* *" + " *, *".join(COLUMNS)))
FORMATS = [
    Format("ping-csv", "a ping mesh as CSV: " + _HEADING, _LIKELY, parse, convert=benchmarks.ping_csv, hidden=("rows",))
]
