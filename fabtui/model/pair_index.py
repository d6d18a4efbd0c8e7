"""What is kept for each ordered pair, in few bytes: there are N x N of them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container, Hashable, Iterator
from typing import Generic, TypeVar, overload

from fabtui.model.layers import Layer

Key = tuple[Layer, str, str]

_SHORT = 1 << 16
#: Pairs of a part of a list.
_PART = 4096


def narrowest(most: int) -> str:
    """Return the type of array that holds whole numbers from 0 to ``most``, at most 4294967295, in the least room."""
    return "B" if most < 1 << 8 else "H" if most < _SHORT else "I"


class Ways:
    """Keeps numbers from 0 to 4294967294 by ordered pairs of numbers from 0 on.

    What is kept of the pairs of a first number is a row: it lies at the second numbers, or, where that takes less room,
    beside a list of them.
    """

    __slots__ = ("_ends", "_kept")

    def __init__(self) -> None:
        #: For each first number the second ones, in their order; None where what is kept lies at the second numbers.
        self._ends: list[array[int] | None] = []
        #: For each first number what is kept, plus one; 0: nothing.
        self._kept: list[array[int]] = []

    def get(self, a: int, b: int, default: int = -1) -> int:
        """Return what is kept of a pair, or ``default``."""
        if a >= len(self._kept):
            return default
        ends, kept = self._ends[a], self._kept[a]
        if ends is None:
            found = kept[b] if b < len(kept) else 0
        else:
            at = bisect_left(ends, b)
            found = kept[at] if at < len(ends) and ends[at] == b else 0
        return found - 1 if found else default

    def set(self, a: int, b: int, number: int) -> None:
        """Keep a number of a pair, in place of the one before."""
        while a >= len(self._kept):
            self._ends.append(array("H"))
            self._kept.append(array("B"))
        kept = self._kept[a]
        if number + 1 >> 8 * kept.itemsize:
            kept = self._kept[a] = array(narrowest(number + 1), kept)
        ends = self._ends[a]
        if ends is None and b > len(kept) and self._would_be_sparse(kept, b):
            ends = self._listed(a)
        if ends is None:
            if b >= len(kept):
                kept.frombytes(bytes((b + 1 - len(kept)) * kept.itemsize))
            kept[b] = number + 1
            return
        if b >= _SHORT and ends.typecode == "H":
            ends = self._ends[a] = array("I", ends)
        at = bisect_left(ends, b)
        if at < len(ends) and ends[at] == b:
            self._kept[a][at] = number + 1
            return
        ends.insert(at, b)
        self._kept[a].insert(at, number + 1)
        self._lay_out(a, ends)

    def _lay_out(self, a: int, ends: array[int]) -> None:
        """Do without the list of second numbers where that takes no more room."""
        kept, span = self._kept[a], ends[-1] + 1
        if span * kept.itemsize <= len(ends) * (ends.itemsize + kept.itemsize):
            whole = array(kept.typecode, bytes(span * kept.itemsize))
            for b, one in zip(ends, kept, strict=True):
                whole[b] = one
            self._ends[a], self._kept[a] = None, whole

    @staticmethod
    def _would_be_sparse(kept: array[int], b: int) -> bool:
        """Say whether a row without a list would take twice the room of one with a list, once it reaches to ``b``."""
        filled = len(kept) - kept.count(0) + 1
        return (b + 1) * kept.itemsize > 2 * filled * (kept.itemsize + 2)

    def _listed(self, a: int) -> array[int]:
        """Make a list of the second numbers of a row again."""
        kept = self._kept[a]
        ends = self._ends[a] = array("H" if len(kept) < _SHORT else "I", (b for b, one in enumerate(kept) if one))
        self._kept[a] = array(kept.typecode, filter(None, kept))
        return ends

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Yield the pairs in their order, each with what is kept of it; none may be added meanwhile."""
        for a, (ends, kept) in enumerate(zip(self._ends, self._kept, strict=True)):
            for b, one in enumerate(kept) if ends is None else zip(ends, kept, strict=True):
                if one:
                    yield a, b, one - 1


class Names:
    """Numbers names, from 0 on."""

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
        """Return the number of a name, or None when it has none."""
        return self._numbers.get(name)

    def __getitem__(self, number: int) -> str:
        return self._names[number]

    def __len__(self) -> int:
        return len(self._names)


Kind = TypeVar("Kind", bound=Hashable)


class PairIndex(Generic[Kind]):
    """A whole number for each ordered pair of names, several kinds of them: in each layer, say, the row of a ledger."""

    def __init__(self) -> None:
        self._names = Names()
        self._ways: dict[Kind, Ways] = {}

    def get(self, kind: Kind, src: str, dst: str, default: int = -1) -> int:
        """Return the number of a pair, or ``default``."""
        ways = self._ways.get(kind)
        a, b = self._names.find(src), self._names.find(dst)
        return default if ways is None or a is None or b is None else ways.get(a, b, default)

    def set(self, kind: Kind, src: str, dst: str, number: int) -> None:
        """Keep the number of a pair."""
        ways = self._ways.get(kind)
        if ways is None:
            ways = self._ways[kind] = Ways()
        ways.set(self._names.number(src), self._names.number(dst), number)

    def keys(self, kinds: Container[Kind]) -> Iterator[tuple[Kind, str, str]]:
        """Yield the pairs of some kinds; nothing may be added meanwhile."""
        return ((kind, src, dst) for kind, src, dst, _ in self.items() if kind in kinds)

    def items(self) -> Iterator[tuple[Kind, str, str, int]]:
        """Yield all pairs, each with its kind and its number; nothing may be added meanwhile."""
        names = self._names
        for kind, ways in self._ways.items():
            for a, b, number in ways:
                yield kind, names[a], names[b], number


class PairList:
    """Layers and ordered pairs of names in the order in which they came; it only grows."""

    def __init__(self) -> None:
        self._names = Names()
        self._layers = Names()
        #: Three numbers each: layer, source, destination. In parts, as what grows as a whole leaves holes behind.
        self._parts: list[array[int]] = [array("H")]

    def append(self, key: Key) -> None:
        """Add a pair of a layer."""
        layer, src, dst = key
        if len(self._parts[-1]) == 3 * _PART:
            # Each brings two new names at most.
            wide = len(self._names) + 2 * _PART >= _SHORT
            full = self._parts[-1]
            self._parts[-1] = array(narrowest(max(full)), full)
            self._parts.append(array("I" if wide else "H"))
        self._parts[-1].extend((self._layers.number(layer), self._names.number(src), self._names.number(dst)))

    def __len__(self) -> int:
        return (len(self._parts) - 1) * _PART + len(self._parts[-1]) // 3

    def __iter__(self) -> Iterator[Key]:
        return (self[at] for at in range(len(self)))

    @overload
    def __getitem__(self, at: int) -> Key: ...
    @overload
    def __getitem__(self, at: slice) -> list[Key]: ...
    def __getitem__(self, at: int | slice) -> Key | list[Key]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        part, place = divmod(range(len(self))[at], _PART)
        layer, src, dst = self._parts[part][3 * place : 3 * place + 3]
        return Layer(self._layers[layer]), self._names[src], self._names[dst]
