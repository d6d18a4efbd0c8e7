"""Sentences about an order of nodes."""

from __future__ import annotations

from fabtui.diagnosis.rank_order import Hop, RankOrder
from fabtui.nodeset import count
from fabtui.presentation.numbers import spoken_text, spoken_texts
from fabtui.sanitize import one_line


def order_lines(order: RankOrder, ring: bool) -> list[str]:
    """Return what the order gains, and how much of it is unknown: ``slowest neighbour 4.10 -> 9.80 GB/s``."""
    shape = "ring" if ring else "pipeline"
    before, after = order.before, order.after
    if before is None or after is None:
        return [f"{shape} in the given order: the bandwidth of no neighbours is known"]
    if after is before:
        lines = [f"slowest neighbour {_text(before)} ({_pair(before)}) in the given order; no better {shape} was found"]
    else:
        values = [_text(before), _text(after)]
        if before.value and after.value:
            values = spoken_texts([before.value, after.value], "GB/s")
        lines = [
            f"slowest neighbour {values[0]} -> {values[1]} ({_pair(before)} before, {_pair(after)} in this {shape})"
        ]
    if order.unknown:
        lines.append(f"{count(order.unknown, 'pair')} of neighbours was not tested")
    return lines


def _text(hop: Hop) -> str:
    return spoken_text(hop.value, "GB/s") if hop.value else "without a path"


def _pair(hop: Hop) -> str:
    return f"{one_line(hop.source)} - {one_line(hop.destination)}"
