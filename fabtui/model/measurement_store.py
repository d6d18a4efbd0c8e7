"""Measurements in flat arrays, one row each; their raw texts lie compressed in a temporary file.

A large fabric has a million measurements, and as an object each would take a kilobyte. Numbers are kept in columns by
row. The fields that most rows share (layer, verdict, unit, method, transport, error) are kept once, as a `Shape`.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, StoredMeasurement, Verdict
from fabtui.model.text_spool import NO_TEXT, TextSpool

#: Stands for "no row".
NONE = -1
#: Shape number of a row that was removed.
_UNUSED = 0
_NO_ROW = _MAXIMUM = 0xFFFFFFFF
#: Next wider type of a column.
_WIDER = {"B": "H", "H": "I"}


class Shape(NamedTuple):
    """The fields that rows share.

    Attributes:
        asked: Requested message size, or None.
        integral: Which of value and time were whole numbers; JSON and CSV print those without a fraction.
    """

    layer: Layer
    verdict: Verdict
    unit: str
    bytes: int | None
    how: str
    transport: str | None
    error: str | None
    made: bool
    arm: str | None
    asked: int | None
    has_value: bool
    integral: tuple[bool, bool]


def _put(column: array[int], row: int, number: int) -> array[int]:
    """Set or append a number of a column, and return the column: a wider one if the number did not fit."""
    try:
        if row == len(column):
            column.append(number)
        else:
            column[row] = number
    except OverflowError:
        return _put(array(_WIDER[column.typecode], column), row, number)
    return column


class MeasurementStore:
    """Measurements by row number. Rows of repeated attempts are chained, the latest first."""

    def __init__(self) -> None:
        self._shapes: list[Shape | None] = [None]
        self._shape_numbers: dict[tuple[Any, ...], int] = {}
        #: Count of rows of each shape: one that is not in use any more makes room.
        self._uses = array("I", [0])
        self._free_shapes: list[int] = []
        #: Every end: its name, and its address or None.
        self._ends: list[tuple[str, str | None]] = []
        self._end_numbers: dict[tuple[str, str | None], int] = {}
        self._shape_of = array("B")
        self._source = array("H")
        self._target = array("H")
        self._value = array("d")
        self._time = array("d")
        self._attempts = array("B")
        self._text = array("I")
        #: Row of the previous attempt; None while there are first attempts only, as in most sessions.
        self._previous: array[int] | None = None
        self._free: list[int] = []
        self._spool = TextSpool()

    def _end(self, name: str, address: str | None) -> int:
        key = (name, address)
        end = self._end_numbers.get(key)
        if end is None:
            end = self._end_numbers[key] = len(self._ends)
            self._ends.append(key)
        return end

    def _shape(self, one: Measurement) -> int:
        integral = (type(one.value) is int, type(one.time) is int)
        # A plain tuple is equal to the shape, and made in a fifth of the time.
        fields = (
            *(one.layer, one.verdict, one.unit, one.bytes, one.how, one.transport, one.error, one.made, one.arm),
            *(one.asked_bytes, one.value is not None, integral),
        )
        number = self._shape_numbers.get(fields)
        if number is None:
            shape = Shape(*fields)
            if self._free_shapes:
                number = self._free_shapes.pop()
                self._shapes[number] = shape
            else:
                number = len(self._shapes)
                self._shapes.append(shape)
                self._uses.append(0)
            self._shape_numbers[shape] = number
        self._uses[number] += 1
        return number

    def add(self, one: Measurement, previous: int = NONE) -> int:
        """Store a measurement, and return its row.

        Args:
            one: The measurement.
            previous: Row of the previous attempt, or `NONE`.
        """
        # Anything that may fail comes first: columns of different lengths would corrupt the store.
        floats = ((self._value, 0.0 if one.value is None else float(one.value)), (self._time, float(one.time)))
        shape, text = self._shape(one), self._spool.add(one.raw, one.extra)
        source, target = self._end(one.src, one.src_addr), self._end(one.dst, one.dst_addr)
        row = self._free.pop() if self._free else len(self._shape_of)
        for column, number in floats:
            if row == len(column):
                column.append(number)
            else:
                column[row] = number
        self._shape_of = _put(self._shape_of, row, shape)
        self._source = _put(self._source, row, source)
        self._target = _put(self._target, row, target)
        # A damaged recording may have any number here.
        self._attempts = _put(self._attempts, row, min(max(one.attempts, 0), _MAXIMUM))
        self._text = _put(self._text, row, text)
        if previous != NONE and self._previous is None:
            self._previous = array("I", [_NO_ROW]) * row
        if self._previous is not None:
            self._set_previous(row, previous)
        return row

    def _set_previous(self, row: int, previous: int) -> None:
        assert self._previous is not None
        known = _NO_ROW if previous == NONE else previous
        if row == len(self._previous):
            self._previous.append(known)
        else:
            self._previous[row] = known

    def remove(self, row: int, after: int) -> None:
        """Forget a row; ``after`` is the row of the next attempt."""
        self._set_previous(after, self.previous(row))
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

    def previous(self, row: int) -> int:
        """Return the row of the previous attempt, or `NONE`."""
        found = _NO_ROW if self._previous is None else self._previous[row]
        return NONE if found == _NO_ROW else found

    def repeated(self) -> list[int]:
        """Return the rows of the latest attempts of what was attempted several times."""
        if self._previous is None:
            return []
        shape_of = self._shape_of
        repeats = [row for row, before in enumerate(self._previous) if before != _NO_ROW and shape_of[row] != _UNUSED]
        replaced = set(map(self._previous.__getitem__, repeats))
        return [row for row in repeats if row not in replaced]

    def columns(self) -> tuple[list[Shape | None], array[int], array[float]]:
        """Return the shapes, the shape number of each row, and the value of each row; to be read only."""
        return self._shapes, self._shape_of, self._value

    @property
    def end_names(self) -> list[str]:
        """Name of each end, by the numbers in `end_columns`; a name may be there several times."""
        return [name for name, _ in self._ends]

    @property
    def end_columns(self) -> tuple[array[int], array[int]]:
        """Numbers of source and destination of each row; to be read only."""
        return self._source, self._target

    def attempts(self, row: int) -> list[int]:
        """Return a row and those of all attempts before it, the latest first."""
        if row == NONE or self._previous is None:
            return [] if row == NONE else [row]
        rows, previous = [row], self._previous
        while (row := previous[row]) != _NO_ROW:
            rows.append(row)
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
        return int(self._value[row]) if shape.integral[0] else self._value[row]

    def time(self, row: int) -> float:
        """Return the time of a row (epoch seconds)."""
        return self._time[row]

    def ends(self, row: int) -> tuple[str, str]:
        """Return the names of source and destination of a row."""
        return self._ends[self._source[row]][0], self._ends[self._target[row]][0]

    def rows(self, layers: Collection[Layer] | None = None) -> Iterator[int]:
        """Yield the rows of first attempts in some layers (None: in all), in the order of arrival."""
        wanted = {self._shape_numbers[shape] for shape in self.shapes_in_use(layers)}
        if not wanted:
            return
        for row, number in enumerate(self._shape_of):
            if number in wanted and (self._previous is None or self._previous[row] == _NO_ROW):
                yield row

    def shapes_in_use(self, layers: Collection[Layer] | None) -> Iterator[Shape]:
        """Yield the shapes of some layers, or of all."""
        return (shape for shape in self._shapes if shape is not None and (layers is None or shape.layer in layers))

    def sizes(self, layer: Layer) -> list[int]:
        """Return the requested message sizes of a layer, the smallest first."""
        return sorted({shape.asked for shape in self.shapes_in_use((layer,)) if shape.asked})

    def get(self, row: int) -> Measurement:
        """Return the measurement of a row."""
        shape = self.shape(row)
        src, src_addr = self._ends[self._source[row]]
        dst, dst_addr = self._ends[self._target[row]]
        time = self._time[row]
        return StoredMeasurement.of(
            *(None if self._text[row] == NO_TEXT else self._spool, self._text[row], shape.asked),
            *(shape.layer, src, dst, shape.verdict, self.value(row), shape.unit, shape.bytes),
            *(int(time) if shape.integral[1] else time, shape.how, shape.transport, src_addr, dst_addr),
            *(self._attempts[row], shape.error, shape.made, shape.arm),
        )
