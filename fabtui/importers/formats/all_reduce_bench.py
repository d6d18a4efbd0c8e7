"""The output of ``all_reduce_bench.py``, which people copy from cookbooks, in its three generations, and its kin.

First: every rank prints blocks (``3:``, duration, algo throughput, busbw in Gbps), interleaved as each rank flushes
first. Second: an average of all ranks. Third: a Markdown table by payload. ``all_reduce_latency_comp.py`` prints a
headed busbw for each way of cutting the data.
"""

from __future__ import annotations

import re
from typing import Any

from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import number, plain_lines, size
from fabtui_node.parsers.nccl import log_lines

_BLOCK = re.compile(r"^\s*(?:(?P<host>[\w.-]{1,253}):)?(?P<rank>\d{1,6}):\s*$")
_DURATION = re.compile(r"^\s*duration: ([\d.]{1,20}) sec")
_THROUGHPUT = re.compile(r"^\s*(?:algo )?throughput: [\d.]{1,30} bps, ([\d.]{1,20}) (G|M)bps")
_BUSBW = re.compile(r"^\s*busbw: ([\d.]{1,20})\s+(GBps|Gbps)(?: \(([\d.]{1,20}) Gbps\))?\s*$")
_ALGBW = re.compile(r"^\s*algbw: ([\d.]{1,20})\s+(GBps|Gbps)")
_PAYLOAD = re.compile(r"^\s*(\d{1,6}) data size: ([\d.]{1,12} ?[KMGT]?i?B)")
_AVERAGE = re.compile(
    r"average bandwidth of (\w{1,30}) with a ([\d.]{1,12} ?[KMGT]?i?B) payload \((\d{1,9}) trials, (\d{1,7}) ranks\)"
)
_TABLE = re.compile(
    r"^\s*\|\s*([\d.]{1,12} ?[KMGT]?i?B)\s*\|\s*([\d.]{1,12}) ?(GBps|Gbps|GB/s)\s*\|\s*([\d.]{1,12}) ?(?:GBps|Gbps"
    r"|GB/s)\s*\|"
)
_HEAD = re.compile(r"^\s*\|(?:\s*payload\s*\|)?\s*(busbw|algbw)\s*\|\s*(busbw|algbw)\s*\|", re.IGNORECASE)
_CUT = re.compile(r"^-{5,} *(\d{1,9})x ([\d.]{1,12} ?[KMGT]?i?B) *-{5,}")
_OVER = re.compile(
    r"(?:average|(?P<payload>[\d.]{1,12} ?[KMGT]?i?B) payload) bandwidth of (?P<kind>\w{1,30})"
    r" over (?P<ranks>\d{1,7}) ranks(?: \((?P<warmups>\d{1,9}) warmups / (?P<trials>\d{1,9}) trials\))?"
)
_PROFILE = re.compile(r"^\s*\|\s*([\d.]{1,12}) ?(GBps|Gbps|GB/s)\s*\|\s*([\d.]{1,12}) ?(?:GBps|Gbps|GB/s)\s*\|\s*$")
_SOFTWARE = re.compile(r"torch=(\S{1,40}), cuda=(\S{1,20}), nccl=\((\d{1,4}), (\d{1,4}), (\d{1,4})\)")
_GPUS = re.compile(r"^NUM_GPUS=(\d{1,7})$")
_MEANS = re.compile(r"tput_avg \(Gbps\): ([\d.]{1,20}) busbw_avg \(Gbps\): ([\d.]{1,20})")

_GB = {"GBps": 1.0, "GB/s": 1.0, "Gbps": 0.125, "Mbps": 0.000125}


def _in_gb(text: str, unit: str) -> float | None:
    value = number(text)
    return None if value is None else round(value * _GB[unit], 6)


