"""Message times that spread widely: a link that flaps passes, and passes fast on average, but stalls now and then."""

from __future__ import annotations

from typing import Any, NamedTuple

from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model

#: From this many times the median on, the 99th percentile is worth a word.
NOTABLE = 3.0
#: Of fewer messages than this the slowest says nothing.
FEWEST = 5


class Spread(NamedTuple):
    """The times of the messages of one direction of a pair, in seconds.

    Attributes:
        measurement: What they belong to.
        median: The median.
        p99: The 99th percentile.
        ratio: The latter over the former.
    """

    measurement: Measurement
    median: float
    p99: float
    ratio: float


def spread(measurement: Measurement) -> Spread | None:
    """Return how widely the times of a measurement's messages spread, or None when that is not known."""
    times: Any = (measurement.extra or {}).get("times")
    if not isinstance(times, dict):
        return None
    count, median, p99 = (_number(times.get(name)) for name in ("count", "median", "p99"))
    if count is None or median is None or p99 is None or count < FEWEST or median <= 0:
        return None
    return Spread(measurement, median, p99, p99 / median)


def notable(model: Model) -> list[Spread]:
    """Return what passed with times that spread notably, the worst first."""
    found = [one for one in _all(model) if one.ratio > NOTABLE and one.measurement.verdict is Verdict.OK]
    return sorted(found, key=lambda one: -one.ratio)


def _all(model: Model) -> list[Spread]:
    return [one for m in model.measurements() if m.layer is Layer.P2P and (one := spread(m)) is not None]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
