"""The output of ``all_reduce_bench.py``, which people copy from cookbooks, in its three generations, and its kin.

First: every rank prints blocks (``3:``, duration, algo throughput, busbw in Gbps), interleaved as each rank flushes
first. Second: an average of all ranks. Third: a Markdown table by payload. ``all_reduce_latency_comp.py`` prints a
headed busbw for each way of cutting the data.
"""

from __future__ import annotations

from fabtui.importers.tables import Tables, Values, kinds
from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Reading, first_of
from fabtui_node.parsers.lines import size
from fabtui_node.parsers.nccl import log_lines

_LINES = kinds(
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


def _in_gb(value: float | None, unit: str) -> float | None:
    return None if value is None else round(value * _GB[unit], 6)


_FACTS = {"operation": "all_reduce", **dict.fromkeys(("ranks", "unit", "nccl", "net"))}


class _Bench(Tables, lines=_LINES, facts=_FACTS):
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
        """Take what is of the whole run."""
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


_UNITS = {"algbw": "GB/s", "throughput": "GB/s", "busbw": "GB/s", "bytes": "B", "seconds": "s"}
FORMATS = [
    Format(
        "all_reduce_bench",
        "all_reduce_bench.py and all_reduce_latency_comp.py: bus bandwidth by rank or by payload",
        first_of(
            (
                0.96,
                r"(?:average|payload) bandwidth of \w{1,30} (?:with a|over) \d|\|\s*payload\s*\|\s*(?:busbw|algbw)",
            ),
            (0.95, r"^ ?busbw: [\d.]+ +Gbps|tput_avg \(Gbps\): [\d.]{1,20} busbw_avg"),
            (0.93, r"^\d+ data size: [\d.]+ GB"),
            # Rows that lost their heading: a payload and two bandwidths.
            (0.85, r"^\|[ \t]*[\d.]+[KMG]iB[ \t]*\|(?:[ \t]*[\d.]+(?:GBps|Gbps)[ \t]*\|){2}[ \t]*$"),
        ),
        _Bench.parse,
        units=_UNITS,
        convert=benchmarks.all_reduce_bench,
        errors=True,
    )
]