class _Parser:
    def __init__(self) -> None:
        self.notes = Notes()
        self.ranks: dict[tuple[str, int], dict[str, Any]] = {}
        self.rows: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {"operation": "all_reduce", "ranks": None, "unit": None, "nccl": None, "net": None}
        self.current: dict[str, Any] | None = None
        #: Blocks that have no busbw yet, oldest first: an interleaved line belongs to the block whose numbers it fits.
        self.open: list[dict[str, Any]] = []
        self.order = ("busbw", "algbw")
        self.mixed = False

    def line(self, line: str) -> None:
        if block := _BLOCK.match(line):
            values = dict.fromkeys(("seconds", "throughput", "printed_busbw", "busbw"))
            self.current = {"rank": int(block["rank"]), "host": block["host"], **values}
            self.open.append(self.current)
            del self.open[:-256]
        elif duration := _DURATION.match(line):
            if self.current is not None:
                self.current["seconds"] = number(duration[1])
        elif through := _THROUGHPUT.match(line):
            if self.current is not None:
                self.current["throughput"] = _in_gb(through[1], through[2] + "bps")
        elif busbw := _BUSBW.match(line):
            self._busbw(busbw[1], busbw[2])
        elif algbw := _ALGBW.match(line):
            if self.open and self.current is not None:
                self.current["throughput"] = _in_gb(algbw[1], algbw[2])
            elif self.rows:
                self.rows[-1]["algbw"] = _in_gb(algbw[1], algbw[2])
        elif average := _AVERAGE.search(line):
            self.facts["operation"], self.facts["ranks"] = average[1], int(average[4])
            row = {"bytes": size(average[2]), "payload": average[2], "trials": int(average[3])}
            self.rows.append({**row, "algbw": None, "busbw": None})
        elif means := _MEANS.search(line):
            self.facts["unit"] = "Gbps"
            self.rows.append({"bytes": None, "algbw": _in_gb(means[1], "Gbps"), "busbw": _in_gb(means[2], "Gbps")})
        elif not self._table(line):
            self._fact(line)

    def _table(self, line: str) -> bool:
        if head := _HEAD.match(line):
            self.order = (head[1].lower(), head[2].lower())
        elif row := _TABLE.match(line):
            self.facts["unit"] = row[3]
            values = {self.order[0]: _in_gb(row[2], row[3]), self.order[1]: _in_gb(row[4], row[3])}
            self.rows.append({"bytes": size(row[1]), "payload": row[1], **values})
        elif row := _PROFILE.match(line):
            # One payload again and again: a row a trial.
            self.facts["unit"] = row[2]
            values = {self.order[0]: _in_gb(row[1], row[2]), self.order[1]: _in_gb(row[3], row[2])}
            self.rows.append({"bytes": self.facts.get("bytes"), **values})
        elif cut := _CUT.match(line):
            row_of = {"bytes": size(cut[2]), "payload": cut[2], "times": int(cut[1])}
            self.rows.append({**row_of, "algbw": None, "busbw": None})
        else:
            return False
        return True

    def _fact(self, line: str) -> None:
        if over := _OVER.search(line):
            self.facts["operation"], self.facts["ranks"] = over["kind"], int(over["ranks"])
            if over["payload"]:
                self.facts["payload"], self.facts["bytes"] = over["payload"], size(over["payload"])
            if over["trials"]:
                self.facts["trials"] = int(over["trials"])
        elif software := _SOFTWARE.search(line):
            self.facts["torch"], self.facts["cuda"] = software[1], software[2]
            self.facts["nccl"] = ".".join(software.groups()[2:])
        elif gpus := _GPUS.match(line.strip()):
            self.facts["ranks"] = int(gpus[1])
        elif payload := _PAYLOAD.match(line):
            self.facts["payload"], self.facts["bytes"] = payload[2], size(payload[2])
        elif (version := log_lines.VERSION.search(line)) and self.facts["nccl"] is None:
            self.facts["nccl"] = version[1]
        elif (net := log_lines.USED.search(line)) and self.facts["net"] is None:
            nics = [name for _, name, _ in log_lines.USED_NIC.findall(net[2])]
            self.facts["net"] = f"{net[1]} {','.join(nics)}"[:200]

    def _busbw(self, text: str, unit: str) -> None:
        self.facts["unit"] = unit
        value = _in_gb(text, unit)
        if not self.open:
            if self.rows and self.rows[-1]["busbw"] is None:
                self.rows[-1]["busbw"] = value
                self.rows[-1]["printed_busbw"] = number(text)
            else:
                self.notes.puzzled(f"busbw: {text} {unit}")
            return
        block = self._owner(value)
        self.open.remove(block)
        block["busbw"], block["printed_busbw"] = value, number(text)
        key = (block["host"] or "", block["rank"])
        kept = self.ranks.setdefault(key, {"host": block["host"], "rank": block["rank"], "trials": 0})
        kept["trials"] += 1
        kept.update({name: block[name] for name in ("seconds", "throughput", "busbw", "printed_busbw")})

    def _owner(self, value: float | None) -> dict[str, Any]:
        """Return the block a busbw belongs to: of several open ones that whose throughput it fits best.

        The factor is the same for all ranks of a run; blocks that are not interleaved show it.
        """
        if len(self.open) == 1 or value is None:
            block = self.open[-1]
            if block["throughput"] and value:
                self.facts["factor"] = value / block["throughput"]
            return block
        factor = self.facts.get("factor")
        known = [block for block in self.open if block["throughput"]]
        if factor is None or not known:
            self.mixed = True
            return self.open[-1]
        return min(known, key=lambda block: abs(block["throughput"] * factor - value))


