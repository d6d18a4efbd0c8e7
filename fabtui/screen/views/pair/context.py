"""Neighbors, history, counters and log lines of a pair."""

from __future__ import annotations

import re
import statistics

from fabtui.model.counter_log import Deltas, Path, flatten, paths_of
from fabtui.model.endpoints import Endpoint
from fabtui.model.layers import Layer, pair_layers
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs, bytes_text, full_value
from fabtui.presentation.numbers import spoken_texts
from fabtui.presentation.wording import MUTED, Part, failure_text, time_text, value_text, verdict_part
from fabtui.presentation.wrapping import Lines
from fabtui.sanitize import clean, one_line
from fabtui.screen.grid.axis import fit_text
from fabtui.screen.views.detail_base import Cell, section, table, table_section
from fabtui.screen.widgets.sparkline import cells_strip, sparkline

_MAX_ATTEMPTS = 40
#: Maximum number of drawn cells per row.
_MAX_CELLS = 64
_MAX_LINES = 24
_LIBRARY = re.compile(r"\bNCCL\b|\bgloo\b|\bWARN\b|ibv_|Traceback|RuntimeError", re.IGNORECASE)
_ALARM = re.compile(r"\bWARN\b|\berror\b|failed|timed out|Traceback", re.IGNORECASE)


def neighbour_lines(model: Model, src: Endpoint, dst: Endpoint, layer: Layer, glyphs: Glyphs) -> Lines:
    """Return the results of pairs with the same source, the same destination or the same nodes."""
    here = [e.number for e in model.endpoints_of(src.node) if e.kind != "none"]
    there = [e.number for e in model.endpoints_of(dst.node) if e.kind != "none"]
    a, b = src.number, dst.number
    to, of = fit_text(dst.node, 40), fit_text(src.node, 40)
    groups = [
        (f"{fit_text(str(src), 40)} > others of {to}", [(a, n) for n in there if n not in (a, b)]),
        (f"others of {of} > {fit_text(str(dst), 40)}", [(n, b) for n in here if n not in (a, b)]),
    ]
    if src.node != dst.node:
        groups.append((f"{of} > {to}", [(m, n) for m in here for n in there]))
        groups.append((f"{to} > {of}", [(m, n) for m in there for n in here]))
    else:
        groups.append((f"within {of}", [(m, n) for m in here for n in here if m != n]))
    rows: list[tuple[list[str], list[Part]]] = []
    for title, cells in groups:
        found = [model.measured_for(layer, *cell) for cell in cells]
        known = [one for one in found if one is not None]
        if not known:
            continue
        values = sorted(one.value for one in known if one.value is not None and not model.verdict(one).bad)
        bad = sum(model.verdict(one).bad for one in known)
        numbers = (
            [full_value(x, known[0].unit) for x in (values[0], statistics.median(values), values[-1])]
            if values
            else ["-"] * 3
        )
        row = [title, str(len(known)), *numbers, str(bad)]
        rows.append((row, cells_strip(model, layer, cells[:_MAX_CELLS], glyphs)))
    if not rows:
        return []
    headings = [str(layer), "n", "lowest", "median", "highest", "bad", "cells"]
    widths = [max(len(headings[at]), *(len(row[at]) for row, _ in rows)) for at in range(6)]
    lines: Lines = [[(_row(headings[:6], widths) + "  cells", MUTED)]]
    lines += [[(_row(row, widths) + "  ", "bold" if row[5] != "0" else ""), *strip] for row, strip in rows]
    return section("neighbours", "values of good pairs") + lines


def _row(row: list[str], widths: list[int]) -> str:
    cells = [f"{text:>{width}}" for text, width in zip(row[1:], widths[1:], strict=True)]
    return "  ".join([f"  {row[0]:<{widths[0]}}", *cells])


def spark_lines(model: Model, src: str, dst: str, glyphs: Glyphs) -> Lines:
    """Return a sparkline for each direction and layer with more than one attempt."""
    lines: Lines = []
    for ends in ((src, dst), (dst, src)):
        for layer in (Layer.P2P, Layer.WORLD):
            history = model.history(layer, *ends)
            if len(history) < 2:
                continue
            values = [one.value for one in history if one.value is not None]
            extremes = (min(values), max(values)) if values else ()
            span = " to ".join(spoken_texts(extremes, history[-1].unit)) or "no value"
            parts: list[Part] = [(f"  {layer:<6} {fit_text(f'{ends[0]} > {ends[1]}', 40):<22} ", MUTED)]
            parts += sparkline(model, history, glyphs)
            bad = sum(model.verdict(one).bad for one in history)
            parts.append((f"  {len(history)} attempts, {bad} bad, {span}", ""))
            if turned := model.flapping.get((layer, *ends)):
                parts.append((f"  ~ flapping: {turned} changes", "bold $warning"))
            lines.append(parts)
    return lines


