"""All nodes as a table, sorted by any of its columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from textual import events
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
from fabtui.screen.command_palette import shown_keys
from fabtui.screen.grid.axis import fit_text
from fabtui.screen.widgets.side_panel import KeyBar
from fabtui.screen.widgets.text_line import TextLine

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp

_STATES = list(NodeState)


class NodeRow(NamedTuple):
    """A node as the table shows it."""

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
    """A column: what it is called, its text, and what to sort by (the first in order comes first)."""

    name: str
    text: Callable[[NodeRow], str]
    key: Callable[[NodeRow], Any]
    style: Callable[[NodeRow], str] = lambda row: ""
    right: bool = False


def _lost(row: NodeRow) -> str:
    return "" if row.since is None else clock_text(row.since)


COLUMNS: tuple[Column, ...] = (
    Column("node", lambda row: fit_text(row.record.name, 40), lambda row: 0, lambda row: "bold"),
    Column(
        "state",
        lambda row: str(row.record.state),
        lambda row: -_STATES.index(row.record.state),
        lambda row: state_style(row.record.state),
    ),
    Column("gone for", _lost, lambda row: -(row.since or -1.0), lambda row: "bold $error", right=True),
    Column(
        "worst",
        lambda row: str(row.worst),
        lambda row: -SEVERITY.index(row.worst),
        lambda row: verdict_style(row.worst),
    ),
    Column("bad", lambda row: str(row.bad), lambda row: -row.bad, lambda row: "bold" if row.bad else MUTED, right=True),
    Column("untested", lambda row: str(row.untested), lambda row: -row.untested, lambda row: MUTED, right=True),
    Column(
        "odd", lambda row: str(row.odd), lambda row: -row.odd, lambda row: "$warning" if row.odd else MUTED, right=True
    ),
    Column("GPUs", lambda row: row.gpus, lambda row: row.gpus),
    Column("ports up", lambda row: row.ports, lambda row: row.ports),
    Column("driver", lambda row: row.driver, lambda row: row.driver),
    Column("NCCL", lambda row: row.nccl, lambda row: row.nccl),
    Column("said", lambda row: one_line(row.record.text or row.record.note, 120), lambda row: row.record.text or "~"),
)


def node_rows(model: Model, tally: Tally, odd: dict[str, int], now: float) -> list[NodeRow]:
    """Return a row for each node.

    Args:
        model: What is known.
        tally: The verdicts of the pairs.
        odd: For each node in how many facts it is not as the others.
        now: The time, seconds since the epoch.
    """
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
    """Nodes, a line each, with a cursor and a column they are sorted by."""

    DEFAULT_CSS = """
    NodesTable { width: 1fr; height: 1fr; text-wrap: nowrap; }
    """
    BINDING_GROUP_TITLE = "Nodes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", id="nodes.up", show=False, tooltip="a line up"),
        Binding("down,j", "move(1)", id="nodes.down", show=False, tooltip="a line down"),
        Binding("home,g", "move(-100000)", id="nodes.first", show=False, tooltip="the first line"),
        Binding("end,G", "move(100000)", id="nodes.last", show=False, tooltip="the last line"),
        Binding("pageup,ctrl+u", "page(-1)", id="nodes.page-up", show=False, tooltip="a screen up"),
        Binding("pagedown,ctrl+d", "page(1)", id="nodes.page-down", show=False, tooltip="a screen down"),
        Binding("right,l", "sort(1)", id="nodes.sort-next", show=False, tooltip="sort by the next column"),
        Binding("left,h", "sort(-1)", id="nodes.sort-previous", show=False, tooltip="sort by the previous column"),
        Binding("i", "invert", id="nodes.invert", show=False, tooltip="sort the other way round"),
    ]

    class Opened(Message):
        """A node was clicked twice."""

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
        """Show rows, in the order of the grid; the same ones cost nothing."""
        order = (self.column, self.inverted)
        if rows == self._unsorted and order == self._order:
            return
        self._order = order
        self._unsorted = rows
        key = COLUMNS[self.column].key
        # Sorting keeps the order of the grid among what is alike.
        self._rows = sorted(rows, key=key)
        if self.inverted:
            self._rows.reverse()
        self.refresh()

    @property
    def cursor(self) -> int:
        """The line of the cursor, which stays on its node however they are sorted."""
        names = [row.record.name for row in self._rows]
        return names.index(self._chosen) if self._chosen in names else 0

    @property
    def chosen(self) -> str | None:
        """The node under the cursor."""
        return self._rows[self.cursor].record.name if self._rows else None

    def render(self) -> Content:
        """Return the head and the lines in sight."""
        width, height = self.size
        cells = [[column.text(row) for column in COLUMNS] for row in self._rows]
        heads = [column.name + self._mark(at) for at, column in enumerate(COLUMNS)]
        widths = [max([len(heads[at]), *(len(row[at]) for row in cells)]) for at in range(len(COLUMNS))]
        shown = [
            at
            for at, column in enumerate(COLUMNS)
            if column.name in ("node", "state", "said") or any(row[at] not in ("", "-", "0") for row in cells)
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
        """Move the cursor by lines."""
        if self._rows:
            self._chosen = self._rows[max(0, min(self.cursor + by, len(self._rows) - 1))].record.name
            self.refresh()

    def action_page(self, pages: int) -> None:
        """Move the cursor by screens."""
        self.action_move(pages * max(1, self.size.height - 2))

    def action_sort(self, step: int) -> None:
        """Sort by the next or the previous column."""
        self.sort_by((self.column + step) % len(COLUMNS))

    def action_invert(self) -> None:
        """Sort the other way round."""
        self.inverted = not self.inverted
        self.put(self._unsorted)

    def sort_by(self, column: int) -> None:
        """Sort by a column; by the same one again the other way round."""
        chosen = self.chosen
        self.inverted = self.column == column and not self.inverted
        self.column, self._chosen = column, chosen
        self.put(self._unsorted)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where was clicked, or sort by the column whose head was; a double click opens the node."""
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
    """The table of nodes under a title, over the keys."""

    DEFAULT_CSS = """
    NodesScreen #nodes-title { background: $panel; }
    NodesScreen #nodes-keys { background: $panel; }
    """
    BINDING_GROUP_TITLE = "Nodes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,t", "leave", "back", id="nodes.back", tooltip="back to the grid"),
        Binding("enter,n", "open", "node", id="nodes.open", tooltip="look at the node"),
        Binding("r", "look", "look again", id="nodes.look", tooltip="look at the node again"),
        Binding("y", "copy", "copy", id="nodes.copy", tooltip="copy the table as text"),
    ]

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield TextLine(id="nodes-title")
        yield NodesTable(self._app.glyphs, id="nodes-table")
        yield KeyBar(id="nodes-keys")

    @property
    def _app(self) -> FabricApp:
        from fabtui.screen.app import FabricApp

        assert isinstance(self.app, FabricApp)
        return self.app

    @property
    def table(self) -> NodesTable:
        """The table."""
        return self.query_one(NodesTable)

    def on_mount(self) -> None:
        """Show what is known; how long a node is gone goes on by itself."""
        self.draw()
        self.table.focus()
        self.set_interval(1.0, self.draw)

    def on_resize(self) -> None:
        """Lay out anew."""
        self.draw()

    def draw(self) -> None:
        """Show what is known now."""
        if not self.is_mounted or not self.query("#nodes-table"):
            return
        app = self._app
        found, _ = app.main.nodes_view.latest.of(app.model)
        odd = {name: len(found.table.differing(name)) for name in found.table.nodes}
        rows = node_rows(app.model, app.main.findings.tally, odd, app.now())
        self.table.put(rows)
        gone = sum(row.record.state.gone for row in rows)
        bad = sum(row.bad > 0 for row in rows)
        head: list[Part] = [(" nodes ", "bold"), (f"  {len(rows)}", "")]
        head += [(f", {gone} gone", "bold $error")] if gone else []
        head += [(f", {bad} with bad pairs", "$warning")] if bad else []
        head.append(("   left and right: sort by another column, i: the other way round", MUTED))
        self.query_one("#nodes-title", TextLine).show(
            Content.assemble(*clipped(head, self.size.width, app.glyphs.ellipsis))
        )
        self.query_one("#nodes-keys", KeyBar).put(shown_keys(app, self), self.size.width)

    def action_leave(self) -> None:
        """Go back to where one came from."""
        self.app.pop_screen()

    def action_open(self) -> None:
        """Look at the node under the cursor."""
        if self.table.chosen is not None:
            self._app.open_node(self.table.chosen)

    def action_look(self) -> None:
        """Look at the node under the cursor again."""
        if self.table.chosen is not None:
            feed_actions.look_again(self._app, [self.table.chosen])

    def action_copy(self) -> None:
        """Copy the table."""
        self._app.copy("\n".join(line.rstrip() for line in self.table.render().plain.splitlines()))

    def on_nodes_table_opened(self, message: NodesTable.Opened) -> None:
        """Look at a node."""
        self._app.open_node(message.node)

    def on_key_bar_pressed(self, message: KeyBar.Pressed) -> None:
        """Do what a clicked key does."""
        self.call_later(self.run_action, message.action)
