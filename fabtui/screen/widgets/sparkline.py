"""Rows of cells as glyphs, and histories and trends as sparklines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fabtui.model.cell_level import ratio
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import GRADES, CellStyle, Glyphs, style_of
from fabtui.presentation.numbers import spoken_texts
from fabtui.presentation.wording import CELL, MUTED, Part, clock_text, verdict_tone
from fabtui.sanitize import one_line

_WITHOUT_RESULT = (Verdict.UNTESTED, Verdict.SKIPPED)


def cell_glyph(model: Model, layer: Layer, src: int, dst: int, glyphs: Glyphs) -> Part:
    cell = model.cell(layer, src, dst)
    if cell.running:
        return glyphs.of_style[CellStyle.RUNNING], "bold $accent"
    if cell.measurement is None:
        return " ", MUTED
    share = None
    if cell.value is not None:
        share = ratio(layer, cell.value, model.usual(cell.measurement))
    slot = style_of(cell.verdict, share)
    # Here no legend explains shades of ok.
    slot = CellStyle.GOOD if slot in GRADES else slot
    return glyphs.of_style[slot], f"{CELL}{slot.key}"


def cells_strip(model: Model, layer: Layer, cells: Iterable[tuple[int, int]], glyphs: Glyphs) -> list[Part]:
    parts: list[Part] = []
    nodes: tuple[str, str] | None = None
    for src, dst in cells:
        here = model.endpoints[src].node, model.endpoints[dst].node
        if nodes is not None and here != nodes:
            parts.append((" ", ""))
        nodes = here
        parts.append(
            (glyphs.of_style[CellStyle.DIAGONAL], "") if src == dst else cell_glyph(model, layer, src, dst, glyphs)
        )
    return merged(parts)


def sparkline(model: Model, history: Sequence[Measurement], glyphs: Glyphs, most: int = 32) -> list[Part]:
    """Return the latest attempts, oldest first: a bar for a value (full height: usual value), else a glyph."""
    blocks = glyphs.blocks
    parts: list[Part] = []
    for one in history[-most:]:
        verdict = model.verdict(one)
        if verdict in _WITHOUT_RESULT:
            continue
        style = verdict_tone(verdict)
        if one.value is None:
            parts.append((glyphs.of_style[style_of(verdict, None)], style))
            continue
        share = ratio(one.layer, one.value, model.usual(one))
        height = 1.0 if share is None else min(1.0, max(0.0, share))
        parts.append((blocks[round(height * (len(blocks) - 1))], style))
    return merged(parts)


def merged(parts: Iterable[Part]) -> list[Part]:
    found: list[Part] = []
    for text, style in parts:
        if found and found[-1][1] == style:
            found[-1] = (found[-1][0] + text, style)
        else:
            found.append((text, style))
    return found


#: Number of latest attempts in the side panel, and the width of the labels there.
_ATTEMPTS, LABEL = 22, 10
#: Minimum number of values of which percentiles show more than the values.
_FEWEST_RANKED = 5
#: Width of the graph of bad pairs, and the minimum room for it.
TREND_WIDTH = 12


def pair_trend(model: Model, src: str, dst: str, glyphs: Glyphs) -> list[list[Part]]:
    """Return two or more attempts at a pair as a graph, and few values, or minimum, median and p99 of many."""
    attempts = model.history(Layer.P2P, src, dst)
    if attempts and attempts[-1].asked_bytes is not None:
        attempts = [one for one in attempts if one.asked_bytes in (None, attempts[-1].asked_bytes)]
    if len(attempts) < 2:
        return []
    span = clock_text(attempts[-1].time - attempts[-_ATTEMPTS:][0].time)
    graph = sparkline(model, attempts, glyphs, _ATTEMPTS)
    lines: list[list[Part]] = [
        [("trend".ljust(LABEL), MUTED), *graph, (f"  {len(attempts[-_ATTEMPTS:])} in {span}", MUTED)]
    ]
    measured = [one.value for one in attempts if one.value is not None]
    values = sorted(measured)
    if 0 < len(values) < _FEWEST_RANKED:
        text = "  ".join(spoken_texts(measured, one_line(attempts[-1].unit, 10)))
        lines.append([(" " * LABEL, MUTED), (text, MUTED)])
    elif values:
        # Nearest rank: a percentile is a value that was measured.
        ranks = (values[0], values[(len(values) - 1) // 2], values[-(-99 * len(values) // 100) - 1])
        unit = one_line(attempts[-1].unit, 10)
        texts = spoken_texts(ranks, unit)
        text = "  ".join(f"{name} {value}" for name, value in zip(("min", "median", "p99"), texts, strict=True))
        lines.append([(" " * LABEL, MUTED), (text, MUTED)])
    return lines


def bad_trend(model: Model, glyphs: Glyphs) -> list[Part]:
    """Return the number of bad pairs since watching began as a graph, or nothing; the verdict has the number."""
    points = model.turns.bad_over_time(model.now, TREND_WIDTH)
    if not points:
        return []
    blocks = glyphs.blocks
    most = max(1, *points)
    graph = "".join(blocks[-(-number * (len(blocks) - 1) // most)] for number in points)
    style = "$warning" if points[-1] else "$primary"
    return [("bad ", MUTED), (graph, style)]
