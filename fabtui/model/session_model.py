"""Session state and queries; a live session and a replay build it from the same events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, KeysView, Sequence
from sys import intern
from typing import TYPE_CHECKING, Any

from fabtui.model.address_log import AddressLog, badness
from fabtui.model.baseline import COMPARED, Baseline, Change, change, previous
from fabtui.model.counter_log import CounterLog
from fabtui.model.endpoints import ClassKey, Endpoint, EndpointTable, PairClass, node_of
from fabtui.model.events import (
    CounterDeltas,
    EndpointsAdded,
    Event,
    Incident,
    InventoryUpdate,
    LogEntry,
    Measured,
    NodeGrowth,
    NodeState,
    NodeUpdate,
    PairsStarted,
    Paused,
    PhaseStart,
    PlanUpdate,
    ProbeResult,
    RanksReady,
    SessionEnd,
    SessionResumed,
    SessionStart,
    Watching,
)
from fabtui.model.facts.leaf_switches import LEAF_PROBES, data_rate, leaf_of, walked_leaves
from fabtui.model.facts.nvlink_domains import DOMAIN_PROBE, domain_of
from fabtui.model.facts.states import PROBE as STATE
from fabtui.model.growth_log import GrowthLog
from fabtui.model.interval_log import IntervalKind, IntervalLog, trailing_bad
from fabtui.model.job_evidence import JobEvidenceLog
from fabtui.model.layers import COLLECTIVES, Layer, Per, health_layers
from fabtui.model.measurement import DEAD, Measurement, Verdict, worst
from fabtui.model.pair_results import PairResults
from fabtui.model.pair_table import PairTable, halves, in_steps, node_groups
from fabtui.model.records import Cell, LogLine, NodeRecord, Phase
from fabtui.model.session_logs import AcknowledgementLog, BisectionLog, CommandLog, ExperimentLog
from fabtui.model.verdict_changes import FOLLOWED, VerdictChanges

if TYPE_CHECKING:
    from fabtui.model.records import FindingPast

__all__ = ["Cell", "LogLine", "Model", "NodeRecord", "Phase"]

#: Maximum number of lines of the event log.
LOG_LINES = 2000
#: Maximum number of changed cells between two reads; beyond it the reader reads all cells again.
_MOST_CHANGES = 100_000
#: Phase in which pairs are tested again in the background.
_WATCH = "watch"
#: Phases with tests beside those of a sweep.
_ON_REQUEST = ("ranks", "re-test", "confirm", "bisect")
#: Minimum number of endpoints of a fabric whose structure is inferred from results.
_FEWEST_OF_STRUCTURE = 4


def share_texts(value: dict[str, Any]) -> None:
    """Replace the texts in a JSON value by equal ones of other values, which saves a third of a node's facts."""
    # No recursion: the depth of what comes from nodes and files is theirs.
    left: list[Any] = [value]
    while left:
        container = left.pop()
        for key, inner in container.items() if isinstance(container, dict) else enumerate(container):
            if type(inner) is str:
                container[key] = intern(inner)
            elif isinstance(inner, (dict, list)):
                left.append(inner)


