"""Text of ``fabtui preflight``."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

from fabtui.diagnosis.preflight.checks import Preflight
from fabtui.model.facts.compare import Fact, FactTable, PreflightChanges
from fabtui.model.session_model import Model
from fabtui.nodeset import count
from fabtui.presentation import preflight_lines as texts
from fabtui.presentation.cell_levels import ASCII, UNICODE, Glyphs
from fabtui.presentation.preflight_lines import cut, nodes_text
from fabtui.presentation.wording import plain
from fabtui.presentation.wrapping import Line
from fabtui.report.document import Block, Items, Lines, Paragraph, Table, takes_unicode
from fabtui.report.problems import entry
from fabtui.sanitize import one_line

#: Width of the lines in a pipe or a file.
_FILE_WIDTH = 120
#: Maximum width of the names of nodes above a column.
_WIDEST_NODES = 60
#: Maximum number of findings whose evidence is shown without --all.
_FEW = 12
_SUMMARY_WIDTH = 160
_SUMMARY_LINES = 12
#: SGR parameters of the roles; no pair of red and green, and each role has a glyph as well.
_SGR = {"bad": "1;35", "warn": "33", "note": "36", "name": "1", "head": "1", "dim": "2"}


def preflight_text(
    model: Model,
    found: Preflight,
    changed: PreflightChanges | None,
    baseline: str,
    width: int,
    everything: bool,
    ascii_only: bool,
    color: bool,
) -> str:
    """Return the text of a preflight with changes since ``baseline``; ``everything``: all facts and evidence."""
    glyphs = ASCII if ascii_only else UNICODE
    parts: list[list[Line]] = [[texts.head_line(found), *texts.kind_lines(found.table, width, glyphs)]]
    evidence = everything or len(found.findings) <= _FEW
    parts.append([line for one in found.findings for line in texts.finding_lines(one, width, glyphs, evidence)])
    if found.missing:
        # The next command is at the end of a line, so lines are wrapped, not cut.
        wrapper = textwrap.TextWrapper(max(20, width - 4), initial_indent="  ", subsequent_indent="    ")
        missing: list[Line] = [[(piece, "warn")] for _, line in found.missing for piece in wrapper.wrap(one_line(line))]
        parts.append([[("not inspected", "head")], *missing])
    if changed is not None:
        parts.append(change_lines(changed, baseline, width, glyphs))
    facts = texts.chosen_facts(found.table, everything)
    if table := texts.table_lines(found.table, facts, width, glyphs):
        names = {odd.fact.name for odd in found.table.odd} - {fact.name for fact in facts}
        left = len(found.table.facts) - len(facts) - len(names)
        hidden = [f"{left} identical ones"] * (left > 0) + [f"{count(len(names), 'difference')} of settings"] * bool(
            names
        )
        more = f"; {' and '.join(hidden)} hidden (--all)" if hidden else ""
        parts.append([[("facts", "head"), (f": differences first{more}", "dim")], *table])
    if model.lab:
        parts.append([[(f"lab {one_line(model.lab)}: all its nodes are this machine, so most facts are equal", "dim")]])
    paint = color and not os.environ.get("NO_COLOR")
    text = "\n\n".join("\n".join(_line(line, paint) for line in part) for part in parts if part) + "\n"
    return text.encode("ascii", "replace").decode("ascii") if ascii_only else text


def preflight_blocks(inspected: Preflight) -> Iterator[Block]:
    yield Paragraph(plain(texts.head_line(inspected)))
    yield from (entry(number, finding) for number, finding in enumerate(inspected.findings, 1))
    if inspected.missing:
        yield Items("not inspected", [line for _, line in inspected.missing])
    facts = texts.chosen_facts(inspected.table, everything=True)
    groups = texts.alike(inspected.table, facts) if inspected.table.nodes else []
    if rows := [row for fact in facts for row in _fact_rows(inspected.table, fact, groups)]:
        head = ["value", "nodes"]
        if len(groups) <= texts.MOST_COLUMNS:
            head = [nodes_text(names, _WIDEST_NODES, UNICODE) for names in groups]
        yield Table(f"facts; {UNICODE.differs} differs", [["fact", *head], *rows], range(len(head) + 1))


def _fact_rows(table: FactTable, fact: Fact, groups: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    roles, mark = texts.odd_roles(table, fact), f" {UNICODE.differs}"
    title = fact.title + mark * bool(roles)
    if len(groups) <= texts.MOST_COLUMNS:
        yield [title, *(texts.fact_text(table, fact, names, UNICODE) + mark * (names[0] in roles) for names in groups)]
        return
    for text, names in texts.values_of(table, fact, roles, UNICODE):
        who = "all" if len(names) == len(table.nodes) else nodes_text(names, _WIDEST_NODES, UNICODE)
        yield [title, text + mark * (names[0] in roles), who]


def before_tests(found: Preflight, glyphs: Glyphs) -> Iterator[Lines]:
    if lines := [plain(line) for line in texts.short_lines(found, _SUMMARY_WIDTH, _SUMMARY_LINES, glyphs)]:
        yield Lines("findings about nodes (details: fabtui preflight)", lines)


def change_lines(changed: PreflightChanges, baseline: str, width: int, glyphs: Glyphs) -> list[Line]:
    lines: list[Line] = [[(f"since {one_line(baseline, 200)}", "head"), ("" if changed.any else ": no changes", "")]]
    for change in changed.changes:
        who = nodes_text(change.nodes, 30, glyphs)
        text = cut(f"{change.title}: {change.before} -> {change.now}", width - len(who) - 4, glyphs)
        lines.append([(f"{glyphs.differs} ", "warn"), (f"{who}  ", "name"), (text, "warn")])
    for names, words in ((changed.new, "new"), (changed.gone, "gone")):
        if names:
            lines.append([("  ", ""), (f"{nodes_text(names, 30, glyphs)}  ", "name"), (words, "dim")])
    if len(changed.changes) > 1:
        lines[0].append((f": {count(len(changed.changes), 'change')}", ""))
    return lines


def _line(line: Line, paint: bool) -> str:
    if not paint:
        return plain(line).rstrip()
    painted = [f"\x1b[{_SGR[role]}m{text}\x1b[0m" if role in _SGR and text.strip() else text for text, role in line]
    return "".join(painted).rstrip()


def print_preflight(
    model: Model, found: Preflight, changed: PreflightChanges | None, baseline: str, everything: bool, ascii_only: bool
) -> None:
    color = sys.stdout.isatty()
    width = shutil.get_terminal_size((_FILE_WIDTH, 24)).columns if color else _FILE_WIDTH
    plain = ascii_only or not takes_unicode(sys.stdout)
    sys.stdout.write(preflight_text(model, found, changed, baseline, width, everything, plain, color))
