"""Measurements of endpoint pairs, node pairs and groups, with the statistics they are judged by."""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np

from fabtui.model.class_statistics import ATTEMPTS, ClassValues, flapping, lasting
from fabtui.model.endpoints import ClassKey, EndpointTable, PairClass
from fabtui.model.layers import Layer
from fabtui.model.measurement import Extra, Measurement, Verdict
from fabtui.model.measurement_store import NONE, MeasurementStore
from fabtui.model.places import Places, values_by_class

Key = tuple[Layer, str, str]
Kind = TypeVar("Kind", bound=Hashable)
#: The lower half of an entry of a row.
_NUMBER = (1 << 32) - 1
#: Maximum number of attempts that are kept of a pair in a layer.
MOST_ATTEMPTS = 64
#: Maximum number of rows that are grouped at once: the arrays for it take 100 bytes per row.
_MOST_GROUPED = 1 << 13
DEFAULT_SLOW_BELOW = 0.7
#: Layers of which either makes a pair a tested one.
_OTHER = {Layer.P2P: Layer.WORLD, Layer.WORLD: Layer.P2P}
#: Maximum number of sweeps whose attempts are kept apart.
_MOST_SWEEPS = 1000
#: Multiple of the median message time from which the 99th percentile is notable.
STALL = 3.0


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
        rows = (np.array(row) & _NUMBER for row in list(self._rows.get(kind, {}).values()))
        return (array("I", row.astype(np.uint32).tobytes()) for row in rows)


