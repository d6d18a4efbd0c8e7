"""Measurements, packed: a large fabric has a million of them, and as objects each would take a kilobyte.

What many of them have in common (layer, verdict, unit, how, transport, the names in what else was learnt) is kept once,
as a `Shape`. What differs are numbers, kept one after the other. The texts that they were read from are much alike, and
are compressed, some hundreds together. `Ledger.get` makes a measurement of all that when somebody asks for it, and what
is long is unpacked when somebody looks at it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any
from weakref import WeakValueDictionary

from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.packing import Node, Places, packed, unpacked
from fabtui.model.pair_index import narrowest
from fabtui.model.rawtexts import squeezed, unsqueezed

#: Stands for "no row".
NONE = -1
_BITS = 9
#: Measurements of a page.
PAGE = 1 << _BITS
_MASK = PAGE - 1
#: A page is full with so many numbers, or so many characters of text, whatever else is in it.
_MOST_NUMBERS = 1 << 15
_MOST_TEXT = 1 << 18
_SHORT = 1 << 16
_PLAIN = ("kinds", "sources", "targets", "starts", "numbers")


class Shape:
    """What measurements have in common: the fields of a `Measurement`; of what differs, how it is packed.

    Attributes:
        asked: The message size that was asked for, or None.
    """

    __slots__ = (
        "__weakref__",
        "arm",
        "asked",
        "attempts",
        "bytes",
        "error",
        "extra",
        "how",
        "layer",
        "made",
        "time",
        "transport",
        "unit",
        "value",
        "verdict",
    )

    def __init__(self, one: Measurement, value: Node, time: Node, attempts: Node, extra: Node) -> None:
        self.layer: Layer = one.layer
        self.verdict: Verdict = one.verdict
        self.unit = one.unit
        self.bytes = one.bytes
        self.how = one.how
        self.transport = one.transport
        self.error = one.error
        self.made = one.made
        self.arm = one.arm
        self.asked = one.asked_bytes
        self.value = value
        self.time = time
        self.attempts = attempts
        self.extra = extra


class _Texts:
    """The raw texts of the page that was looked at last."""

    page: _Page | None = None
    texts: list[str | None]


class _Page:
    """Some hundreds of measurements in the order in which they came."""

    __slots__ = (*_PLAIN, "alive", "befores", "cache", "dropped", "shapes", "squeezed", "texts")

    def __init__(self, cache: _Texts, ends: str) -> None:
        self.shapes: list[Shape] = []
        self.kinds = array("H")
        self.sources = array(ends)
        self.targets = array(ends)
        #: Where the numbers of each begin.
        self.starts = array("H")
        self.numbers = array("d")
        #: The row of the attempt before each, plus one; None while there are first attempts only.
        self.befores: array[int] | None = None
        #: Raw texts, while the page is filled.
        self.texts: list[str | None] | None = []
        self.squeezed: bytes | None = None
        #: 1 for each whose raw text is not wanted any more.
        self.dropped: bytearray | None = None
        self.alive = 0
        self.cache = cache

    def close(self) -> None:
        """Take nothing more in, and no more room than is needed."""
        for name in _PLAIN:
            full = getattr(self, name)
            setattr(self, name, array(full.typecode if full.typecode == "d" else narrowest(max(full)), full))
        texts, self.texts = self.texts or [], None
        self.squeezed = squeezed(texts)

    def asked(self, at: int) -> int | None:
        return self.shapes[self.kinds[at]].asked

    def extra(self, at: int) -> Any:
        return unpacked(self.shapes[self.kinds[at]].extra, self.numbers, self.starts[at])

    def raw(self, at: int) -> str | None:
        if self.dropped is not None and self.dropped[at]:
            return None
        if self.texts is not None:
            return self.texts[at]
        if self.squeezed is None:
            return None
        if self.cache.page is not self:
            self.cache.texts = unsqueezed(self.squeezed)
            self.cache.page = self
        return self.cache.texts[at]

    def drop_raw(self, at: int) -> None:
        if self.dropped is None:
            self.dropped = bytearray(PAGE)
        self.dropped[at] = 1
        if self.texts is not None:
            self.texts[at] = None
        elif self.squeezed is not None and self.dropped.count(1) >= len(self.kinds):
            self.squeezed = None


class Ledger:
    """Keeps measurements by rows: numbers that it gives out. A row may follow on that of an earlier attempt."""

    def __init__(self) -> None:
        self._cache = _Texts()
        self._pages: list[_Page | None] = []
        #: Every end: its name, and its address or None.
        self._ends: list[tuple[str, str | None]] = []
        self._end_of: dict[tuple[str, str | None], int] = {}
        self._shapes: WeakValueDictionary[tuple[Any, ...], Shape] = WeakValueDictionary()
        self._turn()

    def _turn(self) -> None:
        """Begin a new page."""
        # Two new ends a row, at most.
        wide = len(self._ends) + 2 * PAGE >= _SHORT
        self._open = _Page(self._cache, "I" if wide else "H")
        self._pages.append(self._open)
        self._kinds: dict[tuple[Any, ...], int] = {}
        self._characters = 0

    def _end(self, name: str, address: str | None) -> int:
        key = (name, address)
        end = self._end_of.get(key)
        if end is None:
            end = self._end_of[key] = len(self._ends)
            self._ends.append(key)
        return end

    # -- taking in ----------------------------------------------------------------------------------------------------

    def add(self, one: Measurement, before: int = NONE) -> int:
        """Keep a measurement, and return its row.

        Args:
            one: The measurement.
            before: The row of the attempt before it, or `NONE`.
        """
        page = self._open
        if len(page.kinds) == PAGE or len(page.numbers) >= _MOST_NUMBERS or self._characters >= _MOST_TEXT:
            page.close()
            self._turn()
            page = self._open
        source, target = self._end(one.src, one.src_addr), self._end(one.dst, one.dst_addr)
        start = len(page.numbers)
        kind = self._kind(page, one, Places(page.numbers))
        at = len(page.kinds)
        page.kinds.append(kind)
        page.starts.append(start)
        page.sources.append(source)
        page.targets.append(target)
        assert page.texts is not None
        page.texts.append(one.raw)
        self._characters += len(one.raw) if one.raw is not None else 0
        page.alive += 1
        if before != NONE and page.befores is None:
            page.befores = array("I", bytes(4 * PAGE))
        if page.befores is not None:
            page.befores[at] = before + 1
        return (len(self._pages) - 1) << _BITS | at

    def _kind(self, page: _Page, one: Measurement, places: Places) -> int:
        """Return the place of a measurement's shape among those of the page, after packing its numbers."""
        extra = packed(one.extra, places)
        value = packed(one.value, places)
        attempts = packed(one.attempts, places, few=2)
        # Last: where the next one is of the same time, that is at hand.
        time = packed(one.time, places)
        key = (
            *(one.layer, one.verdict, one.unit, one.bytes, one.how, one.transport, one.error, one.made, one.arm),
            *(value, time, attempts, extra),
        )
        kind = self._kinds.get(key)
        if kind is None:
            shape = self._shapes.get(key)
            if shape is None:
                shape = self._shapes[key] = Shape(one, value, time, attempts, extra)
            kind = self._kinds[key] = len(page.shapes)
            page.shapes.append(shape)
        return kind

    def drop_raw(self, row: int) -> None:
        """Forget the raw text of a row."""
        self._page(row).drop_raw(row & _MASK)

    def remove(self, row: int, after: int) -> None:
        """Forget a row; ``after`` is that of the next attempt, which follows on the one before it from now on."""
        before = self.before(row)
        page = self._page(after)
        if page.befores is not None:
            page.befores[after & _MASK] = before + 1
        page = self._page(row)
        page.alive -= 1
        if not page.alive and page is not self._open:
            self._pages[row >> _BITS] = None

    # -- looking up ---------------------------------------------------------------------------------------------------

    def _page(self, row: int) -> _Page:
        page = self._pages[row >> _BITS]
        if page is None:
            raise KeyError(row)
        return page

    def before(self, row: int) -> int:
        """Return the row of the attempt before one, or `NONE`."""
        befores = self._page(row).befores
        return NONE if befores is None else befores[row & _MASK] - 1

    def attempts(self, row: int) -> list[int]:
        """Return a row and those of all attempts before it, the latest first."""
        rows = []
        while row != NONE:
            rows.append(row)
            row = self.before(row)
        return rows

    def shape(self, row: int) -> Shape:
        """Return what a row has in common with others."""
        page = self._page(row)
        return page.shapes[page.kinds[row & _MASK]]

    def value(self, row: int) -> Any:
        """Return the value of a row."""
        page, at = self._page(row), row & _MASK
        node = page.shapes[page.kinds[at]].value
        return (
            page.numbers[page.starts[at] + node] if type(node) is int else unpacked(node, page.numbers, page.starts[at])
        )

    def ends(self, row: int) -> tuple[str, str]:
        """Return the names of source and destination of a row."""
        page, at = self._page(row), row & _MASK
        return self._ends[page.sources[at]][0], self._ends[page.targets[at]][0]

    def rows(self) -> Iterator[int]:
        """Yield the rows that follow on no other, in the order in which they came."""
        for number, page in enumerate(self._pages):
            if page is not None:
                befores, first = page.befores, number << _BITS
                for at in range(len(page.kinds)):
                    if befores is None or not befores[at]:
                        yield first | at

    def get(self, row: int) -> Measurement:
        """Return the measurement of a row."""
        page, at = self._page(row), row & _MASK
        shape = page.shapes[page.kinds[at]]
        start, numbers = page.starts[at], page.numbers
        src, src_addr = self._ends[page.sources[at]]
        dst, dst_addr = self._ends[page.targets[at]]
        value, time, attempts = shape.value, shape.time, shape.attempts
        return Measurement.kept(
            page,
            at,
            shape.layer,
            src,
            dst,
            shape.verdict,
            numbers[start + value] if type(value) is int else unpacked(value, numbers, start),
            shape.unit,
            shape.bytes,
            numbers[start + time] if type(time) is int else unpacked(time, numbers, start),
            shape.how,
            shape.transport,
            src_addr,
            dst_addr,
            unpacked(attempts, numbers, start),
            shape.error,
            shape.made,
            shape.arm,
        )
