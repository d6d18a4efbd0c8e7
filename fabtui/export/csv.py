"""Snapshot as CSV: one row per measurement, and one per pair that could not be tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fabtui.atomic_write import write_text
from fabtui.export.formats import members, table_text, when
from fabtui.model.counter_log import is_congested
from fabtui.model.endpoints import Endpoint
from fabtui.model.layers import MESH, Layer, all_layers
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.numbers import percent_text
from fabtui.sanitize import one_line

_PAIR = ("time", "layer", "src", "dst", "src_node", "src_index", "dst_node", "dst_index", "class", "verdict")
#: Columns that a measurement has under their names.
_MEASURED = (
    *("unit", "bytes", "transport"),
    *("src_addr", "dst_addr", "attempts"),
)
COLUMNS = (*_PAIR, "value", *_MEASURED, "error")
#: Between a layer and the arm of an A/B comparison.
ARM_MARK = "@"
#: The columns that hold numbers; the others hold text.
INTEGERS = ("src_index", "dst_index", "bytes", "attempts")
NUMBERS = ("value", *INTEGERS)

Row = dict[str, Any]


def rows(model: Model, more: Callable[[Measurement], Row] = lambda _: {}) -> list[Row]:
    """Return the rows of a snapshot, by layer, source, destination and message size in the order of the grid.

    ``more`` returns further columns of a measurement, or other values.

    Unknown values are None, never 0. All text is on one line and without control characters. Further arms of an A/B
    comparison come last, with the arm in the layer: ``p2p@NCCL_P2P_DISABLE=1``.
    """
    table = [_measured(model, m) | more(m) for m in (*model.measurements(), *model.results.arms())]
    now, verdict = when(model.now), Verdict.UNTESTED.value
    for src, dst, why in untested_pairs(model):
        table.append(_row(model, Layer.P2P, src, dst, time=now, verdict=verdict, error=why))
    layers = {str(layer): number for number, layer in enumerate(all_layers())}
    nodes = {name: number for number, name in enumerate(model.nodes)}
    arms = {"": 0} | {one_line(arm): number for number, arm in enumerate(model.comparison) if number}

    def place(row: Row) -> tuple[int, ...]:
        ends = []
        for side in ("src", "dst"):
            index = row[f"{side}_index"]
            ends += [nodes.get(row[f"{side}_node"], -1), -1 if index is None else index]
        layer, _, arm = row["layer"].partition(ARM_MARK)
        return (arms.get(arm, len(arms)), layers[layer], *ends, row["bytes"] or 0)

    table.sort(key=place)
    return table


def _measured(model: Model, m: Measurement) -> Row:
    layer = m.layer if m.arm is None else f"{m.layer}{ARM_MARK}{m.arm}"
    own = members(m, *_MEASURED)
    own |= {"time": when(m.time), "class": model.key_of(m).kind.value, "verdict": model.verdict(m).value}
    value = None if m.value is None else float(m.value)
    return _row(model, layer, m.src, m.dst, value=value, error=m.error or _slow(model, m), **own)


def _slow(model: Model, m: Measurement) -> str | None:
    """Return what a slow value was compared with: a row must be understandable on its own."""
    if m.value is None or model.verdict(m) is not Verdict.SLOW:
        return None
    if m.verdict is Verdict.SLOW and m.layer in MESH:
        lost = (m.extra or {}).get("loss")
        return f"{lost:g} % of packets are lost" if isinstance(lost, (int, float)) and lost > 0 else None
    usual = model.usual(m)
    if not usual:
        return None
    made = " (made by the lab)" if m.made else ""
    # Tests that ran at the same time count as well, so that the value of a healthy pair has no such remark.
    congested = "; congested" if is_congested(model.counters.of(m)) else ""
    return f"{percent_text(m.value / usual)} of the usual {usual:.3g} {m.unit}{made}{congested}"


def untested_pairs(model: Model) -> Iterator[tuple[str, str, str]]:
    if "p2p" not in model.asked("probes", ("p2p",)):
        return
    gone = {str(end): why for end in model.endpoints if (why := _why_not(model, end)) is not None}
    names = [str(end) for end in model.rows]
    for src in names if gone or model.untested else ():
        for dst in names:
            if src == dst or model.latest(Layer.P2P, src, dst) is not None:
                continue
            why = model.untested.get((src, dst)) or gone.get(src) or gone.get(dst)
            if why is not None:
                yield src, dst, why


def _why_not(model: Model, end: Endpoint) -> str | None:
    record = model.nodes.get(end.node)
    if record is not None and record.state.gone:
        return f"{end.node}: {record.text or record.state}"
    if end.kind == "none":
        return f"{end.node}: {record.note if record is not None and record.note else 'nothing to test there'}"
    return None


def _row(model: Model, layer: str, src: str, dst: str, **more: Any) -> Row:
    row: Row = dict.fromkeys(COLUMNS)
    row["layer"] = str(layer)
    for side, name in (("src", src), ("dst", dst)):
        number = model.table.number(name)
        end = None if number is None else model.endpoints[number]
        row[side] = name
        row[f"{side}_node"] = end.node if end is not None else (name if name in model.nodes else None)
        row[f"{side}_index"] = end.index if end is not None and end.kind != "none" else None
    row["class"] = model.table.class_between(src, dst).value
    row.update(more)
    for name, value in row.items():
        if isinstance(value, str):
            row[name] = one_line(value) or None
    return row


def write_csv(model: Model, path: Path) -> int:
    """Write all measurements, every digit, unknown ones empty, whole or not at all (OSError); return the row count."""
    table = rows(model)
    write_text(path, table_text(COLUMNS, ([row[name] for name in COLUMNS] for row in table)))
    return len(table)
