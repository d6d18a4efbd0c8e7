"""What is known of targets so far, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable

from fabtui.model.measurement import Layer, Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.session.measure.mesh_targets import Target


def latest(model: Model, layer: Layer, target: Target) -> Measurement | None:
    """Return the latest measurement of a target in a layer."""
    return model.addresses.last(layer, target.node, target.peer, target.here.address, target.there.address)


def losing(model: Model, layer: Layer, targets: Iterable[Target]) -> list[Target]:
    """Return those of which some packets came through, and some did not."""
    return [t for t in targets if (m := latest(model, layer, t)) is not None and m.verdict is Verdict.SLOW]


def next_attempt(model: Model, layer: Layer, target: Target) -> int:
    """Return which attempt at a target the next one is, from 1."""
    before = latest(model, layer, target)
    return 1 if before is None else before.attempts + 1
