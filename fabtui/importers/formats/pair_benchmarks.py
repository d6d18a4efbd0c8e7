"""Benchmarks of a pair of processes, and of MPI: the OSU micro-benchmarks, and qperf."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from fabtui.importers.tables import Tables, Values, kinds
from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Reading, first_of
from fabtui_node.parsers.lines import number, whole

_OSU = kinds(
    r"""
    begin     <:mark>OSU (?P<test>.{1,100}?)(?: (?:Test|Benchmark))?(?: (?:v|\(Version )
              (?P<version>\d[\w.]{0,20})\)?)?$
    heading   <:mark>(?P<names>Size\b.*|(?:Avg|Overall|Avg\.) ?(?:Latency|Lat).*|nprocs.*|Pairs:.*)$
    buffers   [^#]*#\s*Send Buffer on (?P<src>\w+) .{0,40}Receive Buffer on (?P<dst>\w+)
    setting   [^#]*#\s*(?P<name>Datatype|Window creation|Synchronization|Message Rate|Number of \w+):\s*(?P<value>.+)
    settings  [^#]*#
    warn      (?:Warning|WARNING|Error|ERROR|Invalid|.{0,40}(?:MPI_ABORT|Segmentation fault|DATA VALIDATION ERROR))
    words     \S
    """,
    # The mark of a comment may be lost.
    mark=r"(?:[^#]{0,200}#)?\s*",
)
_SETTINGS = re.compile(r"\[\s*([a-z ]{1,30}):\s*([\w.]{1,30})\s*\]")
#: Words of one name are one blank apart, names at least two; a unit in parentheses ends a name in any case.
_BETWEEN = re.compile(r"\s{2,}|\t+|(?<=\)) (?=\S)")
_WITH_UNIT = re.compile(r"^(.*?)(?<!\s)\s*\(([^()]{1,12})\)\s*$")
_BARE_UNITS = {"MB/s": "bandwidth", "GB/s": "bandwidth", "Messages/s": "message rate"}
_KEYS = {"size": "bytes", "avg_lat": "avg_latency", "min_lat": "min_latency", "max_lat": "max_latency"}

_CELLS: dict[str, Callable[[str], Any]] = {"bytes": whole, "iterations": whole, "nprocs": whole, "validation": str}


def _columns(heading: str) -> dict[str, str | None]:
    """Return the names and units of a heading: ``Size   Avg Latency(us)   MB/s`` are three columns."""
    columns = {}
    for piece in _BETWEEN.split(heading.strip()):
        unit = _WITH_UNIT.match(piece)
        name, unit_name = (unit[1], unit[2]) if unit else (_BARE_UNITS.get(piece, piece), None)
        key = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        columns[_KEYS.get(key, key)[:60]] = unit_name or (piece if piece in _BARE_UNITS else None)
    return columns


def _measures(title: str) -> str:
    low = title.lower()
    if "bi-directional" in low or "bidirectional" in low:
        return "bidirectional bandwidth"
    return next((kind for kind in ("bandwidth", "latency") if kind in low), "other")


class _Tests(Tables):
    rows, without, nothing = "rows", "no rows of {}", "no table"

    def reading(self) -> Reading:
        for test in self.tables:
            if not test[self.rows]:
                self.notes.warn(self.without.format(test["test"] or "a table"))
        if not self.tables:
            self.notes.warn(self.nothing)
        return super().reading()


class _Osu(
    _Tests,
    lines=_OSU,
    fresh={**dict.fromkeys(("test", "measures", "version", "buffers")), "settings": {}, "units": {}, "rows": []},
    called="tests",
):
    """Reads ``tests``: ``test`` (the title), ``measures``, ``version``, ``buffers``, ``units``, ``rows``.

    A row has the columns of the heading by name: ``bytes``, ``bandwidth``, ``latency``, ``avg_latency`` and so on. A
    megabyte of these benchmarks is 1e6 bytes.
    """

    names: tuple[str, ...] = ()

    def begin(self, values: Values, line: str) -> None:
        super().begin({**values, "measures": _measures(values["test"] or line)}, line)
        self.names = ()

    def heading(self, values: Values, line: str) -> None:
        columns = _columns(values["names"])
        if not self.tables:
            self.begin({"test": None}, "bandwidth" if "MB/s" in line else "latency" if "(us)" in line else "")
        self.names = tuple(columns)
        self.tables[-1]["units"] = {name: unit for name, unit in columns.items() if unit}

    def buffers(self, values: Values, line: str) -> None:
        if self.tables:
            self.tables[-1]["buffers"] = f"{values['src']} to {values['dst']}"

    def setting(self, values: Values, line: str) -> None:
        if self.tables:
            self.tables[-1]["settings"][values["name"].lower()] = values["value"].rstrip(". ")[:80]

    def settings(self, values: Values, line: str) -> None:
        if self.tables:
            self.tables[-1]["settings"].update({name.strip(): value for name, value in _SETTINGS.findall(line)})

    def words(self, values: Values, line: str) -> None:
        """Take a row, by the columns of the heading."""
        words = line.split()
        # A launcher may put a rank before each line.
        if len(words) == len(self.names) + 1 and re.fullmatch(r"\[?[\w.-]{1,60}\]?:", words[0]):
            words = words[1:]
        if not self.names or (number(words[0]) is None and not self.tables[-1]["rows"]):
            return
        if len(words) != len(self.names) or number(words[0]) is None:
            if number(words[0]) is not None:
                self.notes.warn(f"a row is cut off: {line.strip()[:80]}")
            self.notes.puzzled(line)
            return
        row = {name: _CELLS.get(name, number)(word) for name, word in zip(self.names, words, strict=True)}
        if None in row.values():
            self.notes.puzzled(line)
        if str(row.get("validation", "Pass")).lower() != "pass":
            self.notes.warn(f"wrong data with messages of {row.get('bytes')} bytes")
        self.row(row, line)


# qperf (linux-rdma/qperf, src/qperf.c, ``show_rest`` and ``view_*``): the name of a test and a colon, then indented
# lines ``name = value unit``. Prefixes of units are powers of 1000. A test that runs over a range of a parameter
# (``-oo msg_size:1:64K:*2``) prints all its lines again for each value.
_NAMES = r"(?:tcp|udp|sctp|sdp|rds|rc|uc|ud|xrc|ver)_[a-z0-9_]{2,40}"
_QPERF = kinds(
    r"""
    skip    quit:$
    begin   (?P<test><:names>|conf):$
    value   (?P<name>[a-z][a-z0-9_]{0,40})\s{1,40}=\s{1,20}(?P<text>.{1,200})$
    warn    (?:qperf: |failed to |unable to |server: |.{0,60}: (?:timed out|refused|unreachable)).{1,200}
    puzzle  \S
    """,
    names=_NAMES,
)
_RATE = re.compile(r"([KMGT]?)(b|B|bytes|bits)/s(?:ec)?")
_TIMES = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "sec": 1e6, "s": 1e6}


def _bandwidth(value: float, unit: str) -> float | None:
    """Return a rate in GB/s; ``b`` is a bit, ``B`` a byte."""
    if (rate := _RATE.fullmatch(unit)) is None:
        return None
    return round(value * 1000.0 ** " KMGT".index(rate[1] or " ") / 1e9 / (8 if rate[2] in ("b", "bits") else 1), 9)


class _Qperf(
    _Tests, lines=_QPERF, fresh={**dict.fromkeys(("test", "bandwidth", "latency")), "values": []}, called="tests"
):
    """Reads ``tests``: ``bandwidth`` and ``latency`` of each, and all its values as printed, with their units."""

    rows, without, nothing = "values", "{} has no result", "no test"

    def value(self, values: Values, line: str) -> bool:
        """Take a value; one that the test has begins the same test again."""
        if not self.tables:
            return False
        name, (word, _, unit) = values["name"], values["text"].partition(" ")
        if any(value["name"] == name for value in self.tables[-1]["values"]):
            self.begin({"test": self.tables[-1]["test"]}, line)
        test, unit = self.tables[-1], unit.strip(" ()")
        if test["test"] == "conf" or (value := number(word.replace(",", ""))) is None:
            test["values"].append({"name": name, "value": None, "text": values["text"]})
            return True
        test["values"].append({"name": name, "value": value, "unit": unit or None})
        if name in ("bw", "recv_bw"):
            # What arrived; udp_bw and others print what was sent as well.
            test["bandwidth"] = _bandwidth(value, unit)
        elif name == "latency":
            test["latency"] = round(value * _TIMES[unit], 6) if unit in _TIMES else None
        return True

    def puzzle(self, values: Values, line: str) -> None:
        if line[0].isspace():
            super().puzzle(values, line)


FORMATS = [
    Format(
        "osu",
        "OSU micro-benchmarks: osu_bw, osu_bibw, osu_latency, osu_allreduce and the others",
        first_of(
            (0.98, r"^[^\n]{0,40}# OSU \w"),
            (0.9, r"^[ \t]{0,8}OSU \w.{0,100} (?:Test|Benchmark)(?: v\d|$)"),
            (0.75, r"^[^\n]{0,40}# Size\s.*(?:\(us\)|MB/s)"),
        ),
        _Osu.parse,
        units={"bytes": "B"},
        aliases=r"osu_\w+",
        convert=benchmarks.osu,
        errors=True,
        incomparable=True,
    ),
    Format(
        "qperf",
        "qperf: bandwidth and latency over TCP, UDP and RDMA",
        first_of(
            (0.97, rf"^[ \t]{{0,8}}{_NAMES}:[ \t]*\n[ \t]{{1,20}}[a-z][a-z0-9_]{{0,40}} {{1,40}}= "),
            (0.9, r"^[ \t]{1,20}(?:send_bw|recv_bw|msg_rate|loc_cpus_used|send_cost) {1,40}= {1,20}[\d.]{1,20} "),
            (0.5, rf"^[ \t]{{0,8}}{_NAMES}:[ \t]*$"),
        ),
        _Qperf.parse,
        units={"bandwidth": "GB/s", "latency": "us"},
    ),
]