def history_lines(model: Model, src: str, dst: str, glyphs: Glyphs) -> Lines:
    """Return the attempts at a pair: sparklines, then a table, latest first."""
    all_ends = ((src, dst), (dst, src))
    found = [one for ends in all_ends for layer in pair_layers() for one in model.history(layer, *ends)]
    if not found:
        return []
    found.sort(key=lambda one: one.time)
    rows: list[list[Cell]] = []
    for one in found[: -_MAX_ATTEMPTS - 1 : -1]:
        head = [time_text(one.time), ">" if one.src == src else "<", str(one.layer)]
        verdict = verdict_part(model.verdict(one), glyphs)
        rows.append([*head, verdict, value_text(one), str(one.attempts), failure_text(one)])
    cut = f"latest {_MAX_ATTEMPTS} of {len(found)}, " if len(found) > _MAX_ATTEMPTS else ""
    note = one_line(f"{cut}latest first; > is {src} to {dst}", 160)
    headings = ["time", "", "layer", "verdict", "value", "attempt", "error"]
    return section("history", note) + spark_lines(model, src, dst, glyphs) + table(headings, rows)


def library_lines(measurements: list[Measurement]) -> Lines:
    """Return the log lines of the communication library, warnings and errors first."""
    found: dict[str, bool] = {}
    for one in measurements:
        end = ""
        for line in clean(one.raw or "", 20_000).expandtabs().splitlines():
            text = line.strip()
            if text.startswith("[") and text.endswith("]"):
                end = text.strip("[]")
            elif _LIBRARY.search(text):
                found.setdefault(f"{end}  {text}" if end else text, bool(_ALARM.search(text)))
    ordered = sorted(found.items(), key=lambda item: not item[1])[:_MAX_LINES]
    if not ordered:
        return []
    more = f"{_MAX_LINES} of {len(found)} lines" if len(found) > _MAX_LINES else ""
    return section("library log", more) + [[(f"  {text}", "$warning" if alarm else MUTED)] for text, alarm in ordered]


def event_lines(model: Model, src: str, dst: str) -> Lines:
    """Return the latest event log lines that name an endpoint of the pair, latest first."""
    names = re.compile("|".join(rf"(?<![\w.:-]){re.escape(end)}(?![\w:])" for end in (src, dst)))
    found = [line for line in model.log if names.search(line.text)][-8:]
    return (section("event log") if found else []) + [
        [(f"  {time_text(line.time)}  ", MUTED), (one_line(line.text, 300), "")] for line in reversed(found)
    ]


#: Maximum number of error counters and of traffic counters per node.
_MAX_ERRORS = 40
_MAX_TRAFFIC = 16
_FULL = " or more: the counter is at its limit"
#: Endings of the names of byte counters.
_BYTES = ("_bytes", "port_xmit_data", "port_rcv_data")


def counter_lines(model: Model, measurement: Measurement | None) -> Lines:
    """Return the counter changes on both nodes of a measurement; nothing if there are none."""
    found = model.counters_for(measurement) if measurement is not None else {}
    if measurement is None or not found:
        return []
    note = f"per node, during {measurement.layer} at {time_text(measurement.time)}; may include other tests"
    rows: list[list[Cell]] = []
    left = 0
    for node, deltas in found.items():
        shown, more = _rows(one_line(node, 64), deltas)
        rows += shown
        left += more
    lines = table_section("counters", ["node", "where", "counter", "change"], rows, note)
    if left:
        lines.append([(f"  and {left} more in the recording", MUTED)])
    return lines


def _rows(node: str, deltas: Deltas) -> tuple[list[list[Cell]], int]:
    """Return the rows of a node, errors first, and the number of rows left out."""
    counts = flatten(deltas)
    errors = paths_of(deltas.get("errors"))
    failures = sorted((path for path in counts if path in errors), key=lambda path: (-counts[path], path))
    reset = sorted(paths_of(deltas.get("reset")))
    traffic = sorted(
        (path for path in counts if path not in errors), key=lambda path: (not _is_bytes(path), -counts[path], path)
    )
    full = paths_of(deltas.get("full"))
    rows: list[list[Cell]] = []
    for path in failures[:_MAX_ERRORS]:
        change = f"{counts[path]:,}{_FULL if path in full else ''}"
        rows.append([node, _place(path), (path[-1], "bold $warning"), (change, "bold $warning")])
    rows += [[node, _place(path), path[-1], "was reset"] for path in reset[:_MAX_ERRORS]]
    rows += [[node, _place(path), path[-1], _amount(path, counts[path])] for path in traffic[:_MAX_TRAFFIC]]
    return rows, len(failures) + len(reset) + len(traffic) - len(rows)


def _is_bytes(path: Path) -> bool:
    return path[-1].endswith(_BYTES)


def _amount(path: Path, count: int) -> str:
    if not _is_bytes(path):
        return f"{count:,}"
    # Four digits suffice.
    number, _, unit = bytes_text(count).partition(" ")
    return f"{float(number):.4g} {unit}" if float(number) < 1000 else f"{float(number):.0f} {unit}"


def _place(path: Path) -> str:
    if path[0] != "nvlink":
        return path[1]
    return f"GPU {path[1]}, all NVLinks" if path[2] == "all" else f"GPU {path[1]}, NVLink {path[2]}"