class Model:
    """State of a session, changed by events only."""

    plan: str = ""  #: Which pairs the sweep tests, if not all.

    def __init__(self) -> None:
        self.version = 0  #: Incremented by each event.
        self._has_new_pairs = False
        self._pair_tables: dict[Layer, tuple[object, PairTable]] = {}
        self._each_size: dict[Layer, tuple[PairTable, tuple[PairTable, bool]]] = {}
        self.layout = 0  #: Incremented when endpoints are added: the grid needs a new layout.
        self._kinds: tuple[int, Counter[tuple[str, str]]] = (0, Counter())
        self.nodes_version = 0  #: Incremented by probe results and state changes of nodes.
        self.nodes: dict[str, NodeRecord] = {}  #: Nodes in the order the user gave them.
        self.log: deque[LogLine] = deque(maxlen=LOG_LINES)  #: Latest lines of the event log.
        self.phase = Phase("start", 0, 0.0)  #: Current phase of the sweep.
        self.done = 0  #: Number of tests of the phase that have ended.
        self.lab: str | None = None  #: Size of the lab (``2x4``), or None on real nodes.
        self.synthetic: str | None = None  #: Generator of invented values; None if they were measured.
        self.faults: list[str] = []  #: Deliberate lab faults, as text.
        self.options: dict[str, Any] = {}  #: Options of the session, as recorded.
        self.started = 0.0
        self.now = 0.0
        self.paused = False
        self.watching = False  #: Whether tests continue in the background.
        self.exit_code: int | None = None
        self.end_text = ""
        self.software = ""
        self.running: set[tuple[str, str]] = set()
        self.untested: dict[tuple[str, str], str] = {}  #: Reason for each ordered pair that was not tested.
        self.addresses = AddressLog()  #: Measurements between addresses of nodes.
        self.broken_off = False  #: Whether the recording has ended before the session.
        self.resumed = 0.0  #: Time at which a session that was cut short was resumed (epoch seconds), or 0.
        self.experiments = ExperimentLog()  #: Experiments about findings, with their results.
        self.acknowledgements = AcknowledgementLog(self.log)  #: Notes about findings that the user knows about.
        self.commands = CommandLog(self.log)  #: Commands that the user ran on nodes, with their output.
        self.table = EndpointTable()  #: Endpoints, and where they are.
        self._walked: dict[str, str] = {}  #: Leaf of each port by GUID, from nodes that scanned the whole fabric.
        self.results = PairResults(self.table, self.key_of)  #: Measurements of endpoint pairs, node pairs and groups.
        #: Conclusion about each bad pair from tests with other partners.
        self.suspects: dict[tuple[str, str], str] = {}
        #: Whether `leaves` are groups of nodes that results show, not leaf switches that probes found.
        self.inferred_leaves = False
        self.comparison: list[str] = []  #: Arms of an A/B comparison, the reference first; empty without one.
        self.baseline: Baseline | None = None  #: Earlier session to compare with, or None; set by the front end.
        self.past: FindingPast | None = None  #: All earlier sessions of the site, or None; set by the front end.
        self.sweeps = 0  #: Number of sweeps that have ended.
        self._in_sweep = False
        self._began = 0.0
        self.sweep_seconds = 0.0  #: Duration (s) of the latest sweep that has ended, connecting included.
        #: Start (epoch seconds) of the latest sweep that repeats pairs of an earlier one; 0 without one.
        self.sweep_since = 0.0
        #: Start of watching while it is on; tests and sweeps on request between its tests do not change it.
        self._watch_since = 0.0
        self.turns = VerdictChanges()  #: Changes of the verdicts of pairs.
        self.intervals = IntervalLog()  #: Times in which something was bad, and no longer is.
        self._changed: set[tuple[int, int]] | None = None
        self.counters = CounterLog()  #: Counter deltas of nodes.
        self.growth = GrowthLog()  #: Growth of all counters of nodes, by phase.
        self.job = JobEvidenceLog()  #: Evidence about a running job on the nodes.
        self.bisection = BisectionLog()
        self._on_bisecting, self._on_bisect = self.bisection.begin, self.bisection.take
        self._on_job, self._on_experiment = self.job.take, self.experiments.add
        self._on_acknowledged = self.acknowledgements.take
        self._on_command, self._on_output = self.commands.start, self.commands.end

    def apply(self, event: Event) -> None:
        """Apply one event by the method ``_on_KIND`` of its kind; unknown kinds are ignored.

        Raises:
            ValueError: The event does not fit the state of the session.
        """
        self.now = max(self.now, event.time)
        handler = getattr(self, f"_on_{event.kind}", None)
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
        self.nodes_version += 1
        record = self._record(event.node)
        if record.state.gone and event.state is NodeState.READY:
            self.log.append(LogLine(event.time, "notice", event.node, "is back"))
        # It was away since it was heard last, not since that was noticed.
        since = event.time - (event.silent or 0.0) if event.state.gone else event.time
        if event.state.gone:
            # Recordings of earlier versions lack how long it was silent; the end of a connection is seen at once.
            seen = event.state is NodeState.LOST and not (event.text or "").startswith("no answer")
            self.intervals.left(event.node, since, event.text or "", start_seen=seen or event.silent is not None)
        elif event.state in (NodeState.CONNECTED, NodeState.READY):
            self.intervals.heard(event.node, event.time)
        if not (record.state.gone and event.state.gone and record.since):
            record.since = since
        record.state = event.state
        record.text = event.text or ""
        record.hint = event.hint
        record.backend = event.backend or record.backend
        record.retry = event.retry
        if record.state.gone:
            mine = {pair for pair in self.running if record.name in map(node_of, pair)}
            self.running -= mine
        self._changed = None

    def _on_incident(self, event: Incident) -> None:
        if event.what in (IntervalKind.SILENCE, IntervalKind.RANK_HOST):
            self.nodes_version += 1
            self.intervals.add(IntervalKind(event.what), event.node, event.since, event.time, event.text)

    def _on_inventory(self, event: InventoryUpdate) -> None:
        self.nodes_version += 1
        record = self._record(event.node)
        share_texts(event.value)
        before, record.inventory = data_rate(record.inventory), event.value
        self.addresses.place(event.node, event.value)
        # Thousands of nodes report theirs before they have endpoints.
        if data_rate(event.value) != before and self.table.of_node(event.node):
            self._set_rates()

    def _on_endpoints(self, event: EndpointsAdded) -> None:
        for endpoint in event.endpoints:
            if (row := self.table.add(endpoint)) is not None:
                # A node that had nothing to test has something now.
                self.untested = {pair: why for pair, why in self.untested.items() if row not in pair}
        for node, text in event.notes.items():
            self._record(node).note = text
        self._set_rates()
        # What Slurm knows may have come before the endpoints.
        known_to_slurm = {name for name, record in self.nodes.items() if "slurm" in record.probe_results}
        if placed := [end for end in event.endpoints if end.node in known_to_slurm]:
            self._place_on_leaves(placed)
        self._place_in_domains(event.endpoints)
        self.layout += 1
        self._changed = None

    @property
    def kinds(self) -> Counter[tuple[str, str]]:
        if self._kinds[0] != self.layout:
            self._kinds = self.layout, Counter((endpoint.kind, endpoint.name) for endpoint in self.endpoints)
        return self._kinds[1]

    def _set_rates(self) -> None:
        if self.table.set_rates({name: data_rate(record.inventory) for name, record in self.nodes.items()}):
            self.results.classes_changed()
            self._changed = None

    def _on_look(self, event: ProbeResult) -> None:
        self.nodes_version += 1
        record = self._record(event.node)
        value = event.value
        kept = value if value is not None else {"error": event.error or ""}
        share_texts(kept)
        before = record.probe_results.get(event.probe)
        record.probe_results[event.probe] = kept
        if value is not None:
            record.first_probe_results.setdefault(event.probe, value)
            if event.probe == STATE and "facts" in value:
                # Other nodes refer to it from now on.
                record.first_probe_results[STATE] = value
        if event.probe in LEAF_PROBES:
            # One node scans the fabric for all of them.
            whole = isinstance(kept.get("fabric"), dict)
            if whole or isinstance((before or {}).get("fabric"), dict):
                self._walked = walked_leaves(self.nodes.values())
            self._place_on_leaves(self.endpoints if whole else self.table.of_node(record.name))

        if event.probe == DOMAIN_PROBE and value is not None:
            self._place_in_domains(self.table.of_node(record.name))

    def _place_in_domains(self, endpoints: Sequence[Endpoint]) -> None:
        """Set the NVLink domains of endpoints; a later reading may take one away, as after a reset of a GPU."""
        domains, changed = self.table.domains, False
        for end in endpoints:
            record = self.nodes.get(end.node)
            domain = None if record is None or end.kind != "gpu" else domain_of(end, record)
            if (name := None if domain is None else str(domain)) != domains.get(end.number):
                changed = True
                domains.pop(end.number, None)
                if name is not None:
                    domains[end.number] = name
        if changed:
            self.results.classes_changed()
            self._changed = None

    def _place_on_leaves(self, endpoints: list[Endpoint]) -> None:
        leaves = {end.number: leaf_of(end, self.nodes[end.node], self._walked) for end in endpoints}
        known = {} if self.inferred_leaves else self.table.leaves
        if self.inferred_leaves or any(known.get(number) != leaf for number, leaf in leaves.items()):
            self.table.leaves = {number: leaf for number, leaf in {**known, **leaves}.items() if leaf is not None}
            self.inferred_leaves = False
            self.results.classes_changed()
            self._changed = None

    def _find_structure(self) -> None:
        """Infer which pairs are slower by design, from the results so far; known leaf switches stay as they are."""
        self.results.settle()
        table = self.table
        if not self._has_new_pairs or (table.halves and table.leaves):
            return
        self._has_new_pairs = False
        layer = Layer.P2P if self.results.has(Layer.P2P) else Layer.WORLD
        if not self.results.has(layer) or len(table.endpoints) < _FEWEST_OF_STRUCTURE:
            return
        pairs = self.pair_table(layer)
        apart = {} if table.halves else halves(pairs, table)
        groups = {} if table.leaves else node_groups(pairs, table)
        if apart:
            table.halves = apart
        if groups:
            table.leaves = groups
            self.inferred_leaves = True
        if apart or groups:
            self.results.classes_changed()
            self.results.settle()
            self._changed = None

    def _on_phase(self, event: PhaseStart) -> None:
        self._find_structure()
        if _WATCH in (event.name, self.phase.name) and event.name != self.phase.name:
            self.results.begin_sweep(event.time, watching=event.name == _WATCH)
        self.phase = Phase(event.name, event.total, event.time)
        if not self._in_sweep and event.total > 0 and event.name not in _ON_REQUEST:
            self._in_sweep, self._began = True, event.time if self.sweeps else self.started
        if event.name == "done":
            self._end_sweep(event.time)
        if event.name == _WATCH and self.watching:
            self._watch_since = self._watch_since or event.time
        self.done = 0
        self._change_all(self.running)
        self.running.clear()
        self.counters.phase(self.phase.name, self.phase.since)
        if event.name == "look":
            self.growth.phases.clear()
        self.exit_code = None

    def _end_sweep(self, when: float) -> None:
        if self._in_sweep:
            self.sweep_seconds = when - self._began

    def _on_ranks(self, _: RanksReady) -> None:
        if self.phase.name == "ranks":
            self.done += 1

    def _on_running(self, event: PairsStarted) -> None:
        self.running.update(event.pairs)
        self.counters.began(event.pairs, event.time)
        self._change_all(event.pairs)

    def _on_measured(self, event: Measured) -> None:
        self.counters.ended(event.measurements)
        for measurement in event.measurements:
            if self._changed is not None:
                self._change(measurement.src, measurement.dst)
            self._take(measurement)

    def _on_counters(self, event: CounterDeltas) -> None:
        self.counters.take(event.node, event.since, event.until, event.deltas)

    def _on_growth(self, event: NodeGrowth) -> None:
        latest = event.phase == _WATCH
        self.growth.take(event.node, event.phase, event.seconds, event.grew, event.fell, latest=latest)

    def _take(self, measurement: Measurement) -> None:
        layer = measurement.layer
        if measurement.arm is not None:
            if not self.experiments.take(measurement):
                self.results.add_to_arm(measurement)
        elif layer.spec.by_address:
            self.results.add_value(measurement, self.addresses.take(measurement))
            if not self.results.tested:
                # Beside pairs of endpoints, whose numbers are shown, they are not counted.
                ends = measurement.src, measurement.dst, measurement.src_addr, measurement.dst_addr
                self.turns.follow(self.now, ends, bad=measurement.verdict.bad)
            self.done += 1
            return
        else:
            followed = layer in FOLLOWED
            self._has_new_pairs |= followed
            if not self.results.add_first(measurement):
                self._take_again(measurement)
            elif followed and measurement.verdict is not Verdict.OK:
                self.turns.take(self.now, measurement, None, measurement.verdict)
        if layer is not Layer.LATENCY:
            # Latency comes with the bandwidth of the same test.
            pair = measurement.src, measurement.dst
            self.done += 1
            self.running.discard(pair)
            if self.untested and measurement.arm is None:
                self.untested.pop(pair, None)

    def _take_again(self, measurement: Measurement) -> None:
        """Add a further result of a pair; log a change of the verdict of the pair."""
        layer = measurement.layer
        between = layer, measurement.src, measurement.dst
        since = self.phase.since if layer == self.phase.name else 0.0
        if self.phase.name == _WATCH:
            since = self._watch_since
        if since > self.results.compared_since:
            self._note_sweep(measurement, since)
        if layer not in FOLLOWED and layer not in COLLECTIVES.values():
            self.results.add_again(measurement)
            return
        before = self.results.verdict_between(*between)
        self.results.add_again(measurement)
        after = self.results.verdict_between(*between)
        assert after is not None
        if before in DEAD and after not in DEAD:
            self._note_recovery(*between)
        if layer not in FOLLOWED:
            return
        counts = measurement if before is after else self.latest(*between) or measurement
        turn = self.turns.take(self.now, counts, before, after)
        if turn is not None:
            self.log.append(LogLine(turn.time, "warning" if turn.after.bad else "notice", None, turn.text))

    def _note_recovery(self, layer: Layer, src: str, dst: str) -> None:
        """Note for how long a pair or group was bad that passes again; what was concluded about it holds no longer."""
        attempts = self.history(layer, src, dst)
        if bad := trailing_bad(attempts):
            self.intervals.passed(attempts, self.counters.began_at(bad[0]))
        if layer is Layer.P2P:
            self.suspects.pop((src, dst), None)

    def _note_sweep(self, measurement: Measurement, since: float) -> None:
        """Note that a sweep or watching can be compared with the sweep before, if the pair was tested before it."""
        before = self.latest(measurement.layer, measurement.src, measurement.dst)
        if before is not None and measurement.layer in COMPARED and 0 < before.time < since:
            self.results.compared_since = since
            if measurement.layer == self.phase.name:
                self.sweep_since = since
            self._changed = None

    def _change(self, src: str, dst: str) -> None:
        """Note that the cells of a pair, of endpoints or of nodes, have to be read again."""
        if self._changed is not None:
            self._changed.update(self.table.cells_of(src, dst))
            if len(self._changed) > _MOST_CHANGES:
                self._changed = None

    def _change_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        for src, dst in pairs:
            self._change(src, dst)

    def _on_plan(self, event: PlanUpdate) -> None:
        if event.slow_below is not None:
            self.results.slow_below = event.slow_below
        if event.arms is not None:
            self.comparison = list(event.arms)
        self.plan = event.pairs or self.plan
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
        self._watch_since = 0.0
        if event.on:
            bad = ((src, dst) for verdict, src, dst in self.results.verdicts_in(Layer.P2P) if verdict.bad)
            self.turns.watch(self.now, bad)

    def _on_end(self, event: SessionEnd) -> None:
        self._find_structure()
        self.exit_code = event.exit
        self._end_sweep(event.time)
        self.sweeps += self._in_sweep
        self.results.begin_sweep(event.time)
        self._in_sweep = False
        self.end_text = event.text
        self._change_all(self.running)
        self.running.clear()

    def _on_resumed(self, event: SessionResumed) -> None:
        self.log.append(LogLine(event.time, "notice", None, "resumed: earlier results are kept, the rest follows"))
        self.resumed = event.time
        self.paused = self.watching = False
        self._watch_since = 0.0
        self._change_all(self.running)
        self.running.clear()

    # -- queries ------------------------------------------------------------------------------------------------------

    def drain_changes(self) -> set[tuple[int, int]] | None:
        """Return the cells, by endpoint numbers, that changed since the last call; None: any may have.

        For one reader, who draws. Without one nothing is collected. Medians move with every value, so that cells which
        are not named here may change their place within their class.
        """
        changed, self._changed = self._changed, set()
        return changed

    @property
    def endpoints(self) -> list[Endpoint]:
        """Rows and columns of the grid, by number."""
        return self.table.endpoints

    def pair_tables(self, layer: Layer) -> Iterator[PairTable | None]:
        """Yield None after each small step, and at last the results of the pairs of endpoints of a layer as arrays.

        The table is made once for the same results; nobody may change it.
        """
        revision = (*self.results.revision(layer), len(self.table.endpoints))
        known, found = self._pair_tables.get(layer, (None, None))
        for step in (found,) if known == revision else in_steps(self.results, self.table, layer):
            if step is not None:
                self._pair_tables[layer] = (revision, step)
            yield step

    def pair_table(self, layer: Layer) -> PairTable:
        *_, found = self.pair_tables(layer)
        assert found is not None
        return found

    def _sizes(self, layer: Layer) -> tuple[PairTable, bool]:
        """Return the results of the pairs of endpoints of a layer at each message size, and whether these are all.

        The table is made once for the same results; nobody may change it.
        """
        at_last = self.pair_table(layer)
        known, sizes = self._each_size.get(layer, (None, None))
        if known is not at_last or sizes is None:
            sizes = at_last.each_size(self.results, self.table, layer)
            self._each_size[layer] = (at_last, sizes)
        return sizes

    def whole_table(self, layer: Layer) -> PairTable | None:
        """Return the results of a layer at each message size as arrays; None if arrays do not hold them all."""
        found, whole = self._sizes(layer) if layer.spec.per is Per.ENDPOINT_PAIR else (None, False)
        return found if whole else None

    def medians(self, layer: Layer, size: int | None = None) -> dict[PairClass, float]:
        """Return the median for each class of the good values of a layer of endpoint pairs, at a size or at all."""
        return self._sizes(layer)[0].medians(self.results, size)

    def bad_measurements(self, *layers: Layer) -> Iterator[Measurement]:
        for layer in layers:
            table = self.whole_table(layer)
            if table is not None:
                bad = set(table.row[table.bad].tolist())
                yield from (self.results.store.get(row) for row in self.results.rows((layer,)) if row in bad)
            else:
                yield from (m for m in self.measurements(layer) if self.verdict(m).bad)

    def retested(self) -> Iterator[tuple[bool, bool]]:
        """Yield for each pair that was tested again in p2p whether it was slow at first, and whether it passes now."""
        for before, latest in self.results.repeated(Layer.P2P):
            yield self.results.was_slow(before), self.verdict(latest) is Verdict.OK

    def with_stalls(self) -> list[Measurement]:
        """Return passed p2p measurements with messages that took far longer than the median."""
        return [self.results.store.get(row) for row in self.results.stalled]

    def gone(self, node: str) -> NodeRecord | None:
        """Return the record of a node that went away, None for any other."""
        record = self.nodes.get(node)
        return record if record is not None and record.state.gone else None

    @property
    def rows(self) -> list[Endpoint]:
        """Endpoints without the rows of nodes that had nothing to test at first, and have something now."""
        return [end for end in self.endpoints if end.kind != "none" or end in self.table.of_node(end.node)]

    def key_of(self, measurement: Measurement) -> ClassKey:
        """Return the class whose values a measurement is judged by; between addresses, the class of their rails."""
        if measurement.layer.spec.by_address:
            return ClassKey(self.addresses.kind(measurement))
        return self.table.key_between(measurement.src, measurement.dst)

    def usual(self, measurement: Measurement) -> float | None:
        """Return the value that is usual in the class of a measurement, or None."""
        return self.median(measurement.layer, self.key_of(measurement))

    def history(self, layer: Layer, src: str, dst: str, most: int | None = None) -> list[Measurement]:
        """Return the measurements of an ordered pair in a layer, all or the latest ``most``, oldest first.

        Of a layer by address, these are all of the two nodes.
        """
        if layer.spec.by_address:
            return self.addresses.attempts(layer, src, dst)
        return self.results.history(layer, src, dst, most)

    def latest(self, layer: Layer, src: str, dst: str) -> Measurement | None:
        """Return the measurement that counts of an ordered pair in a layer: the latest, of the largest message."""
        return self.results.latest(layer, src, dst)

    def measurements(self, *layers: Layer) -> Iterator[Measurement]:
        """Yield what a snapshot holds: the latest measurement of each cell and message size, those by address last.

        Args:
            layers: Layers of the measurements; all without any.
        """
        yield from self.results.everything(layers or None)
        for layer in self.addresses.layers:
            if not layers or layer in layers:
                yield from self.addresses.pairs(layer)

    @property
    def layers(self) -> KeysView[Layer]:
        """Layers with measurements, without those of the further arms of an A/B comparison."""
        return dict.fromkeys((*self.results.layers, *self.addresses.layers)).keys()

    def verdict(self, measurement: Measurement) -> Verdict:
        """Return the verdict of a measurement, slowness within its class included."""
        return self.results.verdict(measurement)

    def median(self, layer: Layer, kind: ClassKey | PairClass) -> float | None:
        """Return what is usual in a class of a layer, the median of its best values, or None."""
        values = self.results.values(layer, kind)
        return None if values is None else values.median

    def limit(self, layer: Layer, kind: ClassKey | PairClass) -> float | None:
        """Return the value beyond which one of a class is slow, or None if there are too few values."""
        values = self.results.values(layer, kind)
        return None if values is None or not layer.spec.judged else values.limit(self.results.slow_below)

    def measured_for(self, layer: Layer, src: int, dst: int) -> Measurement | None:
        """Return the measurement that a cell of the grid shows, or None; of several addresses, the worst."""
        a, b = self.endpoints[src], self.endpoints[dst]
        if layer.spec.by_address:
            rows = self.addresses.latest(layer, a.node, b.node)
            own = [row for row in rows if (row.src_addr, row.dst_addr) == (a.address, b.address)]
            return max(own or rows, key=badness, default=None)
        if layer.spec.per is Per.NODE_PAIR:
            return self.latest(layer, a.node, b.node) or self.latest(layer, b.node, a.node)
        if layer is Layer.CHANGE and self.comparable:
            layer = self.compared_layer
        elif layer.spec.shows is not None:
            layer = Layer(layer.spec.shows)
        return self.latest(layer, self.table.names[src], self.table.names[dst])

    def pairs_in(self, layers: Container[Layer]) -> list[tuple[str, str]]:
        """Return the ordered pairs, of endpoints or of nodes, that have a measurement in any of some layers."""
        pairs = {(src, dst): None for layer, src, dst in self.results.pairs() if layer in layers}
        for layer in self.addresses.layers:
            if layer in layers:
                pairs.update(dict.fromkeys(self.addresses.node_pairs(layer)))
        return list(pairs)

    def asked(self, name: str, default: Sequence[str] = ()) -> Sequence[Any]:
        """Return an option that is a list; a damaged recording may have anything there."""
        option = self.options.get(name, default)
        return option if isinstance(option, (list, tuple)) else default

    def plans(self, layer: Layer) -> bool:
        """Return True if a layer of pairs is part of the sweep, which has not ended."""
        asked = Layer.P2P in self.asked("probes") and layer in self.asked("layers")
        return asked and self.phase.name != "done" and self.exit_code is None

    @property
    def comparable(self) -> bool:
        """Return True if there is a baseline or a previous sweep to compare with."""
        return self.baseline is not None or self.results.compared_since > 0

    @property
    def compared_layer(self) -> Layer:
        """Layer that is compared with the baseline, or with the previous sweep."""
        if self.baseline is not None:
            return self.baseline.layer
        return next((layer for layer in COMPARED if self.results.has(layer)), Layer.P2P)

    def change(self, src: int, dst: int) -> Change | None:
        """Return the change of a pair of endpoint numbers since the baseline or previous sweep; None without one."""
        if not self.comparable:
            return None
        now = self.measured_for(Layer.CHANGE, src, dst)
        if self.baseline is not None:
            then = self.baseline.values.get((str(self.endpoints[src]), str(self.endpoints[dst])))
        elif now is not None and now.time >= self.results.compared_since:
            then = previous(self.history(now.layer, now.src, now.dst), now, self.results.compared_since)
        else:
            now = then = None
        return change(then, now, Verdict.UNTESTED if now is None else self.verdict(now))

    def cell(self, layer: Layer, src: int, dst: int) -> Cell:
        """Return what the cell of two endpoint numbers shows in a layer. A cell of the diagonal is ``untested``."""
        pair = (self.table.names[src], self.table.names[dst])
        running = pair in self.running
        if layer is Layer.HEALTH:
            judged = [
                (m, self.verdict(m))
                for part in health_layers()
                if src != dst and (m := self.measured_for(part, src, dst)) is not None
            ]
            verdict = worst([v for _, v in judged])
            first = next((m for m, v in judged if v is verdict), None)
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
        counted = Counter(self.verdict(measurement) for measurement in self.addresses.everything())
        for layer in self.results.layers:
            counted += self._verdict_counts(layer)
        return dict(counted)

    def _verdict_counts(self, layer: Layer) -> Counter[Verdict]:
        if not layer.spec.judged:
            # Without arrays, which a session keeps.
            return self.results.own_verdicts(layer)
        table = self.whole_table(layer)
        if table is None:
            return Counter(map(self.verdict, self.measurements(layer)))
        return table.verdict_counts()

    def verdicts_in(self, layer: Layer) -> Iterator[Verdict]:
        """Yield the verdict of each pair of a layer: of endpoints, addresses or nodes. Pairs may be added meanwhile."""
        if not layer.spec.by_address:
            return (verdict for verdict, _, _ in self.results.verdicts_in(layer))
        pairs = self.addresses.node_pairs(layer)
        return (self.verdict(one) for pair in pairs for one in self.addresses.latest(layer, *pair))

    def confirmed(self, slow_by_load: bool = False) -> set[Verdict]:
        """Return all verdicts, but slowness in world alone: a value beside all other traffic may be low by chance.

        Args:
            slow_by_load: Whether slow results of ranks are left out, because the load of their cores explains them.
        """
        verdicts = {self.verdict(one) for one in self.addresses.everything()}
        for layer in self.results.layers:
            counts = self._verdict_counts(layer)
            if slow_by_load:
                counts.pop(Verdict.SLOW, None)
            elif layer is Layer.WORLD and Verdict.SLOW in counts:
                slow = ((src, dst) for verdict, src, dst in self.results.verdicts_in(layer) if verdict is Verdict.SLOW)
                if all(self.results.verdict_between(Layer.P2P, *pair) is Verdict.OK for pair in slow):
                    del counts[Verdict.SLOW]
            verdicts.update(counts)
        return verdicts

    @property
    def elapsed(self) -> float:
        """Seconds from the start to the latest event."""
        return max(0.0, self.now - self.started)
