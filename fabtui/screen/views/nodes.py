"""All nodes: a table sorted by any column, and below it the problems and differences of the preflight."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

from textual import on
from textual.binding import BindingType

from fabtui.diagnosis.node_faults import NodeFaults
from fabtui.diagnosis.pairs.tally import Tally
from fabtui.model.endpoints import node_of
from fabtui.model.events import NodeState
from fabtui.model.facts.node_view import dicts, field
from fabtui.model.measurement import Verdict, worst
from fabtui.model.session_model import Model, NodeRecord
from fabtui.nodeset import count
from fabtui.presentation import preflight_lines as text
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.findings import title
from fabtui.presentation.wording import (
    MUTED,
    Part,
    clock_text,
    retry_text,
    state_style,
    verdict_style,
    verdict_tone,
    verdict_words,
)
from fabtui.presentation.wrapping import Lines, section
from fabtui.sanitize import one_line
from fabtui.screen import session_actions
from fabtui.screen.grid.axis import fit_text
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import SteppedScreen, as_text
from fabtui.screen.widgets.finding_lines import head_lines, odd_lines, problem_lines, styled
from fabtui.screen.widgets.sorted_table import Columns, SortedTable, Sorting, TableCell, TableRow, table_keys

_STATES = list(NodeState)

HEADINGS = (
    *("node", "fault", "own pairs", "stray", "of others", "state", "untested", "problems", "differs"),
    *("GPUs", "ports up", "driver", "NCCL", "message"),
)
_FAULT = HEADINGS.index("fault")
#: Number of columns that are not muted for a node that is gone.
_OF_GONE = HEADINGS.index("untested")
#: Minimum number of lines of the table, with its headings.
_LEAST_TABLE = 3
#: Maximum number of findings listed for a node.
_MOST_FINDINGS = 6
#: Minimum number of nodes without a fault of their own that are one row, and the name of that row, as of no node.
_FEWEST_FOLDED, FOLD = 12, ""


class PairCounts(NamedTuple):
    """Bad pairs by node: those that a node answers for, stray ones, and those that other nodes answer for."""

    own: Counter[str]
    stray: Counter[str]
    others: Counter[str]
    worst: dict[str, Verdict]  #: Worst verdict of its own ones.


def pair_counts(tally: Tally, faults: NodeFaults) -> PairCounts:
    own, stray, others = Counter[str](), Counter[str](), Counter[str]()
    verdicts: defaultdict[str, set[Verdict]] = defaultdict(set)
    for pair, verdict in tally.bad.items():
        holders = faults.holders.get(pair, ())
        for node in _nodes_of(pair):
            if pair in faults.strays:
                stray[node] += 1
            elif holders and node not in holders:
                others[node] += 1
            else:
                own[node] += 1
                verdicts[node].add(verdict)
    return PairCounts(own, stray, others, {node: worst(list(found)) for node, found in verdicts.items()})


def node_rows(
    model: Model,
    tally: Tally,
    faults: NodeFaults,
    counts: PairCounts,
    odd: Mapping[str, int],
    problems: Mapping[str, int],
    now: float,
) -> list[TableRow]:
    """Return a row for each node; ``odd``, ``problems``: numbers in the preflight; ``now``: s since the epoch."""
    tested = {node for nodes in tally.between for node in nodes}
    skipped = Counter(node for pair in model.untested for node in _nodes_of(pair))
    rows = []
    for name, record in model.nodes.items():
        value, state = record.inventory or {}, record.state
        own, stray, others, untested, differs = (
            found.get(name, 0) for found in (counts.own, counts.stray, counts.others, skipped, odd)
        )
        facts = (_gpus(model, record), _ports(value), fit_text(str(value.get("driver") or "-"), 20), _nccl(value))
        cells = [
            TableCell(fit_text(name, 40), 0, "bold"),
            _fault_cell(record, faults, counts, now, name in tested),
            TableCell(str(own), -own, "bold" if own else MUTED),
            TableCell(str(stray), -stray, MUTED),
            TableCell(str(others), -others, MUTED),
            TableCell(str(state), -_STATES.index(state), state_style(state)),
            TableCell(str(untested), -untested, MUTED),
            TableCell(str(problems.get(name, 0)), -problems.get(name, 0), "$warning" if name in problems else MUTED),
            TableCell(str(differs), -differs, "$warning" if differs else MUTED),
            *(TableCell(one, one) for one in facts),
            TableCell("" if state.gone else one_line(record.text or record.note, 120), record.text or "~"),
        ]
        if state.gone:
            cells[_OF_GONE:] = [cell._replace(style=MUTED) for cell in cells[_OF_GONE:]]
        rows.append(TableRow(name, cells))
    return rows


def _fault_cell(record: NodeRecord, faults: NodeFaults, counts: PairCounts, now: float, tested: bool) -> TableCell:
    """Return what is wrong with a node itself; nodes at fault come first, then those with bad pairs."""
    name, gone = record.name, record.state.gone
    found = counts.worst.get(name, Verdict.FAILED if gone else Verdict.OK if tested else Verdict.UNTESTED)
    cause = faults.causes.get(name)
    key = (0 if cause is not None or gone else 1 if found.bad else 2, -counts.own[name])
    if gone:
        lasts = f"{record.state} {clock_text(now - record.since)}" if record.since else str(record.state)
        parts = lasts, retry_text(record.retry, now), record.text or record.note
        text = "; ".join(filter(None, parts))
    elif cause is None:
        return TableCell(verdict_words(found), key, verdict_style(found))
    else:
        text = title(cause).removeprefix(f"{name} ")
    return TableCell(one_line(text, 48), key, f"bold {verdict_tone(found)}")


def folded_rows(rows: list[TableRow], faults: NodeFaults, counts: PairCounts, *, is_open: bool) -> list[TableRow]:
    """Return rows; many nodes without a fault of their own are one row, or rows below it if it is open."""
    others = [row for row in rows if row.cells[_FAULT].key[0] == 2]
    if len(others) < _FEWEST_FOLDED or len(others) == len(rows):
        return rows
    names = {row.name for row in others}
    stray = sum(names.issuperset(_nodes_of(pair)) for pair in faults.strays)
    most = max(counts.others[name] for name in names)
    texts = {"fault": "no fault of their own", "own pairs": "0", "stray": str(stray), "of others": f"up to {most}"}
    texts |= {"node": f"{len(others)} others", "message": "enter folds them" if is_open else "enter shows each"}
    keys = [cell.key for cell in others[0].cells]
    cells = [TableCell(texts.get(name, ""), key, MUTED) for name, key in zip(HEADINGS, keys, strict=True)]
    cells[_FAULT] = cells[_FAULT]._replace(key=(2, -sum(counts.own.values()) - 1))
    shown = [row for row in rows if row.cells[_FAULT].key[0] < 2]
    return [*shown, TableRow(FOLD, cells), *(others if is_open else ())]


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
        HEADINGS,
        frozenset({"own pairs", "stray", "of others", "untested", "problems", "differs"}),
        frozenset({"node", "fault", "state"}),
    )
    BINDING_GROUP_TITLE = "Node table"
    BINDINGS: ClassVar[list[BindingType]] = table_keys("nodes", "node")

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        # Tables of jobs and of their nodes know no faults.
        self.sorting = Sorting(_FAULT if self.columns.headings == HEADINGS else 0)

    @property
    def chosen(self) -> str | None:
        return None if self.selected is None or self.selected.name == FOLD else str(self.selected.name)

    @property
    def by_fault(self) -> bool:
        return self.sorting.column == _FAULT


class NodesScreen(SteppedScreen):
    """All nodes with state, verdict and hardware; below the table what the preflight found, the chosen node first."""

    DEFAULT_CSS = """
    NodesScreen NodesTable { height: auto; }
    """
    BINDING_GROUP_TITLE = "Nodes"
    FILTER_PROMPT = "filter", "words that the line of a node must have: name, state, version, message"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape,backspace,t,c,P", "leave", "nodes.back", "back to the previous view", "back", bar=("always",)),
        shortcut("enter,n", "open", "nodes.open", "show the node, or run the chosen next step", "node", bar=("first",)),
        shortcut("tab", "select_step(1)", "nodes.step", "choose the next step to run or copy", "next steps"),
        shortcut("r", "probe", "nodes.look", "probe the node again", "probe again"),
        shortcut("a", "all", "preflight.all", "show all facts, or only the relevant ones", "all facts"),
        shortcut("space", "more", "nodes.more", "next screen of the text below the table", "more"),
        shortcut("y", "copy", "nodes.copy", "copy the chosen next step, or the table and the preflight", "copy"),
    ]
    copy_width = 120

    def __init__(self) -> None:
        super().__init__()
        self._all_facts = self._unfolded = False
        self._drawn_of: object = None
        self._counts: tuple[NodeFaults, PairCounts] | None = None

    def above(self) -> list[NodesTable]:
        return [NodesTable(self.context.glyphs, id="nodes-table")]

    @property
    def table(self) -> NodesTable:
        return self.query_one(NodesTable)

    @property
    def node(self) -> str | None:
        return self.table.chosen

    def on_mount(self) -> None:
        self.table.focus()
        self.set_interval(1.0, self.draw)

    def draw(self) -> None:
        if not self.is_mounted or not self.query("#nodes-table"):
            return
        rows = self._rows()
        shown = self.matching_rows(rows)
        if self.table.by_fault and not self.filter:
            shown = folded_rows(shown, self.context.findings.faults, self._pair_counts(), is_open=self._unfolded)
        self.table.styles.height = max(_LEAST_TABLE, min(len(shown) + 1, (self.size.height - 2) // 2))
        self.table.put(shown, "no node has these words" if rows else "")
        context = self.context
        made_of = (
            *(id(context.preflight()), self.table.chosen, self.size, self.filter, self.selected, self._all_facts),
            *(id(context.findings.found), context.model.nodes_version, context.model.commands.version),
        )
        self.show_title(self.title_parts())
        if made_of != self._drawn_of:
            self._drawn_of = made_of
            super().draw()

    def _rows(self) -> list[TableRow]:
        found, model = self.context.preflight(), self.context.model
        odd = {name: len(found.table.differing(name)) for name in found.table.nodes}
        problems = Counter(name for one in found.findings if one.severity != "note" for name in one.nodes)
        findings = self.context.findings
        counts = self._pair_counts()
        return node_rows(model, findings.tally, findings.faults, counts, odd, problems, self.context.now())

    def _pair_counts(self) -> PairCounts:
        faults = self.context.findings.faults
        if self._counts is None or self._counts[0] is not faults:
            self._counts = faults, pair_counts(self.context.findings.tally, faults)
        return self._counts[1]

    def title_parts(self) -> list[Part]:
        model = self.context.model
        gone = sum(record.state.gone for record in model.nodes.values())
        faults = self.context.findings.faults
        parts: list[Part] = [(" nodes ", "bold"), (f"  {len(model.nodes)}", "")]
        parts += [(f", {gone} gone", "bold $error")] if gone else []
        parts += [(f", {len(faults.causes)} at fault", "$warning")] if faults.causes else []
        strays = sum(faults.causes.keys().isdisjoint(_nodes_of(pair)) for pair in faults.strays)
        parts += [(f", {count(strays, 'stray pair')}", MUTED)] if strays else []
        (_, _), (result, _) = text.head_line(self.context.preflight())
        return [*parts, (f"   preflight: {result}", MUTED)]

    def filtered_lines(self, width: int) -> Lines:
        """Return the whole text: the filter is for the table."""
        self._lines = self.body_lines(width)
        return self._lines

    def stepped_lines(self, width: int) -> Lines:
        context, glyphs, found = self.context, self.context.glyphs, self.context.preflight()
        lines: Lines = []
        record = context.model.nodes.get(self.table.chosen or "")
        if record is not None:
            lines += section(one_line(record.name, 60), f"{record.state}; enter shows the whole node")
            lines += problem_lines(record, width)
            lines += self._finding_lines(record.name, width)
            lines += odd_lines(found, record, width, glyphs, partial(self.steps_of, width=width))
        if others := [one for one in found.findings if record is None or record.name not in one.nodes]:
            lines += section("other nodes")
            for finding in others:
                lines += styled(text.finding_lines(finding.replace(next=()), width, glyphs))
                lines += self.steps_of(finding, width)
        if found.missing:
            lines += section("not inspected")
            lines += [[(f"  {text.cut(line, width - 2, glyphs)}", "$warning")] for _, line in found.missing]
        facts = text.chosen_facts(found.table, self._all_facts)
        if table := text.table_lines(found.table, facts, width, glyphs):
            rest = len(found.table.facts) - len(facts)
            lines += section("facts", f"{rest} more without differences (a)" if rest else "")
            lines += styled(text.kind_lines(found.table, width, glyphs)) + styled(table)
        return lines

    def _finding_lines(self, node: str, width: int) -> Lines:
        """Return the titles of the findings that blame a node, or nobody for its pairs, with their numbers."""
        found = [
            (number, one)
            for number, one in enumerate(self.context.findings.found, 1)
            if node in one.at_fault
            or (not one.at_fault and (node in one.nodes or any(node in _nodes_of(pair) for pair in one.cells)))
        ]
        bad = self.context.findings.tally.bad
        lines = [line for number, one in found[:_MOST_FINDINGS] for line in head_lines(one, width, number, bad)]
        left = len(found) - _MOST_FINDINGS
        return [*lines, [(f"  and {left} more: F shows all", MUTED)]] if left > 0 else lines

    @on(NodesTable.Moved)
    def moved(self) -> None:
        self.selected = None
        self.action_scroll_edge(False)
        self.draw()

    @on(NodesTable.Chosen)
    def action_open(self) -> None:
        if self.selected is not None:
            self.action_run_step()
        elif self.table.chosen is not None:
            self.context.open_node(self.table.chosen)
        else:
            self._unfolded = not self._unfolded
            self.draw()

    def action_probe(self) -> None:
        if self.table.chosen is not None:
            session_actions.probe_again(self.context, [self.table.chosen])

    def action_all(self) -> None:
        self._all_facts = not self._all_facts
        self.draw()

    def copy_all(self) -> None:
        self.context.copy(f"{self.table.text}\n\n{as_text(self.body_lines(self.copy_width))}")
