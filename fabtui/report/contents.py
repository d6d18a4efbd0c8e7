"""Contents of a report: a session, outputs of other tools, or both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fabtui import __version__
from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.session_diff import has_facts, session_diff
from fabtui.export.atomic_write import write_atomically
from fabtui.export.csv_table import when
from fabtui.importers.result import Result
from fabtui.importers.to_model.dispatch import without_facts
from fabtui.model.exit_codes import ALL_OK, NOT_TESTED
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.nodeset import count
from fabtui.pictures.heatmap import matrix_scene
from fabtui.presentation.cell_levels import UNICODE
from fabtui.presentation.legends import layer_title
from fabtui.presentation.verdict_line import sentence_of
from fabtui.report.collectives import comparison
from fabtui.report.document import FINDINGS, Block, Document, Items, Paragraph, Picture, Section, Table
from fabtui.report.file_format import MARKDOWN
from fabtui.report.grid import has_values
from fabtui.report.healthy import what_to_do
from fabtui.report.history import past_blocks
from fabtui.report.html import html
from fabtui.report.imported_output import reading_section
from fabtui.report.markdown import markdown
from fabtui.report.problems import entries, jitter, not_in_findings, not_tested
from fabtui.report.running_job import job_blocks
from fabtui.report.session_blocks import collective_blocks, layer_panels, preflight_blocks, state_of
from fabtui.report.session_diff import change_blocks, diff_outcome
from fabtui.report.session_notes import carrier_block, mesh_lines, networks, nodes, storage
from fabtui.report.summary import head_lines
from fabtui.sanitize import one_line

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
) -> Document:
    """Return the contents of a report.

    Args:
        one: The diagnosis of the session; None if no file has one.
        sources: Names of the files; none for a session that has just ended.
        readings: Outputs of other tools without pairs.
        against: Earlier session; None for no comparison.
        warnings: Sentences about files that are incomplete.
    """
    files = [f"from {one_line(', '.join(sources), 400)}"] if sources else []
    others = [reading_section(result, number) for number, result in enumerate(readings, 1)]
    reading = Section("how-to-read", "How to read this", [Items("", _HOW_TO_READ)])
    if one is None:
        known = sum(result.known for result in readings)
        code = ALL_OK if known == len(readings) else NOT_TESTED
        text = f"{known} of {count(len(readings), 'output')} recognised"
        about = [*files, f"made by fabtui {__version__}"]
        return Document("fabtui report", about, text, state_of(code), warnings, others, code)
    model = one.model
    head, *faults = head_lines(model)
    about = [*files, f"{when(model.started) or 'time unknown'}, made by fabtui {__version__}", *faults]
    sections = [section for section in (*_session(one, sources, against), *others, reading) if section.blocks]
    return Document(head, about, sentence_of(one), state_of(one.code), warnings, sections, one.code)


def _session(one: Diagnosis, sources: Sequence[str], against: Against | None) -> Iterator[Section]:
    model = one.model
    if not model.options.get("looks_only"):
        yield Section(FINDINGS, "Findings", _findings(one))
    if one.job is not None:
        yield Section("job", "Running job", [*job_blocks(one.job)])
    if against is not None:
        yield Section("changes", f"Changes since {one_line(against.name, 100)}", _changes(one, sources, against))
    yield Section("history", "Earlier sessions", [*past_blocks(model)])
    yield Section("layers", "Layers", [*layer_panels(one), *_sentences(model)])
    yield Section("collectives", "Collectives", [*collective_blocks(one)])
    yield Section("comparison", "A/B comparison", [*comparison(model)])
    if one.preflight.table.nodes or one.preflight.missing:
        yield Section("preflight", "Preflight", [*preflight_blocks(one.preflight)])
    yield Section("run", "What was run", [*_run(model)])


def _findings(one: Diagnosis) -> list[Block]:
    """Return the picture of the pairs, the findings, what was not tested, what to do now, and further bad pairs."""
    model = one.model
    drawn = [layer for layer in (Layer.P2P, Layer.WORLD) if model.rows and has_values(model, layer)][:1]
    pictures = [Picture(layer_title(layer), matrix_scene(model, layer, "verdict")) for layer in drawn]
    nothing = [] if one.findings else [Paragraph("no findings")]
    about_pairs = (*not_in_findings(one), *jitter(one))
    return [*pictures, *entries(one), *nothing, *not_tested(one), *what_to_do(one), *about_pairs]


def _sentences(model: Model) -> Iterator[Block]:
    yield from map(Paragraph, (*mesh_lines(model), *networks(model)))
    yield from (*carrier_block(model, every_pair=False), *storage(model))


def _changes(one: Diagnosis, sources: Sequence[str], against: Against) -> list[Block]:
    then, now = against.model, one.model
    if has_facts(then) != has_facts(now):
        # Findings from facts would all be new or gone.
        then, now = without_facts(then), without_facts(now)
    names = _described(against.name, then), _described(", ".join(sources) or "this session", now)
    diff = session_diff(then, now)
    return [*change_blocks(names, against.name, diff, _WIDEST_CHANGE, UNICODE), Paragraph(diff_outcome(diff))]


def _run(model: Model) -> Iterator[Block]:
    yield nodes(model)
    options = {name: value for name, value in model.options.items() if value not in (None, False, "", [], {})}
    rows = [[f"--{name.replace('_', '-')}", _option(value)] for name, value in options.items()]
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


def _option(value: object) -> str:
    return one_line(", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value), 400)


def _described(name: str, model: Model) -> str:
    """Return the name, the time and the size of a session; local times would differ from machine to machine."""
    return f"{one_line(name, 200)} ({when(model.started) or 'time unknown'}, {count(len(model.nodes), 'node')})"


def write_document(found: Document, path: Path) -> None:
    """Write a report, whole or not at all (OSError)."""
    text = markdown(found) if path.suffix.lower() in MARKDOWN else html(found)
    write_atomically(path, lambda file: file.write(text.encode("utf-8", "backslashreplace")))


def write_report(found: Diagnosis, path: Path) -> None:
    """Write the report of a session, whole or not at all (OSError)."""
    write_document(document(found, ()), path)
