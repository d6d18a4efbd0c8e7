"""Tables of a session: nodes, preflight, collectives, A/B comparison, changes since an earlier session."""

from __future__ import annotations

from collections.abc import Iterator

from fabtui.diagnosis.preflight.checks import Preflight
from fabtui.diagnosis.session_diff import SessionDiff
from fabtui.model.facts.compare import Fact, FactTable
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.pictures.busbw import busbw_svg
from fabtui.presentation.cell_levels import UNICODE
from fabtui.presentation.preflight_lines import (
    MOST_COLUMNS,
    alike,
    cell_text,
    chosen_facts,
    head_line,
    nodes_text,
    odd_roles,
    plain,
    values_of,
)
from fabtui.presentation.text_table import filled
from fabtui.report.document import Block, Entry, Items, Paragraph, Picture, Table
from fabtui.report.findings import entry
from fabtui.report.group_sweep import sweep_tables
from fabtui.report.preflight import change_lines
from fabtui.report.session_diff import HEAD, LEFT, count_rows, finding_line, outcome_text, pair_tables
from fabtui.report.summary import collective_tables, comparison_rows, finding_text, node_rows

#: Maximum width of the names of nodes above a column.
_WIDEST = 60


def nodes(model: Model) -> Table:
    """Return the nodes, those that are alike in a row."""
    rows = [list(row) for row in node_rows(model)]
    return Table("nodes", [["nodes", "state", "hardware, or what went wrong"], *rows], (0, 1, 2))


def preflight_blocks(found: Preflight) -> Iterator[Block]:
    """Yield findings about nodes and the table of facts."""
    yield Paragraph(plain(head_line(found)))
    for number, finding in enumerate(found.findings, 1):
        one: Entry = entry(number, finding)
        yield one._replace(title=f"{fold(finding.nodes)}: {one.title}")
    if found.missing:
        yield Items("not inspected", [line for _, line in found.missing])
    if rows := list(_facts(found.table)):
        head = ["fact", *(nodes_text(names, _WIDEST, UNICODE) for names in _groups(found.table))]
        if len(head) > MOST_COLUMNS + 1:
            head = ["fact", "value", "nodes"]
        yield Table(f"facts; {UNICODE.differs} differs", [head, *rows], range(len(head)))


def _groups(table: FactTable) -> list[list[str]]:
    return alike(table, chosen_facts(table, everything=True)) if table.nodes else []


def _facts(table: FactTable) -> Iterator[list[str]]:
    """Yield a row for each fact, or for each of its values if there are many kinds of nodes."""
    groups = _groups(table)
    for fact in chosen_facts(table, everything=True):
        roles = odd_roles(table, fact)
        if len(groups) <= MOST_COLUMNS:
            cells = [_marked(cell_text(table, fact, names, UNICODE), names, roles) for names in groups]
            yield [_name(fact, roles), *cells]
            continue
        for text, names in values_of(table, fact, roles, UNICODE):
            who = "all" if len(names) == len(table.nodes) else nodes_text(names, _WIDEST, UNICODE)
            yield [_name(fact, roles), _marked(text, names, roles), who]


def _name(fact: Fact, roles: dict[str, str]) -> str:
    return f"{fact.title} {UNICODE.differs}" if roles else fact.title


def _marked(text: str, names: list[str], roles: dict[str, str]) -> str:
    return f"{text} {UNICODE.differs}" if names and names[0] in roles else text


def collective_blocks(model: Model) -> Iterator[Block]:
    """Yield curves and tables of collectives."""
    tables = collective_tables(model)
    if tables:
        yield Picture("busbw over message size, both axes logarithmic", busbw_svg(model))
    for one in tables:
        yield _filled(Table(one.kind, one.rows, one.left, one.notes))
    yield from sweep_blocks(model)


def sweep_blocks(model: Model) -> Iterator[Block]:
    """Yield tables by number of ranks, side by side for the arms of a comparison."""
    for sweep in sweep_tables(model):
        for unit, rows in sweep.rows.items():
            yield Table(f"{sweep.title}, {unit}", rows, sweep.left, sweep.notes)


def _filled(table: Table) -> Table:
    """Return a table without columns that are empty in all rows."""
    shown = filled(table.rows, nothing=("",))
    left = [place for place, at in enumerate(shown) if at in table.left]
    return table._replace(rows=[[row[at] for at in shown] for row in table.rows], left=left)


def comparison_blocks(model: Model) -> Iterator[Block]:
    """Yield the table of an A/B comparison."""
    title, rows, left = comparison_rows(model)
    if rows:
        yield Table(title, rows, left)


def change_blocks(names: tuple[str, str], diff: SessionDiff) -> Iterator[Block]:
    """Yield the changes since an earlier session; ``names`` describe both sessions."""
    then, now = names
    yield Items("", [f"then: {then}", f"now: {now}", outcome_text(diff)])
    yield Table("number of pairs by layer", count_rows(diff))
    for title, rows, more in pair_tables(diff):
        yield Table(title, [HEAD, *rows], LEFT, more)
    if diff.facts is None:
        yield Paragraph("facts of nodes are not compared: that takes two recordings or JSON sessions")
    else:
        head, *lines = (plain(line).strip() for line in change_lines(diff.facts, then, _WIDEST * 3, UNICODE))
        yield Items(f"facts {head}", lines)
    for found, what in ((diff.new, "new findings"), (diff.gone, "findings that are gone"), (diff.still, "still there")):
        if found:
            yield Items(f"{what}: {len(found)}", [_with_evidence(finding_line(one), one, diff) for one in found])


def _with_evidence(line: str, finding: object, diff: SessionDiff) -> str:
    texts = [finding_text(one).evidence for one in diff.new if one is finding]
    return "; ".join([line, *(texts[0] if texts else ())])
