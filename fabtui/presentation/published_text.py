"""Text of published bandwidths beside measured ones: a note, never a verdict."""

from __future__ import annotations

from typing import Any

from fabtui.diagnosis.knowledge.published_ranges import PublishedComparison, PublishedRange, published
from fabtui.model.layers import COLLECTIVES
from fabtui.model.session_model import Model
from fabtui.presentation.numbers import size_text, value_text
from fabtui.sanitize import one_line

_WORDS = {"nvls": "with NVLS", "ring": "without NVLS"}


def published_text(one: PublishedComparison) -> str:
    """Return a measured collective beside the published values, with their message size and sources."""
    rows = one.rows
    parts = [_part(row) for row in rows]
    nics = rows[0].nics
    what = f"{one.gpus} x {one.gpu}"
    if one.nodes > 1:
        what += f" on {one.nodes} nodes" + (f" with {nics[0]} x {nics[1]} Gb/s" if nics else "")
    value = "-" if one.measured.value is None else value_text(one.measured.value)
    text = f"{value} GB/s over {one_line(one.where, 80)}: published for {what}: {', '.join(parts)}"
    if any(row.algorithm for row in rows) and (used := one.nvls_used) is not None:
        text += f"; NVLS was {'used' if used else 'not used'}"
    least = min((row.bytes for row in rows if row.bytes is not None), default=0)
    if (one.measured.asked_bytes or 0) < least:
        text += f"; these are from {size_text(least)} on, this is {size_text(one.measured.asked_bytes or 0)}"
    return f"{text} ({'; '.join(dict.fromkeys(row.source for row in rows))})"


def as_json(model: Model) -> list[dict[str, Any]]:
    """Return the measured collectives beside published values as JSON objects, bandwidths in GB/s."""
    return [
        {
            "collective": kind,
            "over": one.where,
            "bytes": one.measured.asked_bytes,
            "busbw": one.measured.value,
            "text": published_text(one),
            "ranges": [_row(row) for row in one.rows],
        }
        for kind in COLLECTIVES
        for one in published(model, kind)
    ]


def _row(row: PublishedRange) -> dict[str, Any]:
    names = ("low", "high", "bytes", "source", "date")
    return {**{name: getattr(row, name) for name in names}, "algorithm": row.algorithm or None}


def _part(row: PublishedRange) -> str:
    low, high = value_text(row.low), value_text(row.high)
    words = [low if low == high else f"{low} to {high}", "GB/s"]
    if row.algorithm in _WORDS:
        words.append(_WORDS[row.algorithm])
    if row.bytes is None:
        words.append("at an unknown size")
    return " ".join(words)
