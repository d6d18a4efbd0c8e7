"""Summary of a session as plain text, for `fabtui run` and `fabtui replay --text`."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.pairs.p2p_vs_world import differing
from fabtui.model.endpoints import PAIR_CLASSES, PairClass
from fabtui.model.layers import TOOLS, Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.nodeset import count
from fabtui.presentation.cell_levels import ASCII, UNICODE, Glyphs
from fabtui.presentation.numbers import size_text, spoken_text
from fabtui.presentation.verdict_line import sentence_of
from fabtui.presentation.wrapping import aligned
from fabtui.report.collectives import collective_tables, comparison, sweep_tables
from fabtui.report.document import Block, Items, Lines, Paragraph, Shown
from fabtui.report.grid import grids
from fabtui.report.healthy import what_to_do
from fabtui.report.preflight import before_tests
from fabtui.report.problems import jitter, not_tested, problems
from fabtui.report.session_notes import carrier_block, evidence_blocks, host_links, mesh_lines, networks, nodes, storage
from fabtui.report.text import shortened, text
from fabtui.sanitize import one_line

#: How the line about a planted fault begins.
_PLANTED = "deliberate lab fault"


def summary(one: Diagnosis, plain: bool = False, shown: Shown | None = None) -> str:
    """Return the summary of a session: verdict, findings, grids; ``plain``: ASCII only."""
    width = shown.text_width if shown is not None else None
    return text(_blocks(one, ASCII if plain else UNICODE, shown), width, plain)


def _blocks(one: Diagnosis, signs: Glyphs, shown: Shown | None) -> Iterator[Block]:
    model, grids_shown = one.model, shown or Shown()
    yield Paragraph(sentence_of(one))
    heads = head_lines(model)
    planted = [line for line in heads if line.startswith(_PLANTED)]
    yield Items("", [line for line in heads if line not in planted])
    yield from problems(one)
    yield from not_tested(one)
    yield from what_to_do(one)
    # What was planted is no evidence.
    yield Items("", planted)
    if one.job is not None:
        yield from evidence_blocks(one.job)
    known = nodes(model)
    # The heading reports what the rows show.
    yield shortened(known._replace(rows=[["", "", ""], *known.rows[1:]]), "lines", "--json has all nodes")
    yield from _grids(model, signs, grids_shown)
    yield from _medians(model)
    yield from (*collective_tables(model), *sweep_tables(model))
    yield from (shortened(table, "rows") for table in comparison(model))
    yield Lines("", [*mesh_lines(model), *networks(model)])
    yield from carrier_block(one, every_pair=shown is not None and shown.layers is None)
    yield from host_links(model)
    yield from storage(model)
    yield from jitter(one)
    yield from before_tests(one.preflight, signs)


def head_lines(model: Model) -> list[str]:
    ends = [end for end in model.endpoints if end.kind in ("gpu", "cpu")]
    kinds = Counter("CPU rank" if end.kind == "cpu" else end.name or "GPU" for end in ends)
    nodes = count(len(model.nodes), "node")
    hardware = ", ".join(f"{number} x {one_line(what, 60)}" for what, number in kinds.items()) or "no endpoints"
    lab = f", lab {one_line(model.lab)}" if model.lab else ""
    lines = [f"{f'fabtui {one_line(model.software)}'.strip()}: {nodes}, {hardware}{lab}, {model.elapsed:.1f} s"]
    lines += [f"{_PLANTED}: {one_line(fault)}" for fault in model.faults]
    if model.options.get("host_key_policy") == "off":
        lines.append("HOST KEYS WERE NOT CHECKED")
    return lines


def _grids(model: Model, signs: Glyphs, shown: Shown) -> Iterator[Block]:
    tested, layers = model.layers, shown.layers
    if layers is not None and not layers:
        layers = tuple(layer for layer in (Layer.P2P, Layer.WORLD) if layer in tested)
        if layers == (Layer.P2P, Layer.WORLD) and (alike := list(_world_line(model))):
            yield from grids(model, layers[:1], signs, shown.width)
            yield from alike
            return
    yield from grids(model, layers, signs, shown.width)


def _world_line(model: Model) -> Iterator[Paragraph]:
    """Yield one line about the layer world if every pair has the same verdict as in p2p."""
    if differing(model):
        return
    verdicts = list(model.verdicts_in(Layer.WORLD))
    bad = sum(verdict is not Verdict.OK for verdict in verdicts)
    usual = ", ".join(f"{kind} {spoken_text(value, 'GB/s')}" for kind, value in _of_classes(model, Layer.WORLD))
    total = len(verdicts)
    what = f"{bad} of {total} pairs are not ok, as in p2p" if bad else f"complete, {total} of {total} pairs ok"
    yield Paragraph(f"world: {what}" + (f"; usual values {usual}" if usual else ""))


def _of_classes(model: Model, layer: Layer) -> list[tuple[PairClass, float]]:
    return [(kind, value) for kind in PAIR_CLASSES if (value := model.median(layer, kind)) is not None]


def _medians(model: Model) -> Iterator[Lines]:
    tested, sizes = model.layers, model.results.sizes(Layer.P2P)
    rows = [(f"p2p {size_text(size)}", "GB/s", _in_order(model.medians(Layer.P2P, size))) for size in sizes[:-1]]
    name = f"p2p {size_text(sizes[-1])}" if len(sizes) > 1 else "p2p"
    rows.append((name, "GB/s", _of_classes(model, Layer.P2P)))
    if model.results.bidirectional:
        rows.append(("bidirectional", "GB/s each", _medians_of(model, Layer.P2P, lambda m: _bidirectional(model, m))))
    if Layer.P2P not in tested or differing(model):
        rows.append(("world", "GB/s", _of_classes(model, Layer.WORLD)))
    rows.append((str(Layer.LATENCY), "us", _in_order(model.medians(Layer.LATENCY))))
    rows += [(str(tool), tool.spec.unit, _medians_of(model, tool, lambda m: m.value)) for tool in TOOLS]
    rows = [row for row in rows if row[2]]
    texts = ["   ".join(f"{kind} {spoken_text(each, unit)}" for kind, each in values) for _, unit, values in rows]
    if rows:
        yield Lines("usual values", aligned([[row[0], text] for row, text in zip(rows, texts, strict=True)], (0, 1)))


def _in_order(found: Mapping[PairClass, float]) -> list[tuple[PairClass, float]]:
    return [(kind, found[kind]) for kind in PAIR_CLASSES if kind in found]


def _bidirectional(model: Model, m: Measurement) -> float | None:
    latest = model.latest(m.layer, m.src, m.dst)
    value = (m.extra or {}).get("both_ways")
    same = latest is not None and latest.asked_bytes == m.asked_bytes
    return value if same and isinstance(value, (int, float)) else None


def _medians_of(
    model: Model, layer: Layer, value_of: Callable[[Measurement], float | None]
) -> list[tuple[PairClass, float]]:
    found: dict[PairClass, list[float]] = {}
    for m in model.measurements(layer):
        if m.verdict is Verdict.OK and (value := value_of(m)) is not None:
            found.setdefault(model.key_of(m).kind, []).append(value)
    return _in_order({kind: statistics.median(values) for kind, values in found.items()})
