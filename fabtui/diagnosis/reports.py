"""A cause as it is told."""

from __future__ import annotations

from typing import NamedTuple


class Cause(NamedTuple):
    """Something that is wrong, or worth a word.

    Attributes:
        verdict: ``bad``, ``warn`` or ``note``.
        title: What it is, on one line.
        cells: The ordered pairs of endpoints it explains.
        evidence: What says so, a line each.
        next: Commands that look further, ready to be typed.
        more: What counts for its weight besides its cells.
    """

    verdict: str
    title: str
    cells: frozenset[tuple[str, str]] = frozenset()
    evidence: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    more: int = 0

    @property
    def count_text(self) -> str:
        """How many cells it explains, or ""."""
        count = len(self.cells)
        return f"{count} cell{'s' if count != 1 else ''}" if count else ""
