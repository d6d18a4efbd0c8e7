"""Legends of layers: title, unit, usual values, limits, meanings of colours, statistics of classes."""

from __future__ import annotations

import time
from collections import Counter

from fabtui.model.baseline import SLOW_BELOW
from fabtui.model.cell_level import FAIR_FROM, GOOD_FROM
from fabtui.model.endpoints import PairClass
from fabtui.model.layers import Layer, key_layers
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import CellStyle
from fabtui.presentation.numbers import brief_text, percent_text, scales_text
from fabtui.presentation.wording import CLASS_WORDS, MUTED, Part, plain
from fabtui.sanitize import one_line
from fabtui_node.parsers.lines import bytes_text

_PROBLEMS = (
    (CellStyle.SLOW, "slow"),
    (CellStyle.TIMEOUT, "timed out"),
    (CellStyle.FAILED, "failed"),
    (CellStyle.WRONG, "wrong data"),
    (CellStyle.FLAPPING, "flapping"),
    (CellStyle.INCONCLUSIVE, "inconclusive"),
    (CellStyle.SKIPPED, "skipped"),
    (CellStyle.RUNNING, "running"),
    (CellStyle.GONE, "node gone"),
)
_TRANSPORTS = (
    (CellStyle.P2P, "P2P"),
    (CellStyle.SHM, "shared memory"),
    (CellStyle.RDMA, "IB, RoCE"),
    (CellStyle.SOCKET, "sockets"),
    (CellStyle.OTHER, "other"),
)


def layer_title(layer: Layer) -> str:
    """Return the title of a layer."""
    return layer.spec.title + ("; less is better" if layer.spec.less_is_better else "")


def layers_of(model: Model) -> list[Layer]:
    """Return the layers of a model that have keys; ``change`` needs a baseline or a previous sweep, ``job`` a job."""
    missing = {Layer.CHANGE: not model.comparable, Layer.JOB: not model.job}
    return [layer for layer in key_layers() if not missing.get(layer)]


def legend(model: Model, layer: Layer, unit: str, size: int | None, width: int) -> list[Part]:
    """Return the legend of a layer: unit, message size, usual values, and the limits below which a pair is slow.

    The limits are left out where a width has no room for all of them: the table of classes has them as well.
    """
    if layer is Layer.CHANGE:
        return _change_legend(model)
    if layer is Layer.JOB:
        return [("ranks", "bold"), (": utilization, power, NVLink GB/s of the GPU, NIC GB/s of the node", MUTED)]
    if not unit and layer.spec.derived:
        return [(layer.spec.title, MUTED)]
    if not unit:
        # Name the layer that is being filled.
        name = model.phase.name
        key = next((one.spec.key for one in layers_of(model) if str(one) == name), None)
        return [("no values yet" + (f": {name} is tested first (key {key})" if key else ""), MUTED)]
    parts: list[Part] = [
        (f"{unit} at {bytes_text(size)}" if size else unit, "bold"),
        (f" {layer.spec.legend or layer.spec.title}", MUTED),
    ]
    if scales := scales_text(model.results.lowest(layer), unit):
        parts.append((f"  {scales}", ""))
    kinds = [kind for kind in CLASS_WORDS if kind is not PairClass.ALL and model.median(layer, kind) is not None]
    for at, kind in enumerate(kinds):
        parts += [("  usual ", MUTED)] if not at else []
        parts.append((f"  {CLASS_WORDS[kind]} " if at else f"{CLASS_WORDS[kind]} ", MUTED))
        parts.append((brief_text(model.median(layer, kind), unit), ""))
    limits = [(CLASS_WORDS[kind], limit) for kind in kinds if (limit := model.limit(layer, kind)) is not None]
    if any(limit for _, limit in limits):
        shown = ", ".join(f"{word} {brief_text(limit, unit)}" for word, limit in limits)
        text = f"  slow {'above' if layer.spec.less_is_better else 'below'}: {shown}"
        parts += [(text, MUTED)] if len(plain(parts)) + len(text) <= width else []
    elif layer.spec.less_is_better:
        parts.append(("  less is better", MUTED))
    return parts


def _change_legend(model: Model) -> list[Part]:
    found = model.baseline
    if not model.comparable:
        return [("nothing to compare with: sweep again (R), watch (w), or start with --baseline FILE", MUTED)]
    when = time.strftime(" of %d %b %Y %H:%M", time.localtime(found.time)) if found and found.time else ""
    return [
        (f"{model.compared_layer} now / then", "bold"),
        (f"  slow below {percent_text(SLOW_BELOW)}  then: ", MUTED),
        ("previous sweep" if found is None else one_line(found.name, 60), ""),
        (when, MUTED),
    ]


def meanings(layer: Layer) -> list[tuple[CellStyle, str]]:
    """Return the meanings of the colours of a layer, the good ones first."""
    problems = list(_PROBLEMS)
    if layer is Layer.TRANSPORT:
        return [*_TRANSPORTS, *problems[1:]]
    if layer is Layer.HEALTH:
        return [(CellStyle.GOOD, "ok"), *problems]
    if layer.spec.less_is_better:
        good = f"up to {1 / GOOD_FROM:.2f} x the usual value"
        return [
            (CellStyle.GOOD, good),
            (CellStyle.FAIR, f"{1 / FAIR_FROM:.2f} x"),
            (CellStyle.LOW, "more"),
            *problems[1:],
        ]
    of = "what it was" if layer is Layer.CHANGE else "the usual value"
    if layer is Layer.CHANGE:
        problems[6] = (CellStyle.SKIPPED, "no value then")
    good = f"{percent_text(GOOD_FROM)} of {of} or better"
    return [(CellStyle.GOOD, good), (CellStyle.FAIR, percent_text(FAIR_FROM)), (CellStyle.LOW, "less"), *problems]


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
