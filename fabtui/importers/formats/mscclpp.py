"""Tables of MSCCL++: mscclpp-test, its Python benchmark, and experiments with collectives over pipelines.

Grammar (microsoft/mscclpp): ``test/mscclpp-test/common.cc`` prints a heading like that of nccl-tests without type,
operation and root, *in place first*, and in each row one of both groups; with ``-o`` an object of JSON per row.
``python/mscclpp_benchmark/allreduce_bench.py`` prints a PrettyTable that compares with NCCL. Experiments
(``python/test/pipeline_expt.py`` of forks) print ``### NAME ###``, settings ``name=value, ...``, and the columns
``size(B) avg_time(us) min_time(us) avg_algbw(GB/s) max_algbw(GB/s)``.
"""

from __future__ import annotations

import json
import re
from typing import Any

from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_number, number, plain_lines, size, whole

_NAME = re.compile(r"#{3,200} ([A-Za-z][\w -]{0,60}?) #{3,200}")
_SETTING = re.compile(r"([A-Za-z_]\w{0,40})=([^\s,]{1,120})(?=,|\s*$)")
_EXPERIMENT = re.compile(r"\s*size\(b\)(?=.*_(?:time|algbw)\()\s+(?=\S)[a-z_()/ ]+", re.I)
_COLUMN = re.compile(r"([a-z_]{1,30})\(([a-z/]{1,8})\)", re.I)
_TEST = re.compile(r"#\s+size\s+count\s+time\s+algbw\s+busbw\s+#wrong\s+time\s.*", re.I)
_TEST_ROW = re.compile(
    r"\s*(\d{1,18})\s+(\d{1,18})(\s+)([\d.]{1,20})\s+([\d.]{1,20})\s+([\d.]{1,20})(?:\s+(\d{1,18}))?\s*"
)
_KEYS = {
    "size": "bytes", "time (us)": "time", "algbw (gb/s)": "algbw", "correctness": "correct",
    "nccl time (us)": "nccl_time", "nccl algbw (gb/s)": "nccl_algbw", "nccl correctness": "nccl_correct",
    "speed up": "speed_up",
}  # fmt: skip
#: Blanks before the second group of a row of mscclpp-test.
_FAR = 20
_MOST_ROWS = 10_000


