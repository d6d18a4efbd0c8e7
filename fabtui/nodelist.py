"""Slurm's short form of node lists, ``d[001-032],f[001-004,006]``, as names."""

from __future__ import annotations

import re

#: More names than this are not made.
MOST = 65_536
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?", re.ASCII)


def expand(text: str) -> list[str] | None:
    """Return the names a list stands for, in order; None for what is not such a list, or is too large."""
    names: list[str] = []
    for part in _parts(text.strip()):
        found = _expand_part(part)
        if found is None or len(names) + len(found) > MOST:
            return None
        names += found
    return names or None


def _parts(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _expand_part(part: str) -> list[str] | None:
    head, bracket, rest = part.partition("[")
    if not re.fullmatch(r"[\w.:-]{0,253}", head):
        return None
    if not bracket:
        return [head] if head else None
    inside, closed, tail = rest.partition("]")
    tails = [""] if not tail else _expand_part(tail)
    if not closed or tails is None:
        return None
    names: list[str] = []
    for piece in inside.split(","):
        found = _RANGE.fullmatch(piece.strip())
        if found is None:
            return None
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or (last - first + 1) * len(tails) + len(names) > MOST:
            return None
        width = len(found[1])
        names += [f"{head}{number:0{width}d}{tail}" for number in range(first, last + 1) for tail in tails]
    return names
