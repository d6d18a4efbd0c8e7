"""Numbers in their order, into which one more goes quickly however many there are."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain

#: Numbers of a part: it is cut in two at twice as many.
_PART = 512


class SortedFloats:
    """Floats in ascending order, eight bytes each.

    Args:
        values: Those there are from the start.
    """

    __slots__ = ("_befores", "_count", "_lasts", "_parts")

    def __init__(self, values: Iterable[float] = ()) -> None:
        known = array("d", sorted(values))
        self._count = len(known)
        self._parts = [known[at : at + _PART] for at in range(0, len(known), _PART)] or [array("d")]
        #: The last number of each part but the last, which takes all above.
        self._lasts = [part[-1] for part in self._parts[:-1]]
        #: How many numbers there are before each part; None: not known.
        self._befores: list[int] | None = None

    def __len__(self) -> int:
        return self._count

    def _begin(self, part: int) -> int:
        if self._befores is None:
            self._befores = list(accumulate((len(one) for one in self._parts), initial=0))
        return self._befores[part]

    def __iter__(self) -> Iterator[float]:
        return chain.from_iterable(self._parts)

    def __getitem__(self, at: int) -> float:
        at = range(self._count)[at]
        self._begin(0)
        assert self._befores is not None
        part = bisect_right(self._befores, at) - 1
        return self._parts[part][at - self._befores[part]]

    def below(self, value: float) -> int:
        """Return how many are below a value."""
        part = bisect_left(self._lasts, value)
        return self._begin(part) + bisect_left(self._parts[part], value)

    def until(self, value: float) -> int:
        """Return how many are not above a value."""
        part = bisect_right(self._lasts, value)
        return self._begin(part) + bisect_right(self._parts[part], value)

    def add(self, value: float) -> None:
        """Take a number in."""
        at = bisect_left(self._lasts, value)
        part = self._parts[at]
        insort(part, value)
        self._count += 1
        self._befores = None
        if len(part) > 2 * _PART:
            self._parts[at : at + 1] = [part[:_PART], part[_PART:]]
            self._lasts.insert(at, part[_PART - 1])

    def remove(self, value: float) -> bool:
        """Take a number out, one of those that are equal; say whether there was one."""
        number = bisect_left(self._lasts, value)
        # Equal ones may have come to lie on both sides of a cut.
        while not self._remove_from(number, value):
            if number == len(self._lasts) or self._lasts[number] != value:
                return False
            number += 1
        return True

    def _remove_from(self, number: int, value: float) -> bool:
        part = self._parts[number]
        at = bisect_left(part, value)
        if at == len(part) or part[at] != value:
            return False
        del part[at]
        self._count -= 1
        self._befores = None
        if not part and number < len(self._lasts):
            del self._parts[number], self._lasts[number]
        return True
