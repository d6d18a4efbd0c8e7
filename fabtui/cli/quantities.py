"""Sizes, times and counts as users write them."""

from __future__ import annotations

import math
import re

from fabtui.errors import InputError

_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)(i?)(b?)", re.ASCII | re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
#: Messages are of 4-byte floats.
SMALLEST = 4
LARGEST = 1 << 36
HOUR = 3600.0


def size(text: str, option: str) -> int:
    """Return a number of bytes: ``256M`` and ``256MiB`` are powers of 1024 (as nccl-tests has it), ``256MB`` of 1000.

    Raises:
        InputError: It is not a size, or out of range.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{option}: {text[:40]!r} is not a size; expected 256M, 4MiB or 1G")
    number, prefix, binary, byte = match.groups()
    base = 1000 if byte and prefix and not binary else 1024
    count = float(number) * base ** _POWER[prefix.lower()]
    if count != int(count) or int(count) % 4:
        raise InputError(f"{option}: {text[:40]!r} is not a multiple of 4 bytes")
    if not SMALLEST <= count <= LARGEST:
        raise InputError(f"{option}: {text[:40]!r} is out of range; from {SMALLEST} bytes to {LARGEST >> 30}G")
    return int(count)


def sizes(text: str, option: str, most: int) -> tuple[int, ...]:
    """Return message sizes, ascending: ``8M,256M``, ``8-1G`` (each twice the one before) or ``8-1G:4`` (four times).

    A range begins with its first size and ends with the last that is not above its end, as nccl-tests does it.

    Args:
        text: Sizes and ranges, separated by commas.
        option: What to call it when it is wrong.
        most: How many sizes there may be.

    Raises:
        InputError: It is not that, or there are too many.
    """
    found: set[int] = set()
    for part in text.split(","):
        if not part.strip():
            raise InputError(f"{option}: an empty size in {text[:40]!r}; expected 8M,256M or 8-1G:4")
        found.update(_range(part, option) if "-" in part or ":" in part else [size(part, option)])
        if len(found) > most:
            raise InputError(f"{option}: more than {most} sizes; use fewer, or a larger factor, such as 8-1G:4")
    return tuple(sorted(found))


def _range(text: str, option: str) -> list[int]:
    ends, colon, by = text.partition(":")
    first, dash, last = ends.partition("-")
    if not dash or not first.strip() or not last.strip():
        raise InputError(f"{option}: {text[:40]!r} is not a range of sizes; expected 8-1G or 8-1G:4")
    low, high = size(first, option), size(last, option)
    if low > high:
        raise InputError(f"{option}: {text[:40]!r} ends before it begins")
    factor = count(by, option, 2, 1024) if colon else 2
    found = [low]
    while found[-1] * factor <= high:
        found.append(found[-1] * factor)
    return found


def seconds(text: str, option: str, least: float, most: float) -> float:
    """Return a time in seconds; a trailing ``s`` is allowed.

    Raises:
        InputError: It is not a time, or out of range.
    """
    try:
        value = float(text.strip().removesuffix("s"))
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise InputError(f"{option}: {text[:40]!r} is not a time from {least:g} to {most:.0f} seconds")
    return value


def count(text: str, option: str, least: int, most: int) -> int:
    """Return a whole number.

    Raises:
        InputError: It is not one, or out of range.
    """
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or not least <= int(text) <= most:
        raise InputError(f"{option}: {text[:40]!r} is not a whole number from {least} to {most}")
    return int(text)


def ratio(text: str, option: str, least: float, most: float) -> float:
    """Return a factor.

    Raises:
        InputError: It is not a number, or out of range.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise InputError(f"{option}: {text[:40]!r} is not a number from {least:g} to {most:g}")
    return value
