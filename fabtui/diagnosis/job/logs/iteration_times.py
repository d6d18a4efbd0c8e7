"""Iteration times of a training, from the lines that Megatron-LM and its forks print."""

from __future__ import annotations

import re
import statistics
from collections import deque
from typing import NamedTuple

from fabtui_node.parsers.lines import number, whole

_LINE = re.compile(r"\biteration\s{1,20}(\d{1,12})/\s{0,20}(\d{1,12})\s{0,20}\|", re.ASCII)
_ELAPSED = re.compile(r"elapsed time per iteration \((ms|s)\)")
#: Length of a line that is examined, and of a name and a value.
_LONGEST_LINE = 4000
_LONGEST = 60
_LOSS = ("lm loss", "loss", "lm loss value", "loss value")
_VALUE = re.compile(r"[0-9.eE+-]{1,40}|-?nan|-?inf", re.ASCII | re.I)
#: Number of iterations that are kept.
KEPT = 1000
#: The first iteration is warm-up if it takes this many times the median; any other one is slow then.
SLOW = 1.5
#: Number of iterations after the warm-up from which a slow one stands out.
_ENOUGH = 4
#: Number of the last iterations whose time is compared with that of those before.
_LATELY = 3


class IterationLine(NamedTuple):
    """A printed iteration."""

    number: int  #: Its number.
    total: int  #: The last iteration of the training.
    fields: dict[str, str]  #: Names and values, as printed.
    start: int  #: Where it begins in its line.
    cut: bool  #: True if the last field is not closed by a bar; it may have lost its end and is left out.

    @property
    def elapsed(self) -> tuple[float | None, str]:
        """Time (s) per iteration, and the unit in which it is printed; None and "" without one."""
        for name, text in self.fields.items():
            if found := _ELAPSED.fullmatch(name):
                value = number(text)
                return None if value is None else value / (1.0 if found[1] == "s" else 1000.0), found[1]
        return None, ""


def iteration_line(line: str) -> IterationLine | None:
    """Return the iteration of a line, None for other lines."""
    if "iteration" not in line or (found := _LINE.search(line)) is None:
        return None
    rest = line[found.end() : found.end() + _LONGEST_LINE].rstrip()
    *closed, last = rest.split("|")
    parts = (part.partition(":") for part in closed)
    fields = [(name.strip(), value.strip()) for name, colon, value in parts if colon]
    short = {name: value for name, value in fields if 0 < len(name) <= _LONGEST >= len(value)}
    return IterationLine(int(found[1]), int(found[2]), short, found.start(), bool(last) or not rest)


class Iteration(NamedTuple):
    """A printed iteration."""

    number: int  #: Its number.
    total: int  #: The last iteration of the training.
    seconds: float | None  #: Time per iteration, as printed; None if the line has none or is cut off.
    loss: str = ""  #: The loss as printed, "" without one.
    nan: int = 0  #: Number of iterations with NaN that the line counts.
    skipped: int = 0  #: Number of skipped iterations that the line counts.
    seen: float | None = None  #: When the line was read (s, our clock); None if it was there before the first reading.
    first: bool = False  #: Whether it is the first one after a start or restart.


def iteration_of(line: str, seen: float | None = None) -> Iteration | None:
    """Return the iteration of a line, None for other lines. A field that is not closed by a bar counts as cut off."""
    printed = iteration_line(line)
    if printed is None:
        return None
    loss = next((text for name in _LOSS if _VALUE.fullmatch(text := printed.fields.get(name, ""))), "")
    nan, skipped = (whole(printed.fields.get(f"number of {kind} iterations", "")) or 0 for kind in ("nan", "skipped"))
    return Iteration(printed.number, printed.total, printed.elapsed[0], loss, nan, skipped, seen)


class IterationTimes:
    """Iterations of a job in the order they were printed, each once; the warm-up is kept apart. Memory is bounded."""

    def __init__(self) -> None:
        self._kept: deque[Iteration] = deque(maxlen=KEPT)
        self._first: Iteration | None = None
        self.restarts = 0  #: How often the numbers went back: a restart from a checkpoint.

    def take(self, line: str, seen: float | None = None) -> Iteration | None:
        """Take a line; return its iteration if it has one that is new."""
        iteration = iteration_of(line, seen)
        if iteration is None or (self._kept and iteration.number == self._kept[-1].number):
            # Several ranks print the same one.
            return None
        back = bool(self._kept) and iteration.number < self._kept[-1].number
        if back and any((one.number, one.seconds) == (iteration.number, iteration.seconds) for one in self._kept):
            # A log that was read later.
            return None
        self.restarts += back
        if back or not self._kept:
            iteration = self._first = iteration._replace(first=True)
        self._kept.append(iteration)
        return iteration

    @property
    def latest(self) -> Iteration | None:
        return self._kept[-1] if self._kept else None

    @property
    def all(self) -> list[Iteration]:
        return list(self._kept)

    @property
    def median(self) -> float | None:
        """Median time (s) without the warm-up; that of the only iteration while there is one."""
        times = [one.seconds for one in self._kept if one.seconds is not None]
        rest = [one.seconds for one in self._kept if one.seconds is not None and not one.first]
        return statistics.median(rest or times) if times else None

    @property
    def warm_up(self) -> Iteration | None:
        """The first iteration since the latest start if it took longer than usual: it loads, compiles and connects."""
        first, usual = self._first, self.median
        slow = first is not None and first.seconds is not None and usual is not None and first.seconds > SLOW * usual
        return first if slow else None

    @property
    def slow(self) -> list[Iteration]:
        """Iterations after the warm-up that took much longer than usual, once there are enough to compare."""
        rest = [one for one in self._kept if one.seconds is not None and not one.first]
        usual = self.median
        if usual is None or len(rest) < _ENOUGH:
            return []
        return [one for one in rest if one.seconds is not None and one.seconds > SLOW * usual]

    @property
    def pace(self) -> dict[str, float]:
        """Return the time (s) of the last iterations, ``lately``, and of those before, ``before``; {} with too few."""
        times = [one.seconds for one in self._kept if one.seconds is not None and not one.first]
        if len(times) < _ENOUGH + _LATELY:
            return {}
        return {"lately": statistics.median(times[-_LATELY:]), "before": statistics.median(times[:-_LATELY])}

    @property
    def interval(self) -> float | None:
        """Usual time (s) between two printed lines; None while fewer than two iterations are known."""
        usual = self.median
        if usual is None or len(self._kept) < 2:
            return None
        steps = [after.number - before.number for before, after in zip(self._kept, list(self._kept)[1:], strict=False)]
        ahead = [step for step in steps if step > 0]
        return usual * statistics.median(ahead) if ahead else None
