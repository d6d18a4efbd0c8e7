"""Text of published bandwidths beside measured ones: a note, never a verdict."""

from __future__ import annotations

from typing import Any

from fabtui.diagnosis.knowledge.published_ranges import PublishedComparison, PublishedRange, published
from fabtui.model.layers import COLLECTIVES
from fabtui.model.session_model import Model
from fabtui.presentation.numbers import size_text, value_text
from fabtui.sanitize import one_line

_WORDS = {"nvls": "with NVLS", "ring": "without NVLS"}


def published_text(comparison: PublishedComparison) -> str:
    """Return a measured collective beside the published values, with their message size and sources."""
    measured, where, ends, rows = comparison
    value, size, nics = measured.value, measured.asked_bytes or 0, rows[0].nics
    algorithm = str((measured.extra or {}).get("algorithm") or "").lower()
    what = f"{len(ends)} x {rows[0].gpu}"
    if (nodes := len({end.node for end in ends})) > 1:
        what += f" on {nodes} nodes" + (f" with {nics[0]} x {nics[1]} Gb/s" if nics else "")
    shown = "-" if value is None else value_text(value)
    text = f"{shown} GB/s over {one_line(where, 80)}: published for {what}: {', '.join(map(_part, rows))}"
    if any(row.algorithm for row in rows) and algorithm:
        text += f"; NVLS was {'used' if algorithm.startswith('nvls') else 'not used'}"
    least = min((row.bytes for row in rows if row.bytes), default=0)
    if size < least:
        text += f"; these are from {size_text(least)} on, this is {size_text(size)}"
    return f"{text} ({'; '.join(dict.fromkeys(row.source for row in rows))})"


def as_json(model: Model) -> list[dict[str, Any]]:
    """Return the measured collectives beside published values as JSON objects, bandwidths in GB/s."""
    return [
        {
            "collective": kind,
            "over": comparison.where,
            "bytes": comparison.measured.asked_bytes,
            "busbw": comparison.measured.value,
            "text": published_text(comparison),
            "ranges": [
                {"low": row.busbw[0], "high": row.busbw[1], "bytes": row.bytes or None}
                | {"source": row.source, "date": row.date, "algorithm": row.algorithm or None}
                for row in comparison.rows
            ],
        }
        for kind in COLLECTIVES
        for comparison in published(model, kind)
    ]


def _part(row: PublishedRange) -> str:
    low, high = map(value_text, row.busbw)
    words = [low if low == high else f"{low} to {high}", "GB/s", _WORDS.get(row.algorithm, "")]
    return " ".join(filter(None, [*words, "" if row.bytes else "at an unknown size"]))
