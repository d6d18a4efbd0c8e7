"""Legends of layers: title, unit and direction, usual values with limits, meanings of colours, class statistics."""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple

from fabtui.model.baseline import SLOW_BELOW
from fabtui.model.cell_level import FAIR_FROM, GOOD_FROM
from fabtui.model.endpoints import PairClass
from fabtui.model.layers import Better, Layer, Per, key_layers
from fabtui.model.measurement import SEVERITY
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import CellStyle, Glyphs
from fabtui.presentation.numbers import brief_text, percent_text, scales_text, spoken_text
from fabtui.presentation.wording import CLASS_WORDS, MUTED, Part, verdict_words
from fabtui.presentation.wrapping import Line
from fabtui.sanitize import one_line
from fabtui_node.parsers.lines import bytes_text

_PROBLEMS = (
    *((CellStyle[verdict.name], verdict_words(verdict)) for verdict in SEVERITY if verdict.bad),
    (CellStyle.FLAPPING, "flapping"),
    (CellStyle.INCONCLUSIVE, "inconclusive"),
    (CellStyle.SKIPPED, "skipped"),
    (CellStyle.RUNNING, "running"),
    (CellStyle.GONE, "node gone"),
)
_TRANSPORTS = (
    (CellStyle.P2P, "P2P"),
    (CellStyle.SHM, "SHM: shared memory"),
    (CellStyle.RDMA, "IB or RoCE"),
    (CellStyle.SOCKET, "SOCK: sockets"),
    (CellStyle.OTHER, "other"),
)


def layer_title(layer: Layer) -> str:
    return layer.spec.title + ("; less is better" if layer.spec.less_is_better else "")


def layers_of(model: Model) -> list[Layer]:
    missing = {Layer.CHANGE: not model.comparable, Layer.JOB: not model.job}
    return [layer for layer in key_layers() if not missing.get(layer)]


def legend(model: Model, layer: Layer, unit: str, size: int | None, width: int, glyphs: Glyphs) -> list[Part]:
    """Return what the numbers of a layer are, in the longest form that fits; without any, what it waits for."""
    if layer is Layer.CHANGE:
        return _change_legend(model)
    if layer is Layer.JOB:
        forms = ["ranks: utilization, power, NVLink GB/s of the GPU, NIC GB/s of the node", layer.spec.title, ""]
    elif not unit:
        forms = [layer.spec.title if layer.spec.derived else _awaited(model, layer)]
    else:
        of_pairs = layer.spec.per is Per.ENDPOINT_PAIR and layer.spec.better is Better.MORE
        what = f"row {glyphs.arrow} column" if of_pairs and layer.spec.judged else layer.spec.legend or layer.spec.title
        scales = scales_text(model.results.lowest(layer), unit)
        text = f"{unit} at {bytes_text(size)}" if size else unit
        less = "less is better" if layer.spec.less_is_better else ""
        lists = [text, what, less, scales], [text, less or what, scales], [text, scales], [unit, scales], [unit]
        forms = [", ".join(filter(None, one)) for one in lists]
    return [(next((form for form in forms if len(form) <= width), forms[-1]), MUTED)]


def _awaited(model: Model, layer: Layer) -> str:
    """Return what a layer without values waits for: the layer that is measured, with the key that shows it."""
    name = one_line(model.phase.name, 20)
    running = next((one for one in layers_of(model) if name in (str(one), one.spec.collective)), None)
    if running is layer:
        return f"{layer} is running: no value yet"
    return f"no values of {layer}" + (f" yet: {running} is running (press {running.spec.key})" if running else "")


class UsualRow(NamedTuple):
    """Usual value of a class of pairs, and the limit beyond which one of them is slow; "" without a limit."""

    name: str
    usual: str
    limit: str


def usual_rows(model: Model, layer: Layer) -> list[UsualRow]:
    """Return the usual values of a layer by class; for the layers that show p2p in another form, the values of p2p."""
    unit = layer.spec.unit
    return [
        UsualRow(
            str(kind).replace("-", " "), brief_text(median, unit), "" if limit is None else _limit_text(limit, unit)
        )
        for kind in CLASS_WORDS
        if kind is not PairClass.ALL and (median := model.median(layer, kind)) is not None
        for limit in [model.limit(layer, kind)]
    ]


