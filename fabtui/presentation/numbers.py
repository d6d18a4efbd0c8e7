"""Numbers for display: three significant digits."""

from __future__ import annotations


def value_text(value: float | None) -> str:
    """Return a value with three significant digits: ``351``, ``46.1``, ``1.23``, ``0.045``; ``-`` for None."""
    if value is None:
        return "-"
    for least, form in ((99.95, ".0f"), (9.995, ".1f"), (0.0995, ".2f"), (0.00095, ".3f")):
        if abs(value) >= least:
            return f"{value:{form}}"
    return f"{value:.1e}" if value else "0.00"


def size_text(count: int) -> str:
    """Return a number of bytes in the largest unit that divides it evenly: ``256 MiB``, ``1000 B``."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power and count % 1024**power == 0:
            return f"{count // 1024**power} {unit}"
    return f"{count} B"


def percent_text(share: float) -> str:
    """Return a share as a percentage: ``38 %``, ``5.4 %``, ``0.5 %``."""
    percent = 100 * share
    if abs(percent) >= 9.95 or percent == 0:
        return f"{percent:.0f} %"
    return f"{percent:.1f} %" if abs(percent) >= 0.095 else f"{percent:.1g} %"


#: Value (in the unit) below which a smaller unit reads better; that unit and how many of it make one of the larger.
_SMALL = 0.0995
_SMALLER = {"GB/s": ("MB/s", 1000.0)}


def spoken(value: float, unit: str) -> tuple[float, str]:
    """Return a value in the unit that people use for it: 0.0196 GB/s is 19.6 MB/s."""
    smaller = _SMALLER.get(unit)
    return (value * smaller[1], smaller[0]) if smaller is not None and 0 < value < _SMALL else (value, unit)


def share_text(value: float, usual: float, unit: str) -> str:
    """Return a value with its share of the usual one: ``1.96 GB/s, 0.5 % of the usual 360 GB/s``."""
    mine, theirs = (
        f"{value_text(number)} {name}".rstrip() for number, name in (spoken(value, unit), spoken(usual, unit))
    )
    return f"{mine}, {percent_text(value / usual)} of the usual {theirs}"
