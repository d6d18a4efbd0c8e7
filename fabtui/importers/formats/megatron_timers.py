"""Timers in the log of Megatron-LM: how long each part of an iteration took, by rank or over all ranks.

Grammar (NVIDIA/Megatron-LM, ``megatron/core/timers.py``, ``--timing-log-option`` max, minmax and all): a line
``max time across ranks (ms):``, ``(min, max) time across ranks (ms):`` or ``times across ranks (ms):``, then a line
per timer, ``forward-compute ....: 12.34`` or ``....: (12.34, 56.78)``, or its name and a line ``rank  0: 12.34`` per
rank. Forks that record a profile (AvatarHwang/FASOP) add two lines per rank, ``NAME start time lst:  1686726492.1 ...``
and ``NAME end time lst:  ...``, in seconds since the epoch. Releases before 2022 print one line,
``time (ms) | forward-compute: 12.34 | ...``.
"""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.lines import number

_TITLE = re.compile(r"\s{0,8}(max time|\(min, max\) time|times) across ranks \(ms\):\s*", re.I)
_MAX = re.compile(r"\s{1,20}([a-z][\w/ -]{0,80}?)\s?\.{0,120}: {0,4}(-?\d[\d.]{0,30})\s*", re.I)
_RANGE = re.compile(
    r"\s{1,20}([a-z][\w/ -]{0,80}?)\s?\.{0,120}: {0,4}\((-?\d[\d.]{0,30}), (-?\d[\d.]{0,30})\)\s*", re.I
)
_NAME = re.compile(r"\s{1,20}([a-z][\w/ -]{0,80}):\s*", re.I)
_RANK = re.compile(r"\s{1,20}rank\s{1,6}(\d{1,7}): (-?\d[\d.]{0,30})\s*", re.I)
_OLD = re.compile(r".{0,200}?\btime \(ms\) \|(.*)", re.I)
_OLD_FIELD = re.compile(r"([a-z][\w/-]{0,80}): (-?\d[\d.]{0,30})(?=\s*(?:\||$))", re.I)
_SPANS = re.compile(r"\s{1,20}([a-z][\w/ -]{0,80}) (start|end) time lst:([\s\d.]{0,20000})", re.I)
#: Maximum numbers of timers, ranks, and spans of all of them that are kept.
_MOST, _MOST_RANKS, _MOST_SPANS = 1000, 65_536, 1_000_000


class Timers:
    """Collects the timers of a log; each block that is printed replaces the one before."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Any]] = {}
        self._ranks: dict[str, dict[int, float]] = {}
        self._form = ""
        self._name = ""
        #: Latest rank, and times by timer and rank: starts and ends.
        self._rank = -1
        self._spans: dict[tuple[str, int], tuple[list[float], list[float]]] = {}
        self._count = 0
        self.blocks = 0

    def take(self, line: str) -> bool:
        """Take a line in; return whether it is of timers."""
        if self._form == "times" and (spans := _SPANS.fullmatch(line)):
            self._take_spans(spans[1], spans[2].lower() == "end", spans[3].split())
            return True
        line = line[:4000]
        if title := _TITLE.fullmatch(line[:200]):
            self._begin(title[1].lower()[:5])
            return True
        if old := _OLD.fullmatch(line):
            self._begin("")
            for name, text in _OLD_FIELD.findall(old[1]):
                self._row(name, None, number(text))
            return True
        taken = bool(self._form) and self._of_block(line[:300])
        if not taken and line.strip():
            self._form = ""
        return taken

    def values(self) -> list[dict[str, Any]]:
        """Return the timers of the last block: the least and the greatest time, and of which rank."""
        rows = []
        for name, row in self._rows.items():
            ranks = self._ranks.get(name)
            if ranks:
                low, high = min(ranks, key=ranks.__getitem__), max(ranks, key=ranks.__getitem__)
                row = {"timer": name, "min": ranks[low], "max": ranks[high], "rank_of_max": high, "ranks": len(ranks)}
            rows.append(row)
        return rows

    def timeline(self) -> list[dict[str, Any]]:
        """Return the time of each rank in each timer of the last block, with starts and ends if they are printed."""
        rows = []
        for name, ranks in self._ranks.items():
            for rank, value in ranks.items():
                starts, ends = self._spans.get((name, rank), ([], []))
                whole = min(len(starts), len(ends))
                rows.append(
                    {"rank": rank, "timer": name, "spent": value, "starts": starts[:whole], "ends": ends[:whole]}
                )
        return rows

    def _take_spans(self, name: str, end: bool, words: list[str]) -> None:
        times = [value for word in words if (value := number(word)) is not None]
        if name == self._name and self._rank in self._ranks[name] and self._count + len(times) <= _MOST_SPANS:
            self._count += len(times)
            self._spans.setdefault((name, self._rank), ([], []))[end].extend(times)

    def _begin(self, form: str) -> None:
        self._rows, self._ranks, self._form, self._name = {}, {}, form, ""
        self._spans, self._count, self._rank = {}, 0, -1
        self.blocks += 1

    def _of_block(self, line: str) -> bool:
        if self._form == "times":
            if (rank := _RANK.fullmatch(line)) and self._name:
                value = number(rank[2])
                if value is not None and len(self._ranks[self._name]) < _MOST_RANKS:
                    self._rank = int(rank[1])
                    self._ranks[self._name][self._rank] = value
                return True
            if name := _NAME.fullmatch(line):
                self._name = name[1]
                self._ranks.setdefault(name[1], {})
                self._row(name[1], None, None)
                return True
            return False
        if self._form == "(min," and (found := _RANGE.fullmatch(line)):
            self._row(found[1], number(found[2]), number(found[3]))
            return True
        if self._form == "max t" and (found := _MAX.fullmatch(line)):
            self._row(found[1], None, number(found[2]))
            return True
        return False

    def _row(self, name: str, least: float | None, most: float | None) -> None:
        if len(self._rows) < _MOST:
            self._rows[name] = {"timer": name, "min": least, "max": most, "rank_of_max": None, "ranks": None}
