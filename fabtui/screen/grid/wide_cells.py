"""Texts of wide and tall cells: value, share of the usual value as a bar, transport, attempts."""

from __future__ import annotations

from functools import lru_cache

from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Cell
from fabtui.presentation.cell_levels import MARKED, Glyphs, Slot, full_number, full_value, transport_of
from fabtui.presentation.numbers import percent_text, spoken

#: Minimum width for a verdict in words instead of a glyph.
WIDE = 7
#: Minimum width for a value with its unit.
_UNIT_FROM = 10
#: Minimum length of a bar beside another text.
_SHORTEST_BAR = 2
_USUAL = percent_text(1.0)
_WORDS = {
    Slot.SLOW: "slow",
    Slot.TIMEOUT: "timeout",
    Slot.FAILED: "failed",
    Slot.INCONCLUSIVE: "unclear",
    Slot.SKIPPED: "skipped",
    Slot.RUNNING: "running",
    Slot.GONE: "gone",
    Slot.UNTESTED: "",
}


def first_line(layer: Layer, slot: Slot, cell: Cell, width: int, glyphs: Glyphs) -> str:
    """Return the value of a cell with its unit and a mark, or its verdict; "" if neither fits."""
    mark = glyphs.of_slot[Slot.RUNNING] if cell.running else glyphs.of_slot[slot] if slot in MARKED else ""
    text = _value(layer, cell, width)
    if text:
        return text + mark if len(text) < width else text
    word = _WORDS.get(slot, str(cell.verdict))
    glyph = mark or glyphs.of_slot[slot]
    named = [f"{glyph} {word}"] if glyph.strip() and word else []
    return next((text for text in (*named, word, glyph) if len(text) <= width), "")


def _value(layer: Layer, cell: Cell, width: int) -> str:
    if layer is Layer.TRANSPORT:
        path = "".join(c for c in cell.text if " " <= c <= "~")
        return path if len(path) <= width else path.rsplit("/", 1)[-1][:width]
    if cell.value is None:
        return ""
    number = full_value(cell.value, cell.unit)
    value, unit = spoken(cell.value, cell.unit)
    named = f"{full_number(value)} {unit}"
    return named if width >= _UNIT_FROM and len(named) < width else number if len(number) <= width else ""


def lines_below(
    layer: Layer, cell: Cell, share: float | None, kind: str, size: tuple[int, int], glyphs: Glyphs
) -> list[str]:
    """Return the lines of a cell below its value, at most ``size[1]`` of ``size[0]`` characters, not yet padded.

    ``kind`` is the class of the pair, of whose usual value ``share`` is a part.
    """
    width, most = size
    room = width - 2
    measured = cell.measurement
    if measured is None or layer is Layer.TRANSPORT:
        return []
    if layer is Layer.HEALTH:
        # The layer that is bad.
        return [] if cell.verdict is Verdict.OK else [str(measured.layer)[:width]]
    slot, short = transport_of(measured.transport) if measured.transport else (Slot.PAD, "")
    if share is None:
        return [short]
    names = (short, glyphs.of_slot[slot] if short else "", "")
    percent = percent_text(share)
    if most == 1:
        name = next(name for name in names if not name or len(name) + 1 + _SHORTEST_BAR <= room)
        return [f"{share_bar(share, room - len(name) - 1, glyphs)} {name}" if name else share_bar(share, room, glyphs)]
    if most == 2:
        # What has no room beside 100 % is left out of all cells, rather than shown in some of them.
        name = next(name for name in names if not name or len(f"{_USUAL} {name}") < width)
        shares = [f"{percent} {name}".rstrip(), percent]
    else:
        shares = [f"{percent} of {kind}", percent]
    lines = [share_bar(share, room, glyphs), next((text for text in shares if len(text) < width), ""), short]
    if measured.attempts > 1 and len(tests := f"{measured.attempts} tests") <= width:
        lines.append(tests)
    return lines[:most]


def share_bar(share: float, width: int, glyphs: Glyphs) -> str:
    """Return a bar of a share of 1; more than nothing is at least half a character."""
    return _bar(min(2 * width, max(1 if share > 0 else 0, round(2 * width * share))), width, glyphs.share)


@lru_cache(512)
def _bar(halves: int, width: int, characters: tuple[str, str, str]) -> str:
    full, half, rest = characters
    return (full * (halves // 2) + half * (halves % 2)).ljust(width, rest)
