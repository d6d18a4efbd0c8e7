"""What the layers p2p and world tell together: alone in a communicator of two, and inside the communicator of all.

The two are never merged: a pair that fails alone and passes inside the communicator of all is of no use to a program
that talks over it directly, and no trouble for one that uses collectives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fabtui.model.endpoints import WITHIN_RAIL, PairClass
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model

Pair = tuple[str, str]

RELAYED = "fails alone, passes inside the communicator of all: jobs that use collectives can still run (NCCL relays)"
#: For ranks that have no NCCL which could relay.
PASSES_INSIDE = "fails alone, passes inside the communicator of all"
SLOW_ALONE = "slow alone, as fast as others inside the communicator of all"
MADE_ALONE = "the lab makes this fault in pairs alone, so that the pair passes inside the communicator of all"
ONLY_INSIDE = "passes alone, not inside the communicator of all"

_DEAD = (Verdict.FAILED, Verdict.TIMEOUT)
_PASSES = (Verdict.OK, Verdict.SLOW)


class RailIsolation(NamedTuple):
    """How many ordered pairs make a fabric rail-isolated, and what the communicator of all makes of it.

    Attributes:
        within: Pairs of one rail, all of which pass.
        across: Pairs across rails, all of which fail.
        inside: How many of those pass inside the communicator of all; None: none was tested there.
    """

    within: int
    across: int
    inside: int | None

    @property
    def text(self) -> str:
        """What to tell a user."""
        told = f"rail-isolated fabric: all {self.across} pairs across rails fail, all {self.within} within a rail pass"
        if self.inside is None:
            return told
        if self.inside == self.across:
            return f"{told}; inside the communicator of all they pass, so jobs that use collectives can still run"
        return f"{told}; inside the communicator of all {self.inside} of {self.across} pass"


def relayed(model: Model) -> list[Pair]:
    """Return the ordered pairs that are bad in p2p and ok in world, in the order of the grid.

    Not those whose node went away before the test in p2p: what they passed before tells nothing of what they can do.
    """
    found = (pair for pair, alone, inside in _both(model) if alone.bad and inside is Verdict.OK)
    return [pair for pair in found if not _ended_by_loss(model, model.latest(Layer.P2P, *pair))]


def _ended_by_loss(model: Model, alone: Measurement | None) -> bool:
    """Say whether a pair has its verdict in p2p because a node of it went away."""
    if alone is None or alone.verdict not in _DEAD:
        return False
    gone = [model.gone(end.rpartition(":")[0]) for end in (alone.src, alone.dst)]
    return any(record is not None and alone.time >= record.since for record in gone)


def words(model: Model, src: str, dst: str) -> str | None:
    """Return what the two layers tell together about an ordered pair, or None where they agree or one is missing."""
    alone, inside = model.latest(Layer.P2P, src, dst), model.latest(Layer.WORLD, src, dst)
    if alone is None or inside is None:
        return None
    verdict, world = model.verdict(alone), model.verdict(inside)
    if verdict is Verdict.OK and world.bad:
        return ONLY_INSIDE
    if not verdict.bad or world is not Verdict.OK or _ended_by_loss(model, alone):
        return None
    if alone.made:
        return MADE_ALONE
    if verdict is Verdict.SLOW:
        return SLOW_ALONE
    number = model.number(src)
    return RELAYED if number is not None and model.endpoints[number].kind == "gpu" else PASSES_INSIDE


def differing(model: Model) -> list[Pair]:
    """Return the ordered pairs whose verdict in world is not that in p2p, among those that are in both."""
    return [pair for pair, alone, inside in _both(model) if alone is not inside]


def rail_isolation(model: Model) -> RailIsolation | None:
    """Return what says that rails have no route to each other, or None when nothing does.

    That is so when every tested pair across rails fails, every tested pair within a rail passes, and each endpoint of
    the former passes within its rail: otherwise it is the endpoint that is dead, not the way between rails.
    """
    across: list[Pair] = []
    within: list[Pair] = []
    for src, dst, verdict in _verdicts(model, Layer.P2P):
        kind = model.class_between(src, dst)
        if kind is PairClass.CROSS_RAIL:
            if verdict not in _DEAD:
                return None
            across.append((src, dst))
        elif kind in WITHIN_RAIL:
            if verdict not in _PASSES:
                return None
            within.append((src, dst))
    alive = {end for pair in within for end in pair}
    if not across or any(end not in alive for pair in across for end in pair):
        return None
    there = {(src, dst): verdict for src, dst, verdict in _verdicts(model, Layer.WORLD)}
    found = [there[pair] for pair in across if pair in there]
    return RailIsolation(len(within), len(across), sum(v in _PASSES for v in found) if found else None)


def _verdicts(model: Model, layer: Layer) -> Iterator[tuple[str, str, Verdict]]:
    """Yield the verdict of each ordered pair that was tested in a layer, in the order of the grid."""
    tested = {(m.src, m.dst) for m in model.measurements() if m.layer is layer}
    places = {pair: (model.number(pair[0]) or 0, model.number(pair[1]) or 0) for pair in tested}
    for src, dst in sorted(tested, key=places.__getitem__):
        if (found := model.latest(layer, src, dst)) is not None:
            yield src, dst, model.verdict(found)


def _both(model: Model) -> Iterator[tuple[Pair, Verdict, Verdict]]:
    for src, dst, alone in _verdicts(model, Layer.P2P):
        if (inside := model.latest(Layer.WORLD, src, dst)) is not None:
            yield (src, dst), alone, model.verdict(inside)
