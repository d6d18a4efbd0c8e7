"""Growth of all counters of nodes, by the phase of the session in which it was counted."""

from __future__ import annotations

import re
from array import array
from typing import Any

import numpy as np

from fabtui.model.pair_table import Floats

_MOST_PHASES, _MOST_COUNTERS, _LARGEST = 16, 20_000, 1 << 62
_NAME = re.compile(r"\w[\w.:@/-]{0,95}", re.ASCII)


def counter_names(listed: Any) -> list[str]:
    """Return the names of counters in a list; anything else in it is ignored."""
    words = listed[:_MOST_COUNTERS] if isinstance(listed, list) else []
    return [word for word in words if isinstance(word, str) and _NAME.fullmatch(word)]


def cleaned(grew: Any) -> dict[str, int]:
    """Return the counters of a value of the probe ``growth`` by name; anything else in it is ignored."""
    counts = grew if isinstance(grew, dict) else {}
    return {name: n for name in counter_names([*counts]) if type(n := counts[name]) is int and 0 < n < _LARGEST}


class PhaseGrowth:
    """Growth of counters during a phase; a column of numbers per counter, a place in it per node."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}  #: Time between the readings of each node (s).
        self._columns: dict[str, array[int]] = {}

    def take(self, node: str, seconds: float, grew: dict[str, int]) -> None:
        """Add what counters of a node grew by in a time (s)."""
        self.seconds[node] = self.seconds.get(node, 0.0) + seconds
        place = list(self.seconds).index(node)
        for name, count in grew.items():
            if name in self._columns or len(self._columns) < _MOST_COUNTERS:
                column = self._columns.setdefault(name, array("q"))
                column.extend([0] * (place + 1 - len(column)))
                column[place] = min(column[place] + count, _LARGEST)

    def table(self, gauges: set[str]) -> tuple[list[str], Floats]:
        """Return the names of the counters that grew, and by how much: a row per counter, a column per node."""
        names = [name for name in self._columns if name not in gauges]
        table = np.zeros((len(names), len(self.seconds)))
        for row, name in zip(table, names, strict=True):
            row[: len(self._columns[name])] = self._columns[name]
        return names, table


class GrowthLog:
    """Growth of the counters of all nodes in the latest sweep, and in the latest round of watching."""

    def __init__(self) -> None:
        self.phases: dict[str, PhaseGrowth] = {}  #: By the name of the phase, in the order of time.
        self.gauges: set[str] = set()  #: Names that fell on some node: what they count comes and goes.

    def take(self, node: str, phase: str, seconds: float, grew: Any, fell: Any, *, latest: bool = False) -> None:
        """Add a reading; with ``latest``, one that follows another replaces it: what that one saw may be over."""
        if len(self.gauges) < _MOST_COUNTERS:
            self.gauges.update(counter_names(fell))
        if 0 < seconds < _LARGEST and (phase in self.phases or len(self.phases) < _MOST_PHASES):
            growth = self.phases.setdefault(phase, PhaseGrowth())
            if latest and node in growth.seconds:
                growth = self.phases[phase] = PhaseGrowth()
            growth.take(node, seconds, cleaned(grew))
