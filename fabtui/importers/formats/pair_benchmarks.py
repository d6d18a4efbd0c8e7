"""Results of pairs: the OSU micro-benchmarks, qperf, a folder of ``p2p-test-S-R-JOB.out``, the CSV of a ping mesh."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from fabtui.importers.tables import MOST, Tables, Values, kinds, matrix
from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
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
_OSU_LIKELY = first_of(
    (0.98, r"^[^\n]{0,40}# OSU \w"),
    (0.9, r"^[ \t]{0,8}OSU \w.{0,100} (?:Test|Benchmark)(?: v\d|$)"),
    (0.75, r"^[^\n]{0,40}# Size\s.*(?:\(us\)|MB/s)"),
)
_QPERF_LIKELY = first_of(
    (0.97, rf"^[ \t]{{0,8}}{_NAMES}:[ \t]*\n[ \t]{{1,20}}[a-z][a-z0-9_]{{0,40}} {{1,40}}= "),
    (0.9, r"^[ \t]{1,20}(?:send_bw|recv_bw|msg_rate|loc_cpus_used|send_cost) {1,40}= {1,20}[\d.]{1,20} "),
    (0.5, rf"^[ \t]{{0,8}}{_NAMES}:[ \t]*$"),
)
_QPERF_TITLE = "qperf: bandwidth and latency over TCP, UDP and RDMA"
_QPERF_UNITS = {"bandwidth": "GB/s", "latency": "us"}
# One job per pair of ranks, each printing ``OK S -> R``, or not. Several files come as one text with ``==> NAME <==``
# before each, as ``tail -n +1`` prints them.
#: What the files are called; the number of the job may be missing.
FILE = re.compile(r"p2p-test-(?P<src>\d{1,6})-(?P<dst>\d{1,6})(?:-(?P<job>\w{1,40}))?\.(?:out|err|txt|log)(?:\.gz)?")
_RUNS = kinds(
    r"""
    file   ==> (?:.*/)?p2p-test-<src:int>-<dst:int>(?:-(?P<job>\w{1,40}))?\.(?:out|err|txt|log)(?:\.gz)? <==$
    hello  <host:word> \[<rank:int>/<world:int>\]$
    state  <host:word> \[<rank:int>\] : (?P<text>(?:BEG|END|OK)\b.{0,100})$
    bad    .*?(?:[Ff]ail|\bFAIL|[Ee]rror\b|ERROR|Traceback|timed? ?out|Timeout|Killed|CANCELLED|Aborted
           |Segmentation fault|unhandled)
    """
)
_PAIR = re.compile(r"\b(OK|BEG send|END send) (\d{1,6}) -> (\d{1,6})\b")
_NOTHING = re.compile(r"0 failed|no error|error_handling|NCCL_ASYNC_ERROR|errors?=0", re.IGNORECASE)
#: Maximum number of rows and columns of a matrix that is shown.
_MOST_SHOWN = 512
# A ping mesh as older scripts write it: a row a pair of addresses, and whether it answered.
_COLUMNS = ["SourceNode", "SourceIP", "DestinationNode", "DestinationIP", "NetworkSegment", "Status"]
_PLACES = ("src", "src_addr", "dst", "dst_addr", "segment")
_OK = frozenset({"success", "succeeded", "successful", "ok", "pass", "passed", "reachable", "up", "true", "yes"})
_BAD = frozenset({"failure", "fail", "failed", "error", "unreachable", "timeout", "down", "false", "no", "ng"})
_RUN_LIKELY = first_of((0.99, r"^==> (?:.*/)?" + FILE.pattern + r" <==$"), (0.9, r"^\S+ \[\d+\] : (?:BEG|END|OK) "))
_CSV_LIKELY = first_of((0.99, "\\A\ufeff* *" + " *, *".join(_COLUMNS)))
_CSV_TITLE = "a ping mesh as CSV: " + ",".join(_COLUMNS)
_OF_OSU: Values = {**dict.fromkeys(("test", "measures", "version", "buffers")), "settings": {}, "units": {}, "rows": []}
_OF_QPERF: Values = {**dict.fromkeys(("test", "bandwidth", "latency")), "values": []}


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


class _Osu(_Tests, lines=_OSU, fresh=_OF_OSU, called="tests"):
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


def _bandwidth(value: float, unit: str) -> float | None:
    """Return a rate in GB/s; ``b`` is a bit, ``B`` a byte."""
    if (rate := _RATE.fullmatch(unit)) is None:
        return None
    return round(value * 1000.0 ** " KMGT".index(rate[1] or " ") / 1e9 / (8 if rate[2] in ("b", "bits") else 1), 9)


class _Qperf(_Tests, lines=_QPERF, fresh=_OF_QPERF, called="tests"):
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


class _Runs(Tables, lines=_RUNS):
    """Reads ``pairs`` (``src``, ``dst`` ranks, their hosts, ``status``, ``error``, ``job``), ``ranks``, ``matrix``.

    ``status`` is ok, failed, or unknown if the text shows neither.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pairs: dict[tuple[int, int, str | None], Values] = {}
        self.hosts: dict[int, Counter[str]] = {}
        self.world: int | None = None
        self.job: str | None = None
        self.current: Values | None = None

    def file(self, values: Values, line: str) -> None:
        self.job = values["job"]
        self._pair(values["src"], values["dst"])

    def hello(self, values: Values, line: str) -> None:
        if values["rank"] < MOST:
            self.hosts.setdefault(values["rank"], Counter())[values["host"]] += 1
        self.world = max(self.world or 0, values.get("world", 0)) or None

    def state(self, values: Values, line: str) -> None:
        self.hello(values, line)
        pair = _PAIR.search(values["text"])
        if pair and pair[1] == "OK":
            self._pair(int(pair[2]), int(pair[3]))["status"] = "ok"
        elif pair and self.current is None:
            self._pair(int(pair[2]), int(pair[3]))

    def bad(self, values: Values, line: str) -> None:
        if self.current is None or _NOTHING.search(line):
            return
        if self.current["status"] != "ok":
            self.current["status"] = "failed"
        # The first thing that went wrong is the cause more often than the last.
        self.current["error"] = self.current["error"] or line.strip()[:200]

    def _pair(self, src: int, dst: int) -> Values:
        new = {"src": src, "dst": dst, "src_host": None, "dst_host": None, "status": "unknown", "error": None}
        self.current = self.pairs.setdefault((src, dst, self.job), {**new, "job": self.job})
        return self.current

    def reading(self) -> Reading:
        """Return what was read; of several jobs for a pair the last one counts."""
        latest = {(pair["src"], pair["dst"]): pair for pair in sorted(self.pairs.values(), key=_job)}
        pairs = [latest[key] for key in sorted(latest)]
        hosts = {rank: counted.most_common(1)[0][0] for rank, counted in sorted(self.hosts.items())}
        lowest: dict[str, int] = {}
        for rank, host in hosts.items():
            lowest.setdefault(host, rank)
        for pair in pairs:
            pair.update(src_host=hosts.get(pair["src"]), dst_host=hosts.get(pair["dst"]))
        ranks = [{"rank": rank, "host": host, "index": rank - lowest[host]} for rank, host in hosts.items()]
        if any(len(counted) > 1 for counted in self.hosts.values()):
            self.notes.warn("some ranks were on different hosts in different jobs; the host named most is shown")
        counts = dict(Counter(pair["status"] for pair in pairs))
        if not pairs:
            self.notes.warn("no pair")
        if counts.get("unknown"):
            self.notes.warn(f"{counts['unknown']} pairs print neither OK nor an error")
        names = sorted({rank for key in latest for rank in key})
        cells = {(str(src), str(dst)): pair["status"] for (src, dst), pair in latest.items()}
        shown = _matrix("sender (row) to receiver (column)", list(map(str, names)), cells)
        values = {"world": self.world, "counts": counts, "matrix": shown, "ranks": ranks, "pairs": pairs}
        return self.notes.reading(values)


