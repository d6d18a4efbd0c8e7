"""Measurements in flat arrays, one row each; their raw texts lie compressed in a temporary file.

A large fabric has a million measurements, and as an object each would take a kilobyte. Numbers are kept in columns by
row. The fields that most rows share (layer, verdict, unit, method, transport, error) are kept once, as a `Shape`.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from array import array
from collections.abc import Collection, Iterator
from typing import IO, Any, NamedTuple

from fabtui.model.layers import Layer
from fabtui.model.measurement import FIELDS, Extra, Measurement, Verdict

# Raw texts and extras of measurements, compressed in chunks in an unlinked temporary file.
#
# They are read when one pair is inspected, and would be most of the memory of a session. A recording in gzip cannot be
# read at an offset, so they are not read back from there. The file has no name: nothing remains of it,
# even after kill -9.

#: Place of a measurement that has neither raw text nor extras.
NO_TEXT = 0xFFFFFFFF
_BITS = 8
#: Maximum number of texts in a chunk.
CHUNK_TEXTS = 1 << _BITS
#: Maximum number of characters in a chunk, unless a single text is longer.
CHUNK_CHARACTERS = 1 << 16
#: Up to this many bytes of chunks stay in memory: small sessions need no file.
IN_MEMORY = 1 << 18
#: Minimum file size at which unused chunks are worth removing.
COMPACT_FROM = 1 << 24
#: Decompressed chunks that are cached: the grid and the diagnosis read neighbouring rows.
_CACHED = 4

#: Measurements are validated: they have no cycles.
_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)

Text = tuple[str | None, Extra | None]


class TextSpool:
    """Stores raw text and extras, and returns the place to read them from."""

    def __init__(self) -> None:
        self._pending: list[str] = []
        self._characters = 0
        #: Offset and length of each chunk in the file; length 0: in memory or unused.
        self._offsets = array("Q")
        self._lengths = array("I")
        #: Count of texts in use of each chunk.
        self._in_use = array("H")
        self._pending_in_use = 0
        self._memory: dict[int, bytes] = {}
        self._memory_bytes = 0
        self._file: IO[bytes] | None = None
        self._end = 0
        self._unused = 0
        self._cache: dict[int, list[Text]] = {}

    def __getstate__(self) -> dict[str, Any]:
        kept = {number: self._data(number) for number, length in enumerate(self._lengths) if length}
        return {**vars(self), "_file": None, "_cache": {}, "_kept": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        kept = state.pop("_kept")
        vars(self).update(state)
        self._end = self._unused = 0
        for number, data in kept.items():
            self._lengths[number] = 0
            self._store(number, data)

    def add(self, raw: str | None, extra: Extra | None) -> int:
        if raw is None and extra is None:
            return NO_TEXT
        if len(self._pending) == CHUNK_TEXTS or self._characters >= CHUNK_CHARACTERS:
            self._close_chunk()
        text = _ENCODER.encode((raw, extra))
        self._pending.append(text)
        self._pending_in_use += 1
        self._characters += len(text)
        return len(self._offsets) << _BITS | len(self._pending) - 1

    def read(self, place: int) -> Text:
        """Return raw text and extras of a place; both None if they can no longer be read."""
        number, at = place >> _BITS, place & (CHUNK_TEXTS - 1)
        if number == len(self._offsets):
            raw, extra = json.loads(self._pending[at])
            return raw, extra
        texts = self._cache.get(number)
        if texts is None:
            data = self._data(number)
            if not data:
                return None, None
            texts = json.loads(zlib.decompress(data))
            if len(self._cache) >= _CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[number] = texts
        raw, extra = texts[at]
        return raw, extra

    def drop(self, place: int) -> None:
        """Forget the text of a place; the room is reused when its whole chunk is unused."""
        number = place >> _BITS
        if place == NO_TEXT:
            return
        if number == len(self._offsets):
            self._pending_in_use -= 1
            return
        self._in_use[number] -= 1
        if not self._in_use[number]:
            self._discard(number)

    def _discard(self, number: int) -> None:
        self._cache.pop(number, None)
        self._memory_bytes -= len(self._memory.pop(number, b""))
        self._unused += self._lengths[number]
        self._lengths[number] = 0
        if self._end >= COMPACT_FROM and 2 * self._unused > self._end:
            self._compact()

    def _close_chunk(self) -> None:
        data = zlib.compress(f"[{','.join(self._pending)}]".encode(), 1)
        number = len(self._offsets)
        self._offsets.append(0)
        self._lengths.append(0)
        self._in_use.append(self._pending_in_use)
        self._store(number, data)
        if not self._pending_in_use:
            self._discard(number)
        self._pending.clear()
        self._characters = self._pending_in_use = 0

    def _store(self, number: int, data: bytes) -> None:
        """Write a chunk; it stays in memory while there is little, and where the disk does not take it."""
        if self._file is not None or self._memory_bytes + len(data) > IN_MEMORY:
            try:
                self._write(number, data)
            except OSError:
                pass
            else:
                return
        self._memory[number] = data
        self._memory_bytes += len(data)

    def _write(self, number: int, data: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="fabtui-")  # noqa: SIM115 - lives as long as the spool
        view, at = memoryview(data), self._end
        while view:
            written = os.pwrite(self._file.fileno(), view, at)
            view, at = view[written:], at + written
        self._offsets[number], self._lengths[number] = self._end, len(data)
        self._end = at

    def _data(self, number: int) -> bytes:
        if number in self._memory:
            return self._memory[number]
        if self._file is None or not self._lengths[number]:
            return b""
        return os.pread(self._file.fileno(), self._lengths[number], self._offsets[number])

    def _compact(self) -> None:
        """Move the chunks in use to the beginning of the file; each moves towards it, so none is overwritten."""
        chunks = sorted((self._offsets[number], number) for number, length in enumerate(self._lengths) if length)
        self._end = self._unused = 0
        for _, number in chunks:
            self._write(number, self._data(number))
        assert self._file is not None
        self._file.truncate(self._end)


#: Stands for "no row".
NONE = -1
#: Shape number of a row that was removed.
_UNUSED = 0
#: Number of rows that are searched at once, and of shapes up to which that is worth it.
_SCANNED, _FEW_SHAPES = 1024, 8
_NO_ROW = _MAXIMUM = 0xFFFFFFFF
#: Least number of a shape or an end that needs four bytes.
_SHORT = 1 << 16


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
        found: _Stored = object.__new__(cls)
        found._texts, found._place, found._asked = texts, place, asked
        for name, value in zip(_STORED, values, strict=True):
            setattr(found, name, value)
        return found

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


_STORED = tuple(name for name in FIELDS if name not in ("raw", "extra"))


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
        self._shape_of = array("H")
        self._source = array("H")
        self._target = array("H")
        self._value = array("d")
        self._time = array("d")
        self._attempts = array("I")
        self._text = array("I")
        #: Row of the previous attempt; empty until something is attempted again, which many sessions do not.
        self._previous = array("I")
        self._free: list[int] = []
        self._spool = TextSpool()

    def _new_end(self, end: tuple[str, str | None]) -> int:
        number = self._end_numbers[end] = len(self._ends)
        self._ends.append(end)
        if number == _SHORT:
            self._source, self._target = array("I", self._source), array("I", self._target)
        return number

    def _new_shape(self, shape: Shape) -> int:
        if self._free_shapes:
            number = self._free_shapes.pop()
            self._shapes[number] = shape
        else:
            number = len(self._shapes)
            self._shapes.append(shape)
            self._uses.append(0)
            if number == _SHORT:
                self._shape_of = array("I", self._shape_of)
        self._shape_numbers[shape] = number
        return number

    def add(self, one: Measurement, previous: int = NONE) -> int:
        """Store a measurement, and return its row.

        Args:
            one: The measurement.
            previous: Row of the previous attempt, or `NONE`.
        """
        # Anything that may fail comes first: columns of different lengths would corrupt the store.
        given, raw, extra, numbers = one.value, one.raw, one.extra, self._end_numbers
        value, time = 0.0 if given is None else float(given), float(one.time)
        asked = one.bytes if extra is None else one.asked_bytes
        # A plain tuple is equal to the shape, and made in a fifth of the time.
        fields = (
            *(one.layer, one.verdict, one.unit, one.bytes, one.how, one.transport, one.error, one.made, one.arm),
            *(asked, given is not None, type(given) is int, type(one.time) is int),
        )
        if (shape := self._shape_numbers.get(fields)) is None:
            shape = self._new_shape(Shape(*fields))
        if (source := numbers.get(end := (one.src, one.src_addr))) is None:
            source = self._new_end(end)
        if (target := numbers.get(end := (one.dst, one.dst_addr))) is None:
            target = self._new_end(end)
        text = NO_TEXT if raw is None and extra is None else self._spool.add(raw, extra)
        # A damaged recording may have any number here.
        attempts = one.attempts if 0 <= one.attempts <= _MAXIMUM else min(max(one.attempts, 0), _MAXIMUM)
        self._uses[shape] += 1
        if previous != NONE and not self._previous:
            self._previous = array("I", (_NO_ROW,)) * len(self._shape_of)
        before = _NO_ROW if previous == NONE else previous
        if self._free:
            row = self._free.pop()
            self._value[row], self._time[row], self._shape_of[row], self._source[row] = value, time, shape, source
            self._target[row], self._attempts[row], self._text[row] = target, attempts, text
            self._previous[row] = before
        else:
            row = len(self._shape_of)
            self._value.append(value)
            self._time.append(time)
            self._shape_of.append(shape)
            self._source.append(source)
            self._target.append(target)
            self._attempts.append(attempts)
            self._text.append(text)
            if self._previous:
                self._previous.append(before)
        return row

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
        shape_of, previous = self._shape_of, self._previous
        repeats = [row for row, before in enumerate(previous) if before != _NO_ROW and shape_of[row] != _UNUSED]
        replaced = set(map(previous.__getitem__, repeats))
        return [row for row in repeats if row not in replaced]

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
            row = self._previous[row] if self._previous else NONE
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

    def places_of_size(self, rows: list[int], asked: int | None) -> list[int]:
        """Return the places of those of some rows, none of them removed, with this requested message size."""
        shapes, shape_of = self._shapes, self._shape_of
        return [at for at, row in enumerate(rows) if shapes[shape_of[row]].asked == asked]  # type: ignore[union-attr]

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

    def rows(self, layers: Collection[Layer] | None = None) -> Iterator[int]:
        """Yield the rows of first attempts in some layers (None: in all), in the order of arrival."""
        wanted = {self._shape_numbers[shape] for shape in self.shapes_in_use(layers)}
        if not wanted:
            return
        at = 0
        while at < len(self._shape_of):
            some = self._shape_of[at : at + _SCANNED]
            data = some.tobytes() if len(wanted) <= _FEW_SHAPES else b""
            # Collectives are few among many pairs: a search for bytes skips what has none of them.
            if not data or any(array(some.typecode, (number,)).tobytes() in data for number in wanted):
                for row in range(at, at + len(some)):
                    if self._shape_of[row] in wanted and (not self._previous or self._previous[row] == _NO_ROW):
                        yield row
            at += len(some)

    def shapes_in_use(self, layers: Collection[Layer] | None) -> Iterator[Shape]:
        """Yield the shapes of some layers, or of all."""
        return (shape for shape in self._shapes if shape is not None and (layers is None or shape.layer in layers))

    def sizes(self, layer: Layer) -> list[int]:
        """Return the requested message sizes of a layer, the smallest first."""
        return sorted({shape.asked for shape in self.shapes_in_use((layer,)) if shape.asked})

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
