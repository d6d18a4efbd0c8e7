"""Comparison of p2p (a communicator of two ranks) with world (a communicator of all ranks).

The two are never merged: a pair that fails alone and passes in the world communicator breaks point-to-point programs,
but not collectives, for which NCCL can relay.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabtui.diagnosis.pairs.tally import Pair
from fabtui.model.endpoints import node_of
from fabtui.model.layers import Layer
from fabtui.model.measurement import DEAD, SEVERITY, Measurement, Verdict
from fabtui.model.session_model import Model

RELAYED = "fails alone, passes in the world communicator: collective jobs can still run (NCCL relays)"
#: For CPU ranks, which have no NCCL that could relay, and for faults of a lab, which spare other communicators.
PASSES_IN_WORLD = "fails alone, passes in the world communicator"
SLOW_ALONE = "slow alone, as fast as others in the world communicator"
FAILS_IN_WORLD = "passes alone, not in the world communicator"


def relayed(model: Model) -> list[Pair]:
    """Return the ordered pairs that are bad in p2p and ok in world, in the order of the grid.

    Pairs whose node was lost before the p2p test are left out: their earlier results in world are no evidence.
    """
    pairs = (pair for pair, alone, inside in _differing(model) if alone.bad and inside is Verdict.OK)
    return [pair for pair in pairs if not _ended_by_loss(model, model.latest(Layer.P2P, *pair))]


def _ended_by_loss(model: Model, alone: Measurement | None) -> bool:
    """Return True if a pair fails in p2p because one of its nodes was lost."""
    if alone is None or alone.verdict not in DEAD:
        return False
    gone = [model.gone(node_of(end)) for end in (alone.src, alone.dst)]
    return any(record is not None and alone.time >= record.since for record in gone)


def comparison_text(model: Model, src: str, dst: str) -> str | None:
    """Return how the two layers differ for an ordered pair, or None if they agree or one is missing."""
    alone, inside = model.latest(Layer.P2P, src, dst), model.latest(Layer.WORLD, src, dst)
    if alone is None or inside is None:
        return None
    verdict, world = model.verdict(alone), model.verdict(inside)
    if verdict is Verdict.OK and world.bad:
        return FAILS_IN_WORLD
    if not verdict.bad or world is not Verdict.OK or _ended_by_loss(model, alone):
        return None
    if verdict is Verdict.SLOW:
        return SLOW_ALONE
    number = model.table.number(src)
    relays = number is not None and model.endpoints[number].kind == "gpu" and not alone.made
    return RELAYED if relays else PASSES_IN_WORLD


def differing(model: Model) -> list[Pair]:
    """Return the ordered pairs that were tested in both layers and have different verdicts."""
    return [pair for pair, _, _ in _differing(model)]


def _differing(model: Model) -> Iterator[tuple[Pair, Verdict, Verdict]]:
    if not {Layer.P2P, Layer.WORLD} <= model.layers:
        return
    ends = len(model.endpoints)
    alone, inside = model.pair_table(Layer.P2P), model.pair_table(Layer.WORLD)
    _, first, second = np.intersect1d(alone.code(ends), inside.code(ends), assume_unique=True, return_indices=True)
    differ = alone.verdict[first] != inside.verdict[second]
    for at, other in zip(first[differ].tolist(), second[differ].tolist(), strict=True):
        pair = str(model.endpoints[alone.source[at]]), str(model.endpoints[alone.target[at]])
        yield pair, SEVERITY[alone.verdict[at]], SEVERITY[inside.verdict[other]]
