"""Lists of tested pairs: a folder of ``p2p-test-S-R-JOB.out``, and the CSV of a ping mesh."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from typing import Any

from fabtui.importers.tables import MOST, Tables, Values, kinds, matrix
from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of

# One job per pair of ranks, each printing ``OK S -> R``, or not. Several files come as one text with ``==> NAME <==``
# before each, as ``tail -n +1`` prints them.
#: What the files are called; the number of the job may be missing.
FILE = re.compile(r"p2p-test-(?P<src>\d{1,6})-(?P<dst>\d{1,6})(?:-(?P<job>\w{1,40}))?\.(?:out|err|txt|log)(?:\.gz)?")
_LAUNCHES = kinds(
    r"""
    file   ==> (?:.*/)?p2p-test-<src:int>-<dst:int>(?:-(?P<job>\w{1,40}))?\.(?:out|err|txt|log)(?:\.gz)? <==$
    hello  <host:word> \[<rank:int>/<world:int>\]$
    state  <host:word> \[<rank:int>\] : (?P<text>(?:BEG|END|OK)\b.{0,100})$
    bad    .*?(?:[Ff]ail|\bFAIL|[Ee]rror\b|ERROR|Traceback|timed? ?out|Timeout|Killed|CANCELLED|Aborted
           |Segmentation fault|unhandled)
    """,
)
_PAIR = re.compile(r"\b(OK|BEG send|END send) (\d{1,6}) -> (\d{1,6})\b")
_NOTHING = re.compile(r"0 failed|no error|error_handling|NCCL_ASYNC_ERROR|errors?=0", re.IGNORECASE)
#: Maximum number of rows and columns of a matrix that is shown.
_MOST_SHOWN = 512


class _Launches(Tables, lines=_LAUNCHES):
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
        return self.notes.reading(
            {"world": self.world, "counts": counts, "matrix": shown, "ranks": ranks, "pairs": pairs}
        )


def _job(pair: Values) -> tuple[int, str]:
    job = pair["job"] or ""
    return (int(job) if job.isdecimal() else 0, job)


def _matrix(title: str, names: list[str], cells: dict[tuple[str, str], Any]) -> Values | None:
    """Return the matrix of all pairs; None if there is none or it is too large to be shown."""
    if not 0 < len(names) <= _MOST_SHOWN:
        return None
    return matrix(title, "", names, names, [[cells.get((src, dst)) for dst in names] for src in names])


# A ping mesh as older scripts write it: a row a pair of addresses, and whether it answered.
_COLUMNS = ["SourceNode", "SourceIP", "DestinationNode", "DestinationIP", "NetworkSegment", "Status"]
_KEYS = ("src", "src_addr", "dst", "dst_addr", "segment")
_OK = frozenset({"success", "succeeded", "successful", "ok", "pass", "passed", "reachable", "up", "true", "yes"})
_BAD = frozenset({"failure", "fail", "failed", "error", "unreachable", "timeout", "down", "false", "no", "ng"})


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
                row = {**dict(zip(_KEYS, names, strict=True)), "status": status}
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
        "p2p-test",
        "a folder of p2p-test-S-R-JOB.out: one job per pair of ranks",
        first_of((0.99, r"^==> (?:.*/)?" + FILE.pattern + r" <==$"), (0.9, r"^\S+ \[\d+\] : (?:BEG|END|OK) ")),
        _Launches.parse,
        convert=benchmarks.p2p_runs,
        incomparable=True,
        hidden=("pairs",),
    ),
    Format(
        "ping-csv",
        "a ping mesh as CSV: " + ",".join(_COLUMNS),
        first_of((0.99, "\\A\ufeff* *" + " *, *".join(_COLUMNS))),
        _parse_csv,
        convert=benchmarks.ping_csv,
        hidden=("rows",),
    ),
]
