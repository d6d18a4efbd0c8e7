"""All that is known of a session, built from its events; the same from a live feed and from a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fabtui.model.class_statistics import ATTEMPTS, flapping
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import (
    CounterDeltas,
    EndpointsAdded,
    Event,
    InventoryUpdate,
    LogEntry,
    Measured,
    NodeUpdate,
    PairsStarted,
    Paused,
    PhaseStart,
    PlanUpdate,
    ProbeResult,
    SessionEnd,
    SessionStart,
    Watching,
)
from fabtui.model.known import Known
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.measurement_store import NONE
from fabtui.model.records import Cell, LogLine, NodeRecord, Phase
from fabtui.model.topology.leaf_switches import TELLING, leaf_of, walked_leaves

__all__ = ["Cell", "LogLine", "Model", "NodeRecord", "Phase"]

#: Maximum number of attempts that are kept of a pair in a layer.
MOST_ATTEMPTS = 64
#: More changed cells than this between two looks, and the reader reads everything anew.
_MOST_CHANGES = 100_000


class Model(Known):
    """The state of a session as its events make it (`Known` has what can be read from it)."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            SessionStart: self._on_start,
            NodeUpdate: self._on_node,
            InventoryUpdate: self._on_inventory,
            EndpointsAdded: self._on_endpoints,
            ProbeResult: self._on_look,
            PhaseStart: self._on_phase,
            PairsStarted: self._on_running,
            Measured: self._on_measured,
            PlanUpdate: self._on_plan,
            CounterDeltas: self._on_counters,
            LogEntry: self._on_log,
            Paused: self._on_paused,
            Watching: self._on_watch,
            SessionEnd: self._on_end,
        }

    def apply(self, event: Event) -> None:
        """Apply one event; unknown kinds are ignored.

        Raises:
            ValueError: The event does not fit the state of the session.
        """
        self.now = max(self.now, event.time)
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)
        self.version += 1

    def _on_start(self, event: SessionStart) -> None:
        self.started = event.time
        self.software = event.version
        self.lab = event.lab
        self.synthetic = event.synthetic
        self.faults = list(event.faults)
        self.options = dict(event.options)
        for name in event.nodes:
            self.nodes[name] = NodeRecord(name)

    def _record(self, name: str) -> NodeRecord:
        return self.nodes.setdefault(name, NodeRecord(name))

    def _on_node(self, event: NodeUpdate) -> None:
        self.looked += 1
        record = self._record(event.node)
        record.state = event.state
        record.text = event.text or ""
        record.hint = event.hint
        record.backend = event.backend or record.backend
        record.since = event.time
        if record.state.gone:
            mine = {pair for pair in self.running if any(end.rpartition(":")[0] == record.name for end in pair)}
            self.running -= mine
        self._changed = None

    def _on_inventory(self, event: InventoryUpdate) -> None:
        self.looked += 1
        self._record(event.node).inventory = event.value
        self.addresses.place(event.node, event.value)

    def _on_endpoints(self, event: EndpointsAdded) -> None:
        for endpoint in event.endpoints:
            if endpoint.number != len(self.endpoints):
                raise ValueError(f"endpoint {endpoint} has number {endpoint.number}, not {len(self.endpoints)}")
            self.endpoints.append(endpoint)
            self._names.append(str(endpoint))
            self._numbers[self._names[-1]] = endpoint.number
            self._by_node.setdefault(endpoint.node, []).append(endpoint.number)
        for node, text in event.notes.items():
            self._record(node).note = text
        self.layout += 1
        self._changed = None

    def _on_look(self, event: ProbeResult) -> None:
        self.looked += 1
        record = self._record(event.node)
        value = event.value
        kept = value if value is not None else {"error": event.error or ""}
        record.looks[event.probe] = kept
        if value is not None:
            record.first_looks.setdefault(event.probe, value)
        if event.probe in TELLING:
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

    def _on_phase(self, event: PhaseStart) -> None:
        self.phase = Phase(event.name, event.total, event.time)
        self.done = 0
        self._change_all(self.running)
        self.running.clear()
        self._counters.phase(self.phase.name, self.phase.since)
        self.exit_code = None

    def _on_running(self, event: PairsStarted) -> None:
        self.running.update(event.pairs)
        self._counters.began(event.pairs, event.time)
        self._change_all(event.pairs)

    def _on_measured(self, event: Measured) -> None:
        for measurement in event.measurements:
            self._counters.ended(measurement)
            self._take(measurement)

    def _on_counters(self, event: CounterDeltas) -> None:
        self._counters.take(event.node, event.since, event.until, event.deltas)

    def _take(self, measurement: Measurement) -> None:
        self._change(measurement.src, measurement.dst)
        if measurement.arm is not None:
            self._arms[
                measurement.arm, measurement.layer, measurement.src, measurement.dst, measurement.asked_bytes
            ] = measurement
            self.done += measurement.layer is not Layer.LATENCY
            self.running.discard((measurement.src, measurement.dst))
            return
        if measurement.layer.spec.by_address:
            self._take_addressed(measurement)
            return
        key = (measurement.layer, measurement.src, measurement.dst)
        before = self._rows.get(*key)
        if before == NONE:
            other = {Layer.P2P: Layer.WORLD, Layer.WORLD: Layer.P2P}.get(measurement.layer)
            if other is not None and self._rows.get(other, measurement.src, measurement.dst) == NONE:
                self.tested.append(key)
        if not measurement.layer.spec.derived:
            values = self._values_for(measurement)
            was = self._judged_value(self._that_counts(key, before))
            rows = self._keep(key, before, measurement)
            now = self._judged_value(self._that_counts(key, rows[0]))
            if was is not None:
                values.remove(was)
            if now is not None:
                values.add(now)
            if len(rows) > 2:
                self._note_flapping(key, rows)
        else:
            self._keep(key, before, measurement)
        if measurement.layer is not Layer.LATENCY:
            self.done += 1
            self.running.discard((measurement.src, measurement.dst))
            self.untested.pop((measurement.src, measurement.dst), None)

    def _keep(self, key: tuple[Layer, str, str], before: int, measurement: Measurement) -> list[int]:
        """Keep a measurement; return the rows of all attempts at the same, the latest first."""
        kept = self._kept
        largest = NONE if before == NONE else self._largest.pop(key, before)
        row = kept.add(measurement, before)
        self._rows.set(*key, row)
        if largest == NONE:
            return [row]
        if (measurement.asked_bytes or 0) < (kept.shape(largest).asked or 0):
            self._largest[key] = largest
        rows = kept.attempts(row)
        self._shorten(rows)
        return rows

    def _shorten(self, rows: list[int]) -> None:
        """Forget the oldest attempts, so that memory stays bounded in a session that watches for days."""
        kept = self._kept
        if len(rows) <= MOST_ATTEMPTS:
            return
        size = kept.shape(rows[0]).asked
        same = [at for at, row in enumerate(rows) if kept.shape(row).asked == size]
        if len(same) > MOST_ATTEMPTS:
            # Those at other message sizes are not tested again, and stay.
            kept.remove(rows[same[-1]], after=rows[same[-1] - 1])
            del rows[same[-1]]

    def _note_flapping(self, key: tuple[Layer, str, str], rows: list[int]) -> None:
        turned = 0
        if key[0].spec.collective is None:
            latest = [self._kept.get(row) for row in reversed(rows[:ATTEMPTS])]
            if not self._surely_ok(latest):
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
        if attempts[0].layer.spec.less_is_better:
            return False
        return all(m.verdict is Verdict.OK and m.value is not None and m.value >= enough for m in attempts)

    def _take_addressed(self, measurement: Measurement) -> None:
        before = self.addresses.take(measurement)
        values = self._values_for(measurement)
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

    def _on_plan(self, event: PlanUpdate) -> None:
        if event.slow_below is not None:
            self._slow_below = event.slow_below
        if event.arms is not None:
            self.comparison = list(event.arms)
        self.suspects.update(((src, dst), text) for src, dst, text in event.suspects)
        for src, dst, text in event.untested:
            self.untested[src, dst] = text
            self.running.discard((src, dst))
            self._change(src, dst)

    def _on_log(self, event: LogEntry) -> None:
        self.log.append(LogLine(event.time, event.level, event.node, event.text))

    def _on_paused(self, event: Paused) -> None:
        self.paused = event.on

    def _on_watch(self, event: Watching) -> None:
        self.watching = event.on

    def _on_end(self, event: SessionEnd) -> None:
        self.exit_code = event.exit
        self.end_text = event.text
        self._change_all(self.running)
        self.running.clear()
