"""Rows of cells as glyphs, and histories as sparklines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs, Slot, ratio, slot_of
from fabtui.presentation.wording import CELL, MUTED, Part, verdict_tone

BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN_BLOCKS = "_.-:=+*#"
_WITHOUT_RESULT = (Verdict.UNTESTED, Verdict.SKIPPED)


def cell_glyph(model: Model, layer: Layer, src: int, dst: int, glyphs: Glyphs) -> Part:
    """Return the glyph of a cell in the style of its verdict; a blank if it was not tested."""
    cell = model.cell(layer, src, dst)
    if cell.running:
        return glyphs.of_slot[Slot.RUNNING], "bold $accent"
    if cell.measurement is None:
        return " ", MUTED
    share = None
    if cell.value is not None:
        share = ratio(layer, cell.value, model.usual(cell.measurement))
    slot = slot_of(cell.verdict, share)
    return glyphs.of_slot[slot], f"{CELL}{slot.key}"


def cells_strip(model: Model, layer: Layer, cells: Iterable[tuple[int, int]], glyphs: Glyphs) -> list[Part]:
    """Return cells as a row of glyphs, with a blank between nodes."""
    parts: list[Part] = []
    nodes: tuple[str, str] | None = None
    for src, dst in cells:
        here = model.endpoints[src].node, model.endpoints[dst].node
        if nodes is not None and here != nodes:
            parts.append((" ", ""))
        nodes = here
        parts.append((glyphs.of_slot[Slot.DIAGONAL], "") if src == dst else cell_glyph(model, layer, src, dst, glyphs))
    return merged(parts)


def sparkline(model: Model, history: Sequence[Measurement], glyphs: Glyphs, most: int = 32) -> list[Part]:
    """Return the latest attempts, oldest first: a bar for a value (full height: usual value), else a glyph."""
    blocks = PLAIN_BLOCKS if glyphs.plain else BLOCKS
    parts: list[Part] = []
    for one in history[-most:]:
        verdict = model.verdict(one)
        if verdict in _WITHOUT_RESULT:
            continue
        style = verdict_tone(verdict)
        if one.value is None:
            parts.append((glyphs.of_slot[slot_of(verdict, None)], style))
            continue
        share = ratio(one.layer, one.value, model.usual(one))
        height = 1.0 if share is None else min(1.0, max(0.0, share))
        parts.append((blocks[round(height * (len(blocks) - 1))], style))
    return merged(parts)


def merged(parts: Iterable[Part]) -> list[Part]:
    """Join neighbouring parts of one style."""
    found: list[Part] = []
    for text, style in parts:
        if found and found[-1][1] == style:
            found[-1] = (found[-1][0] + text, style)
        else:
            found.append((text, style))
    return found
