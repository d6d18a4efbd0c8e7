"""A/B comparison as text: the arms side by side."""

from __future__ import annotations

from fabtui.diagnosis.pairs.ab_comparison import KINDS, Arm, Compared, compared
from fabtui.model.session_model import Model
from fabtui.presentation.numbers import size_text, value_text
from fabtui.report.tables import aligned, capped
from fabtui.sanitize import one_line

#: More transports than this of one class are counted.
_MOST_TRANSPORTS = 2


def comparison(model: Model) -> list[str]:
    """Return the table: every arm and its ratio per pair class, and per group and size of a collective."""
    rows = compared(model)
    if not rows:
        return []
    names = [one_line(name, 80) for name in model.comparison]
    head = ["", "", "", names[0]]
    for name in names[1:]:
        head += [name, ""]
    # All columns but sizes and ratios are text.
    left = [0, 1, 3, *range(4, len(head), 2)]
    lines = aligned([head, *(_cells(row, rows[at - 1] if at else None) for at, row in enumerate(rows))], left)
    return capped([f"A/B, medians; ratios to {names[0]}", lines[0]], lines[1:], "rows")


def _cells(row: Compared, before: Compared | None) -> list[str]:
    layer = KINDS.get(row.layer, str(row.layer))
    same = before is not None and before.layer is row.layer
    cells = ["" if same else layer, "" if same and before and before.what == row.what else one_line(row.what)]
    cells += ["" if row.bytes is None else size_text(row.bytes), _arm(row, row.arms[0])]
    for arm in row.arms[1:]:
        ratio = row.ratio(arm)
        cells += [_arm(row, arm), "-" if ratio is None else f"{ratio:.2f}x"]
    return cells


def _arm(row: Compared, arm: Arm) -> str:
    parts = []
    if arm.transports:
        more = len(arm.transports) - _MOST_TRANSPORTS
        shown = ", ".join(one_line(transport, 40) for transport in arm.transports[:_MOST_TRANSPORTS])
        parts.append(shown + (f" +{more}" if more > 0 else ""))
    if arm.median is not None:
        parts.append(f"{value_text(arm.median)} {row.unit}")
    if arm.failed:
        parts.append(f"{arm.failed} of {arm.failed + len(arm.values)} not ok")
    return " ".join(parts) or "not tested"
