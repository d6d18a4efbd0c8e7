"""Verdicts of all pairs, gathered in small steps so that the screen never waits for a large fabric."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fabtui.model.endpoints import PAIR_CLASSES, PairClass
from fabtui.model.layers import COLLECTIVES, Layer, measured_key_layers
from fabtui.model.measurement import SEVERITY, Measurement, Verdict
from fabtui.model.pair_results import STALL
from fabtui.model.pair_table import SLOW, WRONG, Flags, PairTable, joined, parts
from fabtui.model.places import Places
from fabtui.model.schedule import MAX_SUSPECTS, SLOW_ROUNDS, is_settled
from fabtui.model.session_model import Model
from fabtui_node.parsers.lines import json_number

Pair = tuple[str, str]

#: Number of bad pairs per step, and of those whose attempts are read.
_CHUNK, _FEW = 256, 16
#: Minimum number of messages for a meaningful 99th percentile.
FEWEST = 5


class Spread(NamedTuple):
    """Times (s) of the messages of one direction of a pair."""

    measurement: Measurement  #: The measurement.
    median: float  #: The median.
    p99: float  #: The 99th percentile.
    ratio: float  #: 99th percentile over median.


def spread(measurement: Measurement) -> Spread | None:
    """Return the spread of the message times of a measurement, or None if unknown."""
    times: Any = (measurement.extra or {}).get("times")
    if not isinstance(times, dict):
        return None
    count, median, p99 = (json_number(times.get(name)) for name in ("count", "median", "p99"))
    if count is None or median is None or p99 is None or count < FEWEST or median <= 0:
        return None
    return Spread(measurement, median, p99, p99 / median)


def notable(model: Model) -> list[Spread]:
    """Return passed p2p measurements with a notable spread, the worst first."""
    spreads = [one for m in model.with_stalls() if (one := spread(m)) is not None and one.ratio > STALL]
    return sorted(spreads, key=lambda one: -one.ratio)


@dataclass
class Tally:
    """Verdicts of all ordered pairs of endpoints at one time."""

    table: PairTable | None = None  #: Results in p2p, or in world where p2p was not tested; None without any.
    places: Places | None = None  #: Places of the endpoints of the table.
    bad: dict[Pair, Verdict] = field(default_factory=dict)  #: Verdict of each bad pair of the table.
    kinds: dict[Pair, PairClass] = field(default_factory=dict)  #: Class of each bad pair.
    #: Verdict in world of each pair that is bad in p2p and was tested there.
    inside: dict[Pair, Verdict] = field(default_factory=dict)
    only_inside: list[Pair] = field(default_factory=list)  #: Pairs that pass in p2p and are bad in world.
    of_class: Counter[PairClass] = field(default_factory=Counter)  #: Number of tested pairs by class.
    spreads: list[Spread] = field(default_factory=list)  #: Passed pairs with a notable spread of message times.
    #: ``[tested, dead]`` by ordered pair of nodes.
    between: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    place: dict[Pair, int] = field(default_factory=dict)  #: Place of each bad pair in the table.
    counts: Counter[Verdict] = field(default_factory=Counter)  #: Number of pairs with each verdict.
    layers: dict[Layer, Counter[Verdict]] = field(default_factory=dict)  #: The same of p2p and of world.
    #: Number of pairs with a bad result that the sweep tests again, and the worst; nothing else here has them.
    rechecked: int = 0
    suspect: tuple[Pair, Verdict] | None = None
    worst: tuple[Pair, Verdict] | None = None  #: The worst of the bad pairs.
    unreached: int = 0  #: Number of pairs without a result because the node of an end is gone; 0 if unknown.


class Survey:
    """Gathers a `Tally` of a model in steps, and again when the model changes.

    ``interim``: a bad pair does not count before the running sweep has tested it again.
    """

    def __init__(self, model: Model, *, interim: bool = False) -> None:
        self._model = model
        self._interim = interim
        #: Latest complete tally.
        self.tally = Tally()
        #: Number of complete tallies so far.
        self.version = 0
        self.of = -1  #: Version of the model that the tally is about.
        self.at = 0.0  #: Time of the session (s since the epoch) that it is about.
        self._steps: Iterator[Tally | None] | None = None
        self._began = -1, 0.0

    @property
    def current(self) -> bool:
        """Return True if the tally is up to date."""
        return self.of == self._model.version

    def step(self, budget: float) -> bool:
        """Continue for about ``budget`` seconds; return True if a tally was completed."""
        if self._steps is None:
            if self.current:
                return False
            self._began, self._steps = (
                (self._model.version, self._model.now),
                gathered(self._model, interim=self._interim),
            )
        end = time.perf_counter() + budget
        for found in self._steps:
            if found is not None:
                self.tally, self._steps, (self.of, self.at) = found, None, self._began
                self.version += 1
                return True
            if time.perf_counter() > end:
                break
        return False

    def restart(self) -> None:
        """Leave what is being gathered, which is about an earlier state of the model."""
        self._steps = None

    def finish(self) -> Tally:
        """Gather everything without a time limit, and return it."""
        while not self.current:
            self.step(1.0)
        return self.tally


def runs_tests(model: Model) -> bool:
    """Return True while a sweep tests pairs or groups, so that what it has found may not last."""
    if model.exit_code is not None or model.broken_off:
        return False
    return model.phase.name in (Layer.WORLD, Layer.P2P, *COLLECTIVES, "collectives")


def unconfirmed(model: Model, alone: PairTable, world: PairTable) -> Iterator[tuple[Flags, Flags] | None]:
    """Yield None after each small step, and at the end whether each pair of two tables is bad and tested again.

    A pair that is bad in the world layer is tested alone; one that is bad alone is tested again with no other traffic,
    unless there are very many. No repeat makes wrong data right.

    Args:
        model: The session model.
        alone: Results in p2p.
        world: Results in world.
    """
    first, second = np.zeros(len(alone), dtype=bool), np.zeros(len(world), dtype=bool)
    if tests_pairs(model):
        if model.phase.name == Layer.P2P:
            yield from _few_tries(model, alone, first)
        if model.plans(Layer.P2P):
            ends = len(model.endpoints)
            kept = alone.code(ends)[~first]
            second |= world.bad & (world.verdict != WRONG) & np.isin(world.code(ends), kept, invert=True)
        else:
            second |= world.verdict == SLOW
    yield first, second


def tests_pairs(model: Model) -> bool:
    """Return True while a sweep tests pairs, or tests bad ones again."""
    return runs_tests(model) and model.phase.name in (Layer.WORLD, Layer.P2P)


def _few_tries(model: Model, table: PairTable, found: Flags) -> Iterator[None]:
    """Set the flags of pairs that were good before this phase, and have not been tested again as often as necessary."""
    for which, tries in (
        (table.verdict == SLOW, 1 + SLOW_ROUNDS),
        (table.bad & (table.verdict != SLOW) & (table.verdict != WRONG), 2),
    ):
        rows = np.flatnonzero(which)
        low, high = (np.sort((table.source[rows], table.target[rows]), axis=0)).tolist()
        if len(set(zip(low, high, strict=True))) > MAX_SUSPECTS:
            continue
        for number, at in enumerate(rows.tolist()):
            source, target = (model.table.names[end] for end in (table.source[at], table.target[at]))
            history = model.history(Layer.P2P, source, target)
            now = [one for one in history if one.time >= model.phase.since]
            before = [one for one in history if one.time < model.phase.since]
            known = bool(before) and model.verdict(before[-1]).bad
            tried = len({one.attempts for one in now}) >= tries
            if now and table.verdict[at] == SLOW:
                tried |= is_settled([one.value for one in now], model.limit(Layer.P2P, model.key_of(now[-1])))
            found[at] = bool(now) and not known and not tried
            if number % _FEW == 0:
                yield


def gathered(model: Model, *, interim: bool = False) -> Iterator[Tally | None]:
    """Yield None after each small step, and the tally at the end; ``interim`` as for `Survey`."""
    tables: list[PairTable] = []
    ends = len(model.endpoints)
    for layer in (Layer.P2P, Layer.WORLD):
        for step in model.pair_tables(layer):
            if step is not None:
                tables.append(step)
            yield None
    rechecked, suspect = 0, None
    names = [str(end) for end in model.endpoints]
    for flags in unconfirmed(model, *tables) if interim else ():
        if flags is not None:
            again = [table.where(flag) for table, flag in zip(tables, flags, strict=True)]
            rechecked = len(np.unique(np.concatenate([table.code(ends) for table in again])))
            if rechecked:
                pairs = [_worst(table, names) for table in again if len(table)]
                suspect = max(pairs, key=lambda pair: SEVERITY.index(pair[1]))
                tables = [table.where(~flag) for table, flag in zip(tables, flags, strict=True)]
        yield None
    alone, world = tables
    table = alone
    for step in joined(alone, world, ends):
        table = step or table
        yield None
    tally = Tally(table, model.results.places(), spreads=notable(model), rechecked=rechecked, suspect=suspect)
    tally.worst = _worst(table, names) if table.bad.any() else None
    yield None
    tally.counts = table.verdict_counts()
    yield None
    for layer, found in zip((Layer.P2P, Layer.WORLD), tables, strict=True):
        tally.layers[layer] = found.verdict_counts()
        yield None
    for kind, count in zip(PAIR_CLASSES, np.bincount(table.kind, minlength=len(PAIR_CLASSES)).tolist(), strict=True):
        if count:
            tally.of_class[kind] = count
    yield None
    yield from _count_between_nodes(model, tally, table)
    yield None
    for number, at in enumerate(np.flatnonzero(table.bad).tolist()):
        pair = names[table.source[at]], names[table.target[at]]
        tally.place[pair] = at
        tally.bad[pair], tally.kinds[pair] = SEVERITY[table.verdict[at]], PAIR_CLASSES[table.kind[at]]
        if number % _CHUNK == 0:
            yield None
    for number, at in enumerate(_in_both(alone, world, ends)):
        pair = names[world.source[at]], names[world.target[at]]
        verdict = SEVERITY[world.verdict[at]]
        if pair in tally.bad:
            tally.inside[pair] = verdict
        elif verdict.bad:
            tally.only_inside.append(pair)
        if number % _CHUNK == 0:
            yield None
    yield tally


def _worst(table: PairTable, names: list[str]) -> tuple[Pair, Verdict]:
    at = int(np.argmax(table.verdict))
    return (names[table.source[at]], names[table.target[at]]), SEVERITY[table.verdict[at]]


def _count_between_nodes(model: Model, tally: Tally, table: PairTable) -> Iterator[None]:
    if not len(table) or tally.places is None:
        return
    nodes = tally.places.nodes
    tested, dead = (np.zeros(len(nodes) ** 2, dtype=np.int64) for _ in range(2))
    for part in parts(len(table)):
        between = tally.places.node[table.source[part]] * len(nodes) + tally.places.node[table.target[part]]
        tested += np.bincount(between, minlength=len(tested))
        dead += np.bincount(between[table.dead[part]], minlength=len(dead))
        yield None
    ends = np.array([sum(end.kind != "none" for end in model.table.of_node(node)) for node in nodes])
    gone = np.array([model.gone(node) is not None for node in nodes])
    missing = ends[:, None] * ends - np.diag(ends) - tested.reshape(len(nodes), -1)
    # Where other pairs were left out as well, nobody knows how many were wanted.
    if not missing[np.ix_(~gone, ~gone)].any():
        tally.unreached = int(missing.sum())
    for number, at in enumerate(np.flatnonzero(tested).tolist()):
        if number % _CHUNK == 0:
            yield None
        tally.between[nodes[at // len(nodes)], nodes[at % len(nodes)]] = [int(tested[at]), int(dead[at])]


def _in_both(alone: PairTable, world: PairTable, ends: int) -> list[int]:
    if not len(world) or not len(alone):
        return []
    either = np.isin(world.code(ends), alone.code(ends)[alone.bad]) | world.bad
    both: list[int] = np.flatnonzero(either & world.among(alone, ends)).tolist()
    return both


LayerCounts = dict[Layer, Counter[Verdict]]


def layer_counts(model: Model, known: LayerCounts) -> Iterator[LayerCounts | None]:
    """Yield None after each small step, and at the end the number of pairs of each layer with each bad verdict.

    A pair is one of what the layer measures: endpoints, addresses or nodes. Layers without bad pairs are left out.

    Args:
        model: The session model.
        known: Layers whose pairs have been counted already.
    """
    counted = dict(known)
    for layer in measured_key_layers():
        if layer not in known:
            counts = counted[layer] = Counter()
            for number, verdict in enumerate(model.verdicts_in(layer)):
                counts[verdict] += 1
                if number % _CHUNK == 0:
                    yield None
    for layer, counts in list(counted.items()):
        counted[layer] = Counter({verdict: count for verdict, count in counts.items() if verdict.bad and count})
    yield {layer: counts for layer, counts in counted.items() if counts}
