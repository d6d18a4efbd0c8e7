"""Values over time: of the selected pair for the side panel, and bad pairs while watching for the title."""

from __future__ import annotations

from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.numbers import spoken_texts
from fabtui.presentation.wording import MUTED, Part, clock_text
from fabtui.sanitize import one_line
from fabtui.screen.widgets.sparkline import BLOCKS, PLAIN_BLOCKS, sparkline

#: Number of latest attempts in the side panel.
_ATTEMPTS = 24
#: Width of the graph of bad pairs, and the minimum room for it.
TREND_WIDTH = 12


def pair_trend(model: Model, src: str, dst: str, glyphs: Glyphs) -> list[list[Part]]:
    """Return the attempts at a pair as a graph, with minimum, median and 99th percentile; nothing for one attempt."""
    attempts = model.history(Layer.P2P, src, dst)
    if attempts and attempts[-1].asked_bytes is not None:
        attempts = [one for one in attempts if one.asked_bytes in (None, attempts[-1].asked_bytes)]
    if len(attempts) < 2:
        return []
    span = clock_text(attempts[-1].time - attempts[-_ATTEMPTS:][0].time)
    graph = sparkline(model, attempts, glyphs, _ATTEMPTS)
    lines: list[list[Part]] = [[("trend   ", MUTED), *graph, (f"  {len(attempts[-_ATTEMPTS:])} in {span}", MUTED)]]
    values = sorted(one.value for one in attempts if one.value is not None)
    if values:
        # Nearest rank: a percentile is a value that was measured.
        ranks = (values[0], values[(len(values) - 1) // 2], values[-(-99 * len(values) // 100) - 1])
        unit = one_line(attempts[-1].unit, 10)
        texts = spoken_texts(ranks, unit)
        text = "  ".join(f"{name} {value}" for name, value in zip(("min", "median", "p99"), texts, strict=True))
        lines.append([("        ", MUTED), (text, MUTED)])
    return lines


def bad_trend(model: Model, glyphs: Glyphs) -> list[Part]:
    """Return the number of bad pairs since watching began as a graph with the current number, or nothing."""
    points = model.turns.bad_over_time(model.now, TREND_WIDTH)
    if not points:
        return []
    blocks = PLAIN_BLOCKS if glyphs.plain else BLOCKS
    most = max(1, *points)
    graph = "".join(blocks[-(-number * (len(blocks) - 1) // most)] for number in points)
    style = "$warning" if points[-1] else "$primary"
    return [("bad ", MUTED), (graph, style), (f" {points[-1]}  ", f"bold {style}")]
