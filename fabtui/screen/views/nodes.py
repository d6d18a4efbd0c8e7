"""Table of all nodes, sorted by any column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from fabtui.diagnosis.pairs.tally import Tally
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
from fabtui.screen.widgets.key_bar import KeyBar
from fabtui.screen.widgets.text_line import TextLine

_STATES = list(NodeState)


class NodeRow(NamedTuple):
    """Row of a node."""

    record: NodeRecord
    worst: Verdict
    bad: int
    untested: int
    gpus: str
    driver: str
    nccl: str
    ports: str
    odd: int
    since: float | None


class Column(NamedTuple):
    """Column: heading, text of a cell, sort key (ascending), style."""

    name: str
    text: Callable[[NodeRow], str]
    key: Callable[[NodeRow], Any]
    style: Callable[[NodeRow], str] = lambda row: ""
    right: bool = False


def _gone_for(row: NodeRow) -> str:
    return "" if row.since is None else clock_text(row.since)


def _message(row: NodeRow) -> str:
    return one_line(row.record.text or row.record.note, 120)


COLUMNS: tuple[Column, ...] = (
    Column("node", lambda row: fit_text(row.record.name, 40), lambda row: 0, lambda row: "bold"),
    Column(
        "state",
        lambda row: str(row.record.state),
        lambda row: -_STATES.index(row.record.state),
        lambda row: state_style(row.record.state),
    ),
    Column("gone for", _gone_for, lambda row: -(row.since or -1.0), lambda row: "bold $error", right=True),
    Column(
        "worst",
        lambda row: str(row.worst),
        lambda row: -SEVERITY.index(row.worst),
        lambda row: verdict_style(row.worst),
    ),
    Column("bad", lambda row: str(row.bad), lambda row: -row.bad, lambda row: "bold" if row.bad else MUTED, right=True),
    Column("untested", lambda row: str(row.untested), lambda row: -row.untested, lambda row: MUTED, right=True),
    Column(
        "differs",
        lambda row: str(row.odd),
        lambda row: -row.odd,
        lambda row: "$warning" if row.odd else MUTED,
        right=True,
    ),
    Column("GPUs", lambda row: row.gpus, lambda row: row.gpus),
    Column("ports up", lambda row: row.ports, lambda row: row.ports),
    Column("driver", lambda row: row.driver, lambda row: row.driver),
    Column("NCCL", lambda row: row.nccl, lambda row: row.nccl),
    Column(
        "message", lambda row: one_line(row.record.text or row.record.note, 120), lambda row: row.record.text or "~"
    ),
)


def node_rows(model: Model, tally: Tally, odd: dict[str, int], now: float) -> list[NodeRow]:
    """Return a row for each node; ``odd`` is the number of facts in which it differs, ``now`` in s since the epoch."""
    verdicts: dict[str, list[Verdict]] = {name: [] for name in model.nodes}
    bad: dict[str, int] = dict.fromkeys(model.nodes, 0)
    for pair, verdict in tally.bad.items():
        for node in {end.rpartition(":")[0] for end in pair}:
            verdicts.setdefault(node, []).append(verdict)
            bad[node] = bad.get(node, 0) + 1
    tested = {node for nodes in tally.between for node in nodes}
    untested: dict[str, int] = {}
    for pair in model.untested:
        for node in {end.rpartition(":")[0] for end in pair}:
            untested[node] = untested.get(node, 0) + 1
    rows = []
    for name, record in model.nodes.items():
        value = record.inventory or {}
        found = worst(verdicts[name]) if verdicts[name] else Verdict.OK if name in tested else Verdict.UNTESTED
        since = now - record.since if record.state.gone and record.since else None
        rows.append(
            NodeRow(
                record,
                found,
                bad[name],
                untested.get(name, 0),
                _gpus(model, record),
                fit_text(str(value.get("driver") or "-"), 20),
                _nccl(value),
                _ports(value),
                odd.get(name, 0),
                since,
            )
        )
    return rows


def _gpus(model: Model, record: NodeRecord) -> str:
    ends = [end for end in model.endpoints_of(record.name) if end.kind != "none"]
    gpus = dicts((record.inventory or {}).get("gpus"))
    known = [end for end in ends if end.kind == "gpu"]
    if not gpus and known:
        return f"{len(known)} x {fit_text(known[0].name or 'GPU', 24).removeprefix('NVIDIA ')}"
    if gpus:
        names = fit_text(str(gpus[0].get("name") or "GPU"), 24).removeprefix("NVIDIA ")
        return f"{len(gpus)} x {names}"
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
    """One line per node, with a cursor and a sort column. A DataTable would update every cell each second."""

    DEFAULT_CSS = """
    NodesTable { width: 1fr; height: 1fr; text-wrap: nowrap; }
    """
    BINDING_GROUP_TITLE = "Node table"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", id="nodes.up", show=False, tooltip="previous node"),
        Binding("down,j", "move(1)", id="nodes.down", show=False, tooltip="next node"),
        Binding("home,g", "move(-100000)", id="nodes.first", show=False, tooltip="first node"),
        Binding("end,G", "move(100000)", id="nodes.last", show=False, tooltip="last node"),
        Binding("pageup,ctrl+u", "page(-1)", id="nodes.page-up", show=False, tooltip="one screen up"),
        Binding("pagedown,ctrl+d", "page(1)", id="nodes.page-down", show=False, tooltip="one screen down"),
        Binding("right,l", "sort(1)", id="nodes.sort-next", show=False, tooltip="sort by the next column"),
        Binding("left,h", "sort(-1)", id="nodes.sort-previous", show=False, tooltip="sort by the previous column"),
        Binding("i", "invert", id="nodes.invert", show=False, tooltip="reverse the order"),
    ]

    class Opened(Message):
        """A node was double-clicked."""

        def __init__(self, node: str) -> None:
            super().__init__()
            self.node = node

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._rows: list[NodeRow] = []
        self._unsorted: list[NodeRow] = []
        self._order: tuple[int, bool] | None = None
        self._chosen: str | None = None
        self._spans: list[tuple[int, int, int]] = []
        self._top = 0
        self.column = 0
        self.inverted = False

    def put(self, rows: list[NodeRow]) -> None:
        """Show rows, given in the order of the grid; the same rows again cost nothing."""
        order = (self.column, self.inverted)
        if rows == self._unsorted and order == self._order:
            return
        self._order = order
        self._unsorted = rows
        key = COLUMNS[self.column].key
        # A stable sort keeps the order of the grid among equal rows.
        self._rows = sorted(rows, key=key)
        if self.inverted:
            self._rows.reverse()
        self.refresh()

    @property
    def cursor(self) -> int:
        """Line of the cursor, which stays on its node when the order changes."""
        names = [row.record.name for row in self._rows]
        return names.index(self._chosen) if self._chosen in names else 0

    @property
    def chosen(self) -> str | None:
        """Node under the cursor."""
        return self._rows[self.cursor].record.name if self._rows else None

    def render(self) -> Content:
        """Return the headings and the visible lines."""
        width, height = self.size
        cells = [[column.text(row) for column in COLUMNS] for row in self._rows]
        heads = [column.name + self._mark(at) for at, column in enumerate(COLUMNS)]
        widths = [max([len(heads[at]), *(len(row[at]) for row in cells)]) for at in range(len(COLUMNS))]
        shown = [
            at
            for at, column in enumerate(COLUMNS)
            if column.name in ("node", "state", "message") or any(row[at] not in ("", "-", "0") for row in cells)
        ]
        head: list[Part] = []
        self._spans = []
        place = 1
        for at in shown:
            text = f" {heads[at]:>{widths[at]}} " if COLUMNS[at].right else f" {heads[at]:<{widths[at]}} "
            head.append((text, "bold reverse" if at == self.column else MUTED))
            self._spans.append((place, place + len(text), at))
            place += len(text)
        lines = [Content.assemble(*clipped(head, width, self._glyphs.ellipsis))]
        room = max(1, height - 1)
        cursor = self.cursor
        self._top = max(min(self._top, cursor), cursor - room + 1, 0)
        for number in range(self._top, min(len(self._rows), self._top + room)):
            row, texts = self._rows[number], cells[number]
            parts: list[Part] = []
            for at in shown:
                column = COLUMNS[at]
                text = f" {texts[at]:>{widths[at]}} " if column.right else f" {texts[at]:<{widths[at]}} "
                style = column.style(row) if not row.record.state.gone or at < 4 else MUTED
                parts.append((text, f"{style} reverse".strip() if number == cursor and at == 0 else style))
            lines.append(Content.assemble(*clipped(parts, width, self._glyphs.ellipsis)))
        return Content("\n").join(lines)

    def _mark(self, at: int) -> str:
        if at != self.column:
            return ""
        down, up = ("v", "^") if self._glyphs.plain else ("▾", "▴")
        return f" {up if self.inverted else down}"

    def action_move(self, by: int) -> None:
        if self._rows:
            self._chosen = self._rows[max(0, min(self.cursor + by, len(self._rows) - 1))].record.name
            self.refresh()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 2))

    def action_sort(self, step: int) -> None:
        self.sort_by((self.column + step) % len(COLUMNS))

    def action_invert(self) -> None:
        self.inverted = not self.inverted
        self.put(self._unsorted)

    def sort_by(self, column: int) -> None:
        """Sort by a column; reverse the order if it is the current one."""
        chosen = self.chosen
        self.inverted = self.column == column and not self.inverted
        self.column, self._chosen = column, chosen
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
            self._chosen = self._rows[line].record.name
            self.refresh()
            if event.chain == 2:
                self.post_message(self.Opened(self._chosen))


class NodesScreen(Screen[None]):
    """All nodes with their state, verdict and inventory."""

    DEFAULT_CSS = """
    NodesScreen #nodes-title { background: $panel; }
    """
    BINDING_GROUP_TITLE = "Nodes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,t", "leave", "back", id="nodes.back", tooltip="back to the main screen"),
        Binding("enter,n", "open", "node", id="nodes.open", tooltip="show the node"),
        Binding("r", "probe", "probe again", id="nodes.look", tooltip="probe the node again"),
        Binding("y", "copy", "copy", id="nodes.copy", tooltip="copy the table as text"),
    ]

    def compose(self) -> ComposeResult:
        yield TextLine(id="nodes-title")
        yield NodesTable(context_of(self).glyphs, id="nodes-table")
        yield KeyBar(id="nodes-keys")

    @property
    def table(self) -> NodesTable:
        """Table of the nodes."""
        return self.query_one(NodesTable)

    def on_mount(self) -> None:
        """Draw the first frame, and every second the time since a node was lost."""
        self.draw()
        self.table.focus()
        self.set_interval(1.0, self.draw)

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        if not self.is_mounted or not self.query("#nodes-table"):
            return
        context = context_of(self)
        found, _ = context.preflight()
        odd = {name: len(found.table.differing(name)) for name in found.table.nodes}
        rows = node_rows(context.model, context.findings.tally, odd, context.now())
        self.table.put(rows)
        gone = sum(row.record.state.gone for row in rows)
        bad = sum(row.bad > 0 for row in rows)
        head: list[Part] = [(" nodes ", "bold"), (f"  {len(rows)}", "")]
        head += [(f", {gone} gone", "bold $error")] if gone else []
        head += [(f", {bad} with bad pairs", "$warning")] if bad else []
        head.append(("   left, right: sort by another column  i: reverse", MUTED))
        self.query_one("#nodes-title", TextLine).show(
            Content.assemble(*clipped(head, self.size.width, context.glyphs.ellipsis))
        )

    def action_leave(self) -> None:
        self.app.pop_screen()

    def action_open(self) -> None:
        if self.table.chosen is not None:
            context_of(self).open_node(self.table.chosen)

    def action_probe(self) -> None:
        if self.table.chosen is not None:
            feed_actions.probe_again(context_of(self), [self.table.chosen])

    def action_copy(self) -> None:
        context_of(self).copy("\n".join(line.rstrip() for line in self.table.render().plain.splitlines()))

    @on(NodesTable.Opened)
    def _node_opened(self, message: NodesTable.Opened) -> None:
        context_of(self).open_node(message.node)
