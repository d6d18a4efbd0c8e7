"""Comparison of a measured value with its bar; every benchmark prints it in the same words."""

MISSED = "MISSED"


def held(value: float, bar: float, *, least: bool = False) -> str:
    """Return ``holds`` or ``MISSED``: a bar is the most that a value may be, or the ``least``."""
    return "holds" if (value >= bar if least else value <= bar) else MISSED
