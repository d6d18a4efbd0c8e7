"""Changes of the verdicts of pairs."""

from __future__ import annotations

import itertools
import math
from array import array
from collections import deque
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict

#: Maximum number of changes that are kept.
_MOST = 2000
#: Time (s) after which pairs that are good again are no longer mentioned.
INCIDENT = 120.0
#: Layers whose verdicts are followed.
FOLLOWED = (Layer.P2P, Layer.WORLD)


class VerdictChange(NamedTuple):
    """Change of the verdict of an ordered pair.

    ``time`` is the event's; ``before`` is None for the first result, if it is bad. Thousands are kept: they hold
    what is shown of a measurement, not the measurement.
    """

    time: float
    layer: Layer
    src: str
    dst: str
    before: Verdict | None
    after: Verdict
    value: float | None
    unit: str

    @property
    def text(self) -> str:
        was = f", was {self.before.words}" if self.before is not None else ""
        value = f" at {self.value:.3g} {self.unit}" if self.value is not None else ""
        return f"{self.src} > {self.dst} {self.layer}: {self.after.words}{value}{was}"


class VerdictChanges:
    """The latest changes, oldest first, and the number of all."""

    def __init__(self) -> None:
        self.latest: deque[VerdictChange] = deque(maxlen=_MOST)
        self.total = 0
        #: Ordered pairs that are bad in p2p, and their number from some times on while the session watches.
        self._bad: set[Hashable] = set()
        #: When the last bad pair became good, while the session watches; None while a pair is bad, or none was.
        self.healed: float | None = None
        #: Pairs that were bad in the latest incident.
        self.hurt: set[Hashable] = set()
        self._times, self._counts = array("d"), array("I")

    def take(self, time: float, now: Measurement, before: Verdict | None, after: Verdict) -> VerdictChange | None:
        """Compare the verdicts of a pair before and after a result; return the change if one of them is bad."""
        if now.layer is Layer.WORLD:
            # A value beside all other traffic may be low by chance.
            before = Verdict.OK if before is Verdict.SLOW else before
            after = Verdict.OK if after is Verdict.SLOW else after
        if now.layer is Layer.P2P:
            self.follow(time, (now.src, now.dst), bad=after.bad)
        if before is after or not (after.bad or (before is not None and before.bad)):
            return None
        turn = VerdictChange(time, now.layer, now.src, now.dst, before, after, now.value, now.unit)
        self.latest.append(turn)
        self.total += 1
        return turn

    def follow(self, time: float, pair: Hashable, *, bad: bool) -> None:
        """Note that a pair is bad or good, once the session watches."""
        if not self._times or (pair in self._bad) is bad:
            return
        if self.healed is not None and time - self.healed > INCIDENT:
            self.hurt.clear()
        self._bad ^= {pair}
        self.hurt.add(pair)
        self.healed = None if self._bad else time
        self._add_point(time)

    def watch(self, time: float, bad: Iterable[tuple[str, str]]) -> None:
        """Begin to note the number of bad pairs, which are known now; continue if it was noted before."""
        if not self._times:
            self._bad = set(bad)
            self.hurt = set(self._bad)
            self._add_point(time)

    def _add_point(self, time: float) -> None:
        if len(self._times) == _MOST:
            del self._times[0], self._counts[0]
        self._times.append(time)
        self._counts.append(len(self._bad))

    def bad_over_time(self, until: float, count: int) -> list[int]:
        """Return the largest number of bad pairs in each of ``count`` equal times since watching began, or nothing."""
        if not self._times:
            return []
        first = self._times[0]
        step = max(1e-6, until - first) / count
        most_bad: list[int] = []
        points = itertools.chain(zip(self._times, self._counts, strict=True), [(math.inf, 0)])
        current, (time, number) = 0, next(points)
        for at in range(count):
            end = first + (at + 1) * step
            most = current
            while time <= end:
                current = number
                most = max(most, current)
                time, number = next(points)
            most_bad.append(most)
        return [*most_bad[:-1], self._counts[-1]]
