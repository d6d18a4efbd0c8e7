"""Comparison of pairs with an earlier session or sweep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fabtui.model.facts.compare import shown
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict

#: A pair that reaches less than this share of its own earlier value is slow in the layer ``change``.
SLOW_BELOW = 0.7
#: Layers that are compared: the first that has values.
COMPARED = (Layer.P2P, Layer.WORLD)

_HAS_VALUE = (Verdict.OK, Verdict.SLOW)


@dataclass(frozen=True, slots=True)
class Baseline:
    """Measurements of endpoint pairs in an earlier session."""

    name: str  #: Display name, for example of its file.
    time: float  #: Start, seconds since the epoch; 0 if unknown.
    layer: Layer  #: Layer that is compared: ``p2p``, or ``world`` if the earlier session has nothing else.
    #: Earlier measurement of each ordered pair of endpoints, by name.
    values: dict[tuple[str, str], Measurement] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, time: float, measurements: Iterable[Measurement]) -> Baseline:
        """Return the baseline of a session's measurements; of several message sizes the largest counts."""
        by_layer: dict[Layer, dict[tuple[str, str], Measurement]] = {layer: {} for layer in COMPARED}
        for one in measurements:
            if one.layer not in by_layer or one.arm is not None:
                continue
            known = by_layer[one.layer].get((one.src, one.dst))
            if known is None or (one.asked_bytes or 0) >= (known.asked_bytes or 0):
                by_layer[one.layer][one.src, one.dst] = one
        layer = next((one for one in COMPARED if by_layer[one]), Layer.WORLD)
        return cls(name, time, layer, by_layer[layer])


class Change(NamedTuple):
    """Change of a pair against an earlier session or sweep: value of now over that of then, or None, and both as text.

    The verdict is ``slow`` below `SLOW_BELOW` of the earlier value; that of now if there is no value now; ``skipped``
    if there was none then either; ``inconclusive`` if the two cannot be compared; else ``ok``.
    """

    verdict: Verdict
    ratio: float | None
    text: str


def previous(attempts: Sequence[Measurement], now: Measurement, since: float) -> Measurement | None:
    """Return the last attempt before a time, at the message size of ``now`` where there is one; None without any."""
    earlier = [one for one in reversed(attempts) if one.time < since]
    return next((one for one in earlier if one.asked_bytes in (None, now.asked_bytes)), next(iter(earlier), None))


def change(then: Measurement | None, now: Measurement | None, verdict: Verdict) -> Change:
    """Return the change between two sessions or sweeps; ``verdict`` is the current one, slowness included."""
    if now is None:
        return Change(Verdict.UNTESTED, None, "not tested yet")
    if then is None:
        return Change(Verdict.SKIPPED, None, "not tested then")
    had = then.verdict in _HAS_VALUE and then.value is not None
    has = verdict in _HAS_VALUE and now.value is not None
    if not had and not has:
        return Change(Verdict.SKIPPED, None, f"{then.verdict.words} then, {verdict.words} now")
    if not has:
        return Change(verdict, None, f"{_text(then)} then, {verdict.words} now")
    if not had:
        return Change(Verdict.OK, None, f"{then.verdict.words} then, {_text(now)} now")
    if then.unit != now.unit or (then.asked_bytes or 0) != (now.asked_bytes or 0):
        text = f"other message sizes: {shown(then.asked_bytes, 'B')} then, {shown(now.asked_bytes, 'B')} now"
        return Change(Verdict.INCONCLUSIVE, None, text)
    text = f"{_text(then)} then, {_text(now)} now"
    if not then.value and now.value:
        return Change(Verdict.INCONCLUSIVE, None, text)
    # No loss then and now is not a change.
    ratio = (now.value or 0.0) / then.value if then.value else 1.0
    return Change(Verdict.SLOW if ratio < SLOW_BELOW else Verdict.OK, ratio, text)


def _text(measurement: Measurement) -> str:
    return f"{measurement.value:.3g} {measurement.unit}"
