"""Pairs with widely spread message times: a flapping link passes, but stalls now and then."""

from __future__ import annotations

from typing import Any, NamedTuple

from fabtui.model.measurement import Measurement
from fabtui.model.pair_results import STALL
from fabtui.model.session_model import Model

#: Minimum number of messages for a meaningful 99th percentile.
FEWEST = 5


class Spread(NamedTuple):
    """Times (s) of the messages of one direction of a pair.

    Attributes:
        measurement: The measurement.
        median: The median.
        p99: The 99th percentile.
        ratio: 99th percentile over median.
    """

    measurement: Measurement
    median: float
    p99: float
    ratio: float


def spread(measurement: Measurement) -> Spread | None:
    """Return the spread of the message times of a measurement, or None if unknown."""
    times: Any = (measurement.extra or {}).get("times")
    if not isinstance(times, dict):
        return None
    count, median, p99 = (_number(times.get(name)) for name in ("count", "median", "p99"))
    if count is None or median is None or p99 is None or count < FEWEST or median <= 0:
        return None
    return Spread(measurement, median, p99, p99 / median)


def notable(model: Model) -> list[Spread]:
    """Return passed p2p measurements with a notable spread, the worst first."""
    found = [one for m in model.with_stalls() if (one := spread(m)) is not None and one.ratio > STALL]
    return sorted(found, key=lambda one: -one.ratio)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
