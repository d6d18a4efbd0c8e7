"""Numbers for people: three digits that count."""

from __future__ import annotations


def value_text(value: float | None) -> str:
    """Return a value with three digits that count: ``351``, ``46.1``, ``1.23``, ``0.045``; ``-`` for None."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.0995 or size == 0:
        return f"{value:.2f}"
    if size >= 0.00095:
        return f"{value:.3f}"
    return f"{value:.1e}"


def size_text(count: int) -> str:
    """Return a number of bytes in the largest unit that divides it: ``256 MiB``, ``1000 B``."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power and count % 1024**power == 0:
            return f"{count // 1024**power} {unit}"
    return f"{count} B"