class _Parser:
    def __init__(self) -> None:
        self.notes = Notes()
        self.tables: list[dict[str, Any]] = []
        self.columns: list[str] = []

    def line(self, line: str) -> None:
        short = line.strip()[:1000]
        if name := _NAME.fullmatch(short):
            self._table("experiment", name[1])
        elif short.startswith("|") and short.endswith("|"):
            self._bars([cell.strip() for cell in short.strip("|").split("|")])
        elif _TEST.fullmatch(short):
            self._table("mscclpp-test", None)
            self.columns = ["test"]
        elif _EXPERIMENT.fullmatch(short):
            if not self.tables or self.tables[-1]["rows"] or self.tables[-1]["program"] != "experiment":
                self._table("experiment", None)
            self.columns = [
                "bytes" if column[1].lower() == "size" else column[1].lower() for column in _COLUMN.finditer(short)
            ]
        elif short.startswith("{"):
            self._json(short)
        elif self.tables and "=" in short:
            self._settings(short)
        elif re.match(r"\d", short) and self.columns:
            self._row(line[:1000])

    def _table(self, program: str, operation: str | None) -> None:
        known: dict[str, Any] = {"program": program, "operation": operation, "ranks": None, "settings": {}, "rows": []}
        self.tables.append(known)
        self.columns = []

    def _settings(self, line: str) -> None:
        found = _SETTING.findall(line)
        for name, text in found[:40]:
            value = whole(text)
            if name == "nranks":
                self.tables[-1]["ranks"] = value
            self.tables[-1]["settings"][name] = text if value is None else value

    def _add(self, row: dict[str, Any]) -> None:
        if len(self.tables[-1]["rows"]) < _MOST_ROWS:
            self.tables[-1]["rows"].append(row)

    def _row(self, line: str) -> None:
        if self.columns == ["test"]:
            if (found := _TEST_ROW.fullmatch(line)) is None:
                self.notes.puzzled(line)
                return
            # The place of a group shows which it is; where blanks are lost, nobody knows.
            gap = len(found[3].expandtabs(8))
            place = "out of place" if gap >= _FAR else "in place" if gap > 1 else None
            numbers = {
                name: number(text) for name, text in zip(("time", "algbw", "busbw"), found.group(4, 5, 6), strict=True)
            }
            wrong = None if found[7] is None else int(found[7])
            self._add({"bytes": int(found[1]), "count": int(found[2]), "place": place, **numbers, "wrong": wrong})
            return
        values = [number(word) for word in line.split()]
        if len(values) != len(self.columns) or None in values or not self.columns:
            self.notes.puzzled(line)
            return
        row = dict(zip(self.columns, values, strict=True))
        self._add(
            {
                name: int(value) if name in ("bytes", "send_size") and value is not None else value
                for name, value in row.items()
            }
        )

    def _bars(self, cells: list[str]) -> None:
        """Take a line of the Python benchmark's table."""
        low = [re.sub(r"^size\b.*", "size", cell.lower()) for cell in cells]
        if "size" in low and any(cell in _KEYS for cell in low if cell != "size"):
            self._table("allreduce_bench", "all_reduce")
            self.columns = [_KEYS.get(cell, cell[:40]) for cell in low]
            return
        if len(cells) != len(self.columns) or not self.tables:
            self.notes.puzzled(" | ".join(cells))
            return
        row: dict[str, Any] = {}
        for name, cell in zip(self.columns, cells, strict=True):
            row[name] = (
                size(cell)
                if name == "bytes"
                else (cell.upper() == "PASS")
                if name.endswith("correct")
                else number(cell)
            )
        if row.get("correct") is False:
            self.notes.warn(f"wrong results of {cells[0]}")
        self._add(row)

    def _json(self, line: str) -> None:
        """Take an object that ``mscclpp-test -o`` writes."""
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            self.notes.puzzled(line)
            return
        if not isinstance(value, dict) or "algBw" not in value:
            self.notes.puzzled(line)
            return
        name = value.get("name")
        if not self.tables or self.tables[-1]["operation"] != name:
            self._table("mscclpp-test", name if isinstance(name, str) else None)
        ranks = value.get("ranks")
        self.tables[-1]["ranks"] = ranks if isinstance(ranks, int) else None
        names = {"bytes": "size", "time": "time", "algbw": "algBw", "busbw": "busBw"}
        self._add({ours: json_number(value.get(theirs)) for ours, theirs in names.items()})


def parse(text: str) -> Reading:
    """Return ``tables``, each with its ``program``, ``operation``, ``ranks``, ``settings`` and ``rows``.

    ``place`` is ``in place`` or ``out of place`` where the columns of a row show it. Sizes of the Python benchmark are
    those printed, with one digit after the point.
    """
    parser = _Parser()
    for line in plain_lines(text):
        parser.line(line)
    wrong = sum(row.get("wrong") or 0 for table in parser.tables for row in table["rows"])
    if wrong:
        parser.notes.warn(f"{wrong} wrong results")
    if not any(table["rows"] for table in parser.tables):
        parser.notes.warn("no row of results")
    return parser.notes.reading({"tables": parser.tables})


_LIKELY = first_of(
    (0.99, r"(?i)^#?[ \t]+size\s+count\s+time\s+algbw\s+busbw\s+#wrong\s+time\s"),
    (0.97, r"(?i)^[ \t]*size\(b\)[ \t].*_algbw\(gb/s\)"),
    (0.97, r"(?i)^\|.{0,60}\|[ \t]*algbw \(gb/s\)[ \t]*\|.{0,40}\|[ \t]*nccl time \(us\)"),
    (0.95, r'^\{"algBw":.*"ranksPerNode":'),
)
_TIME = dict.fromkeys(("time", "avg_time", "min_time", "nccl_time"), "us")
_RATE = dict.fromkeys(("algbw", "busbw", "avg_algbw", "max_algbw", "nccl_algbw"), "GB/s")
FORMATS = [
    Format(
        "mscclpp",
        "MSCCL++: mscclpp-test, its Python benchmark and experiments",
        _LIKELY,
        parse,
        units={"bytes": "B", **_TIME, **_RATE},
        aliases=r"msccl\+\+|mscclpp-(?:test|expt)|all\w+_test_perf",
        convert=benchmarks.collective_tables,
        errors=True,
    )
]
