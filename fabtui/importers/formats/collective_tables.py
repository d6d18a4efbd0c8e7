"""Tables of collectives by message size or number of GPUs: DeepSpeed, MSCCL++, all_reduce_bench, reports, READMEs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from typing import Any

from fabtui.importers.tables import Tables, Values, kinds
from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import number, plain_lines, size, whole
from fabtui_node.parsers.nccl import log_lines

# DeepSpeed (microsoft/DeepSpeedExamples, benchmarks/communication/utils.py: ``print_header``, ``get_metric_strings``,
# ``convert_size``; the same in EleutherAI/cookbook): sizes are powers of 1024, or bytes with ``--raw``; durations have
# a unit, or are in us with ``--raw``. The throughput of all_reduce is twice the size over the time, that of all_gather
# counts what all ranks send; only the bus bandwidth compares with nccl-tests.
_DEEPSPEED = kinds(
    r"""
    begin    -{0,10} {0,4}Performance of (?P<operation>\w{1,40}) on <ranks:int> devices[\s-]*$
    heading  Size \(Bytes\)\s+Description\s+Duration(?: \((?P<in>\w+)\))?\s+Throughput \(\w+\)
             \s+BusBW \((?P<unit>\w+)\)$
    row      <bytes:num>(?: ?(?P<size_unit>[KMGTPEZY]?B))?\s+(?P<elements>[\dx]{1,80})\s+<time:num>
             (?: ?(?P<in>[mun]?s))?\s+<throughput:num>(?: ?\w?bps)?\s+<printed_busbw:num>(?: ?\w?bps)?$
    puzzle   \d
    """
)
#: Units of bandwidth, 1e9 bits or bytes per second.
_PER_GB = {"Gbps": 8.0, "GBps": 1.0}
_TIMES = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}

# MSCCL++ (microsoft/mscclpp): ``test/mscclpp-test/common.cc`` prints a heading like that of nccl-tests without type,
# operation and root, *in place first*, and in each row one of both groups.
# ``python/mscclpp_benchmark/allreduce_bench.py`` prints a PrettyTable that compares with NCCL. Experiments
# (``python/test/pipeline_expt.py`` of forks) print ``### NAME ###``, settings ``name=value, ...``, and the columns
# ``size(B) avg_time(us) min_time(us) avg_algbw(GB/s) max_algbw(GB/s)``.
_MSCCLPP = kinds(
    r"""
    begin         #{3,200} (?P<operation>[A-Za-z][\w -]{0,60}?) #{3,200}$
    bars          \|(?P<cells>.*)\|$
    test_heading  #\s+size\s+count\s+time\s+algbw\s+busbw\s+#wrong\s+time\s
    experiment    (?=.*_(?:time|algbw)\()size\(B\)(?P<names>\s[A-Za-z_()/ ]+)$
    settings      .*=
    test_row      <bytes:int>\s+<count:int>(?P<place>\s+)<time:num>\s+<algbw:num>\s+<busbw:num>(?:\s+<wrong:int>)?$
    words         \d
    """
)
_SETTING = re.compile(r"([A-Za-z_]\w{0,40})=([^\s,]{1,120})(?=,|\s*$)")
_COLUMN = re.compile(r"([A-Za-z_]{1,30})\([A-Za-z/]{1,8}\)")
_KEYS = {
    "size": "bytes", "time (us)": "time", "algbw (gb/s)": "algbw", "correctness": "correct",
    "nccl time (us)": "nccl_time", "nccl algbw (gb/s)": "nccl_algbw", "nccl correctness": "nccl_correct",
    "speed up": "speed_up",
}  # fmt: skip
_CELLS: dict[str, Callable[[str], Any]] = {
    "bytes": lambda text: size(text) or whole(text),
    **{"send_size": whole, "correct": "PASS".__eq__, "nccl_correct": "PASS".__eq__},
}
#: Blanks before the second group of a row of mscclpp-test.
_FAR = 20
_DEEPSPEED_LIKELY = first_of(
    (0.97, r"Performance of \w+ on \d+ devices[ \t]*-"),
    (0.95, r"^[ \t]*Size \(Bytes\)\s+Description\s+Duration.{0,40}Throughput \(\w+\)\s+BusBW \(\w+\)"),
)
_MSCCLPP_LIKELY = first_of(
    (0.99, r"^#?[ \t]+size\s+count\s+time\s+algbw\s+busbw\s+#wrong\s+time\s"),
    (0.97, r"^[ \t]*size\(B\)[ \t].*_algbw\(GB/s\)"),
    (0.97, r"^\|.{0,60}\|[ \t]*AlgBW \(GB/s\)[ \t]*\|.{0,40}\|[ \t]*NCCL Time \(us\)"),
)
_BUSBW_LIKELY = first_of(
    (0.9, r"(?i)<t[dh]\b[^<>]{0,200}>[ \t]{0,20}busbw\b"),
    (0.9, r"(?i)^\|?[ \t]{0,20}(?:#|number of )?(?:gpus?|ranks?|nodes?|devices?)[ \t]{0,40}\|.{0,400}\bbusbw\b"),
)
_of_tables = partial(Format, convert=benchmarks.collective_tables, errors=True)
_MSCCLPP_TITLE = "MSCCL++: mscclpp-test, its Python benchmark and experiments"
_BUSBW_TITLE = "table of bus bandwidths by the number of GPUs, HTML or with bars"
_MSCCLPP_NAMES = r"msccl\+\+|mscclpp-(?:test|expt)|all\w+_test_perf"
_MSCCLPP_UNITS = {
    "bytes": "B",
    **dict.fromkeys(("time", "avg_time", "min_time", "nccl_time"), "us"),
    **dict.fromkeys(("algbw", "busbw", "avg_algbw", "max_algbw", "nccl_algbw"), "GB/s"),
}

# ``all_reduce_bench.py``, which people copy from cookbooks, in its three generations. First: every rank prints
# blocks (``3:``, duration, algo throughput, busbw in Gbps), interleaved as each rank flushes first. Second: an average
# of all ranks. Third: a Markdown table by payload. ``all_reduce_latency_comp.py`` has a busbw for each way of cutting.
_BENCH_LINES = kinds(
    r"""
    block     (?:(?P<host>[\w.-]{1,253}):)?<rank:int>:$
    of_block  duration: <seconds:num> sec
    of_block  (?:algo )?throughput: [\d.]{1,30} bps, <throughput:num> <unit:unit>
    busbw     busbw: <busbw:num>\s+<unit:unit>(?: \([\d.]{1,20} Gbps\))?$
    algbw     algbw: <throughput:num>\s+<unit:unit>
    average   .*?average bandwidth of <operation:name> with a <payload:size> payload
              \s*\(<trials:int> trials, <ranks:int> ranks\)
    means     .*?tput_avg \(Gbps\): <algbw:num> busbw_avg \(Gbps\): <busbw:num>
    heading   \|(?:\s*payload\s*\|)?\s*(?P<first>busbw|algbw)\s*\|\s*(?P<second>busbw|algbw)\s*\|
    row       \|\s*<payload:size>\s*\|\s*<first:num> ?<unit:unit>\s*\|\s*<second:num> ?(?:GBps|Gbps|GB/s)\s*\|
    row       \|\s*<first:num> ?<unit:unit>\s*\|\s*<second:num> ?(?:GBps|Gbps|GB/s)\s*\|$
    row       -{5,} *<times:int>x <payload:size> *-{5,}
    over      .*?(?:average|<payload:size> payload) bandwidth of <operation:name> over <ranks:int> ranks
              (?: \(\d{1,9} warmups / <trials:int> trials\))?
    software  .*?torch=(?P<torch>\S{1,40}), cuda=(?P<cuda>\S{1,20}), nccl=\((?P<nccl>\d{1,4}, \d{1,4}, \d{1,4})\)
    over      NUM_GPUS=<ranks:int>$
    over      \d{1,6} data size: <payload:size>
    log       .*NCCL
    """,
    # A row without its payload is one of many trials of the same.
    unit="GBps|Gbps|GB/s|Mbps",
    size=r"[\d.]{1,12} ?[KMGT]?i?B",
    name=r"\w{1,30}",
)
_GB = {"GBps": 1.0, "GB/s": 1.0, "Gbps": 0.125, "Mbps": 0.000125}
_BENCH_LIKELY = first_of(
    (0.96, r"(?:average|payload) bandwidth of \w{1,30} (?:with a|over) \d|\|\s*payload\s*\|\s*(?:busbw|algbw)"),
    (0.95, r"^ ?busbw: [\d.]+ +Gbps|tput_avg \(Gbps\): [\d.]{1,20} busbw_avg"),
    (0.93, r"^\d+ data size: [\d.]+ GB"),
    # Rows that lost their heading: a payload and two bandwidths.
    (0.85, r"^\|[ \t]*[\d.]+[KMG]iB[ \t]*\|(?:[ \t]*[\d.]+(?:GBps|Gbps)[ \t]*\|){2}[ \t]*$"),
)
_BENCH_UNITS = {"algbw": "GB/s", "throughput": "GB/s", "busbw": "GB/s", "bytes": "B", "seconds": "s"}
_BENCH_FACTS = {"operation": "all_reduce", **dict.fromkeys(("ranks", "unit", "nccl", "net"))}
_OF_MSCCLPP: Values = {"program": "experiment", "operation": None, "ranks": None, "settings": {}, "rows": []}
_OF_DEEPSPEED: Values = {"operation": None, "ranks": None, "unit": None, "rows": []}


class _Collectives(Tables):
    def reading(self) -> Reading:
        if not any(table["rows"] for table in self.tables):
            self.notes.warn("no row of results")
        if wrong := sum(row.get("wrong") or 0 for table in self.tables for row in table["rows"]):
            self.notes.warn(f"{wrong} wrong results")
        return super().reading()


class _DeepSpeed(_Collectives, lines=_DEEPSPEED, fresh=_OF_DEEPSPEED, called="tables"):
    """Reads ``tables``, each with ``operation``, ``ranks``, the ``unit`` as printed and ``rows``.

    ``busbw`` is in GB/s; ``throughput`` and ``printed_busbw`` are in the unit of the table.
    """

    time_unit = ""

    def heading(self, values: Values, line: str) -> None:
        self.time_unit = values.pop("in") or ""
        super().heading({"unit": values["unit"] if values["unit"] in _PER_GB else None}, line)

    def row(self, values: Values, line: str) -> bool:
        size_unit, scale = values.pop("size_unit") or "B", _TIMES.get(values.pop("in") or self.time_unit)
        if not self.tables or None in values.values():
            return False
        # A size is rounded to two digits where it is printed with a unit.
        values["bytes"] = round(values["bytes"] * 1024.0 ** "BKMGTPEZY".index(size_unit[0]))
        values["time"] = None if scale is None else round(values["time"] * scale, 6)
        unit = self.tables[-1]["unit"]
        return super().row({**values, "busbw": unit and round(values["printed_busbw"] / _PER_GB[unit], 9)}, line)


class _Mscclpp(_Collectives, lines=_MSCCLPP, fresh=_OF_MSCCLPP, called="tables"):
    """Reads ``tables``, each with its ``program``, ``operation``, ``ranks``, ``settings`` and ``rows``.

    ``place`` is ``in place`` or ``out of place`` where the columns of a row show it. Sizes of the Python benchmark are
    those printed, with one digit after the point.
    """

    #: Names of the columns; none in a table of mscclpp-test.
    names: tuple[str, ...] = ()

    def begin(self, values: Values, line: str) -> None:
        super().begin(values, line)
        self.names = ()

    def test_heading(self, values: Values, line: str) -> None:
        self.begin({"program": "mscclpp-test"}, line)

    def experiment(self, values: Values, line: str) -> None:
        self.heading({}, line)
        self.names = ("bytes", *(name.lower() for name in _COLUMN.findall(values["names"])))

    def settings(self, values: Values, line: str) -> bool:
        for name, text in _SETTING.findall(line)[:40] if self.tables else []:
            count = whole(text)
            self.tables[-1]["settings"][name] = text if count is None else count
            if name == "nranks":
                self.tables[-1]["ranks"] = count
        return bool(self.tables)

    def bars(self, values: Values, line: str) -> None:
        cells = [cell.strip() for cell in values["cells"].split("|")]
        low = [re.sub(r"^size\b.*", "size", cell.lower()) for cell in cells]
        if "size" in low and any(cell in _KEYS for cell in low if cell != "size"):
            self.begin({"program": "allreduce_bench", "operation": "all_reduce"}, line)
            self.names = tuple(_KEYS.get(cell, cell[:40]) for cell in low)
        elif self._cells(cells, line) and self.tables[-1]["rows"][-1].get("correct") is False:
            self.notes.warn(f"wrong results of {cells[0]}")

    def _cells(self, cells: list[str], line: str) -> bool:
        row = {name: _CELLS.get(name, number)(cell) for name, cell in zip(self.names, cells, strict=False)}
        if len(cells) == len(self.names) and None not in row.values():
            return self.row(row, line)
        self.puzzle({}, line)
        return False

    def test_row(self, values: Values, line: str) -> bool:
        # The place of a group shows which it is; where blanks are lost, nobody knows.
        gap = len(values["place"].expandtabs(8))
        values["place"] = "out of place" if gap >= _FAR else "in place" if gap > 1 else None
        return not self.names and self.row(values, line)

    def words(self, values: Values, line: str) -> None:
        self._cells(line.split(), line)


# Tables of bandwidths by the number of GPUs: HTML, or cells between bars. The first column is the number of GPUs, ranks
# or nodes; headings of one or two rows name ``busbw`` and ``algbw``, and above them what is compared (``RDMA``,
# ``NO RDMA``), over several columns (HTML's ``colspan``). A dash or nothing is a value that is missing. The headings
# give the unit, or the only one in the text counts.
_TABLE = re.compile(r"<table\b", re.I)
_UNIT = re.compile(r"\b(G[bB]ps|G[bB]it/s|G[bB]/s(?:ec)?)(?!\w)")
_FIRST = re.compile(r"(?:#|number of |num[_ ])?(gpus?|ranks?|nodes?|devices?)", re.I)
_COLLECTIVE = re.compile(r"\b(?:all[-_ ]?(?:reduce|gather|to[-_ ]?all)|reduce[-_ ]?scatter|sendrecv)(?![a-z])", re.I)
_BANDWIDTHS = {"busbw": re.compile(r"\bbusbw\b", re.I), "algbw": re.compile(r"\balgbw\b", re.I)}
#: Maximum numbers of characters of a table of HTML, of its rows and of its columns.
_MOST, _MOST_ROWS, _MOST_COLUMNS = 256 * 1024, 4096, 64


class _Rows(HTMLParser):
    """Collects the cells of HTML tables; a cell over several columns is in each."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._span = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr" and len(self.rows) < _MOST_ROWS:
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            span = whole(dict(attrs).get("colspan") or "1") or 1
            self._span = min(max(span, 1), _MOST_COLUMNS - len(self.rows[-1]))
            self.rows[-1] += [""] * self._span

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr"):
            self._span = 0

    def handle_data(self, data: str) -> None:
        if self._span:
            self.rows[-1][-self._span :] = [cell + data.strip() for cell in self.rows[-1][-self._span :]]


def _cells(text: str) -> list[list[list[str]]]:
    tables = []
    for table in list(_TABLE.finditer(text))[:64]:
        parser = _Rows()
        parser.feed(text[table.start() : table.start() + _MOST].partition("</table>")[0])
        tables.append(parser.rows)
    bars: list[list[str]] = []
    for line in [*plain_lines(text), ""]:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")][:_MOST_COLUMNS]
        if len(cells) > 1 and len(bars) < _MOST_ROWS:
            # The rule below the headings has no cell.
            bars += [] if all(re.fullmatch(r":?-{1,80}:?", cell) for cell in cells) else [cells]
        elif bars:
            tables.append(bars)
            bars = []
    return tables


def _by_gpus(rows: list[list[str]]) -> Values | None:
    start = next((at for at, row in enumerate(rows) if row and whole(row[0]) is not None), len(rows))
    heads = rows[:start][-2:]
    by = _FIRST.match(next((head[0] for head in reversed(heads) if head and head[0]), ""))
    names = [[head[at] for head in heads if at < len(head)] for at in range(max(map(len, heads), default=0))]
    columns = [
        (at, kind, _arm(name, word))
        for at, name in enumerate(names)
        for kind, word in _BANDWIDTHS.items()
        if kind in " ".join(name).lower()
    ]
    if by is None or not any(kind == "busbw" for _, kind, _ in columns):
        return None
    by_number = []
    for row in rows[start:]:
        if (count := whole(row[0]) if row else None) is None or count <= 0:
            continue
        for arm in dict.fromkeys(arm for _, _, arm in columns):
            cells = {kind: row[at] if at < len(row) else "" for at, kind, name in columns if name == arm}
            values = {kind: number(cells.get(kind, "")) for kind in _BANDWIDTHS}
            by_number.append({"number": count, "arm": arm, **values})
    units = {unit for name in names for part in name for unit in _UNIT.findall(part)}
    return {"by": by[1].lower().rstrip("s") + "s", "unit": units.pop() if len(units) == 1 else None, "rows": by_number}


def _arm(name: list[str], word: re.Pattern[str]) -> str | None:
    """Return what is compared: the headings without the kind of bandwidth and the unit."""
    parts = [word.sub("", _UNIT.sub("", part)).strip(" ()[],:-") for part in name]
    return " ".join(part for part in parts if part) or None


def _parse_busbw(text: str) -> Reading:
    """Return ``operation``, if the text names one collective, and ``tables``.

    A table has ``by`` (gpus, ranks or nodes), ``unit`` as printed, and ``rows`` of ``busbw`` and ``algbw``.
    """
    notes = Notes()
    tables = [table for rows in _cells(text) if (table := _by_gpus(rows)) is not None]
    units = set(_UNIT.findall(text))
    for table in tables:
        table["unit"] = table["unit"] or (next(iter(units)) if len(units) == 1 else None)
        if table["unit"] is None:
            notes.warn("the text gives no unit for the bandwidths, or several")
        if not table["rows"]:
            notes.warn("a table has no rows")
    if not tables:
        notes.warn("no table of bus bandwidths by GPUs")
    named = {re.sub("[^a-z]", "", name.lower()) for name in _COLLECTIVE.findall(text[:_MOST])}
    return notes.reading({"operation": named.pop() if len(named) == 1 else None, "tables": tables})


def _in_gb(value: float | None, unit: str) -> float | None:
    return None if value is None else round(value * _GB[unit], 6)


class _Bench(Tables, lines=_BENCH_LINES, facts=_BENCH_FACTS):
    """Reads ``rows`` (``bytes``, ``payload``, ``algbw``, ``busbw``), or ``by_rank`` of the first generation.

    ``by_rank`` holds the last trial of each rank; its ``throughput`` counts what is sent and what is received.
    Bandwidths are in GB/s; ``unit`` and ``printed_busbw`` are the unit and the figure in the text.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ranks: dict[tuple[str, int], Values] = {}
        self.rows: list[Values] = []
        #: Blocks that have no busbw yet, oldest first: an interleaved line belongs to the block whose numbers it fits.
        self.open: list[Values] = []
        self.current: Values = {}
        self.order = ("busbw", "algbw")
        #: Bus bandwidth over throughput, the same for all ranks of a run; blocks that are not interleaved show it.
        self.factor: float | None = None
        self.mixed = False

    def block(self, values: Values, line: str) -> None:
        self.current = {**values, **dict.fromkeys(("seconds", "throughput", "printed_busbw", "busbw"))}
        self.open = [*self.open[-255:], self.current]

    def of_block(self, values: Values, line: str) -> None:
        if unit := values.pop("unit", None):
            values["throughput"] = _in_gb(values["throughput"], unit)
        self.current.update(values)

    def algbw(self, values: Values, line: str) -> None:
        if self.open:
            self.of_block(values, line)
        elif self.rows:
            self.rows[-1]["algbw"] = _in_gb(values["throughput"], values["unit"])

    def busbw(self, values: Values, line: str) -> None:
        self.facts["unit"] = unit = values["unit"]
        printed = values["busbw"]
        busbw = _in_gb(printed, unit)
        if self.open:
            block = self._owner(busbw)
            self.open.remove(block)
            place = {"host": block["host"], "rank": block["rank"], "trials": 0}
            kept = self.ranks.setdefault((block["host"] or "", block["rank"]), place)
            kept["trials"] += 1
            kept |= {"seconds": block["seconds"], "throughput": block["throughput"]}
            kept |= {"busbw": busbw, "printed_busbw": printed}
        elif self.rows and self.rows[-1]["busbw"] is None:
            self.rows[-1] |= {"busbw": busbw, "printed_busbw": printed}
        else:
            self.notes.puzzled(line)

    def _owner(self, value: float | None) -> Values:
        """Return the block a busbw belongs to: of several open ones that whose throughput it fits best."""
        if len(self.open) == 1 or value is None:
            if self.open[-1]["throughput"] and value:
                self.factor = value / self.open[-1]["throughput"]
            return self.open[-1]
        known = [block for block in self.open if block["throughput"]]
        if (factor := self.factor) is None or not known:
            self.mixed = True
            return self.open[-1]
        return min(known, key=lambda block: abs(block["throughput"] * factor - value))

    def average(self, values: Values, line: str) -> None:
        self.facts |= {"operation": values.pop("operation"), "ranks": values.pop("ranks")}
        self.row(values, line)

    def means(self, values: Values, line: str) -> None:
        self.facts["unit"] = "Gbps"
        self.rows.append({"bytes": None, **{name: _in_gb(value, "Gbps") for name, value in values.items()}})

    def heading(self, values: Values, line: str) -> None:
        self.order = values["first"], values["second"]

    def row(self, values: Values, line: str) -> bool:
        row: Values = {"bytes": size(values["payload"]) if "payload" in values else self.facts.get("bytes")}
        row |= {name: values[name] for name in ("payload", "trials", "times") if name in values}
        if unit := values.get("unit"):
            self.facts["unit"] = unit
            row |= dict(zip(self.order, (_in_gb(values[at], unit) for at in ("first", "second")), strict=True))
        self.rows.append({**row, **{name: row.get(name) for name in ("algbw", "busbw")}})
        return True

    def over(self, values: Values, line: str) -> None:
        if payload := values.pop("payload", None):
            self.facts |= {"payload": payload, "bytes": size(payload)}
        self.facts |= {name: value for name, value in values.items() if value is not None}

    def software(self, values: Values, line: str) -> None:
        self.facts |= {**values, "nccl": values["nccl"].replace(", ", ".")}

    def log(self, values: Values, line: str) -> None:
        if (version := log_lines.VERSION.search(line)) and self.facts["nccl"] is None:
            self.facts["nccl"] = version[1]
        elif (net := log_lines.USED.search(line)) and self.facts["net"] is None:
            nics = [name for _, name, _ in log_lines.USED_NIC.findall(net[2])]
            self.facts["net"] = f"{net[1]} {','.join(nics)}"[:200]

    def reading(self) -> Reading:
        by_rank = [self.ranks[rank] for rank in sorted(self.ranks)]
        if any(rank["host"] for rank in by_rank):
            # Beside a host stands the rank on it, and only those that are there can be counted.
            self.facts["ranks"] = self.facts["ranks"] or len(by_rank)
        elif by_rank and self.facts["ranks"] is None:
            # A log that was cut may lack some: the highest rank gives a lower bound of their number.
            self.facts["ranks"] = ranks = max(rank["rank"] for rank in by_rank) + 1
            if len(by_rank) < ranks:
                self.notes.warn(f"results of {len(by_rank)} of {ranks} ranks")
        if self.mixed:
            self.notes.warn("lines of several ranks are mixed: some values may be attributed to the wrong rank")
        if unfinished := sum(row["busbw"] is None for row in self.rows):
            self.notes.warn(f"{unfinished} results have no busbw: the text is cut off")
        if not by_rank and not self.rows:
            self.notes.warn("no result")
        return self.notes.reading({**self.facts, "rows": self.rows, "by_rank": by_rank})


FORMATS = [
    _of_tables(
        "deepspeed-comm",
        "DeepSpeed communication benchmarks: time, throughput and bus bandwidth by size",
        _DEEPSPEED_LIKELY,
        _DeepSpeed.parse,
        units={"bytes": "B", "time": "us", "busbw": "GB/s"},
        aliases="deepspeed|ds_bench|deepspeed-comm-bench",
    ),
    _of_tables(
        "mscclpp", _MSCCLPP_TITLE, _MSCCLPP_LIKELY, _Mscclpp.parse, units=_MSCCLPP_UNITS, aliases=_MSCCLPP_NAMES
    ),
    Format("busbw-table", _BUSBW_TITLE, _BUSBW_LIKELY, _parse_busbw, convert=benchmarks.busbw_tables, sweeps=True),
    Format(
        "all_reduce_bench",
        "all_reduce_bench.py and all_reduce_latency_comp.py: bus bandwidth by rank or by payload",
        _BENCH_LIKELY,
        _Bench.parse,
        units=_BENCH_UNITS,
        convert=benchmarks.all_reduce_bench,
        errors=True,
    ),
]
