"""All that is known of a session, built from its events; the same from a live feed and from a recording."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

from fabtui.fabric.addresses import AddressLog, badness
from fabtui.fabric.baseline import Baseline, Change, change
from fabtui.fabric.counters import CounterLog, Deltas
from fabtui.fabric.endpoint import Endpoint, PairClass, pair_class
from fabtui.fabric.events import Kind, NodeState
from fabtui.fabric.flapping import ATTEMPTS, flapping
from fabtui.fabric.judge import ClassValues
from fabtui.fabric.leaves import TELLING, leaf_of, walked_leaves
from fabtui.fabric.measurement import BY_ADDRESS, COLLECTIVES, SIZED, Layer, Measurement, Verdict, worst
from fabtui.fabric.records import Cell, LogLine, NodeRecord, Phase

__all__ = ["JUDGED", "PAIR_LAYERS", "Cell", "LogLine", "Model", "NodeRecord", "Phase"]

#: Layers that hold one measurement an ordered pair of endpoints.
PAIR_LAYERS = (Layer.P2P, Layer.WORLD, Layer.LATENCY)
#: Layers whose values are judged against their class.
JUDGED = frozenset({Layer.P2P, Layer.WORLD, Layer.IPERF3, Layer.IB_WRITE_BW, Layer.IB_SEND_BW, *COLLECTIVES.values()})
#: Layers whose class medians are kept: those that are judged, and those that are only shown against their median.
MEASURED = JUDGED | {Layer.LATENCY}
#: Layers whose snapshot holds a row for each message size.
SIZES_KEPT = SIZED | {Layer.P2P}
#: More changed cells than this between two looks, and the reader reads everything anew.
_MOST_CHANGES = 100_000
LOG_LINES = 5000
DEFAULT_SLOW_BELOW = 0.7


class Model:
    """The state of a session.

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
        flapping: The pairs of a layer that flap, with how often they turned (`fabtui.fabric.flapping`).
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
        self._history: dict[tuple[Layer, str, str], list[Measurement]] = {}
        #: The latest attempt with the largest message of those.
        self._largest: dict[tuple[Layer, str, str], Measurement] = {}
        self.addresses = AddressLog()
        self.leaves: dict[int, str] = {}
        self._by_class: dict[tuple[Layer, PairClass], ClassValues] = {}
        self._regroup = False
        self._slow_below = DEFAULT_SLOW_BELOW
        self._arms: dict[tuple[str, Layer, str, str, int | None], Measurement] = {}
        self.suspects: dict[tuple[str, str], str] = {}
        self.tested: list[tuple[Layer, str, str]] = []
        self.comparison: list[str] = []
        self.baseline: Baseline | None = None
        self.flapping: dict[tuple[Layer, str, str], int] = {}
        self._changed: set[tuple[int, int]] | None = None
        self._counters = CounterLog()
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            Kind.START: self._on_start,
            Kind.NODE: self._on_node,
            Kind.INVENTORY: self._on_inventory,
            Kind.ENDPOINTS: self._on_endpoints,
            Kind.LOOK: self._on_look,
            Kind.PHASE: self._on_phase,
            Kind.RUNNING: self._on_running,
            Kind.MEASURED: self._on_measured,
            Kind.PLAN: self._on_plan,
            Kind.COUNTERS: self._on_counters,
            Kind.LOG: self._on_log,
            Kind.PAUSED: self._on_paused,
            Kind.WATCH: self._on_watch,
            Kind.END: self._on_end,
        }

    # -- taking events in ---------------------------------------------------------------------------------------------

    def apply(self, event: dict[str, Any]) -> None:
        """Take one event in. A kind that is not known is passed over.

        Raises:
            KeyError: A field of the event is missing.
            ValueError: A field of the event is not what it should be.
        """
        self.now = max(self.now, float(event.get("time", 0.0)))
        handler = self._handlers.get(event["kind"])
        if handler is not None:
            handler(event)
        self.version += 1

    def _on_start(self, event: dict[str, Any]) -> None:
        self.started = float(event.get("time", 0.0))
        self.software = str(event.get("version", ""))
        self.lab = event.get("lab")
        self.synthetic = event.get("synthetic")
        self.faults = list(event.get("faults", []))
        self.options = dict(event.get("options", {}))
        for name in event["nodes"]:
            self.nodes[name] = NodeRecord(name)

    def _record(self, name: str) -> NodeRecord:
        return self.nodes.setdefault(name, NodeRecord(name))

    def _on_node(self, event: dict[str, Any]) -> None:
        self.looked += 1
        record = self._record(event["node"])
        record.state = NodeState(event["state"])
        record.text = event.get("text") or ""
        record.hint = event.get("hint")
        record.backend = event.get("backend") or record.backend
        record.since = float(event.get("time", 0.0))
        if record.state.gone:
            mine = {pair for pair in self.running if any(end.rpartition(":")[0] == record.name for end in pair)}
            self.running -= mine
        self._changed = None

    def _on_inventory(self, event: dict[str, Any]) -> None:
        self.looked += 1
        self._record(event["node"]).inventory = event["value"]
        self.addresses.place(event["node"], event["value"])

    def _on_endpoints(self, event: dict[str, Any]) -> None:
        for value in event["endpoints"]:
            endpoint = Endpoint(**value)
            if endpoint.number != len(self.endpoints):
                raise ValueError(f"endpoint {endpoint} has number {endpoint.number}, not {len(self.endpoints)}")
            self.endpoints.append(endpoint)
            self._names.append(str(endpoint))
            self._numbers[self._names[-1]] = endpoint.number
            self._by_node.setdefault(endpoint.node, []).append(endpoint.number)
        for node, text in event.get("notes", {}).items():
            self._record(node).note = text
        self.layout += 1
        self._changed = None

    def _on_look(self, event: dict[str, Any]) -> None:
        self.looked += 1
        record = self._record(event["node"])
        value = event.get("value")
        kept = value if value is not None else {"error": event.get("error", "")}
        record.looks[event["probe"]] = kept
        if value is not None:
            record.first_looks.setdefault(event["probe"], value)
        if event["probe"] in TELLING:
            # One node walks for all of them.
            whole = isinstance(kept.get("fabric"), dict)
            self._place_on_leaves(self.endpoints if whole else self.endpoints_of(record.name))

    def _place_on_leaves(self, endpoints: list[Endpoint]) -> None:
        walked = walked_leaves(self.nodes.values())
        leaves = dict(self.leaves)
        for end in endpoints:
            leaf = leaf_of(end, self.nodes[end.node], walked)
            if leaf is not None:
                leaves[end.number] = leaf
            else:
                leaves.pop(end.number, None)
        if leaves != self.leaves:
            self.leaves = leaves
            self._regroup = True
            self._changed = None

    @property
    def _values(self) -> dict[tuple[Layer, PairClass], ClassValues]:
        """The good values by layer and class, grouped anew where classes have changed."""
        if self._regroup:
            self._regroup = False
            found: dict[tuple[Layer, PairClass], list[float]] = {}
            for layer, src, dst in self._history:
                if layer in MEASURED and (value := self._judged_value(layer, src, dst)) is not None:
                    found.setdefault((layer, self.class_between(src, dst)), []).append(value)
            self._by_class = {key: kept for key, kept in self._by_class.items() if key[0] in BY_ADDRESS}
            self._by_class.update((key, ClassValues(values)) for key, values in found.items())
        return self._by_class

    def _on_phase(self, event: dict[str, Any]) -> None:
        self.phase = Phase(event["name"], int(event.get("total", 0)), float(event.get("time", 0.0)))
        self.done = 0
        self._change_all(self.running)
        self.running.clear()
        self._counters.phase(self.phase.name, self.phase.since)
        self.exit_code = None

    def _on_running(self, event: dict[str, Any]) -> None:
        pairs = [(src, dst) for src, dst in event["pairs"]]
        self.running.update(pairs)
        self._counters.began(pairs, float(event.get("time", 0.0)))
        self._change_all(pairs)

    def _on_measured(self, event: dict[str, Any]) -> None:
        for value in event["measurements"]:
            measurement = Measurement.from_json(value)
            self._counters.ended(measurement)
            self._take(measurement)

    def _on_counters(self, event: dict[str, Any]) -> None:
        self._counters.take(event["node"], float(event["since"]), float(event["until"]), dict(event["deltas"]))

    def _take(self, measurement: Measurement) -> None:
        self._change(measurement.src, measurement.dst)
        if measurement.arm is not None:
            self._arms[
                measurement.arm, measurement.layer, measurement.src, measurement.dst, measurement.asked_bytes
            ] = measurement
            self.done += measurement.layer is not Layer.LATENCY
            self.running.discard((measurement.src, measurement.dst))
            return
        if measurement.layer in BY_ADDRESS:
            self._take_addressed(measurement)
            return
        key = (measurement.layer, measurement.src, measurement.dst)
        history = self._history.get(key)
        if history is None:
            history = self._history[key] = []
            other = {Layer.P2P: Layer.WORLD, Layer.WORLD: Layer.P2P}.get(measurement.layer)
            if other is not None and (other, measurement.src, measurement.dst) not in self._history:
                self.tested.append(key)
        if measurement.layer in MEASURED:
            values = self._values.setdefault((measurement.layer, self.class_of(measurement)), ClassValues())
            before = self._judged_value(*key)
            self._keep(key, history, measurement)
            after = self._judged_value(*key)
            if before is not None:
                values.remove(before)
            if after is not None:
                values.add(after)
            if len(history) > 2:
                self._note_flapping(key, history)
        else:
            self._keep(key, history, measurement)
        if measurement.layer is not Layer.LATENCY:
            self.done += 1
            self.running.discard((measurement.src, measurement.dst))
            self.untested.pop((measurement.src, measurement.dst), None)

    def _keep(self, key: tuple[Layer, str, str], history: list[Measurement], measurement: Measurement) -> None:
        history.append(measurement)
        # Looking for it among all attempts would take ever longer in a session that goes on for days.
        largest = self._largest.get(key)
        if largest is None or (measurement.asked_bytes or 0) >= (largest.asked_bytes or 0):
            self._largest[key] = measurement

    def _note_flapping(self, key: tuple[Layer, str, str], history: list[Measurement]) -> None:
        latest = history[-ATTEMPTS:]
        turned = 0
        if key[0] not in SIZED and not self._surely_ok(latest):
            turned = flapping(self.verdict(m) for m in latest)
        if turned:
            self.flapping[key] = turned
        else:
            self.flapping.pop(key, None)

    def _surely_ok(self, attempts: list[Measurement]) -> bool:
        """Say whether attempts of a pair are all ok; where that takes long to find out, it is not said."""
        values = self._values.get((attempts[0].layer, self.class_of(attempts[0])))
        median = None if values is None else values.median
        # No limit to slow is above this share of the median, and it is at hand.
        enough = 0.0 if median is None else self._slow_below * median
        return all(m.verdict is Verdict.OK and m.value is not None and m.value >= enough for m in attempts)

    def _take_addressed(self, measurement: Measurement) -> None:
        before = self.addresses.take(measurement)
        values = self._values.setdefault((measurement.layer, self.class_of(measurement)), ClassValues())
        if before is not None and before.verdict is Verdict.OK and before.value is not None:
            values.remove(before.value)
        if measurement.verdict is Verdict.OK and measurement.value is not None:
            values.add(measurement.value)
        self.done += 1

    def _change(self, src: str, dst: str) -> None:
        """Note that the cells of a pair, of endpoints or of nodes, are to be read again."""
        if self._changed is None:
            return
        a, b = self._numbers.get(src), self._numbers.get(dst)
        if a is not None and b is not None:
            self._changed.add((a, b))
        else:
            for number in self._by_node.get(src, ()):
                for other in self._by_node.get(dst, ()):
                    # What is measured between two nodes is shown in both directions.
                    self._changed.add((number, other))
                    self._changed.add((other, number))
        if len(self._changed) > _MOST_CHANGES:
            self._changed = None

    def _change_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        for src, dst in pairs:
            self._change(src, dst)

    def _judged_value(self, layer: Layer, src: str, dst: str) -> float | None:
        """The value of a cell that counts for its class: its latest, of the largest message."""
        latest = self.latest(layer, src, dst)
        return latest.value if latest is not None and latest.verdict is Verdict.OK else None

    def _on_plan(self, event: dict[str, Any]) -> None:
        self._slow_below = float(event.get("slow_below", self._slow_below))
        self.comparison = list(event.get("arms", self.comparison))
        self.suspects.update(((src, dst), text) for src, dst, text in event.get("suspects", []))
        for src, dst, text in event.get("untested", []):
            self.untested[src, dst] = text
            self.running.discard((src, dst))
            self._change(src, dst)

    def _on_log(self, event: dict[str, Any]) -> None:
        self.log.append(LogLine(float(event.get("time", 0.0)), event["level"], event.get("node"), str(event["text"])))

    def _on_paused(self, event: dict[str, Any]) -> None:
        self.paused = bool(event["on"])

    def _on_watch(self, event: dict[str, Any]) -> None:
        self.watching = bool(event["on"])

    def _on_end(self, event: dict[str, Any]) -> None:
        self.exit_code = event.get("exit")
        self.end_text = event.get("text", "")
        self._change_all(self.running)
        self.running.clear()

    # -- reading ------------------------------------------------------------------------------------------------------

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
        if measurement.layer in BY_ADDRESS:
            return self.addresses.kind(measurement)
        return self.class_between(measurement.src, measurement.dst)

    def history(self, layer: Layer, src: str, dst: str) -> list[Measurement]:
        """Return all measurements of an ordered pair in a layer, oldest first; by address those of the two nodes."""
        if layer in BY_ADDRESS:
            return self.addresses.attempts(layer, src, dst)
        return list(self._history.get((layer, src, dst), []))

    def latest(self, layer: Layer, src: str, dst: str) -> Measurement | None:
        """Return the measurement that counts of an ordered pair in a layer: the latest, of the largest message."""
        history = self._history.get((layer, src, dst))
        if not history:
            return None
        last = history[-1]
        if layer not in SIZES_KEPT or last.asked_bytes is None:
            return last
        return self._largest[layer, src, dst]

    def by_address(self, layer: Layer, src_node: str, dst_node: str) -> list[Measurement]:
        """Return the latest measurement of each address pair of two nodes in a layer of those."""
        return self.addresses.latest(layer, src_node, dst_node)

    def measurements(self) -> Iterator[Measurement]:
        """Yield what a snapshot holds: the latest measurement of each cell and message size, those by address last."""
        for history in self._history.values():
            latest: dict[int | None, Measurement] = {}
            for measurement in history:
                size = measurement.asked_bytes if measurement.layer in SIZES_KEPT else None
                if size is None:
                    # It failed before there was a message: that says something of all sizes.
                    latest.clear()
                latest.pop(None, None)
                latest[size] = measurement
            yield from latest.values()
        yield from self.addresses.everything()

    def arms(self) -> Iterator[Measurement]:
        """Yield what was measured in the further arms of an A/B comparison; the first arm's is in `measurements`."""
        yield from self._arms.values()

    def in_arm(self, arm: str, measurement: Measurement) -> Measurement | None:
        """Return what another arm measured of the same thing at the same message size, or None."""
        key = (arm, measurement.layer, measurement.src, measurement.dst, measurement.asked_bytes)
        return self._arms.get(key)

    def counters_between(self, node: str, since: float, until: float) -> Deltas:
        """Return what a node's counters moved by, over all looks that overlap a time (epoch seconds); {} for nothing.

        The shape is that of `fabtui.fabric.counters`.
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
        if measurement.verdict is not Verdict.OK or measurement.value is None or measurement.layer not in JUDGED:
            return measurement.verdict
        if measurement.layer not in BY_ADDRESS:
            largest = self.latest(measurement.layer, measurement.src, measurement.dst)
            if measurement.arm is not None or largest is None or largest.asked_bytes != measurement.asked_bytes:
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
        return None if values is None or layer not in JUDGED else values.limit(self._slow_below)

    def measured_for(self, layer: Layer, src: int, dst: int) -> Measurement | None:
        """Return the measurement a cell of the grid stands for, or None; of several addresses, the worst."""
        a, b = self.endpoints[src], self.endpoints[dst]
        if layer in BY_ADDRESS:
            rows = self.by_address(layer, a.node, b.node)
            own = [row for row in rows if (row.src_addr, row.dst_addr) == (a.address, b.address)]
            return max(own or rows, key=badness, default=None)
        if layer is Layer.BUSBW:
            return self.latest(layer, a.node, b.node) or self.latest(layer, b.node, a.node)
        if layer is Layer.TRANSPORT:
            layer = Layer.P2P
        if layer is Layer.CHANGE:
            layer = Layer.P2P if self.baseline is None else self.baseline.layer
        return self.latest(layer, self._names[src], self._names[dst])

    def pairs_in(self, layers: Container[Layer]) -> list[tuple[str, str]]:
        """Return the ordered pairs, of endpoints or of nodes, that have a measurement in any of some layers."""
        found = {(src, dst): None for layer, src, dst in self._history if layer in layers}
        for layer in BY_ADDRESS:
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
                for part in (Layer.P2P, Layer.WORLD, Layer.LATENCY, *self.addresses.layers, Layer.BUSBW)
                if src != dst and (m := self.measured_for(part, src, dst)) is not None
            ]
            verdict = worst([v for _, v in found])
            first = next((m for m, v in found if v is verdict), None)
            return Cell(verdict, None, "", "", first, running)
        if src == dst and layer is not Layer.BUSBW:
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
        found: dict[Verdict, int] = {}
        for measurement in self.measurements():
            verdict = self.verdict(measurement)
            found[verdict] = found.get(verdict, 0) + 1
        return found

    @property
    def elapsed(self) -> float:
        """Seconds from the start to the latest event."""
        return max(0.0, self.now - self.started)
