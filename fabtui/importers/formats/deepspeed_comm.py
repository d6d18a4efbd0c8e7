"""Tables of the DeepSpeed communication benchmarks (``ds_bench``): a collective per table, a message size per row.

Grammar (microsoft/DeepSpeedExamples, benchmarks/communication/utils.py: ``print_header``, ``get_metric_strings``,
``convert_size``; the same in EleutherAI/cookbook): a line ``---- Performance of OP on N devices ----``, the names of
the columns with the unit of bandwidths, a line of dashes, rows. Sizes are powers of 1024, or bytes with ``--raw``;
durations have a unit, or are in us with ``--raw``. The throughput of all_reduce is twice the size over the time, that
of all_gather counts what all ranks send; only the bus bandwidth compares with nccl-tests.
"""

from __future__ import annotations

import re
from typing import Any

from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import number, plain_lines, whole

_TABLE = re.compile(r"-{0,10}\s{0,4}Performance of (\w{1,40}) on (\d{1,9}) devices\s*-{0,200}\s*", re.I)
_HEADING = re.compile(
    r"\s*Size \(Bytes\)\s+Description\s+Duration(?: \((\w+)\))?\s+Throughput \((\w+)\)\s+BusBW \((\w+)\)\s*", re.I
)
_ROW = re.compile(
    r"\s*(\d[\d.]{0,20})(?: ?([KMGTPEZY]?B))?\s+(\d{1,20}(?:x\d{1,20})*)\s+(\d[\d.]{0,20})(?: ?([mun]?s))?"
    r"\s+(\d[\d.]{0,20})(?: ?\w?bps)?\s+(\d[\d.]{0,20})(?: ?\w?bps)?\s*",
    re.I,
)
#: Units of bandwidth, 1e9 bits or bytes per second.
_PER_GB = {"Gbps": 8.0, "GBps": 1.0}
_TIMES = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_MOST_ROWS = 10_000


def _bytes(value: str, unit: str | None) -> int | None:
    """Return a size, rounded to two digits where it was printed with a unit."""
    if unit is None:
        return whole(value)
    size = number(value)
    return None if size is None else round(size * 1024.0 ** "BKMGTPEZY".index(unit[0].upper()))


def _row(found: re.Match[str], unit: str | None, time_unit: str | None) -> dict[str, Any]:
    bus, duration = number(found[7]), number(found[4])
    factor = None if unit is None else _PER_GB[unit]
    scale = _TIMES.get((found[5] or time_unit or "").lower())
    return {
        "bytes": _bytes(found[1], found[2]),
        "elements": found[3],
        "time": None if duration is None or scale is None else round(duration * scale, 6),
        "throughput": number(found[6]),
        "printed_busbw": bus,
        "busbw": None if bus is None or factor is None else round(bus / factor, 9),
    }


def parse(text: str) -> Reading:
    """Return ``tables``, each with ``operation``, ``ranks``, the ``unit`` as printed and ``rows``.

    ``busbw`` is in GB/s; ``throughput`` and ``printed_busbw`` are in the unit of the table.
    """
    notes = Notes()
    tables: list[dict[str, Any]] = []
    time_unit: str | None = None
    for line in plain_lines(text):
        line = line[:400]
        if title := _TABLE.fullmatch(line.strip()):
            tables.append({"operation": title[1].lower(), "ranks": int(title[2]), "unit": None, "rows": []})
            time_unit = None
        elif heading := _HEADING.fullmatch(line):
            if not tables or tables[-1]["rows"]:
                # The line with the collective is missing.
                tables.append({"operation": None, "ranks": None, "unit": None, "rows": []})
            tables[-1]["unit"] = heading[3] if heading[3] in _PER_GB else None
            time_unit = heading[1]
        elif tables and (found := _ROW.fullmatch(line)) and len(tables[-1]["rows"]) < _MOST_ROWS:
            tables[-1]["rows"].append(_row(found, tables[-1]["unit"], time_unit))
        elif tables and re.match(r"\s*\d", line):
            notes.puzzled(line)
    if not any(table["rows"] for table in tables):
        notes.warn("no row of results")
    return notes.reading({"tables": tables})


_LIKELY = first_of(
    (0.97, r"(?i)Performance of \w+ on \d+ devices[ \t]*-"),
    (0.95, r"(?i)^[ \t]*Size \(Bytes\)\s+Description\s+Duration.{0,40}Throughput \(\w+\)\s+BusBW \(\w+\)"),
)
FORMATS = [
    Format(
        "deepspeed-comm",
        "DeepSpeed communication benchmarks: time, throughput and bus bandwidth by size",
        _LIKELY,
        parse,
        units={"bytes": "B", "time": "us", "busbw": "GB/s"},
        aliases="deepspeed|ds_bench|deepspeed-comm-bench",
        convert=benchmarks.collective_tables,
        errors=True,
    )
]
