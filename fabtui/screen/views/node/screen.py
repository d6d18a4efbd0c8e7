"""View of a node."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from fabtui.diagnosis.preflight.rules import Preflight
from fabtui.model.session_model import Model, NodeRecord
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import MUTED, Part, clock_text, state_style, time_text
from fabtui.presentation.wrapping import Lines
from fabtui.sanitize import clean, one_line
from fabtui.screen import feed_actions
from fabtui.screen.views.detail_base import DetailScreen, pairs, section
from fabtui.screen.views.node.gpu_tables import gpu_state_lines, kernel_lines
from fabtui.screen.views.node.grid_row import odd_lines, row_lines
from fabtui.screen.views.node.port_tables import port_lines
from fabtui.screen.views.node.probe_tables import (
    declared_lines,
    gpu_lines,
    ib_lines,
    library_lines,
    nic_lines,
    nvlink_lines,
    process_lines,
    system_lines,
    text_of,
    user_probe_lines,
)

_RAW_LIMIT = 60_000


class NodeScreen(DetailScreen):
    """A node: state, inventory, links, counters and raw probe output.

    Args:
        node: Name of the node.
    """

    BINDING_GROUP_TITLE = "Node"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n,right_square_bracket", "other(1)", "next node", id="node.next", tooltip="show the next node"),
        Binding(
            "p,left_square_bracket", "other(-1)", "previous node", id="node.previous", tooltip="show the previous node"
        ),
        Binding("r", "probe", "probe again", id="node.look", tooltip="probe the node again"),
        Binding("y", "copy", "copy", id="node.copy", tooltip="copy the text of this view"),
    ]

    def __init__(self, node: str) -> None:
        super().__init__()
        self.node = node

    def _record(self) -> NodeRecord | None:
        return self.context.model.nodes.get(self.node)

    def title_parts(self) -> list[Part]:
        record = self._record()
        parts: list[Part] = [(f" {one_line(self.node, 80)} ", "bold"), ("  ", "")]
        if record is not None:
            parts.append((str(record.state), state_style(record.state)))
            if record.since and record.state.gone:
                ago = clock_text(self.context.now() - record.since)
                parts.append((f"  for {ago}", "bold $error"))
            if record.since:
                parts.append((f"  since {time_text(record.since)}", MUTED))
            if record.backend:
                parts.append((f"  via {one_line(record.backend, 30)}", MUTED))
        return parts

    def body_lines(self, width: int) -> Lines:
        record = self._record()
        if record is None:
            return [[("unknown node", MUTED)]]
        context = self.context
        found, current = context.preflight()
        if not current:
            context.draw_within(1.0)
        return node_lines(context.model, record, found, width, context.glyphs)

    def action_probe(self) -> None:
        feed_actions.probe_again(self.context, [self.node])

    def action_other(self, step: int) -> None:
        """Look at the next or the previous node."""
        names = list(self.context.model.nodes)
        if self.node in names:
            self.node = names[(names.index(self.node) + step) % len(names)]
            self.draw()
            self.action_scroll_edge(False)

    def action_copy(self) -> None:
        self.copy_text()


def node_lines(model: Model, record: NodeRecord, found: Preflight, width: int, glyphs: Glyphs) -> Lines:
    """Return the text of a node.

    Args:
        model: The session model.
        record: The node.
        found: Preflight of all nodes.
        width: Width of the lines.
        glyphs: Characters to draw with.
    """
    lines: Lines = []
    for text, style in ((record.text, state_style(record.state)), (record.note, "$warning")):
        if text:
            lines.append([(f"  {one_line(text, 600)}", style)])
    if record.hint:
        lines.append([("  try: ", MUTED), (one_line(record.hint, 600), "$accent")])
    lines += _count_lines(model, record)
    lines += row_lines(model, record, width, glyphs)
    lines += odd_lines(found, record, glyphs)
    inventory = record.inventory
    if inventory is None:
        lines += [[], [("  inventory not known", MUTED)]]
    else:
        lines += gpu_lines(inventory, record.probe_results.get("gpus")) + process_lines(inventory)
    lines += gpu_state_lines(record.probe_results.get("gpus"), record.probe_results.get("gpuload"))
    if inventory is not None:
        lines += section("system") + pairs(system_lines(inventory))
    lines += nvlink_lines(record.probe_results.get("nvlink"), record.first_probe_results.get("nvlink"))
    lines += ib_lines(record.probe_results.get("ibstat"), inventory) + port_lines(record)
    if inventory is not None:
        lines += nic_lines(inventory) + library_lines(inventory)
    lines += declared_lines(record.probe_results)
    lines += kernel_lines(record.probe_results.get("kernel")) + user_probe_lines(record) + _raw_lines(record)
    return lines


def _count_lines(model: Model, record: NodeRecord) -> Lines:
    """Return the number of endpoints and of pairs that could not be tested."""
    mine = {endpoint.number for endpoint in model.endpoints_of(record.name)}
    untested = sum(1 for src, dst in model.untested if record.name in (src.rpartition(":")[0], dst.rpartition(":")[0]))
    counts = [f"{len(mine)} endpoint{'s' if len(mine) != 1 else ''}"]
    if untested:
        counts.append(f"{untested} of its pairs could not be tested")
    return [[(f"  {', '.join(counts)}", MUTED)]]


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
            lines += [[], [(f"  {one_line(str(probe), 30)}: ", MUTED), (text_of(error, 600), "$error")]]
    return lines
