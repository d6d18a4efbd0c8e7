"""Whole findings and class statistics as lines, and styles of preflight lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fabtui.model.endpoints import PairClass
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import full_number
from fabtui.presentation.preflight_lines import Line as RoleLine
from fabtui.presentation.wording import CLASS_WORDS, MUTED
from fabtui.presentation.wrapping import Lines

if TYPE_CHECKING:
    pass

#: Style of the number of a finding by its severity.
SEVERITY_STYLES = {"bad": "bold $error", "warn": "bold $warning", "note": "bold"}


def class_lines(
    model: Model, layer: Layer, bad: Counter[PairClass], tested: Counter[PairClass], width: int = 80
) -> Lines:
    """Return the statistics of a layer's classes, of p2p if it has no values.

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
        shown = ["-" if value is None else full_number(value) for value in numbers]
        rows.append([word, str(count), *shown, str(bad[kind]) if layer is Layer.P2P else ""])
    if not rows:
        return []
    slow = "slow >" if layer.spec.less_is_better else "slow <"
    headings = [str(layer), "n", "worst", "usual", "best", slow, "bad" if layer is Layer.P2P else ""]
    widths = [max(len(row[at]) for row in [headings, *rows]) for at in range(len(headings))]
    lines: Lines = []
    for number, row in enumerate([headings, *rows]):
        cells = [f"{row[0]:<{widths[0]}}", *(f"{text:>{w}}" for text, w in zip(row[1:], widths[1:], strict=True))]
        style = MUTED if number == 0 else ""
        gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= width else " "
        lines.append([(gap.join(cells).rstrip(), style)])
    return lines


#: Style of each role of a piece of a line.
STYLES = {
    "bad": "bold $error",
    "warn": "$warning",
    "note": "$secondary",
    "name": "bold",
    "head": "bold $accent",
    "dim": MUTED,
}


def styled(lines: Sequence[RoleLine]) -> Lines:
    """Return lines with the styles of their roles."""
    return [[(text, STYLES.get(role, "")) for text, role in line] for line in lines]
