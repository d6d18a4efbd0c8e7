"""Numbers for display: three significant digits."""

from __future__ import annotations

from collections.abc import Sequence

from fabtui.model.measurement import Reduced

#: Value (in the unit) below which a smaller unit reads better; that unit and how many of it make one of the larger.
_SMALL = 0.0995
_SMALLER = {"GB/s": ("MB/s", 1000.0), "MB/s": ("kB/s", 1000.0)}


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


def spoken(value: float, unit: str) -> tuple[float, str]:
    """Return a value in the unit that people use for it: 0.0196 GB/s is 19.6 MB/s."""
    while 0 < value < _SMALL and unit in _SMALLER:
        unit, scale = _SMALLER[unit]
        value *= scale
    return value, unit


def spoken_text(value: float, unit: str) -> str:
    """Return a value with the unit that people use for it: ``46.1 GB/s``, ``19.6 MB/s``."""
    number, name = spoken(value, unit)
    return f"{value_text(number)} {name}".rstrip()


def spoken_texts(values: Sequence[float], unit: str) -> list[str]:
    """Return values of one kind; a unit that all have follows the last one: ``22.0``, ``44.0 GB/s``."""
    texts = [spoken_text(value, unit) for value in values]
    if len({spoken(value, unit)[1] for value in values}) == 1:
        texts[:-1] = [value_text(spoken(value, unit)[0]) for value in values[:-1]]
    return texts


def brief_text(value: float | None, unit: str) -> str:
    """Return a value of a table in one unit, with the first letter of a smaller one: ``46.1``, ``19.6M`` for MB/s."""
    if value is None:
        return "-"
    number, name = spoken(value, unit)
    return value_text(number) + (name[0] if name != unit else "")


def scales_text(lowest: float | None, unit: str) -> str:
    """Return what the letters after the values of a table mean, if the lowest one needs them: ``M: MB/s``; else ""."""
    names = []
    while lowest is not None and 0 < lowest < _SMALL and unit in _SMALLER:
        unit, scale = _SMALLER[unit]
        lowest *= scale
        names.append(f"{unit[0]}: {unit}")
    return ", ".join(names)


def share_text(value: float, usual: float, unit: str) -> str:
    """Return a value with its share of the usual one: ``1.96 GB/s, 0.5 % of the usual 360 GB/s``."""
    return f"{spoken_text(value, unit)}, {percent_text(value / usual)} of the usual {spoken_text(usual, unit)}"


def reduced_text(one: Reduced) -> str:
    """Return the size of a message, and the time of one as requested: ``1 MiB; 256 MiB would take 43 s``."""
    number, unit = one.seconds, "s"
    for name in ("min", "h"):
        if number >= 99.5:
            number, unit = number / 60, name
    return f"{size_text(one.bytes)}; {size_text(one.asked)} would take {number:.2g} {unit}"


def short_number(value: float, width: int) -> str:
    """Return a number in at most ``width`` (3 or 4) characters, with as many digits as fit: 351, 46.1, .045, 12k."""
    if value >= 10**width - 0.5:
        for scale, letter in ((1e3, "k"), (1e6, "M"), (1e9, "G")):
            if value < scale * 10 ** (width - 1) - scale / 2:
                return f"{value / scale:.0f}{letter}"
        return "9" * (width - 1) + "G"
    whole = 1 if value < 9.5 else len(f"{value:.0f}")
    decimals = max(0, width - whole - 1)
    text = f"{value:.{decimals}f}"
    if len(text) > width:
        text = f"{value:.{max(0, decimals - 1)}f}"
    if value < 0.995 and text.startswith("0.") and value > 0:
        text = f"{value:.{width - 1}f}"[1:]
        return text if text.strip(".0") else "<." + "0" * (width - 3) + "1"
    return text


def short_value(value: float, unit: str, width: int) -> str:
    """Return a value in at most ``width`` (3 or 4) characters; a smaller unit is named by its first letter: 20M."""
    number, name = spoken(value, unit)
    if name == unit:
        return short_number(value, width)
    text = f"{number:.{width - 2}f}"[1:] if number < 0.95 else short_number(number, width - 1)
    return (text if text.strip(".0") else "<1") + name[0]