def parse(text: str) -> Reading:
    """Return ``rows`` (``bytes``, ``payload``, ``algbw``, ``busbw``), or ``by_rank`` of the first generation.

    ``by_rank`` holds the last trial of each rank; its ``throughput`` counts what is sent and what is received.
    Bandwidths are in GB/s; ``unit`` and ``printed_busbw`` are the unit and the figure in the text.
    """
    parser = _Parser()
    for line in plain_lines(text):
        parser.line(line)
    facts = parser.facts
    # The factor 2 (n - 1) / n adds nothing to the number of ranks.
    facts.pop("factor", None)
    by_rank = [parser.ranks[rank] for rank in sorted(parser.ranks)]
    if any(rank["host"] for rank in by_rank):
        # Beside a host stands the rank on it, and only those that are there can be counted.
        facts["ranks"] = facts["ranks"] or len(by_rank)
    if by_rank and facts["ranks"] is None:
        # A log that was cut may lack some: the highest rank gives a lower bound of their number.
        ranks = max(rank["rank"] for rank in by_rank) + 1
        facts["ranks"] = ranks
        if len(by_rank) < ranks:
            parser.notes.warn(f"results of {len(by_rank)} of {ranks} ranks")
    if parser.mixed:
        parser.notes.warn("lines of several ranks are mixed: some values may be attributed to the wrong rank")
    unfinished = [row for row in parser.rows if row["busbw"] is None]
    if unfinished:
        parser.notes.warn(f"{len(unfinished)} results have no busbw: the text is cut off")
    if not by_rank and not parser.rows:
        parser.notes.warn("no result")
    return parser.notes.reading({**facts, "rows": parser.rows, "by_rank": by_rank})


_LIKELY = first_of(
    (0.96, rf"{_AVERAGE.pattern}|{_OVER.pattern}|\|\s*payload\s*\|\s*(?:busbw|algbw)"),
    (0.95, rf"^ ?busbw: [\d.]+ +Gbps|{_MEANS.pattern}"),
    (0.93, r"^\d+ data size: [\d.]+ GB"),
    # Rows that lost their heading: a payload and two bandwidths.
    (0.85, r"^\|[ \t]*[\d.]+[KMG]iB[ \t]*\|(?:[ \t]*[\d.]+(?:GBps|Gbps)[ \t]*\|){2}[ \t]*$"),
)
_TITLE = "all_reduce_bench.py and all_reduce_latency_comp.py: bus bandwidth by rank or by payload"
_UNITS = {"algbw": "GB/s", "throughput": "GB/s", "busbw": "GB/s", "bytes": "B", "seconds": "s"}
FORMATS = [
    Format("all_reduce_bench", _TITLE, _LIKELY, parse, units=_UNITS, convert=benchmarks.all_reduce_bench, errors=True)
]
