"""View of a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.preflight.checks import Preflight
from fabtui.model.endpoints import Endpoint, node_of
from fabtui.model.facts.compare import shown
from fabtui.model.layers import Layer
from fabtui.model.measurement import worst
from fabtui.model.session_model import Model, NodeRecord
from fabtui.nodeset import count
from fabtui.presentation.cell_levels import Glyphs, style_of
from fabtui.presentation.findings import title
from fabtui.presentation.wording import (
    MUTED,
    Part,
    clock_text,
    common_domain,
    retry_text,
    state_style,
    time_text,
    verdict_style,
)
from fabtui.presentation.wrapping import Lines, wrapped
from fabtui.sanitize import clean, one_line
from fabtui.screen import session_actions
from fabtui.screen.grid.axis import fit_text
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import SteppedScreen, pairs, section
from fabtui.screen.views.node import probe_tables as tables
from fabtui.screen.widgets.sparkline import cells_strip, merged

_RAW_LIMIT = 60_000


class NodeScreen(SteppedScreen):
    """A node: state, inventory, links, counters and raw probe output."""

    BINDING_GROUP_TITLE = "Node"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("n,right_square_bracket", "other(1)", "node.next", "show the next node", "next node"),
        shortcut("p,left_square_bracket", "other(-1)", "node.previous", "show the previous node", "previous node"),
        shortcut("r", "probe", "node.look", "probe the node again", "probe again"),
        shortcut("y", "copy", "node.copy", "copy the text of this view", "copy"),
    ]

    def __init__(self, node: str) -> None:
        super().__init__()
        self.node = node

    @property
    def crumb(self) -> str:
        return one_line(self.node, 80)

    def _record(self) -> NodeRecord | None:
        return self.context.model.nodes.get(self.node)

    def title_parts(self) -> list[Part]:
        record = self._record()
        parts: list[Part] = [(f" {one_line(self.node, 80)} ", "bold"), ("  ", "")]
        if record is not None:
            parts.append((str(record.state), state_style(record.state)))
            if record.since and record.state.gone:
                parts.append((f"  for {clock_text(self.context.now() - record.since)}", "bold $error"))
                if retry := retry_text(record.retry, self.context.now()):
                    parts.append((f", {retry}", "bold $error"))
            if record.since:
                parts.append((f"  since {time_text(record.since)}", MUTED))
            if record.backend:
                parts.append((f"  via {one_line(record.backend, 30)}", MUTED))
        return parts

    def stepped_lines(self, width: int) -> Lines:
        record = self._record()
        if record is None:
            return [[("unknown node", MUTED)]]
        context = self.context
        found, current = context.preflight()
        if not current:
            context.draw_within(1.0)
        steps = partial(self.steps_of, width=width)
        return node_lines(context.model, record, found, width, context.glyphs, steps)

    def action_probe(self) -> None:
        session_actions.probe_again(self.context, [self.node])

    def action_other(self, step: int) -> None:
        names = list(self.context.model.nodes)
        if self.node in names:
            self.node = names[(names.index(self.node) + step) % len(names)]
            self.selected = None
            self.draw()
            self.action_scroll_edge(False)


def node_lines(
    model: Model,
    record: NodeRecord,
    found: Preflight,
    width: int,
    glyphs: Glyphs,
    steps_of: Callable[[Finding], Lines],
) -> Lines:
    """Return the text of a node; ``found`` is the preflight of all nodes, ``steps_of`` draws next steps."""
    lines: Lines = []
    for text, style in ((record.text, state_style(record.state)), (record.note, "$warning")):
        if text:
            lines += wrapped([(f"  {one_line(text, 600)}", style)], width)
    if record.hint:
        lines += wrapped([("  try: ", MUTED), (one_line(record.hint, 600), "$accent")], width)
    untested = sum(record.name in map(node_of, pair) for pair in model.untested)
    counts = [count(len(model.endpoints_of(record.name)), "endpoint")]
    counts += [f"{untested} of its pairs could not be tested"] if untested else []
    lines.append([(f"  {', '.join(counts)}", MUTED)])
    lines += row_lines(model, record, width, glyphs)
    lines += odd_lines(found, record, width, glyphs, steps_of)
    inventory, probes = record.inventory, record.probe_results
    if inventory is None:
        lines += [[], [("  inventory not known", MUTED)]]
    else:
        lines += tables.gpu_lines(inventory, probes.get("gpus")) + tables.process_lines(inventory)
    lines += tables.gpu_state_lines(probes.get("gpus"), probes.get("gpuload"))
    if inventory is not None:
        lines += section("system") + pairs(tables.system_lines(inventory))
    lines += tables.nvlink_lines(probes.get("nvlink"), record.first_probe_results.get("nvlink"))
    lines += tables.ib_lines(probes.get("ibstat"), inventory) + tables.port_lines(record)
    if inventory is not None:
        lines += tables.nic_lines(inventory) + tables.library_lines(inventory)
    lines += tables.declared_lines(probes) + tables.kernel_lines(probes.get("kernel"))
    lines += tables.user_probe_lines(record) + _raw_lines(record)
    return lines


def _raw_lines(record: NodeRecord) -> Lines:
    lines: Lines = []
    for probe, result in record.probe_results.items():
        raw = result.get("raw")
        texts = raw.items() if isinstance(raw, dict) else [("", raw)]
        for name, text in texts:
            if not isinstance(text, str) or not text.strip():
                continue
            lines += section(f"raw text, {one_line(f'{probe} {name}', 60)}")
            lines += [[(f"  {line}", "")] for line in clean(text, _RAW_LIMIT).expandtabs().splitlines()]
        error = result.get("error")
        if error:
            lines += [[], [(f"  {one_line(str(probe), 30)}: ", MUTED), (tables.text_of(error, 600), "$error")]]
    return lines


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
    by_cell = len(others) + len(nodes) - 1 <= width - label
    room = len(others) + len(nodes) - 1 if by_cell else len(nodes)
    unit = "one glyph per cell" if by_cell else "one glyph per node, its worst cell"
    halves: list[list[list[Part]]] = []
    for caption, out in (("sends to", True), ("receives", False)):
        head = f"  {caption:<{_LABEL}}" + (_heads(others) if by_cell else "")
        halves.append([[(head, MUTED)], *(_row(model, end, others, nodes, by_cell, out, glyphs) for end in mine)])
    rows = halves[0] + halves[1]
    if room <= (width - 2 * label - 4) // 2:
        # Side by side.
        rows = [
            [*left, (" " * (label + room + 4 - sum(len(text) for text, _ in left)), ""), *right]
            for left, right in zip(*halves, strict=True)
        ]
    return section("rows and columns", f"{unit}, in the order of the grid") + rows


def _heads(others: list[Endpoint]) -> str:
    """Return the node names over their cells, cut on the left because they differ at the end."""
    counts = Counter(end.node for end in others)
    domain = common_domain(counts)
    return " ".join(f"{fit_text(node.removesuffix(domain))[-count:]:<{count}}" for node, count in counts.items())


def _row(
    model: Model, end: Endpoint, others: list[Endpoint], nodes: list[str], by_cell: bool, out: bool, glyphs: Glyphs
) -> list[Part]:
    name = {"gpu": f"GPU {end.index}", "cpu": f"rank {end.index}"}.get(end.kind, str(end.index))
    head: Part = (f"  {name:<{_LABEL}}", "")
    if by_cell:
        cells = [(end.number, o.number) if out else (o.number, end.number) for o in others]
        return [head, *cells_strip(model, Layer.P2P, cells, glyphs)]
    parts: list[Part] = []
    for node in nodes:
        numbers = [o.number for o in model.endpoints_of(node) if o.kind != "none" and o.number != end.number]
        cells = [(end.number, number) if out else (number, end.number) for number in numbers]
        verdict = worst([model.cell(Layer.P2P, *cell).verdict for cell in cells])
        parts.append((glyphs.of_style[style_of(verdict, None)], verdict_style(verdict)))
    return [head, *merged(parts)]


def odd_lines(
    found: Preflight, record: NodeRecord, width: int, glyphs: Glyphs, steps_of: Callable[[Finding], Lines]
) -> Lines:
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
