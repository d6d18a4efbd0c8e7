"""Flapping: a pair that was well, was not, and was well again. Re-testing sees it; no single test can."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from fabtui.model.measurement import Verdict

#: The latest attempts that are looked at.
ATTEMPTS = 10
#: From so many turns on, from good to bad or back, a pair is flapping.
TURNS = 2

_SAYS_NOTHING = (Verdict.UNTESTED, Verdict.SKIPPED, Verdict.INCONCLUSIVE)


def turns(verdicts: Iterable[Verdict]) -> int:
    """Return how often attempts, oldest first, turned from good to bad or back; those that say nothing are left out."""
    found = [verdict.bad for verdict in verdicts if verdict not in _SAYS_NOTHING]
    return sum(a != b for a, b in pairwise(found))


def flapping(verdicts: Iterable[Verdict]) -> int:
    """Return how often a pair's latest attempts turned where that makes it a flapping one, else 0.

    One turn is none: a pair that failed beside others and passes alone, or that broke and stays broken, does not flap.
    """
    latest = list(verdicts)[-ATTEMPTS:]
    found = turns(latest)
    return found if found >= TURNS else 0
