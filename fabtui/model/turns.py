"""Changes of the verdicts of pairs."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict

#: Maximum number of changes that are kept.
_MOST = 5000
#: Layers whose verdicts are followed.
FOLLOWED = (Layer.P2P, Layer.WORLD)


class Turn(NamedTuple):
    """Change of the verdict of an ordered pair.

    ``time`` is that of the event; ``before`` is None for the first result, if it is bad.
    """

    time: float
    before: Verdict | None
    after: Verdict
    now: Measurement

    @property
    def text(self) -> str:
        """The change in words."""
        now, was = self.now, f", was {self.before}" if self.before is not None else ""
        value = f" at {now.value:.3g} {now.unit}" if now.value is not None else ""
        return f"{now.src} > {now.dst} {now.layer}: {self.after}{value}{was}"


class TurnLog:
    """The latest changes, oldest first, and the number of all."""

    def __init__(self) -> None:
        self.latest: deque[Turn] = deque(maxlen=_MOST)
        self.total = 0

    def take(self, time: float, now: Measurement, before: Verdict | None, after: Verdict) -> Turn | None:
        """Compare the verdicts of a pair before and after a result; return the change if one of them is bad."""
        if now.layer is Layer.WORLD:
            # A value beside all other traffic may be low by chance.
            before = Verdict.OK if before is Verdict.SLOW else before
            after = Verdict.OK if after is Verdict.SLOW else after
        if before is after or not (after.bad or (before is not None and before.bad)):
            return None
        turn = Turn(time, before, after, now)
        self.latest.append(turn)
        self.total += 1
        return turn
