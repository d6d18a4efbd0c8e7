"""Paired sequential test for one that is a little slower than its peers, and the majority on wrong data.

Each sweep gives a value of every node or GPU. What all have in common, such as the time of day, is removed by the
median of the sweep. The rest is tested after each sweep (Wald 1945) for a shift of 1 %, at error rates for all of them
together. The noise is taken from the values, from one sweep to the next, without constant differences.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

#: The shift to find, and the one below which a difference is of no concern: GPUs of a kind differ by that.
SHIFT, HARMLESS = 0.01, 0.002
#: Rate of false alarms of all together, and rate of those that are missed.
FALSE_ALARMS, MISSED = 0.004, 0.02
#: Minimum number of sweeps, from which the noise is known, and of peers.
FEWEST_SWEEPS, FEWEST_PEERS = 8, 3
#: The noise counts as this much at least: clocks of a GPU have steps.
LEAST_NOISE = 0.0005
#: A value far outside of the noise, as after a pause, counts as this many deviations.
FARTHEST = 3.0
#: Deviations of a normal distribution within which half of its values lie.
_QUARTILE = 0.6745


class Slower(NamedTuple):
    """One that is slower than its peers."""

    name: str
    share: float  #: How much slower: 0.01 is 1 %.
    sweeps: int  #: Number of sweeps after which it was found.


class PairedTest:
    """Values of all sweeps, and what follows from them."""

    def __init__(self, shift: float = SHIFT) -> None:
        self._shift = math.log1p(-shift)
        self._harmless = math.log1p(-HARMLESS)
        self._rows: dict[str, list[float]] = {}
        self.sweeps = 0

    def add(self, values: Mapping[str, float]) -> None:
        """Take a sweep: a value of each, the larger the better; those without one are left out."""
        logs = {name: math.log(value) for name, value in values.items() if value > 0}
        if len(logs) <= FEWEST_PEERS:
            return
        middle = statistics.median(logs.values())
        self.sweeps += 1
        for name, value in logs.items():
            self._rows.setdefault(name, []).append(value - middle)

    @property
    def noise(self) -> float:
        """Standard deviation of one value of a sweep, without constant differences."""
        steps = [abs(after - before) for row in self._rows.values() for before, after in pairwise(row)]
        if not steps:
            return LEAST_NOISE
        # A few values do not show the noise well.
        return max(LEAST_NOISE, statistics.median(steps) / _QUARTILE / math.sqrt(2) * (1 + 4 / len(steps)))

    def evidence(self) -> dict[str, float]:
        """Return the logarithm of the likelihood of a shift over that of none, by name."""
        noise = self.noise
        middle, width = (self._shift + self._harmless) / 2, self._harmless - self._shift
        limit = FARTHEST * noise
        return {
            name: sum((middle - max(-limit + self._shift, min(limit, value))) * width for value in row) / noise**2
            for name, row in self._rows.items()
        }

    @property
    def _enough(self) -> float:
        """The evidence from which one is slower."""
        return math.log(len(self._rows) * (1 - MISSED) / FALSE_ALARMS)

    def slower(self) -> list[Slower]:
        """Return those that are slower, the slowest first."""
        if self.sweeps < FEWEST_SWEEPS:
            return []
        found = [name for name, value in self.evidence().items() if value > self._enough]
        shares = {name: 1 - math.exp(statistics.median(self._rows[name])) for name in found}
        return [Slower(name, shares[name], self.sweeps) for name in sorted(found, key=lambda name: -shares[name])]

    @property
    def settled(self) -> bool:
        """Return True once each is known to be slower, or not to be: more sweeps show nothing new."""
        if self.sweeps < FEWEST_SWEEPS:
            return False
        return all(value > self._enough or value < math.log(MISSED) for value in self.evidence().values())


class Suspect(NamedTuple):
    """One that most of the wrong data have in common."""

    name: str
    wrong: int  #: Number of its tests with wrong data.
    tests: int  #: Number of its tests.


def majority(tests: Iterable[tuple[str, str]], wrong: Iterable[tuple[str, str]]) -> list[Suspect]:
    """Return who brought wrong data, by pairs of names that were tested, and those whose data was wrong.

    Each in turn whom most of the pairs that are left have in common; both ends where no other pair distinguishes them.
    """
    tested = Counter(name for pair in tests for name in pair)
    left = list(wrong)
    suspects: list[Suspect] = []
    while left:
        votes = Counter(name for pair in left for name in pair)
        most = max(votes.values())
        worst = [name for name, count in votes.items() if count == most]
        # The one of equal ends whose other tests were wrong as well.
        shares = {name: votes[name] / max(tested[name], 1) for name in worst}
        chosen = [name for name in worst if shares[name] >= max(shares.values())]
        suspects += [Suspect(name, votes[name], tested[name]) for name in chosen]
        left = [pair for pair in left if not set(pair) & set(chosen)]
    return suspects
