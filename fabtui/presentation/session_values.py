"""Values of a whole session: what was proven, ranges, the slowest pairs, and how watching goes."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from typing import NamedTuple

from fabtui.history.file import usual_name
from fabtui.model.cell_level import ratio
from fabtui.model.endpoints import PairClass
from fabtui.model.layers import COLLECTIVES, Layer
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model
from fabtui.nodeset import count
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.numbers import percent_text, spoken_texts
from fabtui.presentation.wording import MUTED, clock_text, measured_text, time_text
from fabtui.presentation.wrapping import Line, Lines, clipped, stacked
from fabtui.sanitize import one_line

#: Maximum number of endpoints whose pairs are all read, which takes 10 ms then.
MOST_ENDPOINTS = 64
#: Number of slowest pairs, width of labels, and the time (s) over which watching is summed up.
_SLOWEST, _LABEL, HOUR = 10, 10, 3600.0
_SHOWN_NAME = 24


class SessionValues(NamedTuple):
    """Values of the pairs of a session."""

    layer: Layer
    pairs: int  #: Number of ordered pairs with a value.
    slowest: list[tuple[float, Measurement]]  #: Share of the usual value and measurement, the lowest first.
    latest: Measurement | None  #: The latest one.
    transports: Counter[str]  #: Number of pairs by transport.


def session_values(model: Model) -> SessionValues | None:
    """Return the values of the layer that shows pairs best; None without one, or for too many pairs to be read."""
    layer = next((one for one in (Layer.P2P, Layer.WORLD, Layer.PING) if one in model.layers), None)
    if layer is None or len(model.endpoints) > MOST_ENDPOINTS:
        return None
    latest = {(m.src, m.dst, m.src_addr, m.dst_addr): m for m in model.measurements(layer) if m.value is not None}
    shares = [
        (share, at, m) for at, m in enumerate(latest.values()) if (share := ratio(layer, m.value, model.usual(m)))
    ]
    slowest = [(share, m) for share, _, m in heapq.nsmallest(_SLOWEST, shares)]
    transports = Counter("/".join(one_line(m.transport, 40).split("/")[:2]) for m in latest.values() if m.transport)
    last = max(latest.values(), key=lambda m: m.time, default=None)
    return SessionValues(layer, len(latest), slowest, last, transports)


def healthy_lines(model: Model, values: SessionValues, width: int, keys: bool) -> Lines:
    """Return what a session without a finding has proven, its ranges, what was usual last time, and what is next."""
    paths = ", ".join(f"{number} over {name}" for name, number in values.transports.most_common(2))
    proven = [f"{count(values.pairs, 'pair')}, each way"] + ([paths] if paths else [])
    layer = COLLECTIVES["all_reduce"]
    groups = [m for m in model.measurements(layer) if m.value is not None] if layer in model.layers else []
    if groups and (best := max(groups, key=lambda m: (m.bytes or 0, m.value or 0.0))).value is not None:
        proven.append(f"all_reduce {measured_text(best)}")
    rows = {"PROVEN": proven, "RANGE": _ranges(model, values), "AGAINST": _against(model, values.layer)}
    if keys:
        rows["NEXT"] = ["w keeps watching", "e writes a CSV", "E a page for the ticket"]
    lines: list[Line] = [[(f"{name:<{_LABEL}}", "bold"), ("; ".join(own), "")] for name, own in rows.items() if own]
    return stacked(lines, width, _LABEL)


def _ranges(model: Model, values: SessionValues) -> list[str]:
    found = []
    for kind in PairClass:
        own = model.results.values(values.layer, kind)
        if own is not None and len(own) and kind is not PairClass.ALL and own.lowest is not None:
            ends = [own.lowest] if own.highest in (None, own.lowest) else [own.lowest, own.highest]
            found.append(f"{str(kind).replace('-', ' ')} {' to '.join(spoken_texts(ends, values.layer.spec.unit))}")
    return found


def _against(model: Model, layer: Layer) -> list[str]:
    if model.past is None:
        return []
    changes = []
    when = 0.0
    for kind, value in model.medians(layer).items():
        started, then = model.past.usual.get(usual_name(model, layer, kind), (0.0, 0.0))
        if then > 0 and kind is not PairClass.ALL:
            when = started
            share = value / then
            same = abs(share - 1) < 0.05
            changes.append(f"{str(kind).replace('-', ' ')} {'the same within 5 %' if same else percent_text(share)}")
    date = time.strftime("%d %b %H:%M", time.localtime(when))
    return [f"the session of {date}: {', '.join(changes)}"] if changes else []


def watch_lines(model: Model, values: SessionValues, now: float, width: int, glyphs: Glyphs) -> Lines:
    rows = []
    if (last := values.latest) is not None:
        ago = f"{clock_text(max(0.0, now - last.time))} ago"
        rows.append(("retested", f"{_name(last)}  {measured_text(last)}", ago))
    # Round trips vary by themselves, and their changes are not noted.
    if not values.layer.spec.by_address:
        recent = [(share, m) for share, m in values.slowest if now - m.time < HOUR]
        for share, m in recent[:1]:
            rows.append(("slowest", _name(m), f"{percent_text(share)} of usual, in the last hour"))
        worse = sum(turn.after.bad and now - turn.time < HOUR for turn in model.turns.latest)
        rows.append(("went bad", count(worse, "time"), "in the last hour"))
    lines: list[Line] = [[(f"{name:<{_LABEL}}", MUTED), (text, ""), (f"  {note}", MUTED)] for name, text, note in rows]
    return [clipped(line, width, glyphs.ellipsis) for line in lines]


def _name(m: Measurement) -> str:
    return f"{one_line(m.src, _SHOWN_NAME)} > {one_line(m.dst, _SHOWN_NAME)}"


def column_lines(
    model: Model, values: SessionValues | None, trend: Line, size: tuple[int, int], glyphs: Glyphs
) -> Lines:
    """Return the third column of a wide screen: the slowest pairs, the trend of bad ones, and the log."""
    width, height = size
    lines: Lines = []
    if values is not None and values.slowest:
        lines.append([("SLOWEST OF THEIR CLASS", "bold")])
        lines += [
            [(f"{percent_text(share):>6}  ", "bold"), (_name(m), ""), (f"  {measured_text(m)}", MUTED)]
            for share, m in values.slowest
        ]
        lines.append([])
    if trend:
        lines += [[("TREND", "bold")], trend, []]
    log: Lines = []
    for one in list(model.log)[-height:]:
        node = f"{one_line(one.node, _SHOWN_NAME)} " if one.node else ""
        log += stacked([[(f"{time_text(one.time)} ", MUTED), (f"{node}{one_line(one.text, 300)}", "")]], width, 9)
    lines = [clipped(line, width, glyphs.ellipsis) for line in lines]
    return [*lines, [("LOG", "bold")], *log[-max(1, height - len(lines) - 1) :]]
