"""Contents of a report: a session, outputs of other tools, or both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from fabtui import __version__
from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.finding import Domain
from fabtui.diagnosis.session_diff import has_facts, session_diff
from fabtui.exit_status import ALL_OK, BAD, NOT_TESTED
from fabtui.export.formats import when
from fabtui.importers.result import Result
from fabtui.importers.to_model.dispatch import without_facts
from fabtui.model.layers import Layer, Per, grid_layers
from fabtui.model.session_model import Model
from fabtui.nodeset import count
from fabtui.pictures.busbw import busbw_scene
from fabtui.pictures.heatmap import NARROW_WIDTH, PAGE_WIDTH, connectivity_scene, matrix_scene, page_scene
from fabtui.pictures.ranks import ranks_scene
from fabtui.pictures.scene import Scene
from fabtui.presentation.cell_levels import UNICODE
from fabtui.presentation.job_board import JobBoard
from fabtui.presentation.legends import class_rows, layer_title
from fabtui.presentation.verdict_line import sentence_of
from fabtui.presentation.wording import CLASS_WORDS, failure_text, measured_text, verdict_words
from fabtui.report.collectives import collective_tables, comparison, sweep_tables
from fabtui.report.document import USUAL_WIDTH, Block, Document, Items, Lines, Panel, Paragraph, Picture, Section, Table
from fabtui.report.grid import MOST_ENDPOINTS, cell_rows, grid, has_values, sign_words, unit_text, used_signs
from fabtui.report.hardware import all_parts, head_rows, parts_at_fault
from fabtui.report.healthy import what_to_do
from fabtui.report.history import past_blocks
from fabtui.report.imported_output import reading_section
from fabtui.report.preflight import preflight_blocks
from fabtui.report.problems import entries, jitter, not_in_findings, not_tested
from fabtui.report.session_diff import change_blocks
from fabtui.report.session_notes import carrier_block, host_links, job_blocks, mesh_lines, networks, nodes, storage
from fabtui.report.summary import head_lines
from fabtui.sanitize import one_line

#: Maximum number of rows of a table of address pairs.
_MOST_ADDRESSES = 400
#: Width of a grid of nodes: unlimited.
_UNLIMITED = 10_000
_ROWS = "a row sends, a column receives"
#: Maximum width of a changed fact.
_WIDEST_CHANGE = 180
_HOW_TO_READ = (
    "The verdict at the top sums up the session: pairs that are bad, and the worst findings.",
    "Findings are ordered by severity and size, with the numbers that the app and the summary give them. Each has its "
    "evidence, and commands that show more. A confidence is given where several components explain the same results.",
    "A pair is ordered: a row of a matrix sends, a column receives. Bandwidths are in GB/s (10^9 bytes per second).",
    "Pairs are judged among their class: node (within a node), rail (same rail), cross (between rails), leaf "
    "(between leaf switches). A pair is slow if it is far below the usual value of its class; the tables "
    "of classes have the limits.",
    "Unknown is not zero: a dash or an empty cell means that nothing is known, with the reason where there is one.",
    "busbw is the bus bandwidth as nccl-tests defines it, which is comparable between numbers of ranks.",
)


def state_of(code: int) -> str:
    return {ALL_OK: "ok", BAD: "bad"}.get(code, "unknown")


def collective_blocks(one: Diagnosis) -> Iterator[Block]:
    model = one.model
    tables = collective_tables(model)
    if tables:
        yield Picture("busbw over message size, both axes logarithmic", busbw_scene(model))
    yield from (*tables, *sweep_tables(model))


def layer_panels(one: Diagnosis) -> Iterator[Panel]:
    model = one.model
    for layer in grid_layers():
        if has_values(model, layer) and model.rows:
            picture = Picture(layer_title(layer), _scene(model, layer))
            yield Panel(str(layer), [picture, *_classes(one, layer), _values(model, layer)])


def _scene(model: Model, layer: Layer) -> Scene:
    if layer.spec.by_address:
        return connectivity_scene(model, layer)
    return matrix_scene(model, layer, "value" if layer.spec.better else "verdict")


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
    pairs = list(model.addresses.pairs(layer))
    rows = [["from", "address", "to", "address", "verdict", "value", ""]]
    for m in islice(sorted(pairs, key=lambda m: not model.verdict(m).bad), _MOST_ADDRESSES):
        ends = [m.src, m.src_addr or "", m.dst, m.dst_addr or ""]
        rows.append([*ends, verdict_words(model.verdict(m)), measured_text(m), failure_text(m)])
    left = len(pairs) - _MOST_ADDRESSES
    more = [f"and {left} more address pairs; --csv and --json have them all"] if left > 0 else []
    return Table(f"address pairs of {layer}", rows, (0, 1, 2, 3, 4, 6), more, folded=True)


class Against(NamedTuple):
    """Earlier session to compare with, and its name."""

    name: str
    model: Model


def document(
    one: Diagnosis | None,
    sources: Sequence[str],
    readings: Sequence[Result] = (),
    against: Against | None = None,
    warnings: Sequence[str] = (),
    site: str = "",
) -> Document:
    """Return the contents of a report on a session, which may be None, and on outputs of other tools without pairs.

    ``sources``: names of the files with their hashes, none for a session that has just ended; ``warnings``: sentences
    about incomplete ones; ``against``: earlier session to compare with; ``site``: name of the place.
    """
    files = [("recording" if one is not None else "file", one_line(source, 400)) for source in sources]
    others = [reading_section(result, number) for number, result in enumerate(readings, 1)]
    reading = Section("how-to-read", "How to read this", [Items("", _HOW_TO_READ)], folded=True)
    if one is None:
        known = sum(result.known for result in readings)
        code = ALL_OK if known == len(readings) else NOT_TESTED
        text = f"{known} of {count(len(readings), 'output')} recognised"
        about = [*files, ("report by", f"fabtui {__version__}")]
        return Document("fabtui report", about, text, state_of(code), warnings, others, code)
    model = one.model
    by = ("fabtui", f"report by {__version__}, recording by {one_line(model.software) or 'an unknown version'}")
    about = [*head_rows(one, site), by, *files]
    sections = [section for section in (*_session(one, sources, against), *others, reading) if section.blocks]
    return Document(head_lines(model)[0], about, sentence_of(one), state_of(one.code), warnings, sections, one.code)


def _session(one: Diagnosis, sources: Sequence[str], against: Against | None) -> Iterator[Section]:
    model = one.model
    if not model.options.get("looks_only"):
        parts = parts_at_fault(one)
        yield Section("parts", "Parts to check or replace", [] if parts is None else [parts])
        yield Section("picture", "", [*_pictures(one)])
        yield Section("findings", "Findings", _findings(one))
    if one.job is not None:
        found = any(finding.rule.domain is Domain.RUNNING for finding in one.findings)
        blocks = [block for block in job_blocks(one.job) if not found or isinstance(block, (Table, Items))]
        yield Section("job", "Running job", blocks)
    if against is not None:
        yield Section("changes", f"Changes since {one_line(against.name, 100)}", _changes(one, sources, against))
    yield Section("history", "Earlier sessions", [*past_blocks(model)])
    yield Section("collectives", "Collectives", [*collective_blocks(one)], folded=True)
    yield Section("comparison", "A/B comparison", [*comparison(model)])
    sentences = [*map(Paragraph, (*mesh_lines(model), *networks(model))), *carrier_block(one, every_pair=False)]
    yield Section(
        "layers", "Layers", [*layer_panels(one), *sentences, *host_links(model), *storage(model)], folded=True
    )
    if one.preflight.table.nodes or one.preflight.missing:
        yield Section("preflight", "Preflight", [*preflight_blocks(one.preflight)], folded=True)
    hardware = all_parts(model)
    yield Section("hardware", "Serial numbers", [] if hardware is None else [hardware], folded=True)
    yield Section("run", "What was run", [*_run(model)], folded=True)


def _pictures(one: Diagnosis) -> Iterator[Block]:
    model = one.model
    if one.job is not None and one.job.ranks:
        wide, narrow = (ranks_scene(JobBoard(one.job), room) for room in (PAGE_WIDTH, NARROW_WIDTH))
        yield Picture("ranks of the job", wide, narrow)
    for layer in [layer for layer in (Layer.P2P, Layer.WORLD) if model.rows and has_values(model, layer)][:1]:
        wide, narrow = (page_scene(model, layer, room) for room in (PAGE_WIDTH, NARROW_WIDTH))
        title, *lines = grid(model, layer, UNICODE, USUAL_WIDTH)
        by_node = len(model.rows) > MOST_ENDPOINTS
        yield Picture(f"{layer}, {unit_text(model, layer)}; {_ROWS}", wide, narrow, [title] * by_node + lines)
        yield from _classes(one, layer)


def _findings(one: Diagnosis) -> list[Block]:
    nothing = [] if one.findings else [Paragraph("no findings")]
    about_pairs = (*not_in_findings(one), *jitter(one))
    return [*entries(one), *nothing, *not_tested(one), *what_to_do(one), *about_pairs]


def _changes(one: Diagnosis, sources: Sequence[str], against: Against) -> list[Block]:
    then, now = against.model, one.model
    if has_facts(then) != has_facts(now):
        # Findings from facts would all be new or gone.
        then, now = without_facts(then), without_facts(now)
    names = _described(against.name, then), _described(", ".join(sources) or "this session", now)
    diff = session_diff(then, now)
    return [*change_blocks(names, against.name, diff, _WIDEST_CHANGE, UNICODE)]


def _run(model: Model) -> Iterator[Block]:
    yield nodes(model)
    rows = []
    for name, value in model.options.items():
        if value not in (None, False, "", [], {}):
            text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            rows.append([f"--{name.replace('_', '-')}", one_line(text, 400)])
    if rows:
        yield Table("options", [["option", "value"], *rows], (0, 1), folded=True)
    texts = [f"session recorded by fabtui {model.software or 'unknown'}"]
    # Large fabrics have hundreds of thousands of results, and few methods.
    methods = dict.fromkeys(shape.how for shape in model.results.store.columns()[0] if shape is not None)
    methods |= dict.fromkeys(m.how for m in model.addresses.everything())
    texts += [f"measured: {one_line(how, 200)}" for how in list(filter(None, methods))[:12]]
    yield Items("", texts)
    if log := [line for line in model.log if line.level in ("warning", "error")]:
        lines = [f"{when(line.time)} {line.node or ''} {one_line(line.text, 300)}" for line in log[:40]]
        yield Items("log: warnings and errors", [line.strip() for line in lines])


def _described(name: str, model: Model) -> str:
    """Return the name, the time and the size of a session; local times would differ from machine to machine."""
    return f"{one_line(name, 200)} ({when(model.started) or 'time unknown'}, {count(len(model.nodes), 'node')})"
