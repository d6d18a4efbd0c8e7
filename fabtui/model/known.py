"""What is known of a session: its state, and everything that can be read from it; events are taken in elsewhere."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator
from typing import Any

from fabtui.model.address_log import AddressLog, badness
from fabtui.model.baseline import Baseline, Change, change
from fabtui.model.class_statistics import ClassValues
from fabtui.model.counter_log import CounterLog, Deltas
from fabtui.model.endpoints import Endpoint, PairClass, pair_class
from fabtui.model.layers import Layer, Per, health_layers
from fabtui.model.measurement import Measurement, Verdict, worst
from fabtui.model.measurement_store import NONE, MeasurementStore, Shape
from fabtui.model.pair_index import PairIndex, PairList
from fabtui.model.records import Cell, LogLine, NodeRecord, Phase

LOG_LINES = 5000
DEFAULT_SLOW_BELOW = 0.7


class Known:
    """The state of a session, and what can be read from it.

    Attributes:
        version: Grows with each applied event.
        layout: Grows when endpoints were added, so that whoever draws knows to lay out anew.
        looked: Grows with what is found on a node, and with its state.
        nodes: The nodes in the order the user gave them.
        endpoints: The rows and columns of the grid, by number.
        log: The latest lines of the event log.
        phase: The part of the sweep that runs.
        done: How many tests of the phase have ended.
        synthetic: Who made the values up, where no machine measured them; None for what was measured.
        lab: What the lab is (``2x4``), or None on real nodes.
        faults: The lab faults, as text, that were made on purpose.
        options: The options of the session, as recorded.
        untested: Why ordered pairs were not tested.
        tested: The ordered pairs that were tested, each once, with the layer (p2p or world) that was the first; it only
            grows, so that whoever goes through it a part at a time may keep a place in it.
        suspects: What testing bad pairs with other partners told about them.
        addresses: What was measured between addresses of nodes.
        comparison: The arms of an A/B comparison, the first one first; empty without one.
        watching: Whether tests go on in the background.
        baseline: An earlier session to compare with, or None; whoever shows the model sets it.
        flapping: The pairs of a layer that flap, with how often they turned (`fabtui.model.flapping`).
    """

    def __init__(self) -> None:
        self.version = 0
        self.layout = 0
        self.looked = 0
        self.nodes: dict[str, NodeRecord] = {}
        self.endpoints: list[Endpoint] = []
        self.log: deque[LogLine] = deque(maxlen=LOG_LINES)
        self.phase = Phase("start", 0, 0.0)
        self.done = 0
        self.lab: str | None = None
        self.synthetic: str | None = None
        self.faults: list[str] = []
        self.options: dict[str, Any] = {}
        self.started = 0.0
        self.now = 0.0
        self.paused = False
        self.watching = False
        self.exit_code: int | None = None
        self.end_text = ""
        self.software = ""
        self.running: set[tuple[str, str]] = set()
        self.untested: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._by_node: dict[str, list[int]] = {}
        self._kept = MeasurementStore()
        #: The row of the latest attempt at each ordered pair in a layer.
        self._rows: PairIndex[Layer] = PairIndex()
        #: That of the latest with the largest message, where it is another.
        self._largest: dict[tuple[Layer, str, str], int] = {}
        self.addresses = AddressLog()
        self.leaves: dict[int, str] = {}
        self._by_class: dict[tuple[Layer, PairClass], ClassValues] = {}
        self._regroup = False
        self._slow_below = DEFAULT_SLOW_BELOW
        self._arms: dict[tuple[str, Layer, str, str, int | None], Measurement] = {}
        self.suspects: dict[tuple[str, str], str] = {}
        self.tested = PairList()
        self.comparison: list[str] = []
        self.baseline: Baseline | None = None
        self.flapping: dict[tuple[Layer, str, str], int] = {}
        self._changed: set[tuple[int, int]] | None = None
        self._counters = CounterLog()

    @property
    def _values(self) -> dict[tuple[Layer, PairClass], ClassValues]:
        """The good values by layer and class, grouped anew where classes have changed."""
        if self._regroup:
            self._regroup = False
            found: dict[tuple[Layer, PairClass], list[float]] = {}
            for layer, src, dst, _ in self._rows.items():
                if (value := self._judged_value(self._latest_row(layer, src, dst))) is not None:
                    found.setdefault((layer, self.class_between(src, dst)), []).append(value)
            self._by_class = {key: kept for key, kept in self._by_class.items() if key[0].spec.by_address}
            self._by_class.update(
                (key, ClassValues(values, key[0].spec.less_is_better)) for key, values in found.items()
            )
        return self._by_class

    def _values_for(self, measurement: Measurement) -> ClassValues:
        """Return the good values of a measurement's class, to be changed."""
        key = (measurement.layer, self.class_of(measurement))
        values = self._values.get(key)
        if values is None:
            values = self._values[key] = ClassValues(less_is_better=measurement.layer.spec.less_is_better)
        return values

    def _latest_row(self, layer: Layer, src: str, dst: str) -> int:
        """The row of the measurement that counts of an ordered pair: the latest, of the largest message; or `NONE`."""
        return self._that_counts((layer, src, dst), self._rows.get(layer, src, dst))

    def _that_counts(self, key: tuple[Layer, str, str], last: int) -> int:
        """The row that counts of an ordered pair whose latest row is given."""
        if not self._largest or last == NONE or not key[0].spec.sizes or self._kept.shape(last).asked is None:
            return last
        return self._largest.get(key, last)

    def _judged_value(self, row: int) -> float | None:
        """The value of a row that counts for its class."""
        return self._kept.value(row) if row != NONE and self._kept.shape(row).verdict is Verdict.OK else None

    def drain_changes(self) -> set[tuple[int, int]] | None:
        """Return the cells, by endpoint numbers, that changed since the last call; None: any may have.

        For one reader, who draws. Without one nothing is collected. Medians move with every value, so that cells which
        are not named here may change their place within their class.
        """
        changed, self._changed = self._changed, set()
        return changed

    def number(self, name: str) -> int | None:
        """Return the number of the endpoint of a name (``n060:3``), or None."""
        return self._numbers.get(name)

    def gone(self, node: str) -> NodeRecord | None:
        """Return the record of a node that went away, None for any other."""
        record = self.nodes.get(node)
        return record if record is not None and record.state.gone else None

    def endpoints_of(self, node: str) -> list[Endpoint]:
        """Return the endpoints of a node."""
        return [self.endpoints[number] for number in self._by_node.get(node, [])]

    def class_between(self, src: str, dst: str) -> PairClass:
        """Return the class of a pair of endpoints, of nodes, or of everything (``all``)."""
        a, b = self._numbers.get(src), self._numbers.get(dst)
        if a is not None and b is not None:
            leaves = self.leaves
            apart = a in leaves and b in leaves and leaves[a] != leaves[b]
            return pair_class(self.endpoints[a], self.endpoints[b], apart)
        if src == dst:
            return PairClass.ALL if src == "all" else PairClass.ONE_NODE
        return PairClass.NODE_PAIR

    def class_of(self, measurement: Measurement) -> PairClass:
        """Return the class a measurement is compared within; between addresses it is that of their rails."""
        if measurement.layer.spec.by_address:
            return self.addresses.kind(measurement)
        return self.class_between(measurement.src, measurement.dst)

    def history(self, layer: Layer, src: str, dst: str) -> list[Measurement]:
        """Return all measurements of an ordered pair in a layer, oldest first; by address those of the two nodes."""
        if layer.spec.by_address:
            return self.addresses.attempts(layer, src, dst)
        return [self._kept.get(row) for row in reversed(self._kept.attempts(self._rows.get(layer, src, dst)))]

    def latest(self, layer: Layer, src: str, dst: str) -> Measurement | None:
        """Return the measurement that counts of an ordered pair in a layer: the latest, of the largest message."""
        row = self._latest_row(layer, src, dst)
        return None if row == NONE else self._kept.get(row)

    def by_address(self, layer: Layer, src_node: str, dst_node: str) -> list[Measurement]:
        """Return the latest measurement of each address pair of two nodes in a layer of those."""
        return self.addresses.latest(layer, src_node, dst_node)

    def measurements(self) -> Iterator[Measurement]:
        """Yield what a snapshot holds: the latest measurement of each cell and message size, those by address last."""
        kept = self._kept
        for first in kept.rows():
            last = self._rows.get(kept.shape(first).layer, *kept.ends(first))
            if last == first:
                yield kept.get(first)
                continue
            yield from (kept.get(row) for row in self._of_each_size(last))
        yield from self.addresses.everything()

    def _of_each_size(self, last: int) -> Iterable[int]:
        """The rows of the latest attempt at each message size, of all attempts up to a row."""
        latest: dict[int | None, int] = {}
        for row in reversed(self._kept.attempts(last)):
            shape = self._kept.shape(row)
            size = shape.asked if shape.layer.spec.sizes else None
            if size is None:
                # It failed before there was a message: that says something of all sizes.
                latest.clear()
            latest.pop(None, None)
            latest[size] = row
        return latest.values()

    def arms(self) -> Iterator[Measurement]:
        """Yield what was measured in the further arms of an A/B comparison; the first arm's is in `measurements`."""
        yield from self._arms.values()

    def in_arm(self, arm: str, measurement: Measurement) -> Measurement | None:
        """Return what another arm measured of the same thing at the same message size, or None."""
        key = (arm, measurement.layer, measurement.src, measurement.dst, measurement.asked_bytes)
        return self._arms.get(key)

    def counters_between(self, node: str, since: float, until: float) -> Deltas:
        """Return what a node's counters moved by, over all looks that overlap a time (epoch seconds); {} for nothing.

        The shape is that of `fabtui.model.counter_log`.
        """
        return self._counters.between(node, since, until)

    def counters_for(self, measurement: Measurement) -> dict[str, Deltas]:
        """Return what the counters of the nodes of a pair's measurement moved by while it was made.

        They are those of whole nodes, so that what else was tested at that time is in them. A node is left out where
        nothing moved or nothing is known.
        """
        return self._counters.of(measurement)

    def verdict(self, measurement: Measurement) -> Verdict:
        """Return the verdict of a measurement, slowness within its class included."""
        if measurement.verdict is not Verdict.OK or measurement.value is None or not measurement.layer.spec.judged:
            return measurement.verdict
        if not measurement.layer.spec.by_address:
            row = self._latest_row(measurement.layer, measurement.src, measurement.dst)
            if measurement.arm is not None or row == NONE or self._kept.shape(row).asked != measurement.asked_bytes:
                return measurement.verdict
        values = self._values.get((measurement.layer, self.class_of(measurement)))
        if values is not None and values.is_slow(measurement.value, self._slow_below):
            return Verdict.SLOW
        return Verdict.OK

    def values(self, layer: Layer, kind: PairClass) -> ClassValues | None:
        """Return the good values of a class in a layer, or None when there are none; not to be changed."""
        return self._values.get((layer, kind))

    def median(self, layer: Layer, kind: PairClass) -> float | None:
        """Return the median of the good values of a class in a layer, or None."""
        values = self._values.get((layer, kind))
        return None if values is None else values.median

    @property
    def slow_below(self) -> float:
        """The share of its class median below which a value of a class that spreads little is slow."""
        return self._slow_below

    def limit(self, layer: Layer, kind: PairClass) -> float | None:
        """Return the value below which one of a class is slow, or None where there are too few to tell."""
        values = self._values.get((layer, kind))
        return None if values is None or not layer.spec.judged else values.limit(self._slow_below)

    def measured_for(self, layer: Layer, src: int, dst: int) -> Measurement | None:
        """Return the measurement a cell of the grid stands for, or None; of several addresses, the worst."""
        a, b = self.endpoints[src], self.endpoints[dst]
        if layer.spec.by_address:
            rows = self.by_address(layer, a.node, b.node)
            own = [row for row in rows if (row.src_addr, row.dst_addr) == (a.address, b.address)]
            return max(own or rows, key=badness, default=None)
        if layer.spec.per is Per.NODE_PAIR:
            return self.latest(layer, a.node, b.node) or self.latest(layer, b.node, a.node)
        if layer is Layer.CHANGE and self.baseline is not None:
            layer = self.baseline.layer
        elif layer.spec.shows is not None:
            layer = Layer(layer.spec.shows)
        return self.latest(layer, self._names[src], self._names[dst])

    def pairs_in(self, layers: Container[Layer]) -> list[tuple[str, str]]:
        """Return the ordered pairs, of endpoints or of nodes, that have a measurement in any of some layers."""
        found = {(src, dst): None for _, src, dst in self._rows.keys(layers)}
        for layer in self.addresses.layers:
            if layer in layers:
                found.update(dict.fromkeys(self.addresses.node_pairs(layer)))
        return list(found)

    def change(self, src: int, dst: int) -> Change | None:
        """Return how a pair of endpoint numbers changed against the baseline, or None when there is none."""
        if self.baseline is None:
            return None
        now = self.measured_for(Layer.CHANGE, src, dst)
        then = self.baseline.values.get((str(self.endpoints[src]), str(self.endpoints[dst])))
        return change(then, now, Verdict.UNTESTED if now is None else self.verdict(now))

    def cell(self, layer: Layer, src: int, dst: int) -> Cell:
        """Return what the cell of two endpoint numbers shows in a layer. A cell of the diagonal is ``untested``."""
        pair = (self._names[src], self._names[dst])
        running = pair in self.running
        if layer is Layer.HEALTH:
            found = [
                (m, self.verdict(m))
                for part in health_layers()
                if src != dst and (m := self.measured_for(part, src, dst)) is not None
            ]
            verdict = worst([v for _, v in found])
            first = next((m for m, v in found if v is verdict), None)
            return Cell(verdict, None, "", "", first, running)
        if src == dst and layer.spec.per is not Per.NODE_PAIR:
            return Cell(Verdict.UNTESTED, None, "", "", None, False)
        measurement = self.measured_for(layer, src, dst)
        if layer is Layer.CHANGE and (changed := self.change(src, dst)) is not None:
            return Cell(changed.verdict, changed.ratio, "", changed.text, measurement, running)
        if measurement is None:
            return Cell(Verdict.UNTESTED, None, "", "", None, running)
        verdict = self.verdict(measurement)
        if layer is Layer.TRANSPORT:
            return Cell(verdict, None, "", measurement.transport or "", measurement, running)
        return Cell(verdict, measurement.value, measurement.unit, "", measurement, running)

    def counts(self) -> dict[Verdict, int]:
        """Return how many measured cells of the pair and node layers have each verdict, pings included."""
        found: Counter[Verdict] = Counter()
        kept = self._kept
        for layer, src, dst, last in self._rows.items():
            if kept.previous(last) == NONE:
                found[self._judged(kept.shape(last), kept.value(last), layer, src, dst)] += 1
            else:
                found.update(self.verdict(kept.get(row)) for row in self._of_each_size(last))
        found.update(self.verdict(measurement) for measurement in self.addresses.everything())
        return dict(found)

    def _judged(self, shape: Shape, value: float | None, layer: Layer, src: str, dst: str) -> Verdict:
        """The verdict of the only attempt at a pair; no object is made of it, as there are very many."""
        if shape.verdict is not Verdict.OK or value is None or not layer.spec.judged:
            return shape.verdict
        values = self._values.get((layer, self.class_between(src, dst)))
        slow = values is not None and values.is_slow(value, self._slow_below)
        return Verdict.SLOW if slow else Verdict.OK

    @property
    def elapsed(self) -> float:
        """Seconds from the start to the latest event."""
        return max(0.0, self.now - self.started)
