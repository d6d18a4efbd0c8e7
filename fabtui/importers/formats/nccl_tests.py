"""The tables of nccl-tests (``all_reduce_perf`` and its kin) of all versions, one or several in a log, and ``-J``.

A row begins with size, count and type; what follows depends on the test (``redop``, ``root``), the version (``error``
or ``#wrong``) and options (per-iteration columns, time stamps, in-place alone), according to the heading. A row is
found by its type, so that prefixes of launchers do no harm.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import (
    json_list,
    json_number,
    json_object,
    json_value,
    json_whole,
    number,
    plain_lines,
    whole,
)

Row = dict[str, Any]


def _from_json(text: str) -> Row | None:
    if '"results"' not in text or '"nccl_version"' not in text:
        return None
    value = json_value(text)
    return value if isinstance(value, dict) and isinstance(value.get("results"), list) else None


def _json_table(value: Row) -> Row:
    """Return its table, in the shape of `fabtui.importers.formats.nccl_tests.parse`."""
    args = json_list(value.get("args"))
    program = PurePath(str(args[0])).name if args else ""
    devices = [device for entry in json_list(value.get("devices")) if (device := _device(json_object(entry)))]
    options = {str(name)[:40]: item for name, item in json_object(value, "config").items()}
    return {
        "operation": program.partition("_perf")[0].replace("all_to_all", "alltoall") or None,
        "operation_from": "name" if program else None,
        **_devices(devices),
        "options": {name: item for name, item in options.items() if isinstance(item, (int, float))},
        "rows": [row for entry in value["results"] if (row := _json_row(json_object(entry)))],
        "out_of_bounds": json_whole(json_object(value, "out_of_bounds").get("count")),
        "average": json_number(json_object(value, "average_bus_bandwidth").get("bandwidth")),
    }


def _devices(devices: list[Row]) -> Row:
    ranks = max((device["rank"] for device in devices), default=-1) + 1 or None
    return {"ranks": ranks, "hosts": list(dict.fromkeys(device["host"] for device in devices)), "devices": devices}


def _json_version(value: Row) -> str | None:
    """Return NCCL's version, of a number such as 22809."""
    code = json_whole(value.get("nccl_version"))
    if code is None or code <= 0:
        return None
    # Up to 2.8 the number had two digits less.
    major, rest = (code // 1000, code % 1000) if code < 10_000 else (code // 10_000, code % 10_000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _device(entry: Row) -> Row | None:
    rank, device = json_whole(entry.get("rank")), json_whole(entry.get("device"))
    if rank is None or device is None or not isinstance(entry.get("hostname"), str):
        return None
    bus, name = str(entry.get("device_hex") or "")[:20] or None, str(entry.get("device_info") or "").strip()[:200]
    place = {"rank": rank, "host": entry["hostname"][:253], "device": device}
    return {**place, "bus": bus, "name": name, "pid": json_whole(entry.get("pid"))}


def _json_row(entry: Row) -> Row | None:
    size, count = json_whole(entry.get("size")), json_whole(entry.get("count"))
    sides = {place: _json_side(entry.get(place)) for place in ("out_of_place", "in_place")}
    if size is None or count is None or not any(sides.values()):
        return None
    redop = entry.get("redop")
    row = {"bytes": size, "count": count, "type": str(entry.get("type", ""))[:20]}
    return {
        **row,
        "redop": str(redop)[:20] if redop else None,
        "root": whole(str(entry.get("root", "")).strip()),
        **sides,
    }


def _json_side(value: Any) -> Row | None:
    found = json_object(value)
    time, busbw = json_number(found.get("cpu_time", found.get("time"))), json_number(found.get("bus_bw"))
    if time is None or busbw is None:
        return None
    wrong = json_number(found.get("nwrong"))
    algbw = json_number(found.get("alg_bw"))
    return {"time": time, "algbw": algbw, "busbw": busbw, "wrong": None if wrong is None else int(wrong)}


_INTEGERS = frozenset({"int8", "uint8", "int32", "uint32", "int64", "uint64", "char", "int"})
_TYPES = _INTEGERS | {"half", "float", "double", "bfloat16", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2"}
_REDOPS = frozenset({"sum", "prod", "max", "min", "avg", "mulsum", "none"})
_SIDE = ("time", "algbw", "busbw", "wrong")
_PER_ITERATION = ("i_min", "i_max", "i_p99", "i_cv")

_RANK = re.compile(
    r"#\s+Rank\s+(\d{1,7})(?:\s+Group\s+(\d{1,7}))?\s+Pid\s+(\d{1,12})\s+on\s+(\S{1,253})\s+device\s+(\d{1,5})"
    r"\s+\[([0-9a-fA-Fx:.]{1,20})\]\s*(.{0,200})"
)
_OPTIONS = re.compile(r"#\s*nThread\b")
_OPTION = re.compile(
    r"(nThread|nGpus|minBytes|maxBytes|warmup iters|(?<!warmup )(?<!agg )iters|agg iters|validation|graph):?"
    r" +(\d{1,18})"
)
_STEP = re.compile(r"step: ?(\d{1,18})\((\w{1,10})\)")
_VERSION = re.compile(r"#\s*nccl-tests version (\S{1,40})")
_LIBRARY = re.compile(r"^NCCL version (\S{1,60})")
_NAMED = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|alltoallv|broadcast|reduce|sendrecv|gather|scatter"
    r"|hypercube)"
    r"_perf\b",
    re.IGNORECASE,
)
_TITLE = re.compile(
    r"^[#=*\- ]*(all[ _-]?reduce|all[ _-]?gather|reduce[ _-]?scatter|all[ _-]?to[ _-]?all|broadcast|send[ _-]?recv)"
    r"[#=*\-: ]*$",
    re.IGNORECASE,
)
#: Tests of 2017 to 2019 call the first columns ``bytes`` and ``N``, and the largest error ``res``.
_HEADING = re.compile(r"#\s*(?:size|bytes)\s+(?:count|N)\s.*\b(?:cpu)?time\s+algbw\s+busbw")
_OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,18})\s*(\w*)")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*(\S{1,30})\s*(\w*)")
#: Comments whose ``#`` is lost: a web page takes it for the mark of a heading.
_UNMARKED = re.compile(
    r"[ \t]{0,80}(?:nThread \d|Using devices|Rank {1,8}\d{1,7} .{0,40}\bPid "
    r"|(?:size {1,20}count|bytes {1,20}N) .{0,200}\balgbw|\(B\) "
    r"|out-of-place {1,80}in-place|Out of bounds values|Avg bus bandwidth|Collective test (?:starting|concluded))"
)
_STARTS = re.compile(r"#\s*Collective test starting:\s*(\S{1,100})")
_PROBLEM = re.compile(
    r"NCCL WARN (.{1,300})|Test (?:NCCL|CUDA) failure.{0,300}|Test failure.{0,300}|.{0,40}: Test timeout.{0,100}"
    r"|Invalid number of GPUs.{0,200}|.{0,100}Caught signal \d+.{0,100}|mpirun noticed that process.{0,200}"
)
#: Bytes per us over MB/s from which on times are ms: 1000, less where the bandwidth counts the bytes of all ranks.
_THOUSAND = 100
#: Words of ours for what the tests call themselves.
_KINDS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}


