"""Measurements in flat arrays, one row each; their raw texts and extras are compressed.

A large fabric has a million measurements, and as an object each would take a kilobyte. Numbers are kept in columns by
row. The fields that most rows share (layer, verdict, unit, method, transport, error) are kept once, as a `Shape`.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np

from fabtui.model.layers import Layer
from fabtui.model.measurement import FIELDS, Extra, Measurement, Verdict

#: Place of a measurement that has neither raw text nor extras.
NO_TEXT = 0xFFFFFFFF
_BITS = 8
#: Maximum number of texts in a chunk.
CHUNK_TEXTS = 1 << _BITS
#: Maximum number of characters in a chunk, unless a single text is longer.
CHUNK_CHARACTERS = 1 << 16
#: Decompressed chunks that are cached: the grid and the diagnosis read neighbouring rows.
_CACHED = 4
#: Stands for "no row".
NONE = -1
#: Shape number of a row that was removed.
_UNUSED = 0
_NO_ROW = _MAXIMUM = 0xFFFFFFFF

#: Measurements are validated: they have no cycles.
_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)

Text = tuple[str | None, Extra | None]
_STORED = tuple(name for name in FIELDS if name not in ("raw", "extra"))


class TextSpool:
    """Stores raw text and extras, compressed in chunks, and returns the place to read them from.

    They are read when one pair is inspected, and would be most of the memory of a session.
    """

    def __init__(self) -> None:
        self._pending: list[str] = []
        self._characters = 0
        #: Each chunk, and its number of texts in use; the last one is the one being filled.
        self._chunks: list[bytes] = [b""]
        self._in_use = array("H", [0])
        self._cache: dict[int, list[Text]] = {}

    def add(self, raw: str | None, extra: Extra | None) -> int:
        if raw is None and extra is None:
            return NO_TEXT
        if len(self._pending) == CHUNK_TEXTS or self._characters >= CHUNK_CHARACTERS:
            used = self._in_use[-1]
            self._chunks[-1] = zlib.compress(f"[{','.join(self._pending)}]".encode(), 1) if used else b""
            self._chunks.append(b"")
            self._in_use.append(0)
            self._pending.clear()
            self._characters = 0
        text = _ENCODER.encode((raw, extra))
        self._pending.append(text)
        self._in_use[-1] += 1
        self._characters += len(text)
        return (len(self._chunks) - 1) << _BITS | len(self._pending) - 1

    def read(self, place: int) -> Text:
        """Return raw text and extras of a place; both None if its chunk was dropped."""
        number, at = place >> _BITS, place & (CHUNK_TEXTS - 1)
        if number == len(self._chunks) - 1:
            raw, extra = json.loads(self._pending[at])
            return raw, extra
        texts = self._cache.get(number)
        if texts is None:
            if not self._chunks[number]:
                return None, None
            texts = json.loads(zlib.decompress(self._chunks[number]))
            if len(self._cache) >= _CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[number] = texts
        raw, extra = texts[at]
        return raw, extra

    def drop(self, place: int) -> None:
        """Forget the text of a place; the room is free when its whole chunk is unused."""
        if place == NO_TEXT:
            return
        number = place >> _BITS
        self._in_use[number] -= 1
        if not self._in_use[number] and number < len(self._chunks) - 1:
            self._chunks[number] = b""
            self._cache.pop(number, None)


class Shape(NamedTuple):
    """The fields that rows share."""

    layer: Layer
    verdict: Verdict
    unit: str
    bytes: int | None
    how: str
    transport: str | None
    error: str | None
    made: bool
    arm: str | None
    asked: int | None  #: Requested message size, or None.
    has_value: bool
    whole_value: bool  #: Whether the value was a whole number; JSON and CSV print those without a fraction.
    whole_time: bool  #: Whether the time was a whole number.


class _Stored(Measurement):
    """Measurement of a store, whose raw text and extras are read when they are asked for."""

    __slots__ = ("_asked", "_place", "_texts")

    _texts: TextSpool
    _place: int
    _asked: int | None

    def __new__(cls, *args: Any, **changed: Any) -> Any:
        return Measurement(*args, **changed)

    @classmethod
    def of(cls, texts: TextSpool, place: int, asked: int | None, *values: Any) -> _Stored:
        """Return a measurement; ``asked`` is the requested message size, ``values`` are all other fields in order."""
        stored: _Stored = object.__new__(cls)
        stored._texts, stored._place, stored._asked = texts, place, asked
        for name, value in zip(_STORED, values, strict=True):
            setattr(stored, name, value)
        return stored

    @property
    def raw(self) -> str | None:  # type: ignore[override]
        """The text it was read from, or None."""
        return self._texts.read(self._place)[0]

    @property
    def extra(self) -> Extra | None:  # type: ignore[override]
        return self._texts.read(self._place)[1]

    @property
    def asked_bytes(self) -> int | None:
        return self._asked


class MeasurementStore:
    """Measurements by row number. Rows of repeated attempts are chained, the latest first."""

    def __init__(self) -> None:
        self._shapes: list[Shape | None] = [None]
        self._shape_numbers: dict[tuple[Any, ...], int] = {}
        #: Count of rows of each shape: one that is no longer in use makes room.
        self._uses = array("I", [0])
        self._free_shapes: list[int] = []
        #: Every end: its name, and its address or None.
        self._ends: list[tuple[str, str | None]] = []
        self._end_numbers: dict[tuple[str, str | None], int] = {}
        self._shape_of = array("I")
        self._source = array("I")
        self._target = array("I")
        self._value = array("d")
        self._time = array("d")
        self._attempts = array("I")
        self._text = array("I")
        #: Row of the previous attempt, or `_NO_ROW`.
        self._previous = array("I")
        self._free: list[int] = []
        self._spool = TextSpool()

    def _end(self, name: str, address: str | None) -> int:
        if (number := self._end_numbers.get(end := (name, address))) is None:
            number = self._end_numbers[end] = len(self._ends)
            self._ends.append(end)
        return number

    def _new_shape(self, shape: Shape) -> int:
        if self._free_shapes:
            number = self._free_shapes.pop()
            self._shapes[number] = shape
        else:
            number = len(self._shapes)
            self._shapes.append(shape)
            self._uses.append(0)
        self._shape_numbers[shape] = number
        return number

    def add(self, measurement: Measurement, previous: int = NONE) -> int:
        """Store a measurement, and return its row.

        Args:
            measurement: The measurement.
            previous: Row of the previous attempt, or `NONE`.
        """
        # Anything that may fail comes first: columns of different lengths would corrupt the store.
        given, raw, extra = measurement.value, measurement.raw, measurement.extra
        value, time = 0.0 if given is None else float(given), float(measurement.time)
        # A plain tuple is equal to the shape, and made in a fifth of the time.
        fields = (
            *(measurement.layer, measurement.verdict, measurement.unit, measurement.bytes, measurement.how),
            *(measurement.transport, measurement.error, measurement.made, measurement.arm, measurement.asked_bytes),
            *(given is not None, type(given) is int, type(measurement.time) is int),
        )
        if (shape := self._shape_numbers.get(fields)) is None:
            shape = self._new_shape(Shape(*fields))
        source = self._end(measurement.src, measurement.src_addr)
        target = self._end(measurement.dst, measurement.dst_addr)
        text = NO_TEXT if raw is None and extra is None else self._spool.add(raw, extra)
        # A damaged recording may have any number here.
        attempts = min(max(measurement.attempts, 0), _MAXIMUM)
        self._uses[shape] += 1
        before = _NO_ROW if previous == NONE else previous
        if self._free:
            row = self._free.pop()
            self._value[row], self._time[row], self._shape_of[row], self._source[row] = value, time, shape, source
            self._target[row], self._attempts[row], self._text[row] = target, attempts, text
            self._previous[row] = before
            return row
        self._value.append(value)
        self._time.append(time)
        self._shape_of.append(shape)
        self._source.append(source)
        self._target.append(target)
        self._attempts.append(attempts)
        self._text.append(text)
        self._previous.append(before)
        return len(self._shape_of) - 1

    def remove(self, row: int, after: int) -> None:
        """Forget a row; ``after`` is the row of the next attempt."""
        self._previous[after] = self._previous[row]
        number = self._shape_of[row]
        self._uses[number] -= 1
        if not self._uses[number]:
            shape = self._shapes[number]
            assert shape is not None
            self._shapes[number] = None
            del self._shape_numbers[shape]
            self._free_shapes.append(number)
        self._spool.drop(self._text[row])
        self._shape_of[row] = _UNUSED
        self._free.append(row)

    def repeated(self) -> list[int]:
        """Return the rows of the latest attempts of what was attempted several times."""
        previous = np.array(self._previous)
        repeats = np.flatnonzero((previous != _NO_ROW) & (np.array(self._shape_of) != _UNUSED))
        rows: list[int] = np.setdiff1d(repeats, previous[repeats]).tolist()
        return rows

    def columns(self) -> tuple[list[Shape | None], array[int], array[float]]:
        """Return the shapes, the shape number of each row, and the value of each row; to be read only."""
        return self._shapes, self._shape_of, self._value

    def end_names(self) -> list[str]:
        """Return the name of each end by its number in `end_columns`; a name may have several."""
        return [name for name, _ in self._ends]

    @property
    def end_columns(self) -> tuple[array[int], array[int]]:
        """Numbers of source and destination of each row; to be read only."""
        return self._source, self._target

    def attempts(self, row: int, most: int | None = None) -> list[int]:
        """Return a row and those of all attempts before it, or the latest ``most``, the latest first."""
        rows: list[int] = []
        while row not in (NONE, _NO_ROW) and len(rows) != most:
            rows.append(row)
            row = self._previous[row]
        return rows

    def shape(self, row: int) -> Shape:
        """Return the fields that a row shares with others.

        Raises:
            KeyError: The row was removed.
        """
        shape = self._shapes[self._shape_of[row]]
        if shape is None:
            raise KeyError(row)
        return shape

    def value(self, row: int) -> float | None:
        """Return the value of a row, or None."""
        shape = self.shape(row)
        if not shape.has_value:
            return None
        return int(self._value[row]) if shape.whole_value else self._value[row]

    def time(self, row: int) -> float:
        """Return the time of a row (epoch seconds)."""
        return self._time[row]

    def ends(self, row: int) -> tuple[str, str]:
        return self._ends[self._source[row]][0], self._ends[self._target[row]][0]

    def rows(self, layers: Collection[Layer] | None = None) -> list[int]:
        """Return the rows of first attempts in some layers (None: in all), in the order of arrival."""
        wanted = [shape is not None and (layers is None or shape.layer in layers) for shape in self._shapes]
        chosen = np.array(wanted)[np.array(self._shape_of)] & (np.array(self._previous) == _NO_ROW)
        rows: list[int] = np.flatnonzero(chosen).tolist()
        return rows

    def shapes_in_use(self, layers: Collection[Layer] | None) -> Iterator[Shape]:
        """Yield the shapes of some layers, or of all."""
        return (shape for shape in self._shapes if shape is not None and (layers is None or shape.layer in layers))

    def get(self, row: int) -> Measurement:
        shape = self.shape(row)
        src, src_addr = self._ends[self._source[row]]
        dst, dst_addr = self._ends[self._target[row]]
        time, text = self._time[row], self._text[row]
        values = (
            *(shape.layer, src, dst, shape.verdict, self.value(row), shape.unit, shape.bytes),
            *(int(time) if shape.whole_time else time, shape.how, shape.transport, src_addr, dst_addr),
            *(self._attempts[row], shape.error, shape.made),
        )
        if text == NO_TEXT:
            return Measurement(*values, arm=shape.arm)
        return _Stored.of(self._spool, text, shape.asked, *values, shape.arm)
