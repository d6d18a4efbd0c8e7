"""Whole findings and class statistics as lines, and styles of preflight lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fabtui.model.endpoints import PairClass
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.presentation.class_table import class_rows
from fabtui.presentation.preflight_lines import Line as RoleLine
from fabtui.presentation.wording import MUTED
from fabtui.presentation.wrapping import Lines

#: Style of the number of a finding by its severity.
SEVERITY_STYLES = {"bad": "bold $error", "warn": "bold $warning", "note": "bold"}


def class_lines(
    model: Model, layer: Layer, bad: Counter[PairClass], tested: Counter[PairClass], width: int = 80
) -> Lines:
    """Return the statistics of a layer's classes, see `class_rows`."""
    headings, rows = class_rows(model, layer, bad, tested)
    if not rows:
        return []
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
