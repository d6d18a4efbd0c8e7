"""Numbers of bad pairs of all layers, gathered in small steps so that the screen never waits for a large fabric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fabtui.model.layers import Layer, measured_key_layers
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model

LayerCounts = dict[Layer, Counter[Verdict]]

#: Number of pairs per step.
_CHUNK = 256


def layer_counts(model: Model, known: LayerCounts) -> Iterator[LayerCounts | None]:
    """Yield None after each small step, and at the end the number of pairs of each layer with each bad verdict.

    A pair is one of what the layer measures: endpoints, addresses or nodes. Layers without bad pairs are left out.

    Args:
        model: The session model.
        known: Layers whose pairs have been counted already.
    """
    found = dict(known)
    for layer in measured_key_layers():
        if layer not in known:
            counts = found[layer] = Counter()
            for number, verdict in enumerate(model.verdicts_in(layer)):
                counts[verdict] += 1
                if number % _CHUNK == 0:
                    yield None
    for layer, counts in list(found.items()):
        found[layer] = Counter({verdict: count for verdict, count in counts.items() if verdict.bad and count})
    yield {layer: counts for layer, counts in found.items() if counts}
