"""The tables of nccl-tests (``all_reduce_perf`` and its kin) of all versions, one or several in a log, and ``-J``.

A row begins with size, count and type; what follows depends on the test (``redop``, ``root``), the version (``error``
or ``#wrong``) and options (per-iteration columns, time stamps, in-place alone), according to the heading. A row is
found by its type, so that prefixes of launchers do no harm.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from fabtui.importers.tables import Tables, Values, kinds
from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_list, json_number, json_object, json_value, json_whole, number, whole

_REDOPS = frozenset({"sum", "prod", "max", "min", "avg", "mulsum", "none"})
#: Columns that every version has, those of ``-R``, and other names of columns. Tests of 2017 to 2019 call the first
#: columns ``bytes`` and ``N``, and the largest error ``res``.
_SIDE = ["time", "algbw", "busbw", "wrong"]
_COLUMNS = frozenset({*_SIDE, "i_min", "i_max", "i_p99", "i_cv"})
_NAMES = {"cputime": "time", "#wrong": "wrong", "error": "wrong", "res": "wrong", "i_cv%": "i_cv"}
_LINES = kinds(
    r"""
    row      (?:.{0,200}?[\s:])??<bytes:int>\s+<count:int>\s+<type:type>(?:\s+(?P<rest>.*))?$
    rank     <:mark>Rank\s+<rank:int>(?:\s+Group\s+\d{1,7})?\s+Pid\s+<pid:int>\s+on\s+<host:word>\s+device\s+
             <device:int>\s+\[(?P<bus>[0-9a-fA-Fx:.]{1,20})\]\s*(?P<name>.{0,200})
    options  <:mark>nThread\b
    heading  <:mark>(?:size|bytes)\s+(?:count|N)\s.*\b(?:cpu)?time\s+algbw\s+busbw
    footer   <:mark>Out of bounds values\s*:\s*<out_of_bounds:int>\s*(?P<verdict>\w*)
    footer   <:mark>Avg bus bandwidth\s*:\s*<average:number>\s*(?P<verdict>\w*)
    fact     [^#]*#\s*nccl-tests version <version:word>
    skip     <:mark>(?:\(B\)|out-of-place|Using devices|in-place)
    named    .*?\b(?P<operation>(?i:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|alltoallv|broadcast|reduce
             |sendrecv|gather|scatter|hypercube))_perf\b
    named    [#=*\- ]*(?P<operation>(?i:all[ _-]?reduce|all[ _-]?gather|reduce[ _-]?scatter|all[ _-]?to[ _-]?all
             |broadcast|send[ _-]?recv))[#=*\-: ]*$
    fact     NCCL version <nccl:word>
    warn     .*?NCCL WARN (?P<text>.{1,300})
    warn     .*?(?P<text>Test (?:(?:NCCL|CUDA) )?failure.{0,300}|.{0,40}: Test timeout.{0,100}
             |Invalid number of GPUs.{0,200}|.{0,100}Caught signal \d{1,3}.{0,100}
             |mpirun noticed that process.{0,200})
    dots     \.\.\.$
    puzzle   \d+\s
    """,
    type="u?int(?:8|32|64)?|char|half|float|double|bfloat16|fp8_e4m3|fp8_e5m2|f8e4m3|f8e5m2",
    # The mark of a comment, which is lost where a web page takes it for that of a heading.
    mark=r"(?:[^#]*#)?\s*",
    number=(r"\S{1,30}", number),
)
_OPTION = re.compile(
    r"(nThread|nGpus|minBytes|maxBytes|warmup iters|(?<!warmup )(?<!agg )iters|agg iters|validation|graph):?"
    r" +(\d{1,18})"
)
_STEP = re.compile(r"step: ?(\d{1,18})\((\w{1,10})\)")
#: Bytes per us over MB/s from which on times are ms: 1000, less where the bandwidth counts the bytes of all ranks.
_THOUSAND = 100
#: Words of ours for what the tests call themselves.
_KINDS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
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


def _table(operation: str | None, devices: list[Values], options: Values, rows: list[Values]) -> Values:
    return {
        "operation": operation,
        "operation_from": "name" if operation else None,
        "ranks": max((device["rank"] for device in devices), default=-1) + 1 or None,
        "hosts": list(dict.fromkeys(device["host"] for device in devices)),
        "devices": devices,
        "options": options,
        "rows": rows,
        "out_of_bounds": None,
        "average": None,
    }


def _json_table(value: Values) -> Values:
    args = json_list(value.get("args"))
    program = PurePath(str(args[0])).name if args else ""
    operation = program.partition("_perf")[0].replace("all_to_all", "alltoall") or None
    devices = [device for entry in json_list(value.get("devices")) if (device := _device(json_object(entry)))]
    options = {str(name)[:40]: item for name, item in json_object(value, "config").items()}
    options = {name: item for name, item in options.items() if isinstance(item, (int, float))}
    rows = [row for entry in value["results"] if (row := _json_row(json_object(entry)))]
    return {
        **_table(operation, devices, options, rows),
        "out_of_bounds": json_whole(json_object(value, "out_of_bounds").get("count")),
        "average": json_number(json_object(value, "average_bus_bandwidth").get("bandwidth")),
    }


def _json_version(value: Values) -> str | None:
    """Return NCCL's version, of a number such as 22809."""
    code = json_whole(value.get("nccl_version"))
    if not code:
        return None
    # Up to 2.8 the number had two digits less.
    major, rest = divmod(code, 1000 if code < 10_000 else 10_000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _device(entry: Values) -> Values | None:
    rank, device, host = json_whole(entry.get("rank")), json_whole(entry.get("device")), entry.get("hostname")
    if rank is None or device is None or not isinstance(host, str):
        return None
    bus, name = str(entry.get("device_hex") or "")[:20] or None, str(entry.get("device_info") or "").strip()[:200]
    place = {"rank": rank, "host": host[:253], "device": device}
    return {**place, "bus": bus, "name": name, "pid": json_whole(entry.get("pid"))}


def _json_row(entry: Values) -> Values | None:
    size, count = json_whole(entry.get("size")), json_whole(entry.get("count"))
    sides = {place: _json_side(json_object(entry, place)) for place in ("out_of_place", "in_place")}
    if size is None or count is None or not any(sides.values()):
        return None
    row = {"bytes": size, "count": count, "type": str(entry.get("type", ""))[:20]}
    redop, root = str(entry.get("redop") or "")[:20] or None, whole(str(entry.get("root", "")).strip())
    return {**row, "redop": redop, "root": root, **sides}


def _json_side(side: Values) -> Values | None:
    names = {"time": "cpu_time" if "cpu_time" in side else "time", "algbw": "alg_bw", "busbw": "bus_bw"}
    values: Values = {ours: json_number(side.get(theirs)) for ours, theirs in names.items()}
    wrong = json_number(side.get("nwrong"))
    known = values["time"] is not None and values["busbw"] is not None
    return {**values, "wrong": None if wrong is None else int(wrong)} if known else None


class _NcclTests(Tables, lines=_LINES, facts={"version": None, "nccl": None}):
    """The tables of one log as they come."""

    def __init__(self) -> None:
        super().__init__()
        self._forget(None)

    def _forget(self, kind: str | None) -> None:
        self.kind = kind
        self.ranks: list[Values] = []
        self.settings: Values = {}
        self.open: Values | None = None
        self.sides: list[list[str]] | None = None
        self.root: bool | None = None  # Whether the heading has a column for it; None without a heading.
        self.errors = False  # Whether the heading has the largest error in place of a count.

    def named(self, values: Values, line: str) -> None:
        """Begin a new test, unless the current one is still empty."""
        bare = re.sub("[ _-]", "", values["operation"].lower())
        if self.open is not None or self.ranks:
            self._forget(None)
        self.kind = _KINDS.get(bare, bare)

    def rank(self, values: Values, line: str) -> None:
        if self.open is not None:
            self._forget(None)
        pid = values.pop("pid")
        self.ranks.append({**values, "name": values["name"].strip(), "pid": pid})

    def options(self, values: Values, line: str) -> None:
        if self.open is not None:
            self._forget(None)
        self.settings = {name.replace(" ", "_"): int(value) for name, value in _OPTION.findall(line)}
        if step := _STEP.search(line):
            self.settings["step"] = f"{step[1]} ({step[2]})"

    def heading(self, values: Values, line: str) -> None:
        if self.open is not None and self.open["rows"]:
            self._forget(self.kind)
        words = line.split()
        names = [name for word in words if (name := _NAMES.get(word, word)) in _COLUMNS]
        starts = [at for at, name in enumerate(names) if name == "time"]
        sides = [names[at:end] for at, end in zip(starts, [*starts[1:], len(names)], strict=False)]
        self.sides, self.errors, self.root = sides, "res" in words or "error" in words, "root" in words
        if (
            not sides
            or any(side != sides[0] for side in sides)
            or sides[0][:4] != _SIDE
            or len(set(sides[0])) != len(sides[0])
        ):
            # A damaged heading leaves only the columns that every version has.
            self.notes.puzzled(line)
            self.sides, self.errors, self.root = None, False, None
        self.open = None
        if "cputime" in words:
            self.table()["time_is"] = "CPU time"
        self.table()

    def table(self) -> Values:
        """Return the table that is open; a new one where there is none."""
        if self.open is None:
            self.open = _table(self.kind, self.ranks, self.settings, [])
            self.tables.append(self.open)
        return self.open

    def footer(self, values: Values, line: str) -> None:
        verdict = values.pop("verdict")
        self.table().update(values)
        if verdict == "FAILED":
            what = "wrong results" if "out_of_bounds" in values else "the average is below what was asked for"
            self.notes.warn(f"the test reports FAILED: {what} ({next(iter(values.values()))})")

    def dots(self, values: Values, line: str) -> None:
        if self.open is not None:
            self.notes.warn("rows are left out (a line of dots)")

    def puzzle(self, values: Values, line: str) -> None:
        if self.open is not None and self.open["average"] is None:
            self.notes.puzzled(line)

    def row(self, values: Values, line: str) -> bool:
        rest = (values.pop("rest") or "").split()
        redop = rest.pop(0) if rest and rest[0] in _REDOPS else None
        rooted = (redop is not None or len(rest) % 4 == 1) if self.root is None else self.root
        root = whole(rest.pop(0)) if rooted and rest and whole(rest[0]) is not None else None
        table, sides = self.table(), self._sides(rest)
        if sides is None:
            self.notes.warn(f"a row is cut off: {line.strip()[:80]}")
            self.notes.puzzled(line)
        else:
            table["rows"].append({**values, "redop": redop, "root": root, **sides})
        return True

    def _sides(self, rest: list[str]) -> Values | None:
        """Return out-of-place and in-place values of a row, None when there are too few."""
        names = self.sides or [_SIDE, _SIDE]
        width = len(names[0])
        # Trace replays leave the columns of out-of-place blank; a time stamp may follow.
        order = ["in_place"] if len(rest) in (width, width + 1) else ["out_of_place", "in_place"]
        if len(names) == 1:
            # Somebody shortened the table to its first half.
            order = ["out_of_place"]
        if len(rest) < width * len(order):
            return None
        sides: Values = {"out_of_place": None, "in_place": None}
        for at, place in enumerate(order):
            sides[place] = side = _side(rest[at * width : (at + 1) * width], names[0], self.errors)
            if side["time"] is None or side["busbw"] is None:
                return None
        return sides

    def reading(self) -> Reading:
        """Return the tables of a log.

        - ``tables``: ``operation`` (None if unknown), ``ranks``, ``hosts``, ``devices``, ``options``, ``rows``,
          ``out_of_bounds``, ``average``, ``best``.
        - Rows: ``bytes``, ``count``, ``type``, ``redop``, ``root``, ``out_of_place`` and ``in_place``.
        - Both of these: ``time``, ``algbw``, ``busbw``, ``wrong`` or, in old versions, ``error``.
        """
        tables = [table for table in self.tables if table["rows"] or table["average"] is not None]
        for table in tables:
            _milliseconds(table, self.notes)
            _infer(table)
            _check(table, self.notes)
        if not tables:
            self.notes.warn("no row of results")
        values = {"tables": tables, **self.facts}
        return self.notes.reading({**values, "devices": self.ranks} if self.ranks and not tables else values)


def _side(words: list[str], names: list[str], errors: bool) -> Values:
    side: Values = {name: number(word) for name, word in zip(names, words, strict=True)}
    word, value = words[_SIDE.index("wrong")], side.pop("wrong")
    # "error" of old versions is the largest difference, of which rounding leaves a little; #wrong is a count.
    old = value is not None and re.search("[.e]", word) is not None and not value.is_integer()
    if (errors and value is not None) or word == "0e+00" or old:
        side["error"] = value
    else:
        side["wrong"] = None if value is None else int(value)
    return side


def _infer(table: Values) -> None:
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


def _factor(row: Values) -> float | None:
    """Return bus over algorithm bandwidth, or None if they are too small."""
    side = row["out_of_place"] or row["in_place"]
    return side["busbw"] / side["algbw"] if (side["algbw"] or 0) >= 0.5 else None


def _doubled(row: Values, ranks: int | None) -> bool:
    """Return True if the factor is one of all_reduce alone: 2 (n - 1) / n of n ranks, above 1."""
    factor = _factor(row)
    return factor is not None and factor > 1.02 and (ranks is None or abs(factor - 2 * (ranks - 1) / ranks) < 0.02)


def _checked_one_way(row: Values) -> bool:
    """Return True if only out-of-place results were checked: sendrecv and alltoall cannot check in place."""
    out, own = row["out_of_place"], row["in_place"]
    return bool(out and own) and out.get("wrong") is not None and "wrong" in own and own["wrong"] is None


def _milliseconds(table: Values, notes: Notes) -> None:
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


def _check(table: Values, notes: Notes) -> None:
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


def _parse(text: str) -> Reading:
    value = json_object(json_value(text)) if '"results"' in text and '"nccl_version"' in text else {}
    if not isinstance(value.get("results"), list):
        return _NcclTests.parse(text)
    reader = _NcclTests()
    reader.tables, reader.facts["nccl"] = [_json_table(value)], _json_version(value)
    return reader.reading()


FORMATS = [
    Format(
        "nccl-tests",
        "nccl-tests: tables of all_reduce_perf and the other tests",
        _LIKELY,
        _parse,
        units=_UNITS,
        aliases=r"\w+_perf(?:_mpi)?",
        convert=benchmarks.nccl_tests,
        errors=True,
    )
]