def _job(pair: Values) -> tuple[int, str]:
    job = pair["job"] or ""
    return (int(job) if job.isdecimal() else 0, job)


def _matrix(title: str, names: list[str], cells: dict[tuple[str, str], Any]) -> Values | None:
    """Return the matrix of all pairs; None if there is none or it is too large to be shown."""
    if not 0 < len(names) <= _MOST_SHOWN:
        return None
    return matrix(title, "", names, names, [[cells.get((src, dst)) for dst in names] for src in names])


def _parse_csv(text: str) -> Reading:
    """Return ``rows`` (``src``, ``src_addr``, ``dst``, ``dst_addr``, ``segment``, ``status``), ``counts`` and more.

    ``status`` is ok, failed or unknown. ``segments`` counts what failed in each network segment; ``matrix`` shows how
    many address pairs of two nodes answer.
    """
    notes, rows = Notes(), list[Values]()
    segments: dict[str, Values] = {}
    answers: dict[tuple[str, str], list[bool]] = {}
    try:
        for cells in csv.reader(io.StringIO(text.lstrip("\ufeff")), skipinitialspace=True):
            *names, printed = (cell.strip()[:253] for cell in cells or [""])
            if len(cells) != len(_COLUMNS):
                if cells:
                    notes.warn("a row is cut off")
                    notes.puzzled(",".join(cells))
            elif [*names, printed] != _COLUMNS:
                low = printed.lower()
                status = "ok" if low in _OK else "failed" if low in _BAD else "unknown"
                if status == "unknown":
                    notes.warn(f"status {printed[:40]!r} is not known")
                row = {**dict(zip(_PLACES, names, strict=True)), "status": status}
                rows.append(row)
                of_all = segments.setdefault(row["segment"], {"segment": row["segment"], "pairs": 0, "failed": 0})
                of_all["pairs"] += 1
                of_all["failed"] += status == "failed"
                answers.setdefault((row["src"], row["dst"]), []).append(status == "ok")
    except csv.Error as error:
        notes.warn(f"the CSV cannot be read further: {error}")
    if not rows:
        notes.warn("no row")
    shown = {pair: f"{sum(known)}/{len(known)}" for pair, known in answers.items()}
    nodes = list(dict.fromkeys(row[side] for row in rows for side in ("src", "dst")))
    values = {
        "counts": dict(Counter(row["status"] for row in rows)),
        "segments": list(segments.values()),
        "matrix": _matrix("address pairs that answer, of those asked", nodes, shown),
        # What does not answer is what people look for.
        "not_ok": [row for row in rows if row["status"] != "ok"],
        "rows": rows,
    }
    return notes.reading(values)


FORMATS = [
    Format(
        "osu",
        "OSU micro-benchmarks: osu_bw, osu_bibw, osu_latency, osu_allreduce and the others",
        _OSU_LIKELY,
        _Osu.parse,
        units={"bytes": "B"},
        aliases=r"osu_\w+",
        convert=benchmarks.osu,
        errors=True,
        incomparable=True,
    ),
    Format("qperf", _QPERF_TITLE, _QPERF_LIKELY, _Qperf.parse, units=_QPERF_UNITS),
    Format(
        "p2p-test",
        "a folder of p2p-test-S-R-JOB.out: one job per pair of ranks",
        _RUN_LIKELY,
        _Runs.parse,
        convert=benchmarks.p2p_runs,
        incomparable=True,
        hidden=("pairs",),
    ),
    Format("ping-csv", _CSV_TITLE, _CSV_LIKELY, _parse_csv, convert=benchmarks.ping_csv, hidden=("rows",)),
]
