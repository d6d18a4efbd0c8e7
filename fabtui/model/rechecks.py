"""Bad pairs that the running sweep tests again before they count."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabtui.model.layers import COLLECTIVES, Layer
from fabtui.model.pair_table import SLOW, Flags, PairTable, members
from fabtui.model.schedule import MAX_SUSPECTS, SLOW_ROUNDS
from fabtui.model.session_model import Model

#: Number of pairs per step.
_CHUNK = 16


def runs_tests(model: Model) -> bool:
    """Return True while a sweep tests pairs or groups, so that what it has found may not last."""
    if model.exit_code is not None or model.broken_off:
        return False
    return model.phase.name in (Layer.WORLD, Layer.P2P, *COLLECTIVES, "collectives")


def unconfirmed(model: Model, alone: PairTable, world: PairTable) -> Iterator[tuple[Flags, Flags] | None]:
    """Yield None after each small step, and at the end whether each pair of two tables is bad and tested again.

    A pair that is bad in the world layer is tested alone; one that is bad alone is tested again with no other traffic,
    unless there are very many.

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
            second |= world.bad & ~members(world.code(ends), kept, ends)
        else:
            second |= world.verdict == SLOW
    yield first, second


def tests_pairs(model: Model) -> bool:
    """Return True while a sweep tests pairs, or tests bad ones again."""
    return runs_tests(model) and model.phase.name in (Layer.WORLD, Layer.P2P)


def _few_tries(model: Model, table: PairTable, found: Flags) -> Iterator[None]:
    """Set the flags of pairs that were good before this phase, and have not been tested again as often as necessary."""
    for which, tries in ((table.verdict == SLOW, 1 + SLOW_ROUNDS), (table.bad & (table.verdict != SLOW), 2)):
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
            found[at] = bool(now) and not known and len({one.attempts for one in now}) < tries
            if number % _CHUNK == 0:
                yield
