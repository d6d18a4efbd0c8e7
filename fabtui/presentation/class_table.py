"""Statistics of the classes of pairs in a layer, as rows of text."""

from __future__ import annotations

from collections import Counter

from fabtui.model.endpoints import PairClass
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import full_value
from fabtui.presentation.wording import CLASS_WORDS


def class_rows(
    model: Model, layer: Layer, bad: Counter[PairClass], tested: Counter[PairClass]
) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the statistics of a layer's classes, of p2p if it has no values.

    ``bad`` and ``tested`` count the pairs of p2p by class, those without a value as well; n is that of other layers.
    """
    own = any(model.values(layer, kind) for kind in CLASS_WORDS)
    layer = layer if own else Layer.P2P
    rows: list[list[str]] = []
    for kind, word in CLASS_WORDS.items():
        values = model.values(layer, kind)
        valued = 0 if values is None else len(values)
        count = max(valued, tested[kind]) if layer is Layer.P2P else valued
        if not count:
            continue
        ends = [None, None] if values is None else [values.lowest, values.highest]
        worst, best = reversed(ends) if layer.spec.less_is_better else ends
        middle = None if values is None else values.median
        numbers = [worst, middle, best, model.limit(layer, kind)]
        shown = ["-" if value is None else full_value(value, layer.spec.unit) for value in numbers]
        rows.append([word, str(count), *shown, str(bad[kind]) if layer is Layer.P2P else ""])
    slow = "slow >" if layer.spec.less_is_better else "slow <"
    return [str(layer), "n", "worst", "usual", "best", slow, "bad" if layer is Layer.P2P else ""], rows
