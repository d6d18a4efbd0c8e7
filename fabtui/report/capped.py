"""Lists that a summary cuts short."""

from __future__ import annotations

from collections.abc import Sequence

#: Lines of one list; the rest is counted.
MOST_LINES = 60


def capped(
    head: list[str],
    lines: Sequence[str],
    what: str,
    most: int = MOST_LINES,
    where: str = "--csv and --json have them all",
) -> list[str]:
    """Return the lines behind their head; of too many the first, how many more there are, and where those are."""
    kept = list(lines)
    if len(kept) > most:
        kept = [*kept[:most], f"  and {len(kept) - most} more {what}; {where}"]
    return head + kept
