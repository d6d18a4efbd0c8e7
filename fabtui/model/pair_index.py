"""Compact maps and lists keyed by ordered endpoint pairs (N x N entries)."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

from fabtui.model.layers import Layer

Key = tuple[Layer, str, str]
Pair = tuple[int, int]
Kind = TypeVar("Kind", bound=Hashable)
#: The lower half of an entry of a row.
_NUMBER = (1 << 32) - 1


class Names:
    """Consecutive numbers for names."""

    __slots__ = ("_names", "_numbers")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """Return the number of a name, a new one if need be."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
        return number

    def find(self, name: str) -> int | None:
        """Return the number of a name, or None if it has none."""
        return self._numbers.get(name)

    def __getitem__(self, number: int) -> str:
        return self._names[number]


class PairIndex(Generic[Kind]):
    """A number from 0 to 4294967295 for each ordered pair of names and each kind, for example a layer.

    Args:
        names: Numbers of the names, which another index may share.
    """

    def __init__(self, names: Names | None = None) -> None:
        self.names = Names() if names is None else names
        #: By source: the destinations in ascending order, each in the upper half of an entry with its number below.
        #: There are as many sources as endpoints, most with few destinations: one object each.
        self._rows: dict[Kind, dict[int, array[int]]] = {}

    def get(self, kind: Kind, src: str, dst: str, default: int = -1) -> int:
        """Return the number of a pair, or ``default``."""
        rows = self._rows.get(kind)
        if rows is None:
            return default
        source, target = self.names.find(src), self.names.find(dst)
        if source is None or target is None:
            return default
        row = rows.get(source, ())
        at = bisect_left(row, target << 32)
        return row[at] & _NUMBER if at < len(row) and row[at] >> 32 == target else default

    def set(self, kind: Kind, src: str, dst: str, number: int) -> None:
        row, at, entry = self._place(kind, src, dst)
        if at < len(row) and row[at] >> 32 == entry >> 32:
            row[at] = entry | number
        else:
            row.insert(at, entry | number)

    def add(self, kind: Kind, src: str, dst: str, make: Callable[[], int]) -> int:
        """Set the number of a pair that has none to what ``make`` returns, and return it; -1 if it has one."""
        row, at, entry = self._place(kind, src, dst)
        if at < len(row) and row[at] >> 32 == entry >> 32:
            return -1
        number = make()
        row.insert(at, entry | number)
        return number

    def _place(self, kind: Kind, src: str, dst: str) -> tuple[array[int], int, int]:
        source, entry = self.names.number(src), self.names.number(dst) << 32
        rows = self._rows.setdefault(kind, {})
        row = rows.get(source)
        if row is None:
            row = rows[source] = array("Q")
        return row, bisect_left(row, entry), entry

    def items(self) -> Iterator[tuple[Kind, str, str, int]]:
        """Yield all pairs, each with its kind and its number; nothing may be added meanwhile."""
        names = self.names
        for kind, rows in self._rows.items():
            for source in sorted(rows):
                for entry in rows[source]:
                    yield kind, names[source], names[entry >> 32], entry & _NUMBER

    def kinds(self) -> Collection[Kind]:
        return self._rows.keys()

    def has(self, kind: Kind) -> bool:
        """Return True if a kind has pairs."""
        return kind in self._rows

    def by_source(self, kind: Kind) -> Iterator[array[int]]:
        """Yield the numbers of the pairs of a kind, of one source after the other; sources may be added meanwhile."""
        return (array("I", (entry & _NUMBER for entry in row)) for row in list(self._rows.get(kind, {}).values()))


class PairArray(Sequence[Pair]):
    """Pairs of endpoint numbers in an order, eight bytes each.

    Args:
        pairs: Initial pairs.
    """

    __slots__ = ("_ends",)

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._ends = array("I")
        for pair in pairs:
            self._ends.extend(pair)

    def append(self, a: int, b: int) -> None:
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
    """Set of unordered pairs of different endpoint numbers, one bit per possible pair.

    Args:
        pairs: Initial pairs, each in any order.
    """

    __slots__ = ("_bits", "_count")

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._bits = bytearray()
        self._count = 0
        for a, b in pairs:
            self.add(a, b)

    def add(self, a: int, b: int) -> None:
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
