"""Bus bandwidth over message size, one curve per group of ranks, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeGuard

from fabtui.export.collectives_table import CollectiveRow, table_rows
from fabtui.model.session_model import Model
from fabtui.pictures.scene import CHARACTER, CURVES, LINE, Item, Line, Scene, Text, label
from fabtui.presentation.numbers import size_text, value_text

#: Marks of curves, so that they differ without colour.
_MARKS = "ox+*#@%&"
#: Size of the area of curves, and space around it.
_WIDTH, _HEIGHT, _LEFT, _TOP, _EDGE = 560, 260, 64, 58, 16
#: Range of values (GB/s) that are drawn: others are not measurements.
_LEAST, _GREATEST = 1e-9, 1e9
#: Width of the legend on the right (characters).
_NAME = 34


class _Curve(NamedTuple):
    """A group of ranks: its points (bytes, GB/s) by size, and the sizes that did not pass."""

    name: str
    points: list[tuple[int, float]]
    failed: list[int]


def busbw_scene(model: Model) -> Scene:
    kinds: dict[str, dict[tuple[str, str | None], list[CollectiveRow]]] = {}
    for row in table_rows(model):
        if row.bytes and row.bytes > 0:
            kinds.setdefault(row.kind, {}).setdefault((row.group, row.arm), []).append(row)
    width = _LEFT + _WIDTH + _EDGE + _NAME * CHARACTER
    names = ", ".join(f"{kind} of {len(groups)} groups" for kind, groups in kinds.items())
    scene = Scene(width, 0, f"busbw in GB/s over message size: {names or 'no results'}")
    for kind, groups in kinds.items():
        curves = [_curve(group, arm, rows) for (group, arm), rows in groups.items()]
        scene.items += _plot(kind, curves, scene.height)
        scene.height += _TOP + _HEIGHT + 40
    if not kinds:
        scene.items.append(Text(_EDGE, 24, "no collective was measured", "muted"))
    scene.height += _EDGE if kinds else 40
    return scene


def _curve(group: str, arm: str | None, rows: Sequence[CollectiveRow]) -> _Curve:
    ranks = next((f", {row.ranks} ranks" for row in rows if row.ranks), "")
    name = label(group + ranks + (f", {arm}" if arm else ""), _NAME - 3)
    points = [(row.bytes, row.busbw) for row in rows if row.bytes and _drawable(row.busbw)]
    return _Curve(name, points, [row.bytes for row in rows if row.bytes and not _drawable(row.busbw)])


def _drawable(value: float | None) -> TypeGuard[float]:
    return value is not None and _LEAST <= value <= _GREATEST


def _chosen(curves: list[_Curve]) -> list[_Curve]:
    if len(curves) <= len(CURVES):
        return curves
    slowest = sorted(curves[1:], key=lambda curve: curve.points[-1][1] if curve.points else 0.0)
    named = [curves[0], *slowest[: len(CURVES) - 1]]
    return [curve for curve in curves if curve in named]


def _plot(kind: str, curves: list[_Curve], y: int) -> Iterator[Item]:
    sizes = [size for curve in curves for size in (*(size for size, _ in curve.points), *curve.failed)]
    values = [value for curve in curves for _, value in curve.points] or [1.0]
    across = _Axis(math.log2(min(sizes)), math.log2(max(sizes)), _LEFT, _LEFT + _WIDTH)
    low, high = 10 ** math.floor(math.log10(min(values))), max(values) * 1.15
    upwards = _Axis(math.log2(low), math.log2(high), y + _TOP + _HEIGHT, y + _TOP)
    yield Text(_EDGE, y + 24, f"{kind}: bus bandwidth by message size", bold=True)
    about = "GB/s (1e9 bytes per second), busbw as nccl-tests defines it; both axes logarithmic"
    yield Text(_EDGE, y + 24 + LINE, about, "muted")
    yield from _grid(across, upwards, low, high)
    chosen = _chosen(curves)
    for curve in curves:
        if curve not in chosen and len(curve.points) > 1:
            yield Line([(across.at(size), upwards.at(value)) for size, value in curve.points], "rule", 1)
    for at, curve in enumerate(chosen):
        color, mark = CURVES[at], _MARKS[at]
        points = [(across.at(size), upwards.at(value)) for size, value in curve.points]
        if len(points) > 1:
            yield Line(points, color, 1.5)
        yield from (Text(x, height + 3.5, mark, color, "middle", bold=True) for x, height in points)
        for size in curve.failed:
            yield Text(across.at(size), y + _TOP + _HEIGHT - 4, "X", color, "middle", bold=True)
        line = y + _TOP + 8 + at * LINE
        yield Text(_LEFT + _WIDTH + _EDGE, line, mark, color, bold=True)
        yield Text(_LEFT + _WIDTH + _EDGE + 2 * CHARACTER, line, curve.name)
    below = y + _TOP + 8 + (len(chosen) + 1) * LINE
    notes = [f"grey: {len(curves) - len(chosen)} faster groups"] if len(chosen) < len(curves) else []
    notes += ["X at the bottom: not passed"] if any(curve.failed for curve in chosen) else []
    yield from (Text(_LEFT + _WIDTH + _EDGE, below + at * LINE, note, "muted") for at, note in enumerate(notes))


class _Axis(NamedTuple):
    """Mapping of the binary logarithm of a number to pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        if self.high <= self.low:
            return (self.start + self.end) / 2
        return self.start + (self.end - self.start) * (math.log2(value) - self.low) / (self.high - self.low)


def _grid(across: _Axis, upwards: _Axis, low: float, high: float) -> Iterator[Item]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    few = high / low < 50
    ticks = [step * 10.0**decade for decade in decades for step in ((1, 2, 5) if few else (1,))]
    for value in ticks:
        if low <= value <= high:
            height = upwards.at(value)
            yield Line([(across.start, height), (across.end, height)], "rule", 0.5)
            yield Text(across.start - 6, height + 3.5, value_text(value), anchor="end")
    powers = range(math.ceil(across.low), math.floor(across.high) + 1)
    every = max(1, math.ceil(len(powers) / 8))
    # A single size need not be a power of two.
    sizes = [2**power for power in powers if power % every == 0] or [round(2**across.low)]
    for size in sizes:
        x = across.at(size)
        yield Line([(x, upwards.start), (x, upwards.end)], "rule", 0.5)
        yield Text(x, upwards.start + 16, size_text(size), anchor="middle")
    frame = [(across.start, upwards.end), (across.start, upwards.start), (across.end, upwards.start)]
    yield Line(frame, "muted")
