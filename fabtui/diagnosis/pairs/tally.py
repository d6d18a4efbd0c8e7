"""Verdicts of all pairs, gathered in small steps so that the screen never waits for a large fabric."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from fabtui.diagnosis.pairs.message_times import NOTABLE, Spread, spread
from fabtui.model.endpoints import WITHIN_RAIL, PairClass
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model

Pair = tuple[str, str]

DEAD = (Verdict.FAILED, Verdict.TIMEOUT)
#: Number of pairs per check of the time budget.
_CHUNK = 64
#: Maximum number of pairs with a notable spread that are kept.
_MOST_SPREADS = 64


@dataclass
class Tally:
    """Verdicts of all ordered pairs of endpoints at one time.

    Attributes:
        bad: Pairs that are bad in p2p, or in world where p2p was not tested.
        kinds: Class of each bad pair.
        inside: Verdict in world of each bad pair that was tested there.
        only_inside: Pairs that pass in p2p and are bad in world.
        tested: Number of ordered pairs tested, by ``(endpoint, off its node)``.
        dead: Number of those that failed or timed out.
        slow: Number of those that are slow.
        of_class: Number of tested pairs by class.
        spreads: Passed pairs with a notable spread of message times.
        alive: Endpoints that pass within their rail, with another node.
        between: ``[tested, dead]`` by ordered pair of nodes.
        across: The same for pairs across rails.
        lanes: The same by ordered pair of different rails.
        joined: Ordered pairs of nodes between which a pair within a rail passes.
    """

    bad: dict[Pair, Verdict] = field(default_factory=dict)
    kinds: dict[Pair, PairClass] = field(default_factory=dict)
    inside: dict[Pair, Verdict] = field(default_factory=dict)
    only_inside: list[Pair] = field(default_factory=list)
    tested: Counter[tuple[str, bool]] = field(default_factory=Counter)
    dead: Counter[tuple[str, bool]] = field(default_factory=Counter)
    slow: Counter[tuple[str, bool]] = field(default_factory=Counter)
    of_class: Counter[PairClass] = field(default_factory=Counter)
    spreads: list[Spread] = field(default_factory=list)
    alive: set[str] = field(default_factory=set)
    between: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    across: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    lanes: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    joined: set[tuple[str, str]] = field(default_factory=set)


def rail_of(model: Model, name: str) -> int:
    """Return the rail of an endpoint, or its index on the node if the rail is unknown."""
    number = model.number(name)
    endpoint = None if number is None else model.endpoints[number]
    return -1 if endpoint is None else endpoint.index if endpoint.rail is None else endpoint.rail


class Survey:
    """Gathers a `Tally` of a model in steps, and again when the model changes.

    Args:
        model: The session model.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        #: Latest complete tally.
        self.tally = Tally()
        #: Number of complete tallies so far.
        self.version = 0
        self._of = -1
        self._next: Tally | None = None
        self._at = self._end = 0
        self._began = -1

    @property
    def current(self) -> bool:
        """Return True if the tally is up to date."""
        return self._of == self._model.version

    def step(self, budget: float) -> bool:
        """Continue for about ``budget`` seconds; return True if a tally was completed."""
        if self._next is None:
            if self.current:
                return False
            self._began = self._model.version
            self._next, self._at, self._end = Tally(), 0, len(self._model.tested)
        end = time.perf_counter() + budget
        while self._at < self._end:
            for _, src, dst in self._model.tested[self._at : min(self._at + _CHUNK, self._end)]:
                self._take(self._next, (src, dst))
            self._at += _CHUNK
            if time.perf_counter() > end:
                return False
        self.tally, self._next, self._of = self._next, None, self._began
        self.version += 1
        return True

    def finish(self) -> Tally:
        """Gather everything without a time limit, and return it."""
        while not self.current:
            self.step(1.0)
        return self.tally

    def _take(self, tally: Tally, pair: Pair) -> None:
        model = self._model
        alone, inside = model.latest(Layer.P2P, *pair), model.latest(Layer.WORLD, *pair)
        shown = alone or inside
        if shown is None:
            return
        verdict = model.verdict(shown)
        world = None if inside is None else model.verdict(inside)
        kind = model.class_between(*pair)
        off = kind is not PairClass.SAME_NODE
        tally.of_class[kind] += 1
        nodes = (pair[0].rpartition(":")[0], pair[1].rpartition(":")[0])
        counted = [tally.between.setdefault(nodes, [0, 0])]
        if kind is PairClass.CROSS_RAIL:
            rails = rail_of(model, pair[0]), rail_of(model, pair[1])
            counted += [tally.across.setdefault(nodes, [0, 0]), tally.lanes.setdefault(rails, [0, 0])]
        for counts in counted:
            counts[0] += 1
            counts[1] += verdict in DEAD
        for end in pair:
            tally.tested[end, off] += 1
            tally.dead[end, off] += verdict in DEAD
            tally.slow[end, off] += verdict is Verdict.SLOW
        if verdict.bad:
            tally.bad[pair] = verdict
            tally.kinds[pair] = kind
            if world is not None and alone is not None:
                tally.inside[pair] = world
        elif world is not None and world.bad:
            tally.only_inside.append(pair)
        if kind in WITHIN_RAIL and verdict in (Verdict.OK, Verdict.SLOW):
            tally.alive.update(pair)
            tally.joined.add(nodes)
        if verdict is Verdict.OK and alone is not None and len(tally.spreads) < _MOST_SPREADS:
            found = spread(alone)
            if found is not None and found.ratio > NOTABLE:
                tally.spreads.append(found)
