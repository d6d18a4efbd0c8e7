"""Headings of a table on a line: where each stands, and which one is at a place."""

from __future__ import annotations

from collections.abc import Sequence

#: Start and end of a heading on its line, and the number of its column.
Span = tuple[int, int, int]


def heading_at(spans: Sequence[Span], x: int) -> int | None:
    """Return the column whose heading is at a place of the line of headings, or None."""
    return next((at for begin, end, at in spans if begin <= x < end), None)
