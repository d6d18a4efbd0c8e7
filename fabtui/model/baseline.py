"""An earlier session to compare with, and how each pair changed since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict

#: A pair that reaches less than this share of its own earlier value is slow in the layer ``change``.
SLOW_BELOW = 0.7

_HAS_VALUE = (Verdict.OK, Verdict.SLOW)


@dataclass(frozen=True, slots=True)
class Baseline:
    """What pairs of endpoints reached in an earlier session.

    Attributes:
        name: What it is called, for example its file's name.
        time: When it began, seconds since the epoch; 0 when unknown.
        layer: The layer that is compared: ``p2p``, or ``world`` where the earlier session had nothing else.
        values: The earlier measurement of each ordered pair of endpoints, by their names.
    """

    name: str
    time: float
    layer: Layer
    values: dict[tuple[str, str], Measurement] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, time: float, measurements: Iterable[Measurement]) -> Baseline:
        """Return the baseline of a session's measurements; of several message sizes the largest counts."""
        found: dict[Layer, dict[tuple[str, str], Measurement]] = {Layer.P2P: {}, Layer.WORLD: {}}
        for one in measurements:
            if one.layer not in found or one.arm is not None:
                continue
            known = found[one.layer].get((one.src, one.dst))
            if known is None or (one.asked_bytes or 0) >= (known.asked_bytes or 0):
                found[one.layer][one.src, one.dst] = one
        layer = Layer.P2P if found[Layer.P2P] else Layer.WORLD
        return cls(name, time, layer, found[layer])


class Change(NamedTuple):
    """How a pair changed.

    Attributes:
        verdict: ``ok``; ``slow`` for less than `SLOW_BELOW` of what it was; what it is now where it has no value;
            ``skipped`` where it had none then, either; ``inconclusive`` where the two cannot be compared.
        ratio: The value of now over that of then, or None.
        text: What it was and what it is, in a few words.
    """

    verdict: Verdict
    ratio: float | None
    text: str


def change(then: Measurement | None, now: Measurement | None, verdict: Verdict) -> Change:
    """Return how a pair changed.

    Args:
        then: Its measurement in the earlier session, or None.
        now: That of this session, or None.
        verdict: The verdict of the latter, slowness included.
    """
    if now is None:
        return Change(Verdict.UNTESTED, None, "not tested yet")
    if then is None:
        return Change(Verdict.SKIPPED, None, "not in the baseline")
    had = then.verdict in _HAS_VALUE and then.value is not None
    has = verdict in _HAS_VALUE and now.value is not None
    if not had and not has:
        return Change(Verdict.SKIPPED, None, f"{then.verdict} then, {verdict} now")
    if not has:
        return Change(verdict, None, f"{_text(then)} then, {verdict} now")
    if not had:
        return Change(Verdict.OK, None, f"{then.verdict} then, {_text(now)} now")
    if then.unit != now.unit or (then.asked_bytes or 0) != (now.asked_bytes or 0):
        text = f"other message sizes: {then.asked_bytes} bytes then, {now.asked_bytes} now"
        return Change(Verdict.INCONCLUSIVE, None, text)
    if not then.value:
        return Change(Verdict.INCONCLUSIVE, None, f"{_text(then)} then, {_text(now)} now")
    ratio = (now.value or 0.0) / then.value
    return Change(Verdict.SLOW if ratio < SLOW_BELOW else Verdict.OK, ratio, f"{_text(then)} then, {_text(now)} now")


def _text(measurement: Measurement) -> str:
    return f"{measurement.value:.3g} {measurement.unit}"
