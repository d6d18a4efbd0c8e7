"""Table of all nodes, sorted by any column."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from fabtui.diagnosis.pairs.tally import Tally
from fabtui.model.endpoints import node_of
from fabtui.model.events import NodeState
from fabtui.model.facts.node_view import dicts, field
from fabtui.model.measurement import SEVERITY, Verdict, worst
from fabtui.model.session_model import Model, NodeRecord
from fabtui.nodeset import count
from fabtui.presentation.wording import MUTED, Part, clock_text, retry_text, state_style, verdict_style, verdict_words
from fabtui.sanitize import one_line
from fabtui.screen import session_actions
from fabtui.screen.grid.axis import fit_text
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import TitledScreen
from fabtui.screen.widgets.key_bar import KeyBar
from fabtui.screen.widgets.sorted_table import Columns, SortedTable, TableCell, TableRow, table_keys

_STATES = list(NodeState)


HEADINGS = (
    *("node", "state", "gone for", "worst", "bad", "untested", "differs"),
    *("GPUs", "ports up", "driver", "NCCL", "message"),
)
#: Number of columns that are not muted for a node that is gone, which is the place of the number of bad pairs.
_OF_GONE = _BAD = HEADINGS.index("bad")


def node_rows(model: Model, tally: Tally, odd: dict[str, int], now: float) -> list[TableRow]:
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
        retry = retry_text(record.retry, now) if state.gone else ""
        why = "; ".join(text for text in (retry, record.text or record.note) if text)
        facts = (_gpus(model, record), _ports(value), fit_text(str(value.get("driver") or "-"), 20), _nccl(value))
        cells = [
            TableCell(fit_text(name, 40), 0, "bold"),
            TableCell(str(state), -_STATES.index(state), state_style(state)),
            TableCell("" if since is None else clock_text(since), -(since or -1.0), "bold $error"),
            TableCell(verdict_words(found), -SEVERITY.index(found), verdict_style(found)),
            TableCell(str(bad), -bad, "bold" if bad else MUTED),
            TableCell(str(untested), -untested, MUTED),
            TableCell(str(differs), -differs, "$warning" if differs else MUTED),
            *(TableCell(text, text) for text in facts),
            TableCell(one_line(why, 120), record.text or "~"),
        ]
        if state.gone:
            cells[_OF_GONE:] = [cell._replace(style=MUTED) for cell in cells[_OF_GONE:]]
        rows.append(TableRow(name, cells))
    return rows


def _nodes_of(pair: tuple[str, str]) -> set[str]:
    return set(map(node_of, pair))


def _gpus(model: Model, record: NodeRecord) -> str:
    ends = [end for end in model.table.of_node(record.name) if end.kind != "none"]
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


class NodesTable(SortedTable):
    """One line per node. Left and right choose the column to sort by."""

    columns = Columns(
        HEADINGS, frozenset({"gone for", "bad", "untested", "differs"}), frozenset({"node", "state", "message"})
    )
    BINDING_GROUP_TITLE = "Node table"
    BINDINGS: ClassVar[list[BindingType]] = table_keys("nodes", "node")

    @property
    def chosen(self) -> str | None:
        """Name of the node of the cursor."""
        return None if self.selected is None else str(self.selected.name)


class NodesScreen(TitledScreen):
    """All nodes with their state, verdict and inventory."""

    BINDING_GROUP_TITLE = "Nodes"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape,backspace,t", "leave", "nodes.back", "back to the main screen", "back", bar=("always",)),
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
        found = context.preflight()
        odd = {name: len(found.table.differing(name)) for name in found.table.nodes}
        rows = node_rows(context.model, context.findings.tally, odd, context.now())
        self.table.put(rows)
        gone = sum(record.state.gone for record in context.model.nodes.values())
        bad = sum(row.cells[_BAD].text != "0" for row in rows)
        head: list[Part] = [(" nodes ", "bold"), (f"  {len(rows)}", "")]
        head += [(f", {gone} gone", "bold $error")] if gone else []
        head += [(f", {bad} with bad pairs", "$warning")] if bad else []
        head.append(("   left, right: sort  i: reverse", MUTED))
        self.show_title(head)

    @on(NodesTable.Chosen)
    def action_open(self) -> None:
        if self.table.chosen is not None:
            self.context.open_node(self.table.chosen)

    def action_probe(self) -> None:
        if self.table.chosen is not None:
            session_actions.probe_again(self.context, [self.table.chosen])

    def action_copy(self) -> None:
        self.context.copy("\n".join(line.rstrip() for line in self.table.render().plain.splitlines()))
