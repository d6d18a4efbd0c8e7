"""Reading the kernel's small files: what cannot be read is None, never an exception."""

from __future__ import annotations

import os
import re
from typing import List, Optional, Tuple, Union

_INTEGER = re.compile(r"[+-]?(?:0x[0-9a-f]{1,16}|[0-9]{1,20})", re.ASCII | re.IGNORECASE)


def text(*path: str, limit: int = 65536) -> Optional[str]:
    """Return a file's text without surrounding space, None if it cannot be read."""
    try:
        with open(os.path.join(*path), "rb") as file:
            return file.read(limit).decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return None


def integer(*path: str) -> Optional[int]:
    """Return the number in a file, decimal or with 0x, or None."""
    return to_integer(text(*path))


def numa_node(*path: str) -> Optional[int]:
    """Return the NUMA node of a device, given its folder; None for the kernel's -1."""
    number = integer(*path, "numa_node")
    return number if number is not None and number >= 0 else None


def to_integer(word: Optional[str]) -> Optional[int]:
    """Return the integer in a word, decimal or with 0x, or None."""
    if word is None or not _INTEGER.fullmatch(word.strip()):
        return None
    return int(word.strip(), 16 if "x" in word.lower() else 10)


def names(*path: str) -> List[str]:
    """Return the entries of a folder in natural order, none if it cannot be read."""
    try:
        return sorted(os.listdir(os.path.join(*path)), key=natural)
    except (OSError, ValueError):
        return []


def real(*path: str) -> Optional[str]:
    """Return where a link leads, None if it leads nowhere."""
    whole = os.path.join(*path)
    try:
        return os.path.realpath(whole) if os.path.exists(whole) else None
    except (OSError, ValueError):
        return None


def natural(name: str) -> List[Tuple[int, Union[int, str]]]:
    """Return a sort key that puts mlx5_2 before mlx5_10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [(1, int(part)) if index % 2 else (0, part) for index, part in enumerate(parts)]
