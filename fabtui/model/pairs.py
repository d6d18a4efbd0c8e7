"""Many unordered pairs of endpoint numbers in little room: of a thousand endpoints there are half a million."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import overload

Pair = tuple[int, int]


class PairArray(Sequence[Pair]):
    """Pairs in an order, eight bytes each.

    Args:
        pairs: The pairs.
    """

    __slots__ = ("_ends",)

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._ends = array("I")
        for pair in pairs:
            self._ends.extend(pair)

    def append(self, a: int, b: int) -> None:
        """Add a pair."""
        self._ends.append(a)
        self._ends.append(b)

    def __len__(self) -> int:
        return len(self._ends) // 2

    def __iter__(self) -> Iterator[Pair]:
        ends = iter(self._ends)
        return zip(ends, ends, strict=True)

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> PairArray: ...
    def __getitem__(self, at: int | slice) -> Pair | PairArray:
        places = range(len(self))[at]
        if isinstance(places, int):
            return self._ends[2 * places], self._ends[2 * places + 1]
        if places.step == 1:
            found = PairArray()
            found._ends = self._ends[2 * places.start : 2 * places.stop]
            return found
        return PairArray(self[place] for place in places)


class PairSet(Collection[Pair]):
    """Which unordered pairs there are: a bit for each that there could be. No pair is of a number with itself.

    Args:
        pairs: The pairs, each in any order.
    """

    __slots__ = ("_bits", "_count")

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._bits = bytearray()
        self._count = 0
        for a, b in pairs:
            self.add(a, b)

    def add(self, a: int, b: int) -> None:
        """Add a pair."""
        place = _place(a, b)
        byte, bit = place >> 3, 1 << (place & 7)
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        if not self._bits[byte] & bit:
            self._bits[byte] |= bit
            self._count += 1

    def __contains__(self, pair: object) -> bool:
        if not isinstance(pair, tuple) or pair[0] == pair[1]:
            return False
        place = _place(*pair)
        return place >> 3 < len(self._bits) and bool(self._bits[place >> 3] >> (place & 7) & 1)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Pair]:
        """Yield the pairs in their order, the lower number first."""
        high, first = 1, 0
        for byte, bits in enumerate(self._bits):
            while bits:
                place = byte << 3 | (bits & -bits).bit_length() - 1
                bits &= bits - 1
                while place >= first + high:
                    first += high
                    high += 1
                yield place - first, high


def _place(a: int, b: int) -> int:
    if a < b:
        a, b = b, a
    return a * (a - 1) // 2 + b
