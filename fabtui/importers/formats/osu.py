"""The OSU micro-benchmarks: point to point, one-sided and collectives, a table of message sizes each."""

from __future__ import annotations

import re
from typing import Any

from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import number, plain_lines, whole

_TITLE = re.compile(
    r"#\s*OSU (.{1,100}?)(?: (?:Test|Benchmark))?(?: v(\d[\w.]{0,20})| \(Version (\d[\w.]{0,20})\))?\s*$"
)
_HEADING = re.compile(r"#\s*(Size\b.*|(?:Avg|Overall|Avg\.) ?(?:Latency|Lat).*|nprocs.*|Pairs:.*)$")
_BUFFERS = re.compile(r"#\s*Send Buffer on (\w+) .{0,40}Receive Buffer on (\w+)")
_SETTING = re.compile(r"#\s*(Datatype|Window creation|Synchronization|Message Rate|Number of \w+):\s*(.{1,80}?)\.?\s*$")
_SETTINGS = re.compile(r"\[\s*([a-z ]{1,30}):\s*([\w.]{1,30})\s*\]")
_UNIT = re.compile(r"^(.*?)(?<!\s)\s*\(([^()]{1,12})\)\s*$")
#: Comments that lost their ``#``.
_UNMARKED = re.compile(r"[ \t]{0,8}(?:OSU \w.{0,100} (?:Test|Benchmark)|Size {2,40}\S.{0,80}(?:\(us\)|MB/s))")
_PROBLEM = re.compile(
    r"^(?:Warning|WARNING|Error|ERROR|Invalid|.{0,40}(?:MPI_ABORT|Segmentation fault|DATA VALIDATION ERROR)).{0,200}"
)


def _columns(heading: str) -> list[tuple[str, str | None]]:
    """Return the names and units of a heading: ``Size   Avg Latency(us)   MB/s`` are three columns."""
    found = []
    # Words of one name are one blank apart, names at least two; a unit in parentheses ends a name in any case.
    for piece in re.split(r"\s{2,}|\t+|(?<=\)) (?=\S)", heading.strip()):
        unit = _UNIT.match(piece)
        name, unit_name = (unit[1], unit[2]) if unit else (piece, None)
        if unit_name is None and name in ("MB/s", "Messages/s", "GB/s"):
            name, unit_name = {"MB/s": "bandwidth", "GB/s": "bandwidth", "Messages/s": "message rate"}[name], name
        key = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        found.append((_KEYS.get(key, key)[:60], unit_name))
    return found


_KEYS = {"size": "bytes", "avg_lat": "avg_latency", "min_lat": "min_latency", "max_lat": "max_latency"}
_WHOLE = ("bytes", "iterations", "nprocs")


def _kind(title: str) -> str:
    low = title.lower()
    if "bi-directional" in low or "bidirectional" in low:
        return "bidirectional bandwidth"
    return "bandwidth" if "bandwidth" in low else "latency" if "latency" in low else "other"


class _Parser:
    def __init__(self) -> None:
        self.notes = Notes()
        self.tests: list[dict[str, Any]] = []
        self.columns: list[tuple[str, str | None]] = []

    def line(self, line: str) -> None:
        if _UNMARKED.match(line):
            line = f"# {line.lstrip()}"
        at = line.find("#")
        if at >= 0:
            self._comment(line[at:])
        elif self.tests and self.columns and line.split():
            self._row(line)
        elif problem := _PROBLEM.match(line.strip()):
            self.notes.warn(problem[0])

    def _comment(self, line: str) -> None:
        if title := _TITLE.match(line):
            self.columns = []
            self.tests.append(_new_test(title[1], _kind(title[1]), title[2] or title[3]))
        elif heading := _HEADING.match(line):
            if not self.tests:
                kind = "bandwidth" if "MB/s" in heading[1] else "latency" if "(us)" in heading[1] else "other"
                self.tests.append(_new_test(None, kind, None))
            self.columns = _columns(heading[1])
            self.tests[-1]["units"] = {name: unit for name, unit in self.columns if unit}
        elif self.tests and (buffers := _BUFFERS.match(line)):
            self.tests[-1]["buffers"] = f"{buffers[1]} to {buffers[2]}"
        elif self.tests:
            if setting := _SETTING.match(line):
                self.tests[-1]["settings"][setting[1].lower()] = setting[2]
            self.tests[-1]["settings"].update({name.strip(): value for name, value in _SETTINGS.findall(line)})

    def _row(self, line: str) -> None:
        words = line.split()
        # A launcher may put a rank before each line.
        if len(words) == len(self.columns) + 1 and re.fullmatch(r"\[?[\w.-]{1,60}\]?:", words[0]):
            words = words[1:]
        values: list[Any] = [number(word) for word in words]
        if values[:1] == [None]:
            if problem := _PROBLEM.match(line.strip()):
                self.notes.warn(problem[0])
            elif self.tests[-1]["rows"]:
                self.notes.puzzled(line)
            return
        if len(words) != len(self.columns):
            self.notes.warn(f"a row is cut off: {line.strip()[:80]}")
            self.notes.puzzled(line)
            return
        row = {}
        for (name, _), word, value in zip(self.columns, words, values, strict=True):
            row[name] = whole(word) if name in _WHOLE else word if name == "validation" else value
            if row[name] is None:
                self.notes.puzzled(line)
        if str(row.get("validation", "Pass")).lower() != "pass":
            self.notes.warn(f"wrong data with messages of {row.get('bytes')} bytes")
        self.tests[-1]["rows"].append(row)


def _new_test(title: str | None, kind: str, version: str | None) -> dict[str, Any]:
    test = {"test": title, "measures": kind, "version": version, "buffers": None}
    return {**test, "settings": {}, "units": {}, "rows": []}


def parse(text: str) -> Reading:
    """Return ``tests``: ``test`` (the title), ``measures``, ``version``, ``buffers``, ``units``, ``rows``.

    A row has the columns of the heading by name: ``bytes``, ``bandwidth``, ``latency``, ``avg_latency`` and so on. A
    megabyte of these benchmarks is 1e6 bytes.
    """
    parser = _Parser()
    for line in plain_lines(text):
        parser.line(line)
    for test in parser.tests:
        if not test["rows"]:
            parser.notes.warn(f"no rows of {test['test'] or 'a table'}")
    if not parser.tests:
        parser.notes.warn("no table")
    return parser.notes.reading({"tests": parser.tests})


_LIKELY = first_of(
    (0.98, r"^[^\n]{0,40}# OSU \w"),
    (0.9, r"^[ \t]{0,8}OSU \w.{0,100} (?:Test|Benchmark)(?: v\d|$)"),
    (0.75, r"^[^\n]{0,40}# Size\s.*(?:\(us\)|MB/s)"),
)
FORMATS = [
    Format(
        "osu",
        "OSU micro-benchmarks: osu_bw, osu_bibw, osu_latency, osu_allreduce and the others",
        _LIKELY,
        parse,
        units={"bytes": "B"},
        aliases=r"osu_\w+",
        convert=benchmarks.osu,
        errors=True,
        incomparable=True,
    )
]
