"""A folder of ``p2p-test-S-R-JOB.out``: one job per pair of ranks, each printing ``OK S -> R``, or not.

Several files come as one text with ``==> NAME <==`` before each, as ``tail -n +1`` prints them.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from fabtui.importers.matrix import matrix
from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import plain_lines

#: What the files are called; the number of the job may be missing.
FILE = re.compile(r"p2p-test-(?P<src>\d{1,6})-(?P<dst>\d{1,6})(?:-(?P<job>\w{1,40}))?\.(?:out|err|txt|log)(?:\.gz)?")
_FILE_HEAD = re.compile(r"^==> (?:.*/)?(" + FILE.pattern + r") <==$")
_HELLO = re.compile(r"^(\S{1,253}) \[(\d{1,6})/(\d{1,6})\]\s*$")
_STATE = re.compile(r"^(\S{1,253}) \[(\d{1,6})\] : (BEG|END|OK)\b(.{0,100})$")
_OK = re.compile(r"\bOK (\d{1,6}) -> (\d{1,6})\b")
_ASKED = re.compile(r"\b(?:BEG|END) send (\d{1,6}) -> (\d{1,6})\b")
_BAD = re.compile(
    r"[Ff]ail|\bFAIL|[Ee]rror\b|ERROR|Traceback|timed? ?out|Timeout|Killed|CANCELLED|Aborted|Segmentation fault"
    r"|unhandled"
)
_NOTHING = re.compile(r"0 failed|no error|error_handling|NCCL_ASYNC_ERROR|errors?=0", re.IGNORECASE)
_MOST_RANKS = 4096


class _Parser:
    def __init__(self) -> None:
        self.notes = Notes()
        self.pairs: dict[tuple[int, int, str | None], dict[str, Any]] = {}
        self.hosts: dict[int, Counter[str]] = {}
        self.world: int | None = None
        self.job: str | None = None
        self.current: dict[str, Any] | None = None

    def line(self, line: str) -> None:
        if head := _FILE_HEAD.match(line):
            self.job = head["job"]
            self._pair(int(head["src"]), int(head["dst"]))
        elif hello := _HELLO.match(line):
            self._host(int(hello[2]), hello[1])
            self.world = max(self.world or 0, int(hello[3]))
        elif state := _STATE.match(line):
            self._host(int(state[2]), state[1])
            text = state[3] + state[4]
            if ok := _OK.search(text):
                self._pair(int(ok[1]), int(ok[2]))["status"] = "ok"
            elif (asked := _ASKED.search(text)) and self.current is None:
                self._pair(int(asked[1]), int(asked[2]))
        elif _BAD.search(line) and not _NOTHING.search(line) and self.current is not None:
            self._bad(line)

    def _pair(self, src: int, dst: int) -> dict[str, Any]:
        new = {"src": src, "dst": dst, "src_host": None, "dst_host": None, "status": "unknown", "error": None}
        self.current = self.pairs.setdefault((src, dst, self.job), {**new, "job": self.job})
        return self.current

    def _host(self, rank: int, host: str) -> None:
        if rank < _MOST_RANKS:
            self.hosts.setdefault(rank, Counter())[host] += 1

    def _bad(self, line: str) -> None:
        assert self.current is not None
        if self.current["status"] != "ok":
            self.current["status"] = "failed"
        # The first thing that went wrong is the cause more often than the last.
        self.current["error"] = self.current["error"] or line.strip()[:200]

    def reading(self) -> Reading:
        """Return what was found; of several jobs for a pair the last one counts."""
        latest: dict[tuple[int, int], dict[str, Any]] = {}
        for pair in sorted(self.pairs.values(), key=_job):
            latest[pair["src"], pair["dst"]] = pair
        pairs = [latest[key] for key in sorted(latest)]
        hosts = {rank: counted.most_common(1)[0][0] for rank, counted in self.hosts.items()}
        lowest: dict[str, int] = {}
        for rank, host in hosts.items():
            lowest[host] = min(rank, lowest.get(host, rank))
        for pair in pairs:
            pair["src_host"], pair["dst_host"] = hosts.get(pair["src"]), hosts.get(pair["dst"])
        ranks = [{"rank": rank, "host": host, "index": rank - lowest[host]} for rank, host in sorted(hosts.items())]
        if any(len(counted) > 1 for counted in self.hosts.values()):
            self.notes.warn("some ranks were on different hosts in different jobs; the host named most is shown")
        counts = dict(Counter(pair["status"] for pair in pairs))
        if not pairs:
            self.notes.warn("no pair")
        if counts.get("unknown"):
            self.notes.warn(f"{counts['unknown']} pairs print neither OK nor an error")
        values = {"world": self.world, "counts": counts, "matrix": _matrix(pairs), "ranks": ranks, "pairs": pairs}
        return self.notes.reading(values)


def _job(pair: dict[str, Any]) -> tuple[int, str]:
    job = pair["job"] or ""
    return (int(job) if job.isdecimal() else 0, job)


def _matrix(pairs: list[dict[str, Any]]) -> dict[str, Any] | None:
    ranks = sorted({pair[side] for pair in pairs for side in ("src", "dst")})
    if not ranks or len(ranks) > 512:
        return None
    statuses = {(pair["src"], pair["dst"]): pair["status"] for pair in pairs}
    names = [str(rank) for rank in ranks]
    cells = [[statuses.get((src, dst)) for dst in ranks] for src in ranks]
    return matrix("sender (row) to receiver (column)", "", names, names, cells)


def parse(text: str) -> Reading:
    """Return ``pairs`` (``src`` and ``dst`` ranks, their hosts, ``status``, ``error``, ``job``), ``ranks``, ``matrix``.

    ``status`` is ok, failed, or unknown if the text shows neither.
    """
    parser = _Parser()
    for line in plain_lines(text):
        parser.line(line)
    return parser.reading()


_LIKELY = first_of((0.99, r"^==> (?:.*/)?" + FILE.pattern + r" <==$"), (0.9, r"^\S+ \[\d+\] : (?:BEG|END|OK) "))
FORMATS = [
    Format(
        "p2p-test",
        "a folder of p2p-test-S-R-JOB.out: one job per pair of ranks",
        _LIKELY,
        parse,
        convert=benchmarks.p2p_runs,
        incomparable=True,
        hidden=("pairs",),
    )
]
