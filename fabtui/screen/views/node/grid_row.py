"""Rows and columns of a node in condensed form, and its differences from other nodes."""

from __future__ import annotations

from collections import Counter

from fabtui.diagnosis.preflight.rules import Preflight
from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.compare import shown
from fabtui.model.layers import Layer
from fabtui.model.measurement import worst
from fabtui.model.session_model import Model, NodeRecord
from fabtui.presentation.cell_levels import Glyphs, slot_of
from fabtui.presentation.findings import title
from fabtui.presentation.wording import MUTED, Part, verdict_style
from fabtui.presentation.wrapping import Lines
from fabtui.sanitize import one_line
from fabtui.screen.grid.axis import common_domain, fit_text
from fabtui.screen.views.detail_base import section
from fabtui.screen.widgets.sparkline import cells_strip, merged

#: Width of the label of a row.
_LABEL = 10
_GLYPHS = {"bad": ("✗", "x", "bold $error"), "warn": ("▲", "!", "$warning"), "note": ("·", ".", "")}


def row_lines(model: Model, record: NodeRecord, width: int, glyphs: Glyphs) -> Lines:
    """Return the rows and columns of a node: one glyph per cell, or per node if cells do not fit."""
    mine = [end for end in model.endpoints_of(record.name) if end.kind != "none"]
    others = [end for end in model.endpoints if end.kind != "none"]
    if not mine or len(others) < 2:
        return []
    nodes = list(dict.fromkeys(end.node for end in others))
    label = _LABEL + 2
    half = (width - 2 * label - 4) // 2
    by_cell = len(others) + len(nodes) - 1 <= width - label
    both = (len(others) + len(nodes) - 1 if by_cell else len(nodes)) <= half
    unit = "one glyph per cell" if by_cell else "one glyph per node, its worst cell"
    lines = section("rows and columns", f"{unit}, in the order of the grid")
    rows: list[list[Part]] = []
    for out in (True, False):
        found = [_row(model, end, others, nodes, by_cell, out, glyphs) for end in mine]
        label_text = f"  {'sends to' if out else 'receives':<{_LABEL}}"
        head: list[Part] = [(label_text + (_heads(others) if by_cell else ""), MUTED)]
        rows += [head, *found] if not both else []
        if both and out:
            sends = [head, *found]
        elif both:
            room = len(others) + len(nodes) - 1 if by_cell else len(nodes)
            rows = [
                [*left, (" " * (label + room + 4 - sum(len(text) for text, _ in left)), ""), *right]
                for left, right in zip(sends, [head, *found], strict=True)
            ]
    return lines + rows


def _heads(others: list[Endpoint]) -> str:
    """Return the node names over their cells, cut on the left because they differ at the end."""
    counts = Counter(end.node for end in others)
    domain = common_domain(counts)
    return " ".join(f"{fit_text(node.removesuffix(domain))[-count:]:<{count}}" for node, count in counts.items())


def _name(end: Endpoint) -> str:
    return {"gpu": f"GPU {end.index}", "cpu": f"rank {end.index}"}.get(end.kind, str(end.index))


def _row(
    model: Model, end: Endpoint, others: list[Endpoint], nodes: list[str], by_cell: bool, out: bool, glyphs: Glyphs
) -> list[Part]:
    head: Part = (f"  {_name(end):<{_LABEL}}", "")
    if by_cell:
        cells = [(end.number, o.number) if out else (o.number, end.number) for o in others]
        return [head, *cells_strip(model, Layer.P2P, cells, glyphs)]
    parts: list[Part] = []
    for node in nodes:
        verdicts = [
            model.cell(Layer.P2P, *((end.number, o.number) if out else (o.number, end.number))).verdict
            for o in model.endpoints_of(node)
            if o.kind != "none" and o.number != end.number
        ]
        verdict = worst(verdicts)
        parts.append((glyphs.of_slot[slot_of(verdict, None)], verdict_style(verdict)))
    return [head, *merged(parts)]


def odd_lines(found: Preflight, record: NodeRecord, glyphs: Glyphs) -> Lines:
    """Return the preflight findings of a node, and the facts in which it differs from nodes of its kind."""
    mine = [one for one in found.findings if record.name in one.nodes]
    odd = [one for one in found.table.odd if record.name in one.values]
    if not mine and not odd:
        if len(found.table.nodes) < 2:
            return []
        return [*section("preflight"), [("  no differences from nodes of its kind", MUTED)]]
    lines = section("preflight", "problems and differences from other nodes; P shows all nodes")
    for one in mine:
        fine, plain, style = _GLYPHS.get(one.severity, _GLYPHS["note"])
        lines.append([(f"  {plain if glyphs.plain else fine} ", style), (title(one), style)])
        lines += [[("      next  ", MUTED), (one_line(command, 300), "$accent")] for command in one.next]
    for difference in odd:
        fact = difference.fact
        fine, plain, style = _GLYPHS.get(fact.verdict, _GLYPHS["note"])
        own = shown(difference.values[record.name], fact.unit)
        usual = "no majority" if difference.tie else f"others: {shown(difference.usual, fact.unit)}"
        lines.append(
            [
                (f"  {plain if glyphs.plain else fine} ", style),
                (f"{fit_text(fact.title, 32):<32}  ", ""),
                (one_line(own, 60), style or "bold"),
                (f"   {one_line(usual, 80)}", MUTED),
            ]
        )
    return lines