class PairResults:
    """All attempts at each ordered pair in each layer, and the good values of each class.

    Values between addresses are stored elsewhere (`fabtui.model.address_log`), and judged here.

    Args:
        table: Endpoints of the session.
        key_of: Returns the class a measurement is compared within.
    """

    def __init__(self, table: EndpointTable, key_of: Callable[[Measurement], ClassKey]) -> None:
        self._table = table
        self._key_of = key_of
        self.store = MeasurementStore()  #: Measurements of endpoint pairs, node pairs and groups.
        self.names = Names()  #: Numbers of the ends of pairs.
        #: Row of the latest attempt at each ordered pair in a layer.
        self._rows: PairIndex[Layer] = PairIndex(self.names)
        #: Row of the latest attempt with the largest message, where it is not the latest.
        self._largest: dict[Key, int] = {}
        self._by_class: dict[tuple[Layer, ClassKey], ClassValues] = {}
        #: Rows of first attempts that are not in their class yet, by layer.
        self._pending: dict[Layer, array[int]] = {}
        self._regroup = False
        self._places: tuple[object, Places] | None = None
        #: Number of changes of each layer, and of the classes.
        self._changes: Counter[Layer] = Counter()
        self._regroupings = 0
        self._arm_store = MeasurementStore()
        self._arm_rows: PairIndex[tuple[str, Layer, int | None]] = PairIndex()
        #: Rows of passed p2p measurements with messages that took far longer than the median.
        self.stalled: dict[int, None] = {}
        self.bidirectional = False  #: Whether a p2p test measured both directions at once.
        self.tested = 0  #: Number of ordered pairs that were tested in p2p or world.
        self._flapping: dict[Key, int] = {}
        self._turning: dict[Key, int] = {}
        #: Times (epoch seconds) from which attempts belong to the next sweep, and whether that is watching.
        self._sweeps: deque[tuple[float, bool]] = deque(maxlen=_MOST_SWEEPS)
        #: Pairs with attempts since `flapping` was read.
        self._repeated: dict[Key, None] = {}
        #: Share of its class median below which a value of a narrow class is slow.
        self.slow_below = DEFAULT_SLOW_BELOW
        #: Time (epoch seconds) before which the latest attempt at each pair is kept, to be compared with.
        self.compared_since = 0.0

    # -- adding -------------------------------------------------------------------------------------------------------

    def add_first(self, measurement: Measurement) -> bool:
        """Add a measurement if it is the first of its pair in its layer; return whether it is."""
        layer, src, dst = measurement.layer, measurement.src, measurement.dst
        row = self._rows.add(layer, src, dst, lambda: self.store.add(measurement))
        if row == NONE:
            return False
        self._changes[layer] += 1
        if (pending := self._pending.get(layer)) is None:
            pending = self._pending[layer] = array("I")
        pending.append(row)
        if len(pending) == _MOST_GROUPED:
            self._group(layer, self._pending.pop(layer))
        if layer in _OTHER:
            self.tested += self._rows.get(_OTHER[layer], src, dst) == NONE
            self._note_stall(row, measurement)
        return True

    def add_again(self, measurement: Measurement) -> None:
        """Add a measurement, which replaces an earlier attempt at the same pair."""
        key = (measurement.layer, measurement.src, measurement.dst)
        self._changes[measurement.layer] += 1
        before = self._rows.get(*key)
        # Before the row is stored: grouping counts all stored rows.
        values = self._values_for(measurement)
        was = self._good_value(self._counting_row(key, before))
        largest = self._largest.pop(key, before)
        row = self.store.add(measurement, before)
        self._rows.set(*key, row)
        self.stalled.pop(before, None)
        self._note_stall(row, measurement)
        if (measurement.asked_bytes or 0) < (self.store.shape(largest).asked or 0):
            self._largest[key] = largest
        rows = self.store.attempts(row)
        self._forget_oldest(rows)
        now = self._good_value(self._counting_row(key, rows[0]))
        if was is not None:
            values.remove(was)
        if now is not None:
            values.add(now)
        if len(rows) > 2:
            self._repeated[key] = None

    def add_value(self, measurement: Measurement, before: Measurement | None) -> None:
        """Add the value of a measurement that is stored elsewhere, in place of that of an earlier attempt."""
        values = self._values_for(measurement)
        if before is not None and before.verdict is Verdict.OK and before.value is not None:
            values.remove(before.value)
        if measurement.verdict is Verdict.OK and measurement.value is not None:
            values.add(measurement.value)

    def add_to_arm(self, measurement: Measurement) -> None:
        """Add a measurement of a further arm of an A/B comparison."""
        assert measurement.arm is not None
        kind = (measurement.arm, measurement.layer, measurement.asked_bytes)
        before = self._arm_rows.get(kind, measurement.src, measurement.dst)
        row = self._arm_store.add(measurement, before)
        if before != NONE:
            self._arm_store.remove(before, after=row)
        self._arm_rows.set(kind, measurement.src, measurement.dst, row)

    def _note_stall(self, row: int, measurement: Measurement) -> None:
        if measurement.extra and measurement.layer is Layer.P2P and measurement.verdict is Verdict.OK:
            self.bidirectional |= "both_ways" in measurement.extra
            if _stalls(measurement.extra):
                self.stalled[row] = None

    def _forget_oldest(self, rows: list[int]) -> None:
        """Keep memory bounded in a session that watches for days."""
        if len(rows) <= MOST_ATTEMPTS:
            return
        sizes = [self.store.shape(row).asked for row in rows]
        same = [at for at, size in enumerate(sizes) if size == sizes[0]]
        if len(same) > MOST_ATTEMPTS:
            # Attempts at other message sizes are not repeated, and stay.
            older, oldest = (self.store.time(rows[at]) < self.compared_since for at in same[-2:])
            dropped = same[-2] if oldest and not older else same[-1]
            self.store.remove(rows[dropped], after=rows[dropped - 1])
            del rows[dropped]

    @property
    def flapping(self) -> dict[Key, int]:
        """Number of turns of each flapping pair, as far as they outlast retests; of CPU ranks, sweeps.

        Judged when it is read: each result changes the values that the attempts at a pair are judged by.
        """
        self._judge_repeated()
        return self._flapping

    @property
    def turning(self) -> dict[Key, int]:
        """Number of turns of each pair, those within a retest included; evidence only beside a sign of the link."""
        self._judge_repeated()
        return self._turning

    def _judge_repeated(self) -> None:
        if self._repeated:
            repeated, self._repeated = self._repeated, {}
            for key in repeated:
                self._note_flapping(key)

    def _note_flapping(self, key: Key) -> None:
        self._flapping.pop(key, None)
        self._turning.pop(key, None)
        if key[0].spec.collective is None:
            rows = self.store.attempts(self._rows.get(*key), ATTEMPTS)
            values, counting = self._values_between(*key), self.store.shape(self._latest_row(*key)).asked
            verdicts = {
                row: self._judged(row, values if self.store.shape(row).asked == counting else None)
                for row in reversed(rows)
            }
            if turned := flapping(verdicts.values()):
                self._turning[key] = turned
                if turned := flapping(lasting(self._of_sweeps(key, verdicts))):
                    self._flapping[key] = turned

    def _of_sweeps(self, key: Key, verdicts: dict[int, Verdict]) -> Iterable[Verdict]:
        """Return the verdicts of attempts; of CPU ranks, which share cores, the last one of each sweep."""
        numbers = [self._table.number(end) for end in key[1:]]
        if not all(number is not None and self._table.endpoints[number].kind == "cpu" for number in numbers):
            return verdicts.values()
        # Each attempt of watching is a sweep.
        last: dict[tuple[int, int], Verdict] = {}
        for row, verdict in verdicts.items():
            at = bisect_right(self._sweeps, self.store.time(row), key=lambda sweep: sweep[0])
            last[at, row if at and self._sweeps[at - 1][1] else -1] = verdict
        return last.values()

    def begin_sweep(self, time: float, *, watching: bool = False) -> None:
        """Note that attempts from a time on (epoch seconds) belong to another sweep, or to watching."""
        self._sweeps.append((time, watching))

    def classes_changed(self) -> None:
        """Group the values again before the next reading: endpoints belong to other classes now."""
        self._regroup = True
        self._regroupings += 1

    def revision(self, layer: Layer) -> tuple[object, ...]:
        return self._changes[layer], self._regroupings, self.slow_below

    def places(self) -> Places:
        """Return nodes, rails, leaves and hardware of all endpoints as arrays."""
        revision = self._regroupings, len(self._table.endpoints)
        if self._places is None or self._places[0] != revision:
            self._places = revision, Places.of(self._table)
        return self._places[1]

    @property
    def _values(self) -> dict[tuple[Layer, ClassKey], ClassValues]:
        if self._regroup:
            self._regroup = False
            self._pending.clear()
            for layer in self.layers:
                self._pending[layer] = array("I", itertools.chain.from_iterable(self.counting_rows(layer)))
            self._by_class = {key: kept for key, kept in self._by_class.items() if key[0].spec.by_address}
        while self._pending:
            self._group(*self._pending.popitem())
        return self._by_class

    def _group(self, layer: Layer, rows: array[int]) -> None:
        """Add the values of rows to those of their classes; all at once, because reading a recording adds millions."""
        for at in range(0, len(rows), _MOST_GROUPED):
            some = rows[at : at + _MOST_GROUPED]
            for key, values in values_by_class(self.store, self._table, self.places(), some):
                known = self._by_class.setdefault((layer, key), ClassValues(less_is_better=layer.spec.less_is_better))
                known.add(*values)

    def _values_for(self, measurement: Measurement) -> ClassValues:
        key = (measurement.layer, self._key_of(measurement))
        values = self._values.get(key)
        if values is None:
            values = self._values[key] = ClassValues(less_is_better=measurement.layer.spec.less_is_better)
        return values

    def lowest(self, layer: Layer) -> float | None:
        """Return the lowest value of a layer, or None."""
        ends = [values.lowest for (of, _), values in self._values.items() if of is layer]
        return min((lowest for lowest in ends if lowest is not None), default=None)

    def values(self, layer: Layer, kind: ClassKey | PairClass) -> ClassValues | None:
        """Return the good values of a class in a layer, or None; the caller must not change them.

        A relation stands for the largest class of this relation.
        """
        if isinstance(kind, ClassKey):
            return self._values.get((layer, kind))
        classes = [values for (of, key), values in self._values.items() if of is layer and key.kind is kind]
        return max(classes, key=len, default=None)

    def settle(self) -> None:
        """Take all values into account: the references of large classes are not found again for each value."""
        for (layer, _), values in self._values.items():
            self._changes[layer] += values.settle()
        # What turned around a limit may be usual by what is known now.
        for key in list(self._turning):
            self._note_flapping(key)

    def _good_value(self, row: int) -> float | None:
        return self.store.value(row) if row != NONE and self.store.shape(row).verdict is Verdict.OK else None

    # -- reading ------------------------------------------------------------------------------------------------------

    def _counting_row(self, key: Key, last: int) -> int:
        """Return the row that counts of a pair whose latest row is given: that of the largest message."""
        if not self._largest or last == NONE or not key[0].spec.sizes or self.store.shape(last).asked is None:
            return last
        return self._largest.get(key, last)

    def _latest_row(self, layer: Layer, src: str, dst: str) -> int:
        return self._counting_row((layer, src, dst), self._rows.get(layer, src, dst))

    def latest(self, layer: Layer, src: str, dst: str) -> Measurement | None:
        """Return the measurement that counts of an ordered pair: the latest with the largest message."""
        row = self._latest_row(layer, src, dst)
        return None if row == NONE else self.store.get(row)

    def history(self, layer: Layer, src: str, dst: str, most: int | None = None) -> list[Measurement]:
        """Return all measurements of an ordered pair in a layer, or the latest ``most``, oldest first."""
        rows = self.store.attempts(self._rows.get(layer, src, dst), most)
        return [self.store.get(row) for row in reversed(rows)]

    def pairs(self) -> Iterator[Key]:
        return ((layer, src, dst) for layer, src, dst, _ in self._rows.items())

    def everything(self, layers: Collection[Layer] | None = None) -> Iterator[Measurement]:
        """Yield the latest measurement of each pair and message size, in the order of their first attempts.

        Args:
            layers: Layers of the measurements; None for all.
        """
        return map(self.store.get, self.rows(layers))

    def rows(self, layers: Collection[Layer] | None = None) -> list[int]:
        """Return the rows of `everything`."""
        store = self.store
        rows = store.rows(layers)
        if last_of := {store.attempts(last)[-1]: last for last in store.repeated()}:
            each = (self._of_each_size(last_of[first]) if first in last_of else (first,) for first in rows)
            rows = list(itertools.chain.from_iterable(each))
        return rows

    def _of_each_size(self, last: int) -> Iterable[int]:
        latest: dict[int | None, int] = {}
        for row in reversed(self.store.attempts(last)):
            shape = self.store.shape(row)
            size = shape.asked if shape.layer.spec.sizes else None
            if size is None:
                # It failed before there was a message, which holds for all sizes.
                latest.clear()
            latest.pop(None, None)
            latest[size] = row
        return latest.values()

    def arms(self) -> Iterator[Measurement]:
        """Yield the measurements of the further arms of an A/B comparison."""
        return (self._arm_store.get(row) for row in self._arm_store.rows())

    @property
    def layers(self) -> Collection[Layer]:
        return self._rows.kinds()

    def sizes(self, layer: Layer) -> list[int]:
        """Return the message sizes that were requested in a layer, the smallest first."""
        return sorted({shape.asked for shape in self.store.shapes_in_use((layer,)) if shape.asked})

    def engines(self, layer: Layer) -> list[str]:
        """Return the engines that measured a layer, the first word of its methods."""
        return sorted({shape.how.split()[0] for shape in self.store.shapes_in_use((layer,)) if shape.how.strip()})

    def has(self, layer: Layer) -> bool:
        """Return True if a layer has measurements."""
        return self._rows.has(layer)

    def counting_rows(self, layer: Layer) -> Iterator[Sequence[int]]:
        for rows in self._rows.by_source(layer):
            yield [self._counting_row((layer, *self.store.ends(row)), row) for row in rows] if self._largest else rows

    def verdicts_in(self, layer: Layer) -> Iterator[tuple[Verdict, str, str]]:
        for rows in self.counting_rows(layer):
            for row in list(rows):
                src, dst = self.store.ends(row)
                yield self._judged(row, self._values_between(layer, src, dst)), src, dst

    def repeated(self, layer: Layer) -> Iterator[tuple[Measurement, Measurement]]:
        """Yield the first and the latest attempt at each pair of a layer that was tested several times."""
        for last in self.store.repeated():
            if self.store.shape(last).layer is layer:
                yield self.store.get(self.store.attempts(last)[-1]), self.store.get(last)

    def own_verdicts(self, layer: Layer) -> Counter[Verdict]:
        """Return how many of `everything` in a layer have each verdict, slowness within their class left out."""
        shapes, shape_of, _ = self.store.columns()
        counts = Counter[Verdict]()
        for number, count in Counter(map(shape_of.__getitem__, self.rows((layer,)))).items():
            if (shape := shapes[number]) is not None:
                counts[shape.verdict] += count
        return counts

    def was_slow(self, measurement: Measurement) -> bool:
        """Return True if an attempt, not necessarily the latest, is slow among the values of its class."""
        values = self._values.get((measurement.layer, self._key_of(measurement)))
        ok = measurement.verdict is Verdict.OK and measurement.value is not None
        return ok and values is not None and values.is_slow(measurement.value or 0.0, self.slow_below)

    # -- verdicts -----------------------------------------------------------------------------------------------------

    def verdict(self, measurement: Measurement) -> Verdict:
        """Return the verdict of a measurement, slowness within its class included."""
        layer, own = measurement.layer, measurement.verdict
        if own is not Verdict.OK or measurement.value is None or not layer.spec.judged:
            return own
        if not layer.spec.by_address:
            row = self._latest_row(layer, measurement.src, measurement.dst)
            if measurement.arm is not None or row == NONE or self.store.shape(row).asked != measurement.asked_bytes:
                return own
        return Verdict.SLOW if self.was_slow(measurement) else own

    def verdict_between(self, layer: Layer, src: str, dst: str) -> Verdict | None:
        """Return the verdict of the measurement that counts of an ordered pair, or None if there is none."""
        row = self._latest_row(layer, src, dst)
        return None if row == NONE else self._judged(row, self._values_between(layer, src, dst))

    def _values_between(self, layer: Layer, src: str, dst: str) -> ClassValues | None:
        return self._values.get((layer, self._table.key_between(src, dst))) if layer.spec.judged else None

    def _judged(self, row: int, values: ClassValues | None) -> Verdict:
        """Return the verdict of a row among the values of its class, without building an object for it."""
        own = self.store.shape(row).verdict
        if values is None or own is not Verdict.OK or (value := self.store.value(row)) is None:
            return own
        return Verdict.SLOW if values.is_slow(value, self.slow_below) else own


def _stalls(extra: Extra) -> bool:
    """Return True if the 99th percentile of the message times is far above the median."""
    times = extra.get("times")
    median, p99 = (times.get(name) for name in ("median", "p99")) if isinstance(times, dict) else (None, None)
    return isinstance(median, (int, float)) and isinstance(p99, (int, float)) and p99 > STALL * median
