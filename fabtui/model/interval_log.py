"""Times in which something was bad and no longer is: pairs, nodes and their processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from fabtui.model.layers import Layer
from fabtui.model.measurement import DEAD, Measurement
from fabtui.model.pair_results import MOST_ATTEMPTS
from fabtui.sanitize import one_line

#: Maximum number of intervals that are kept.
_MOST = 2000
#: Number of characters of a reason that are kept.
_LONGEST = 300


class IntervalKind(StrEnum):
    """Kind of trouble."""

    RESULT = "result"  #: The tests of a pair or a group failed.
    ABSENCE = "absence"  #: A node was gone, and came back.
    SILENCE = "silence"  #: A node was silent, and its link outlived it.
    RANK_HOST = "rank-host"  #: The process of the ranks of a node ended, or was ended because it hung.


class Interval(NamedTuple):
    """A time (epoch seconds) from the first to the last sign that something was bad."""

    kind: IntervalKind
    ends: tuple[str, ...]  #: The node, or the ends of the pair or group.
    since: float
    until: float
    text: str  #: Why, as it was reported then.
    start_seen: bool = True  #: Whether it began then; else it may have begun before.
    layer: Layer | None = None  #: Layer of the results.
    verdict: str = ""  #: Worst verdict of the results in words.


class IntervalLog:
    """The latest intervals that have ended, in the order of their ends."""

    def __init__(self) -> None:
        self.ended: deque[Interval] = deque(maxlen=_MOST)
        #: Nodes that are gone, since when, why, and whether that was seen.
        self._gone: dict[str, Interval] = {}

    def add(self, kind: IntervalKind, node: str, since: float, until: float, text: str) -> None:
        self.ended.append(Interval(kind, (node,), since, until, one_line(text, _LONGEST)))

    def left(self, node: str, since: float, text: str, *, start_seen: bool) -> None:
        """Note that a node is gone; the first reason stays."""
        if node not in self._gone:
            text = one_line(text, _LONGEST)
            self._gone[node] = Interval(IntervalKind.ABSENCE, (node,), since, since, text, start_seen)

    def heard(self, node: str, time: float) -> None:
        """Note that a node answers; nothing if it was not gone."""
        if (absence := self._gone.pop(node, None)) is not None:
            self.ended.append(absence._replace(until=time))

    def passed(self, attempts: Sequence[Measurement], began: float) -> None:
        """Note that a pair or group passes: the latest of its attempts, after one or more that failed.

        Args:
            attempts: Its attempts, oldest first; only the latest ones may be known.
            began: Start of the first of the attempts that failed.
        """
        bad = trailing_bad(attempts)
        first, last = bad[0], bad[-1]
        worst = max(bad, key=lambda one: DEAD.index(one.verdict)).verdict.words
        # Older attempts are forgotten.
        seen = len(bad) < len(attempts) - 1 or len(attempts) < MOST_ATTEMPTS
        ends, since, text = (first.src, first.dst), min(began, first.time), one_line(last.error or "", _LONGEST)
        self.ended.append(Interval(IntervalKind.RESULT, ends, since, last.time, text, seen, first.layer, worst))


def trailing_bad(attempts: Sequence[Measurement]) -> list[Measurement]:
    """Return the attempts without a usable result that come just before the last attempt, oldest first.

    Where attempts have several message sizes, those of the last one's size count, if there are any.
    """
    *before, last = attempts
    same = [one for one in before if one.asked_bytes in (None, last.asked_bytes)] or before
    bad: list[Measurement] = []
    for one in reversed(same):
        if one.verdict not in DEAD:
            break
        bad.append(one)
    return bad[::-1]
