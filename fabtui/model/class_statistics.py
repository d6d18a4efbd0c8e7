"""Class statistics: what is slow among the values of a class, and which pairs flap.

There is no table of absolute limits, because such tables differ by a factor of two for the same GPU.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import pairwise

from fabtui.model.measurement import Verdict
from fabtui.model.reference import Reference, reference_of

#: Minimum number of values in a class before one can be called slow.
FEWEST = 3
#: A slow value is at least this many standard deviations from the reference of its class.
DEVIATIONS = 4.5
#: A value below this share of the reference is slow however widely its class spreads.
SURELY_SLOW = 0.2
#: Where values spread widely by nature, as with ranks that share cores, a second cluster is one if it lies
#: below this share of the reference: a few values that are close by chance are not a reference for the others.
_CLEARLY_APART = 0.5
#: The reference is found again when one of this number of values has changed.
_STALE = 64
#: Maximum number of values that are inserted one by one; more are sorted in, which takes longer for a few.
_MOST_INSERTED = 64
#: Number of latest attempts considered for flapping.
ATTEMPTS = 10
#: Minimum number of turns, from good to bad or back, of a flapping pair.
TURNS = 2

_INDECISIVE = (Verdict.UNTESTED, Verdict.SKIPPED, Verdict.INCONCLUSIVE)


class ClassValues:
    """Good values of one class of one layer: sorted floats, eight bytes each.

    Args:
        values: Initial values, in any order.
        less_is_better: Whether a value far above the usual one is the slow one, rather than one far below.
    """

    __slots__ = ("_changes", "_less_is_better", "_limits", "_reference", "_sorted", "_waiting")

    def __init__(self, values: Iterable[float] = (), less_is_better: bool = False) -> None:
        self._sorted = array("d")
        #: New values wait until a reader asks, so that a million load in one sort.
        self._waiting = array("d", values)
        self._less_is_better = less_is_better
        self._reference: Reference | None = None
        self._limits: dict[float, float | None] = {}
        self._changes = 0

    def __len__(self) -> int:
        return len(self._sorted) + len(self._waiting)

    def sorted(self) -> array[float]:
        """Return all values in ascending order, to be read only."""
        if len(self._waiting) > _MOST_INSERTED:
            self._sorted = _merged(self._sorted, self._waiting)
        else:
            for value in self._waiting:
                insort(self._sorted, value)
        if self._waiting:
            self._waiting = array("d")
        return self._sorted

    def add(self, *values: float) -> None:
        before = len(self)
        self._waiting.extend(values)
        for count in range(before + 1, before + len(values) + 1):
            self._change(count)

    def remove(self, value: float) -> bool:
        """Remove a value that a newer attempt replaces; return True if there was one."""
        known = self.sorted()
        at = bisect_left(known, value)
        if at == len(known) or known[at] != value:
            return False
        del known[at]
        self._change(len(known))
        return True

    def _change(self, count: int) -> None:
        self._changes += 1
        # Among very many values, a few more change the reference by less than the noise.
        if self._changes * _STALE > count:
            self.settle()

    def settle(self) -> bool:
        """Take all values into account from now on; return True if there are new ones."""
        if not self._changes:
            return False
        self._changes, self._reference = 0, None
        self._limits.clear()
        return True

    @property
    def median(self) -> float | None:
        """The median of the best cluster, or None when there is no value."""
        found = self.reference
        return None if found is None else found.value

    @property
    def reference(self) -> Reference | None:
        """Reference of this class, or None when there is no value."""
        if self._reference is None and len(self):
            self._reference = reference_of(self.sorted(), self._less_is_better)
        return self._reference

    @property
    def lowest(self) -> float | None:
        """The lowest value, or None when there is none."""
        return self.sorted()[0] if len(self) else None

    @property
    def highest(self) -> float | None:
        """The highest value, or None when there is none."""
        return self.sorted()[-1] if len(self) else None

    def limit(self, slow_below: float) -> float | None:
        """Return the value beyond which one is slow, or None where there are too few values.

        It is ``slow_below`` times the reference, and farther away where the best cluster spreads widely by itself, as
        TCP over shared cores does. Where there is a second, worse cluster, the limit lies between the two at least.
        """
        if slow_below not in self._limits:
            # Read for every cell that is drawn; the values change far less often.
            self._limits[slow_below] = self._find_limit(slow_below)
        return self._limits[slow_below]

    def _find_limit(self, slow_below: float) -> float | None:
        usual = self.reference
        if usual is None or len(self) < FEWEST:
            return None
        wide = math.exp(-DEVIATIONS * usual.spread)
        share = max(SURELY_SLOW, min(slow_below, wide))
        if usual.gap is not None:
            gap = usual.value / usual.gap if self._less_is_better else usual.gap / usual.value
            if slow_below > SURELY_SLOW or gap <= _CLEARLY_APART:
                share = max(share, gap)
        return usual.value / share if self._less_is_better else share * usual.value

    def is_slow(self, value: float, slow_below: float) -> bool:
        """Return True if a value is slow among the values of its class; see `limit`."""
        limit = self.limit(slow_below)
        return limit is not None and (value > limit if self._less_is_better else value < limit)


def _merged(known: array[float], more: array[float]) -> array[float]:
    if len(known) < len(more):
        return array("d", sorted([*known, *more]))
    # Without an object for each of tens of thousands of values.
    found, begin = array("d"), 0
    for value in sorted(more):
        end = bisect_left(known, value, begin)
        found += known[begin:end]
        found.append(value)
        begin = end
    return found + known[begin:]


def turns(verdicts: Iterable[Verdict]) -> int:
    """Return the number of turns from good to bad or back, oldest attempt first; indecisive attempts are left out."""
    found = [verdict.bad for verdict in verdicts if verdict not in _INDECISIVE]
    return sum(a != b for a, b in pairwise(found))


def lasting(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the verdicts of a pair's attempts without slow ones that neither the attempt before nor the next confirms.

    A value that is low once, beside others or by chance, is not a change of the pair.
    """
    found = [verdict for verdict in verdicts if verdict not in _INDECISIVE]
    around = zip([None, *found], found, [*found[1:], None], strict=False)
    return [
        now
        for before, now, after in around
        if now is not Verdict.SLOW or any(one and one.bad for one in (before, after))
    ]


def flapping(verdicts: Iterable[Verdict]) -> int:
    """Return the number of turns of a pair's latest attempts if it flaps, else 0.

    One turn is not flapping: the pair failed beside others and passes alone, or it broke and stays broken.
    """
    found = turns(list(verdicts)[-ATTEMPTS:])
    return found if found >= TURNS else 0