class _Parser:
    """The tables of one log as they come."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.tables: list[dict[str, Any]] = []
        self.version: str | None = None
        self.library: str | None = None
        self._fresh()

    def _fresh(self, kind: str | None = None) -> None:
        self.kind = kind
        self.ranks: list[dict[str, Any]] = []
        self.options: dict[str, Any] = {}
        self.table: dict[str, Any] | None = None
        self.sides: list[tuple[str, ...]] | None = None
        self.root: bool | None = None  # Whether the heading has a column for it; None without a heading.
        self.errors = False  # Whether the heading has the largest error in place of a count.

    def line(self, line: str) -> None:
        if _UNMARKED.match(line):
            line = "# " + line.lstrip()
        if "#" in line and self._comment(line[line.index("#") :]):
            return
        words = line.split()
        if self._row(words, line):
            return
        if named := _NAMED.search(line):
            self._begin(_name(named[1]))
        elif titled := _TITLE.match(line):
            self._begin(_name(titled[1]))
        elif library := _LIBRARY.match(line.strip()):
            self.library = library[1]
        elif problem := _PROBLEM.search(line):
            self.notes.warn(problem[1] or problem[0])
        elif words == ["..."] and self.table is not None:
            self.notes.warn("rows are left out (a line of dots)")
        elif self.table is not None and self.table["average"] is None and words and words[0].isdecimal():
            self.notes.puzzled(line)

    def _begin(self, kind: str | None) -> None:
        """Begin a new test, unless the current one is still empty."""
        if self.table is not None or self.ranks:
            self._fresh(kind)
        else:
            self.kind = kind

    def _comment(self, line: str) -> bool:
        if found := _RANK.search(line):
            self._rank(found)
        elif starts := _STARTS.match(line):
            named = _NAMED.search(starts[1])
            self._begin(_name(named[1]) if named else None)
        elif _OPTIONS.match(line):
            if self.table is not None:
                self._fresh()
            self.options = {name.replace(" ", "_"): int(value) for name, value in _OPTION.findall(line)}
            if step := _STEP.search(line):
                self.options["step"] = f"{step[1]} ({step[2]})"
        elif _HEADING.match(line):
            self._heading(line)
        elif bounds := _OUT_OF_BOUNDS.match(line):
            self._footer("out_of_bounds", whole(bounds[1]), bounds[2])
        elif average := _AVERAGE.match(line):
            self._footer("average", number(average[1]), average[2])
        elif version := _VERSION.match(line):
            self.version = version[1]
        else:
            return line.lstrip("# ").startswith(("(B)", "out-of-place", "Using devices", "Collective test", "in-place"))
        return True

    def _rank(self, found: re.Match[str]) -> None:
        if self.table is not None:
            self._fresh()
        rank, _, pid, host, device, bus, name = found.groups()
        entry = {"rank": int(rank), "host": host, "device": int(device)}
        self.ranks.append({**entry, "bus": bus, "name": name.strip(), "pid": int(pid)})

    def _heading(self, line: str) -> None:
        if self.table is not None and self.table["rows"]:
            self._fresh(self.kind)
        words = line.split()
        first = next((at for at, word in enumerate(words) if word in ("time", "cputime")), len(words))
        self.sides = []
        names: list[str] = []
        for word in words[first:]:
            if word in ("time", "cputime") and names:
                self.sides.append(tuple(names))
                names = []
            name = {"cputime": "time", "#wrong": "wrong", "error": "wrong", "i_cv%": "i_cv"}.get(word, word)
            name = "wrong" if name == "res" else name
            if name in _SIDE or name in _PER_ITERATION:
                names.append(name)
        self.sides.append(tuple(names))
        self.errors = "res" in words or "error" in words
        self.root = "root" in words
        if len(set(self.sides)) != 1 or self.sides[0][: len(_SIDE)] != _SIDE or len(set(names)) != len(names):
            # A damaged heading leaves only the columns that every version has.
            self.notes.puzzled(line)
            self.sides, self.errors, self.root = None, False, None
        table = self._new_table()
        if "cputime" in words:
            table["time_is"] = "CPU time"

    def _new_table(self) -> Row:
        self.table = {
            "operation": self.kind,
            "operation_from": "name" if self.kind else None,
            **_devices(self.ranks),
            "options": self.options,
            "rows": [],
            "out_of_bounds": None,
            "average": None,
        }
        self.tables.append(self.table)
        return self.table

    def _footer(self, name: str, value: Any, verdict: str) -> None:
        table = self.table or self._new_table()
        table[name] = value
        if verdict == "FAILED":
            what = "wrong results" if name == "out_of_bounds" else "the average is below what was asked for"
            self.notes.warn(f"the test reports FAILED: {what} ({value})")

    def _row(self, words: list[str], line: str) -> bool:
        at = next((at for at, word in enumerate(words[:12]) if at >= 2 and word in _TYPES), None)
        if at is None:
            return False
        size, count = whole(words[at - 2].rpartition(":")[2] or ""), whole(words[at - 1])
        if size is None or count is None or size < 0 or count < 0:
            return False
        rest = words[at + 1 :]
        redop = rest.pop(0) if rest and rest[0] in _REDOPS else None
        root = None
        rooted = (redop is not None or len(rest) % 4 == 1) if self.root is None else self.root
        if rooted and rest and whole(rest[0]) is not None:
            root = whole(rest.pop(0))
        table = self.table or self._new_table()
        sides = self._sides(rest)
        row: dict[str, Any] = {"bytes": size, "count": count, "type": words[at], "redop": redop, "root": root}
        if sides is None:
            self.notes.warn(f"a row is cut off: {line.strip()[:80]}")
            self.notes.puzzled(line)
            return True
        table["rows"].append({**row, **sides})
        return True

    def _sides(self, rest: list[str]) -> dict[str, Any] | None:
        """Return out-of-place and in-place values of a row, None when there are too few."""
        sides = self.sides or [_SIDE, _SIDE]
        width = len(sides[0])
        # Trace replays leave the columns of out-of-place blank; a time stamp may follow.
        order = ("in_place",) if len(rest) in (width, width + 1) else ("out_of_place", "in_place")
        if len(sides) == 1:
            # Somebody shortened the table to its first half.
            order = ("out_of_place",)
        if len(rest) < width * len(order):
            return None
        values: dict[str, Any] = {"out_of_place": None, "in_place": None}
        for place, side in zip(order, sides, strict=False):
            values[place] = _side(rest[:width], side, self.errors)
            rest = rest[width:]
            if any(values[place][name] is None for name in ("time", "busbw")):
                return None
        return values


def _side(words: list[str], names: tuple[str, ...], errors: bool) -> dict[str, Any]:
    found: dict[str, Any] = {name: number(word) for name, word in zip(names, words, strict=True)}
    if "wrong" in names:
        word = words[names.index("wrong")]
        # "error" of old versions is the largest difference, of which rounding leaves a little; #wrong is a count.
        value = found.pop("wrong")
        old = value is not None and re.search("[.e]", word) is not None and not float(word).is_integer()
        if (errors and value is not None) or word == "0e+00" or old:
            found["error"] = value
        else:
            found["wrong"] = None if value is None else int(value)
    return found


def _name(text: str) -> str:
    bare = re.sub("[ _-]", "", text.lower())
    return _KINDS.get(bare, bare)


def _infer(table: dict[str, Any]) -> None:
    """Set the operation if only one prints such columns; else leave it unknown."""
    ranks, rows = table["ranks"], table["rows"]
    if table["operation"] or not rows:
        return
    big = max(rows, key=lambda row: row["bytes"])
    kind = None
    if big["root"] not in (-1, None):
        # Gather and scatter have a root and no operation as well, but not in the old tables, which leave redop out.
        kind = "broadcast" if big["redop"] is None else "reduce" if big["redop"] != "none" else None
    elif big["redop"] not in (None, "none"):
        kind = "sendrecv" if _checked_one_way(big) else "all_reduce" if _doubled(big, ranks) else None
    elif _checked_one_way(big) and ranks and abs((_factor(big) or 0) - (ranks - 1) / ranks) < 0.02:
        kind = "alltoall"
    if kind:
        table["operation"], table["operation_from"] = kind, "columns"


def _factor(row: dict[str, Any]) -> float | None:
    """Return bus over algorithm bandwidth, or None if they are too small."""
    side = row["out_of_place"] or row["in_place"]
    return side["busbw"] / side["algbw"] if (side["algbw"] or 0) >= 0.5 else None


def _doubled(row: dict[str, Any], ranks: int | None) -> bool:
    """Return True if the factor is one of all_reduce alone: 2 (n - 1) / n of n ranks, above 1."""
    factor = _factor(row)
    return factor is not None and factor > 1.02 and (ranks is None or abs(factor - 2 * (ranks - 1) / ranks) < 0.02)


def _checked_one_way(row: dict[str, Any]) -> bool:
    """Return True if only out-of-place results were checked: sendrecv and alltoall cannot check in place."""
    out, own = row["out_of_place"], row["in_place"]
    return bool(out and own) and out.get("wrong") is not None and "wrong" in own and own["wrong"] is None


def _milliseconds(table: dict[str, Any], notes: Notes) -> None:
    """Convert times to us if they were printed in ms: then bytes by time give a thousandth of the bandwidth.

    Tests of 2017 to 2019 did so. A factor of the number of ranks may be between the bytes and the bandwidth.
    """
    sides = [(row["bytes"], row[place]) for row in table["rows"] for place in ("out_of_place", "in_place")]
    factors = sorted(
        size / side["time"] / 1e3 / side["algbw"]
        for size, side in sides
        if side is not None and side["time"] and (side["algbw"] or 0) >= 0.5
    )
    if not factors or factors[len(factors) // 2] < _THOUSAND:
        return
    for _, side in sides:
        if side is not None:
            side["time"] = round(side["time"] * 1e3, 6)
    notes.warn("times are in ms, as in versions before 2019: only then do bytes and time give the bandwidth")


def _check(table: dict[str, Any], notes: Notes) -> None:
    sides = [side for row in table["rows"] for side in (row["out_of_place"], row["in_place"]) if side is not None]
    if wrong := sum(side.get("wrong") or 0 for side in sides):
        notes.warn(f"{wrong} elements of results are wrong")
    # 0.00 of a few bytes is rounded.
    table["best"] = max((side["busbw"] for side in sides), default=0) or None
    listed = len({device["rank"] for device in table["devices"]})
    if table["ranks"] and listed < table["ranks"]:
        notes.warn(f"only {listed} of {table['ranks']} ranks are listed")
    if table["rows"] and table["average"] is None:
        notes.warn("a table has no 'Avg bus bandwidth' line: it may be cut off")


def parse(text: str) -> Reading:
    """Return the tables of a log.

    - ``tables``: ``operation`` (None if unknown), ``ranks``, ``hosts``, ``devices``, ``options``, ``rows``,
      ``out_of_bounds``, ``average``, ``best``.
    - Rows: ``bytes``, ``count``, ``type``, ``redop``, ``root``, ``out_of_place`` and ``in_place``.
    - Both of these: ``time``, ``algbw``, ``busbw``, ``wrong`` or, in old versions, ``error``.
    """
    parser = _Parser()
    written = _from_json(text)
    if written is not None:
        parser.tables, parser.library = [_json_table(written)], _json_version(written)
    else:
        for line in plain_lines(text):
            parser.line(line)
    tables = [table for table in parser.tables if table["rows"] or table["average"] is not None]
    for table in tables:
        _milliseconds(table, parser.notes)
        _infer(table)
        _check(table, parser.notes)
    if not tables:
        parser.notes.warn("no row of results")
    values: dict[str, Any] = {"tables": tables, "version": parser.version, "nccl": parser.library}
    if not tables and parser.ranks:
        values["devices"] = parser.ranks
    return parser.notes.reading(values)


_LIKELY = first_of(
    (0.97, r"#\s*(?:size\s+count|bytes\s+N)\s.*algbw\s+busbw|# nccl-tests version"),
    (0.95, r"#\s*nThread \d+ nGpus \d+ minBytes|# Avg bus bandwidth"),
    (0.96, r'\A(?=(?s:.*)"nccl_version")(?=(?s:.*)"results")(?=(?s:.*)"bus_bw")'),
    (0.85, r"Test (?:NCCL|CUDA) failure \w{1,40}\.cu:\d{1,6}"),
    # A row of results.
    (
        0.85,
        r"^[^\n]{0,60}?\b\d{1,18} +\d{1,18} +(?:u?int(?:8|32|64)|half|float|double|bfloat16|f\w*8\w*) [^\n]*\d\.\d\d",
    ),
)
_UNITS = {
    **{"time": "us", "algbw": "GB/s", "busbw": "GB/s", "average": "GB/s", "best": "GB/s", "bytes": "B"},
    **{"i_min": "us", "i_max": "us", "i_p99": "us", "i_cv": "%"},
}
FORMATS = [
    Format(
        "nccl-tests",
        "nccl-tests: tables of all_reduce_perf and the other tests",
        _LIKELY,
        parse,
        units=_UNITS,
        aliases=r"\w+_perf(?:_mpi)?",
        convert=benchmarks.nccl_tests,
        errors=True,
    ),
]
