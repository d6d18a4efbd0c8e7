"""Timers of a training job over time: a row per rank, with a lane for each group of timers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fabtui.pictures.scene import CHARACTER, CURVES, LINE, Box, Item, Line, Scene, Text, label
from fabtui.presentation.numbers import value_text
from fabtui.sanitize import one_line

#: Groups of timers in the order of their lanes; those of Megatron-LM that compute are named.
GROUPS = ("compute", "communication", "collectives", "rest")
_COMPUTE = frozenset({"forward-compute", "backward-compute", "optimizer"})
#: Timers around others.
_AROUND = frozenset({"forward-backward", "interval-time"})
_COLLECTIVE = re.compile(r"reduce|gather|scatter|broadcast|all-?to-?all|sync")
_SEND = re.compile(r"send|recv")
#: Width of the times, and space around them.
_WIDTH, _LEFT, _TOP, _EDGE = 860, 64, 74, 16
#: Heights of a lane by the largest number of ranks drawn with it; of more ranks, the slowest are drawn.
_LANES = {32: 6.0, 64: 4.0, 128: 2.5, 256: 1.5}
#: Largest numbers of boxes with a title, and of their filled parts; beyond them, those close to each other are joined.
_MOST_BOXES, _MOST_PARTS = 2_500, 10_000

#: Rank, and number of the group.
_Lane = tuple[int, int]


class _Span(NamedTuple):
    """A time of a timer within a lane (s)."""

    start: float
    end: float
    timers: tuple[str, ...]


_Lanes = Mapping[_Lane, Sequence[_Span]]


def group_of(timer: str) -> str:
    """Return the group of a timer: compute, communication (send and receive), collectives, or rest."""
    if timer in _COMPUTE:
        return "compute"
    return "communication" if _SEND.search(timer) else "collectives" if _COLLECTIVE.search(timer) else "rest"


def timeline_scene(rows: Sequence[Mapping[str, Any]]) -> Scene:
    """Return the timers of ranks; without starts, the total of each timer, one after the other.

    Rows of Megatron-LM have ``rank``, ``timer``, ``spent`` (ms), ``starts`` and ``ends`` (s).
    """
    timed = any(row["starts"] for row in rows)
    inner = [row for row in rows if row["timer"] not in _AROUND] or list(rows)
    ranks, total = _chosen(inner)
    lanes: dict[_Lane, list[_Span]] = {}
    for row in inner:
        if row["rank"] in ranks:
            spans = lanes.setdefault((row["rank"], GROUPS.index(group_of(row["timer"]))), [])
            spans += _spans(row, spans, timed)
    every = [span for spans in lanes.values() for span in spans]
    first = min((span.start for span in every), default=0.0)
    length = max((span.end for span in every), default=0.0) - first or 1.0
    height = next((lane for most, lane in _LANES.items() if len(ranks) <= most), 1.0)
    pitch = height * len(GROUPS) + max(2.0, height / 2)
    bottom = math.ceil(_TOP + pitch * len(ranks))
    gap, lanes = _bounded(lanes, length, _MOST_PARTS)
    apart, _ = _bounded(lanes, length, _MOST_BOXES)
    what = "totals of timers, not their order"
    if timed:
        what = "start and end by the clocks of the nodes" + (f"; gaps below {_seconds(gap)} are closed" if gap else "")
    scene = Scene(_LEFT + _WIDTH + _EDGE, bottom + 40, f"training timeline of {len(ranks)} of {total} ranks: {what}")
    scene.items += _head(len(ranks), total, what)
    scene.items += _axis(length, bottom)
    for at, rank in enumerate(ranks):
        y = _TOP + at * pitch
        if at % math.ceil(10 / pitch) == 0:
            scene.items.append(Text(_LEFT - 6, y + pitch / 2 + 3, str(rank), anchor="end"))
        scene.items.append(Line([(_LEFT, y), (_LEFT + _WIDTH, y)], "rule", 0.5))
    for (rank, group), spans in lanes.items():
        y = _TOP + ranks.index(rank) * pitch + group * height + height / 4
        for run in _runs(spans, apart):
            title = f"rank {rank}, {GROUPS[group]}, {_seconds(sum(span.end - span.start for span in run))}"
            names = ", ".join(map(label, dict.fromkeys(name for span in run for name in span.timers)))
            since = f" from {_seconds(run[0].start - first)}" if timed else ""
            x, *starts = ((span.start - first) / length * _WIDTH for span in (run[0], *run))
            widths = [max((span.end - span.start) / length * _WIDTH, 0.2) for span in run]
            parts = [(start - x, width) for start, width in zip(starts, widths, strict=True)]
            text = one_line(f"{title}{since}: {names}", 160)
            scene.items.append(Box(_LEFT + x, y, sum(parts[-1]), height, CURVES[group], text, parts))
    return scene


def _chosen(rows: Sequence[Mapping[str, Any]]) -> tuple[list[int], int]:
    times: dict[int, float] = {}
    for row in rows:
        times[row["rank"]] = times.get(row["rank"], 0.0) + row["spent"]
    slowest = sorted(times, key=lambda rank: (-times[rank], rank))
    return sorted(slowest[: max(_LANES)]), len(times)


def _spans(row: Mapping[str, Any], before: Sequence[_Span], timed: bool) -> Iterator[_Span]:
    if timed:
        times = zip(row["starts"], row["ends"], strict=True)
        yield from (_Span(start, max(start, end), (row["timer"],)) for start, end in times)
    else:
        start = before[-1].end if before else 0.0
        yield _Span(start, start + row["spent"] / 1000, (row["timer"],))


def _bounded(spans_of: _Lanes, length: float, most: int) -> tuple[float, dict[_Lane, list[_Span]]]:
    gap = 0.0
    while True:
        closed = {lane: [_closed(run) for run in _runs(spans, gap)] for lane, spans in spans_of.items()}
        if sum(map(len, closed.values())) <= most:
            return gap, closed
        gap = 2 * gap or length / _WIDTH / 16


def _runs(spans: Sequence[_Span], gap: float) -> list[list[_Span]]:
    """Return spans in the order of their starts, those with smaller gaps between them together."""
    found: list[list[_Span]] = []
    for span in sorted(spans):
        if found and span.start - found[-1][-1].end < gap:
            found[-1].append(span)
        else:
            found.append([span])
    return found


def _closed(run: Sequence[_Span]) -> _Span:
    timers = dict.fromkeys(name for span in run for name in span.timers)
    return _Span(run[0].start, max(span.end for span in run), tuple(timers))


def _head(ranks: int, total: int, what: str) -> Iterator[Item]:
    yield Text(_EDGE, 24, "training timeline: time by rank", bold=True)
    slowest = "" if ranks == total else f"; the {ranks} ranks with the longest times of {total}"
    yield Text(_EDGE, 24 + LINE, f"last printed block: {what}{slowest}", "muted")
    x = float(_LEFT)
    for at, name in enumerate(GROUPS):
        yield Box(x, 24 + 2 * LINE - 8, 10, 10, CURVES[at])
        text = f"{name} (lane {at + 1})"
        yield Text(x + 14, 24 + 2 * LINE + 1, text)
        x += (len(text) + 5) * CHARACTER


def _axis(length: float, bottom: int) -> Iterator[Item]:
    step = 10 ** math.floor(math.log10(length / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if length / (step * factor) <= 10)
    for at in range(int(length / step + 1e-9) + 1):
        x = _LEFT + at * step / length * _WIDTH
        yield Line([(x, _TOP), (x, bottom)], "rule", 0.5)
        yield Text(x, bottom + 14, f"{at * step:g}", "ink", "middle")
    yield Text(_LEFT + _WIDTH / 2, bottom + 30, "s", "muted", "middle")
    yield Text(_EDGE, _TOP - 6, "rank", "muted")


def _seconds(value: float) -> str:
    return f"{value_text(1000 * value)} ms" if value < 1 else f"{value_text(value)} s"
