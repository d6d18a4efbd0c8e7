"""Preflight as lines of text for a width, shared by the terminal and the screen.

Each part of a line has a role: ``bad``, ``warn``, ``note``, ``name``, ``head``, ``dim`` or "".
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.preflight.checks import Preflight
from fabtui.model.facts.compare import Compare, Fact, FactTable, shown
from fabtui.model.facts.node_view import Value
from fabtui.nodeset import count, fold
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.findings import evidence as evidence_of
from fabtui.presentation.findings import step_parts, title
from fabtui.presentation.wrapping import Line, padded

_WIDEST_NAME = 30
_WIDEST_TITLE = 24
_WIDEST_CELL = 34
#: Maximum number of groups of nodes with a column each.
MOST_COLUMNS = 6
_EVIDENCE = 6
_EXACT = (Compare.KIND, Compare.ALL)


def cut(text: str, width: int, glyphs: Glyphs) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + glyphs.ellipsis


def nodes_text(nodes: Sequence[str], width: int, glyphs: Glyphs) -> str:
    """Return nodes as a node set cut to a width, with their number if it was cut."""
    text, number = fold(nodes), f" ({len(nodes)})"
    return text if len(text) <= width else cut(text, max(4, width - len(number)), glyphs) + number


def head_line(found: Preflight) -> Line:
    words = [count(len(found.table.nodes), "node") + " inspected"]
    for verdict, singular in (("bad", "bad finding"), ("warn", "warning"), ("note", "note")):
        if number := sum(finding.severity == verdict for finding in found.findings):
            words.append(count(number, singular))
    if found.missing:
        words.append("incomplete")
    if len(words) == 1:
        words.append("no findings")
    return [("preflight: ", "head"), (", ".join(words), "")]


def kind_lines(table: FactTable, width: int, glyphs: Glyphs) -> list[Line]:
    kinds: dict[str, list[str]] = {}
    for name, kind in table.kinds.items():
        kinds.setdefault(str(kind), []).append(name)
    lines: list[Line] = []
    for about, names in kinds.items():
        kind_text = cut(f"kind {about}", max(20, width - _WIDEST_NAME - 4), glyphs)
        lines.append([(f"  {nodes_text(names, _WIDEST_NAME, glyphs)}  ", "name"), (kind_text, "dim")])
    return lines


def finding_lines(finding: Finding, width: int, glyphs: Glyphs, evidence: bool = True) -> list[Line]:
    names = nodes_text(finding.nodes, _WIDEST_NAME, glyphs)
    severity, indent, room = finding.severity, " " * 4, max(20, width - 4)
    texts = textwrap.wrap(title(finding), max(20, width - 4 - len(names))) or [""]
    mark = f"{glyphs.of_severity(severity)} "
    lines: list[Line] = [[(mark, severity), (names, "name"), ("  ", ""), (texts[0], severity)]]
    lines += [[(indent, ""), (text, severity)] for text in textwrap.wrap(" ".join(texts[1:]), room)]
    shown_lines = evidence_of(finding) if evidence else ()
    lines += [[(indent, ""), (cut(line, room, glyphs), "dim")] for line in shown_lines[:_EVIDENCE]]
    if len(shown_lines) > _EVIDENCE:
        lines.append([(indent, ""), (f"and {len(shown_lines) - _EVIDENCE} more", "dim")])
    next_room = max(20, width - 10)
    for text, note in map(step_parts, finding.next):
        room = next_room - len(note) - 1 if note else next_room
        lines.append([(f"{indent}next: ", "dim"), (cut(text, room, glyphs), ""), (f" {note}" if note else "", "dim")])
    return lines


def short_lines(found: Preflight, width: int, most: int, glyphs: Glyphs) -> list[Line]:
    serious = [finding for finding in found.findings if finding.severity != "note"]
    lines: list[Line] = []
    for finding in serious[:most]:
        names = nodes_text(finding.nodes, 20, glyphs)
        text, severity = cut(title(finding), max(10, width - len(names) - 5), glyphs), finding.severity
        lines.append([(f" {glyphs.of_severity(severity)} ", severity), (f"{names} ", "name"), (text, severity)])
    if len(serious) > most:
        lines.append([(f"   and {len(serious) - most} more", "dim")])
    return lines


def chosen_facts(table: FactTable, everything: bool) -> list[Fact]:
    odd = {one.fact.name for one in table.odd if everything or not one.fact.quiet}
    rest = [fact for fact in table.facts if fact.name not in odd and (everything or fact.main)]
    return [fact for fact in table.facts if fact.name in odd] + rest


def alike(table: FactTable, facts: Sequence[Fact]) -> list[list[str]]:
    """Return groups of nodes that agree in all compared facts, the largest group first."""
    odd = {name: table.differing(name) for name in table.nodes}
    groups: dict[tuple[Value, ...], list[str]] = {}
    for name in table.nodes:
        compared = {fact.name for fact in facts if fact.compare in _EXACT} | odd[name]
        key = tuple(table.values[fact.name][name] if fact.name in compared else None for fact in facts)
        groups.setdefault(key, []).append(name)
    return sorted(groups.values(), key=len, reverse=True)


def fact_text(table: FactTable, fact: Fact, names: Sequence[str], glyphs: Glyphs) -> str:
    values = [value for name in names if (value := table.values[fact.name][name]) is not None]
    words = list(dict.fromkeys(shown(value, fact.unit) for value in values))
    if len(words) < 2:
        return words[0] if words else "-"
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(numbers) == len(values):
        return f"{shown(min(numbers), fact.unit)} {glyphs.dash} {shown(max(numbers), fact.unit)}"
    return f"{len(words)} different"


def odd_roles(table: FactTable, fact: Fact) -> dict[str, str]:
    return {name: fact.verdict for odd in table.odd if odd.fact.name == fact.name for name in odd.values}


def table_lines(table: FactTable, facts: Sequence[Fact], width: int, glyphs: Glyphs) -> list[Line]:
    """Return facts by groups of nodes: one column per group if it fits, else one line per value."""
    if not table.nodes or not facts:
        return []
    groups = alike(table, facts)
    title = min(_WIDEST_TITLE, max(len(fact.title) for fact in facts))
    room = max(_WIDEST_CELL, (width - title - 4) // len(groups) - 4)
    heads = [nodes_text(names, room, glyphs) for names in groups]
    rows = []
    for fact in facts:
        roles = odd_roles(table, fact)
        texts = [cut(fact_text(table, fact, names, glyphs), room, glyphs) for names in groups]
        # The blanks keep the place of a mark.
        marks = [f" {glyphs.differs}" if names[0] in roles else "  " for names in groups]
        rows.append([text + mark for text, mark in zip(texts, marks, strict=True)])
    first, *rest = padded([heads, *rows], range(len(heads)))
    if len(groups) > MOST_COLUMNS or 4 + title + sum(len(head) + 2 for head in first) > width:
        return _by_value(table, facts, width, glyphs)
    lines: list[Line] = [[(" " * (title + 4), ""), *((f"{head}  ", "head") for head in first)]]
    for fact, cells in zip(facts, rest, strict=True):
        roles = odd_roles(table, fact)
        pieces = [(f"{cell}  ", roles.get(names[0], "")) for names, cell in zip(groups, cells, strict=True)]
        lines.append([*_title(fact, title, bool(roles), glyphs), *pieces])
    return lines


def _title(fact: Fact, width: int, odd: bool, glyphs: Glyphs) -> Line:
    title = f"{cut(fact.title, width, glyphs):<{width}}  "
    return [(f"{glyphs.differs} ", fact.verdict), (title, "name")] if odd else [("  ", ""), (title, "dim")]


def _by_value(table: FactTable, facts: Sequence[Fact], width: int, glyphs: Glyphs) -> list[Line]:
    title = min(_WIDEST_TITLE, max(len(fact.title) for fact in facts))
    value_width = max(12, min(_WIDEST_CELL, (width - title - 4) // 2))
    lines: list[Line] = []
    for fact in facts:
        roles = odd_roles(table, fact)
        for at, (text, names) in enumerate(values_of(table, fact, roles, glyphs)):
            role = roles.get(names[0], "")
            value = cut(text, value_width - 2, glyphs) + (f" {glyphs.differs}" if role else "")
            who = nodes_text(names, max(10, width - title - value_width - 6), glyphs)
            who = "all" if len(names) == len(table.nodes) else who
            start = _title(fact, title, bool(roles), glyphs) if not at else [(" " * (title + 4), "")]
            lines.append([*start, (f"{value:<{value_width}}  ", role), (who, "dim")])
    return lines


def values_of(table: FactTable, fact: Fact, roles: dict[str, str], glyphs: Glyphs) -> list[tuple[str, list[str]]]:
    """Return the values of a fact with their nodes; values of nodes that do not differ are one range."""
    groups: dict[str, list[str]] = {}
    together: list[str] = []
    for name in table.nodes:
        if fact.compare in (*_EXACT, Compare.UNLIKE) or name in roles:
            groups.setdefault(shown(table.values[fact.name][name], fact.unit), []).append(name)
        else:
            together.append(name)
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))
    return ([(fact_text(table, fact, together, glyphs), together)] if together else []) + ranked
