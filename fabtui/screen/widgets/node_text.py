"""Problems of a node, for the view of a node and the table of all nodes."""

from __future__ import annotations

from collections.abc import Callable

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.preflight.checks import Preflight
from fabtui.model.facts.compare import shown
from fabtui.model.session_model import NodeRecord
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.findings import title
from fabtui.presentation.wording import MUTED, state_style
from fabtui.presentation.wrapping import Lines, section, wrapped
from fabtui.sanitize import one_line
from fabtui.screen.grid.axis import fit_text

_GLYPHS = {"bad": ("✗", "x", "bold $error"), "warn": ("▲", "!", "$warning"), "note": ("·", ".", "")}


def problem_lines(record: NodeRecord, width: int) -> Lines:
    """Return what went wrong with a node, and what to try; nothing of a node that is fine."""
    lines: Lines = []
    for text, style in ((record.text, state_style(record.state)), (record.note, "$warning")):
        if text:
            lines += wrapped([(f"  {one_line(text, 600)}", style)], width)
    if record.hint:
        lines += wrapped([("  try: ", MUTED), (one_line(record.hint, 600), "$primary")], width)
    return lines


def odd_lines(
    found: Preflight, record: NodeRecord, width: int, glyphs: Glyphs, steps_of: Callable[[Finding], Lines]
) -> Lines:
    mine = [one for one in found.findings if record.name in one.nodes]
    odd = [one for one in found.table.odd if record.name in one.values]
    if not mine and not odd:
        if len(found.table.nodes) < 2:
            return []
        return [*section("preflight"), [("  no differences from nodes of its kind", MUTED)]]
    lines = section("preflight", "problems and differences from other nodes")
    for one in mine:
        fine, plain, style = _GLYPHS.get(one.severity, _GLYPHS["note"])
        lines += wrapped([(f"  {plain if glyphs.plain else fine} ", style), (title(one), style)], width, 6)
        lines += steps_of(one)
    for difference in odd:
        fact = difference.fact
        fine, plain, style = _GLYPHS.get(fact.verdict, _GLYPHS["note"])
        own = shown(difference.values[record.name], fact.unit)
        usual = "no majority" if difference.tie else f"others: {shown(difference.usual, fact.unit)}"
        mark, name = f"  {plain if glyphs.plain else fine} ", f"{fit_text(fact.title, 32):<32}  "
        value = (one_line(own, 60), style or "bold")
        lines.append([(mark, style), (name, ""), value, (f"   {one_line(usual, 80)}", MUTED)])
    return lines