def _limit_text(limit: float, unit: str) -> str:
    """Return a limit in the unit of its column, or with its own: ``83.9 MB/s`` among GB/s."""
    text = brief_text(limit, unit)
    return spoken_text(limit, unit) if text[-1:].isalpha() else text


def usual_lines(model: Model, layer: Layer) -> list[Line]:
    rows = usual_rows(model, layer)
    if not rows:
        return []
    name, usual = (max(len(row[at]) for row in rows) for at in (0, 1))
    unit = f", {layer.spec.unit}" if layer.spec.unit else ""
    word = "above" if layer.spec.less_is_better else "below"
    return [
        [(f"usual value{unit}", f"bold {MUTED}")],
        *(
            [
                (f"{row.name:<{name}}   ", MUTED),
                (f"{row.usual:>{usual}}", "$primary"),
                (f"   slow {word} {row.limit}" if row.limit else "", MUTED),
            ]
            for row in rows
        ),
    ]


def usual_line(model: Model, layer: Layer, glyphs: Glyphs) -> Line:
    parts: Line = []
    for row in usual_rows(model, layer):
        parts += [(f" {glyphs.dot} " if parts else "usual: ", MUTED), (f"{row.name} ", MUTED), (row.usual, "$primary")]
    return parts


def _change_legend(model: Model) -> list[Part]:
    baseline = model.baseline
    if not model.comparable:
        return [("nothing to compare with: sweep again (R), watch (w), or start with --baseline FILE", MUTED)]
    when = time.strftime(" of %d %b %Y %H:%M", time.localtime(baseline.time)) if baseline and baseline.time else ""
    return [
        (f"{model.compared_layer} now / then", "bold"),
        (f"  slow below {percent_text(SLOW_BELOW)}  then: ", MUTED),
        ("previous sweep" if baseline is None else one_line(baseline.name, 60), ""),
        (when, MUTED),
    ]


def meanings(layer: Layer) -> list[tuple[CellStyle, str]]:
    skipped = "no value then" if layer is Layer.CHANGE else "skipped"
    problems = [(style, skipped if style is CellStyle.SKIPPED else text) for style, text in _PROBLEMS]
    if layer is Layer.TRANSPORT:
        return [*_TRANSPORTS, *problems[1:]]
    if layer is Layer.HEALTH:
        return [(CellStyle.GOOD, "ok"), *problems]
    if layer.spec.less_is_better:
        grades = ["measured", f"over {1 / GOOD_FROM:.2f} x the usual value", f"over {1 / FAIR_FROM:.2f} x"]
        problems = problems[1:]
    else:
        of = "what it was" if layer is Layer.CHANGE else "the usual value"
        grades = ["ok", f"ok, below {percent_text(GOOD_FROM)} of {of}", f"below {percent_text(FAIR_FROM)}"]
    return [*zip((CellStyle.GOOD, CellStyle.FAIR, CellStyle.LOW), grades, strict=True), *problems]


def class_rows(
    model: Model, layer: Layer, bad: Counter[PairClass], tested: Counter[PairClass]
) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the statistics of a layer's classes, of p2p if it has no values.

    ``bad`` and ``tested`` count the pairs of p2p by class, with or without a value; other layers have n.
    """
    own = any(model.results.values(layer, kind) for kind in CLASS_WORDS)
    layer = layer if own else Layer.P2P
    rows: list[list[str]] = []
    for kind, word in CLASS_WORDS.items():
        values = model.results.values(layer, kind)
        valued = 0 if values is None else len(values)
        count = max(valued, tested[kind]) if layer is Layer.P2P else valued
        if not count:
            continue
        ends = [None, None] if values is None else [values.lowest, values.highest]
        worst, best = reversed(ends) if layer.spec.less_is_better else ends
        middle = None if values is None else values.median
        numbers = [worst, middle, best, model.limit(layer, kind)]
        shown = [brief_text(value, layer.spec.unit) for value in numbers]
        rows.append([word, str(count), *shown, str(bad[kind]) if layer is Layer.P2P else ""])
    slow = "slow >" if layer.spec.less_is_better else "slow <"
    return [str(layer), "n", "worst", "usual", "best", slow, "bad" if layer is Layer.P2P else ""], rows
