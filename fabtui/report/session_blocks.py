"""Blocks of a session: verdict, findings, nodes, preflight, collectives, A/B comparison, changes, layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.preflight.checks import Preflight
from fabtui.model.exit_codes import ALL_OK, BAD
from fabtui.model.facts.compare import Fact, FactTable
from fabtui.model.layers import Layer, Per, grid_layers
from fabtui.model.session_model import Model
from fabtui.pictures.busbw import busbw_scene
from fabtui.pictures.connectivity import connectivity_scene
from fabtui.pictures.heatmap import matrix_scene
from fabtui.presentation.cell_levels import UNICODE
from fabtui.presentation.legends import class_rows, layer_title
from fabtui.presentation.preflight_lines import (
    MOST_COLUMNS,
    alike,
    chosen_facts,
    fact_text,
    head_line,
    nodes_text,
    odd_roles,
    values_of,
)
from fabtui.presentation.wording import CLASS_WORDS, failure_text, measured_text, plain, verdict_words
from fabtui.report.collectives import collective_tables, sweep_tables
from fabtui.report.document import Block, Items, Lines, Panel, Paragraph, Picture, Table
from fabtui.report.grid import MOST_ENDPOINTS, cell_rows, grid, has_values, sign_words, unit_text, used_signs
from fabtui.report.problems import entry


def state_of(code: int) -> str:
    """Return the state of a verdict by the exit code of its session."""
    return {ALL_OK: "ok", BAD: "bad"}.get(code, "unknown")


#: Maximum width of the names of nodes above a column.
_WIDEST = 60


def preflight_blocks(found: Preflight) -> Iterator[Block]:
    """Yield findings about nodes and the table of facts."""
    yield Paragraph(plain(head_line(found)))
    for number, finding in enumerate(found.findings, 1):
        yield entry(number, finding)
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
            cells = [_marked(fact_text(table, fact, names, UNICODE), names, roles) for names in groups]
            yield [_name(fact, roles), *cells]
            continue
        for text, names in values_of(table, fact, roles, UNICODE):
            who = "all" if len(names) == len(table.nodes) else nodes_text(names, _WIDEST, UNICODE)
            yield [_name(fact, roles), _marked(text, names, roles), who]


def _name(fact: Fact, roles: dict[str, str]) -> str:
    return f"{fact.title} {UNICODE.differs}" if roles else fact.title


def _marked(text: str, names: list[str], roles: dict[str, str]) -> str:
    return f"{text} {UNICODE.differs}" if names and names[0] in roles else text


def collective_blocks(one: Diagnosis) -> Iterator[Block]:
    """Yield curves and tables of collectives."""
    model = one.model
    tables = collective_tables(model)
    if tables:
        yield Picture("busbw over message size, both axes logarithmic", busbw_scene(model))
    yield from (*tables, *sweep_tables(model, one.expected_groups))


#: Maximum number of rows of a table of address pairs.
_MOST_ADDRESSES = 400
#: Width of a grid of nodes: unlimited.
_UNLIMITED = 10_000
_ROWS = "a row sends, a column receives"


def layer_panels(one: Diagnosis) -> Iterator[Panel]:
    """Yield a panel for each layer with values."""
    model = one.model
    for layer in grid_layers():
        if has_values(model, layer) and model.rows:
            yield Panel(str(layer), [*_picture(model, layer), *_classes(one, layer), _values(model, layer)])


def _picture(model: Model, layer: Layer) -> Iterator[Block]:
    if layer.spec.by_address:
        yield Picture(layer_title(layer), connectivity_scene(model, layer))
    else:
        yield Picture(layer_title(layer), matrix_scene(model, layer, "value" if layer.spec.better else "verdict"))


def _classes(one: Diagnosis, layer: Layer) -> Iterator[Block]:
    if layer.spec.derived or not any(one.model.results.values(layer, kind) for kind in CLASS_WORDS):
        return
    headings, rows = class_rows(one.model, layer, Counter(one.tally.kinds.values()), one.tally.of_class)
    at = len(headings) if headings[-1] else -1
    table = [row[:at] for row in (headings, *rows)]
    yield Table(f"classes of {layer}, {unit_text(one.model, layer)}", table)


def _values(model: Model, layer: Layer) -> Block:
    if layer.spec.per is Per.ADDRESS_PAIR:
        return _addresses(model, layer)
    ends = model.rows
    if len(ends) > MOST_ENDPOINTS:
        head, *lines = grid(model, layer, UNICODE, _UNLIMITED)
        return Lines(head, lines, folded=True)
    cells = cell_rows(model, layer, UNICODE)
    # A page has room for words.
    words = sign_words(layer, UNICODE) if layer is Layer.HEALTH else {}
    texts = [[words.get(text, text) + mark for text, mark in row] for row in cells]
    rows = [[str(end), *row] for end, row in zip(ends, texts, strict=True)]
    title = f"{layer}, {unit_text(model, layer)}; {_ROWS}"
    notes = [] if words else list(filter(None, ["   ".join(used_signs(cells, layer, UNICODE))]))
    return Table(title, [["", *map(str, ends)], *rows], notes=notes, folded=True, grid=True)


def _addresses(model: Model, layer: Layer) -> Table:
    found = list(model.addresses.pairs(layer))
    rows = [["from", "address", "to", "address", "verdict", "value", ""]]
    for m in islice(sorted(found, key=lambda m: not model.verdict(m).bad), _MOST_ADDRESSES):
        ends = [m.src, m.src_addr or "", m.dst, m.dst_addr or ""]
        rows.append([*ends, verdict_words(model.verdict(m)), measured_text(m), failure_text(m)])
    left = len(found) - _MOST_ADDRESSES
    more = [f"and {left} more address pairs; --csv and --json have them all"] if left > 0 else []
    return Table(f"address pairs of {layer}", rows, (0, 1, 2, 3, 4, 6), more, folded=True)
