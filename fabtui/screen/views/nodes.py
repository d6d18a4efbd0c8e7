"""Table of all nodes, sorted by any column."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget

from fabtui.diagnosis.pairs.tally import Tally
from fabtui.model.endpoints import node_of
from fabtui.model.events import NodeState
from fabtui.model.facts.node_view import dicts, field
from fabtui.model.measurement import SEVERITY, Verdict, worst
from fabtui.model.session_model import Model, NodeRecord
from fabtui.nodeset import count
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import MUTED, Part, clock_text, state_style, verdict_style
from fabtui.presentation.wrapping import clipped
from fabtui.sanitize import one_line
from fabtui.screen import feed_actions
from fabtui.screen.context import context_of
from fabtui.screen.grid.axis import fit_text
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import TitledScreen, crumbs
from fabtui.screen.widgets.key_bar import KeyBar

_STATES = list(NodeState)


#: Headings of the columns, and those whose cells are numbers.
HEADINGS = (
    *("node", "state", "gone for", "worst", "bad", "untested", "differs"),
    *("GPUs", "ports up", "driver", "NCCL", "message"),
)
_RIGHT = ("gone for", "bad", "untested", "differs")


class NodeCell(NamedTuple):
    """Cell of a node: text, sort key (ascending), style."""

    text: str
    key: Any
    style: str = ""


class NodeRow(NamedTuple):
    """Row of a node, with a cell for each heading."""

    name: str
    gone: bool
    bad: int
    cells: list[NodeCell]


def node_rows(model: Model, tally: Tally, odd: dict[str, int], now: float) -> list[NodeRow]:
    """Return a row for each node; ``odd`` is the number of facts in which it differs, ``now`` in s since the epoch."""
    verdicts: defaultdict[str, list[Verdict]] = defaultdict(list)
    for pair, verdict in tally.bad.items():
        for node in _nodes_of(pair):
            verdicts[node].append(verdict)
    tested = {node for nodes in tally.between for node in nodes}
    skipped = Counter(node for pair in model.untested for node in _nodes_of(pair))
    rows = []
    for name, record in model.nodes.items():
        value, state = record.inventory or {}, record.state
        bad, untested, differs = len(verdicts[name]), skipped[name], odd.get(name, 0)
        found = worst(verdicts[name]) if bad else Verdict.OK if name in tested else Verdict.UNTESTED
        since = now - record.since if state.gone and record.since else None
        facts = (_gpus(model, record), _ports(value), fit_text(str(value.get("driver") or "-"), 20), _nccl(value))
        cells = [
            NodeCell(fit_text(name, 40), 0, "bold"),
            NodeCell(str(state), -_STATES.index(state), state_style(state)),
            NodeCell("" if since is None else clock_text(since), -(since or -1.0), "bold $error"),
            NodeCell(str(found), -SEVERITY.index(found), verdict_style(found)),
            NodeCell(str(bad), -bad, "bold" if bad else MUTED),
            NodeCell(str(untested), -untested, MUTED),
            NodeCell(str(differs), -differs, "$warning" if differs else MUTED),
            *(NodeCell(text, text) for text in facts),
            NodeCell(one_line(record.text or record.note, 120), record.text or "~"),
        ]
        rows.append(NodeRow(name, state.gone, bad, cells))
    return rows


def _nodes_of(pair: tuple[str, str]) -> set[str]:
    return set(map(node_of, pair))


def _gpus(model: Model, record: NodeRecord) -> str:
    ends = [end for end in model.endpoints_of(record.name) if end.kind != "none"]
    names = [gpu.get("name") for gpu in dicts(field(record.inventory, "gpus"))]
    if names := names or [end.name for end in ends if end.kind == "gpu"]:
        return f"{len(names)} x {fit_text(str(names[0] or 'GPU'), 24).removeprefix('NVIDIA ')}"
    return count(len(ends), "CPU rank") if ends else "-"


def _nccl(value: dict[str, Any]) -> str:
    found = [str(one["nccl_version"]) for one in dicts(value.get("pythons")) if one.get("nccl_version")]
    found += [str(one["version"]) for one in dicts(value.get("nccl")) if one.get("version")]
    return fit_text(found[0], 16) if found else "-"


def _ports(value: dict[str, Any]) -> str:
    ports = dicts(value.get("ib"))
    if ports:
        up = sum(port.get("state") == "Active" for port in ports)
        rates = sorted({port["rate"] for port in ports if isinstance(port.get("rate"), (int, float))})
        return f"{up} of {len(ports)}" + (f" at {rates[-1]:g}" if rates else "")
    nics = [nic for nic in dicts(value.get("nics")) if nic.get("kind") not in ("loopback", "virtual")]
    up = sum(field(nic, "state") == "up" for nic in nics)
    return f"{up} of {len(nics)}" if nics else "-"


class NodesTable(Widget, can_focus=True):
    """One line per node. Left and right choose the column to sort by.

    A DataTable would update every cell each second.
    """

    DEFAULT_CSS = "NodesTable { width: 1fr; height: 1fr; text-wrap: nowrap; }"
    BINDING_GROUP_TITLE = "Node table"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("up,k", "move(-1)", "nodes.up", "previous node"),
        shortcut("down,j", "move(1)", "nodes.down", "next node"),
        shortcut("home,g", "move(-100000)", "nodes.first", "first node"),
        shortcut("end,G", "move(100000)", "nodes.last", "last node"),
        shortcut("pageup,ctrl+u", "page(-1)", "nodes.page-up", "one screen up"),
        shortcut("pagedown,ctrl+d", "page(1)", "nodes.page-down", "one screen down"),
        shortcut("right,l", "sort(1)", "nodes.sort-next", "sort by the next column"),
        shortcut("left,h", "sort(-1)", "nodes.sort-previous", "sort by the previous column"),
        shortcut("i", "invert", "nodes.invert", "reverse the order"),
    ]

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._rows: list[NodeRow] = []
        self._unsorted: list[NodeRow] = []
        self._order: tuple[int, bool] | None = None
        self._chosen: str | None = None
        #: Start, end and index of each column.
        self._spans: list[tuple[int, int, int]] = []
        self._top = 0
        self.column, self.inverted = 0, False

    def put(self, rows: list[NodeRow]) -> None:
        """Show rows, given in the order of the grid; the same rows again cost nothing."""
        order = (self.column, self.inverted)
        if rows == self._unsorted and order == self._order:
            return
        self._order, self._unsorted = order, rows
        # A stable sort keeps the order of the grid among equal rows.
        self._rows = sorted(rows, key=lambda row: row.cells[self.column].key)
        if self.inverted:
            self._rows.reverse()
        self.refresh()

    @property
    def cursor(self) -> int:
        """Line of the cursor, which stays on its node when the order changes."""
        names = [row.name for row in self._rows]
        return names.index(self._chosen) if self._chosen in names else 0

    @property
    def chosen(self) -> str | None:
        return self._rows[self.cursor].name if self._rows else None

    def render(self) -> Content:
        width, height = self.size
        down, up = ("v", "^") if self._glyphs.plain else ("▾", "▴")
        heads = list(HEADINGS)
        heads[self.column] += f" {up if self.inverted else down}"
        texts = [[row.cells[at].text for row in self._rows] for at in range(len(heads))]
        widths = [max(map(len, [head, *column])) for head, column in zip(heads, texts, strict=True)]
        shown = [
            at
            for at, name in enumerate(HEADINGS)
            if name in ("node", "state", "message") or any(text not in ("", "-", "0") for text in texts[at])
        ]

        def padded(text: str, at: int) -> str:
            return f" {text:>{widths[at]}} " if HEADINGS[at] in _RIGHT else f" {text:<{widths[at]}} "

        head: list[Part] = []
        self._spans = []
        place = 1
        for at in shown:
            text = padded(heads[at], at)
            head.append((text, "bold reverse" if at == self.column else MUTED))
            self._spans.append((place, place + len(text), at))
            place += len(text)
        lines = [Content.assemble(*clipped(head, width, self._glyphs.ellipsis))]
        room = max(1, height - 1)
        cursor = self.cursor
        self._top = max(min(self._top, cursor), cursor - room + 1, 0)
        for number in range(self._top, min(len(self._rows), self._top + room)):
            row = self._rows[number]
            parts: list[Part] = []
            for at in shown:
                style = row.cells[at].style if not row.gone or at < 4 else MUTED
                style = f"{style} reverse".strip() if number == cursor and at == 0 else style
                parts.append((padded(row.cells[at].text, at), style))
            lines.append(Content.assemble(*clipped(parts, width, self._glyphs.ellipsis)))
        return Content("\n").join(lines)

    def action_move(self, by: int) -> None:
        if self._rows:
            self._chosen = self._rows[max(0, min(self.cursor + by, len(self._rows) - 1))].name
            self.refresh()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 2))

    def action_sort(self, step: int) -> None:
        self.sort_by((self.column + step) % len(HEADINGS))

    def action_invert(self) -> None:
        self.inverted = not self.inverted
        self.put(self._unsorted)

    def sort_by(self, column: int) -> None:
        """Sort by a column; reverse the order if it is the current one."""
        self._chosen = self.chosen
        self.inverted = self.column == column and not self.inverted
        self.column = column
        self.put(self._unsorted)

    def on_click(self, event: events.Click) -> None:
        """Select the clicked node, or sort by the clicked heading; a double click opens the node."""
        if event.y == 0:
            found = next((at for begin, end, at in self._spans if begin <= event.x < end), None)
            if found is not None:
                self.sort_by(found)
            return
        line = self._top + event.y - 1
        if line < len(self._rows):
            self._chosen = self._rows[line].name
            self.refresh()
            if event.chain == 2:
                context_of(self).open_node(self._chosen)


class NodesScreen(TitledScreen):
    """All nodes with their state, verdict and inventory."""

    BINDING_GROUP_TITLE = "Nodes"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape,backspace,t", "leave", "nodes.back", "back to the main screen", "back"),
        shortcut("enter,n", "open", "nodes.open", "show the node", "node"),
        shortcut("r", "probe", "nodes.look", "probe the node again", "probe again"),
        shortcut("y", "copy", "nodes.copy", "copy the table as text", "copy"),
    ]

    def compose(self) -> ComposeResult:
        yield self.title_line
        yield NodesTable(self.context.glyphs, id="nodes-table")
        yield KeyBar(id="nodes-keys")

    @property
    def table(self) -> NodesTable:
        return self.query_one(NodesTable)

    def on_mount(self) -> None:
        """Draw the first frame, and every second the time since a node was lost."""
        self.table.focus()
        self.set_interval(1.0, self.draw)

    def draw(self) -> None:
        if not self.is_mounted or not self.query("#nodes-table"):
            return
        context = self.context
        found, _ = context.preflight()
        odd = {name: len(found.table.differing(name)) for name in found.table.nodes}
        rows = node_rows(context.model, context.findings.tally, odd, context.now())
        self.table.put(rows)
        gone = sum(row.gone for row in rows)
        bad = sum(row.bad > 0 for row in rows)
        head: list[Part] = [(" nodes ", "bold"), (f"  {len(rows)}", "")]
        head += [(f", {gone} gone", "bold $error")] if gone else []
        head += [(f", {bad} with bad pairs", "$warning")] if bad else []
        head.append(("   left, right: sort by another column  i: reverse", MUTED))
        self.title_line.show(
            Content.assemble(*clipped([*crumbs(self), *head], self.size.width, context.glyphs.ellipsis))
        )

    def action_open(self) -> None:
        if self.table.chosen is not None:
            self.context.open_node(self.table.chosen)

    def action_probe(self) -> None:
        if self.table.chosen is not None:
            feed_actions.probe_again(self.context, [self.table.chosen])

    def action_copy(self) -> None:
        self.context.copy("\n".join(line.rstrip() for line in self.table.render().plain.splitlines()))
