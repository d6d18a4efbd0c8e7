"""Names of nodes in short, as users of Slurm and ClusterShell write them: ``n[060-067,070]``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fabtui.sanitize import one_line

_LONGEST = 253
_NUMBERED = re.compile(r"(.*?)(\d{1,18})(\D*)", re.ASCII | re.DOTALL)


def fold(names: Iterable[str]) -> str:
    """Return nodes as a set in brackets, cleaned; those of one pattern together, in the order of their first ones."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(one_line(name, _LONGEST) for name in names):
        found = _NUMBERED.fullmatch(name)
        if found is None:
            groups[name, ""] = []
        else:
            groups.setdefault((found[1], found[3]), []).append(found[2])
    return ",".join(part for (head, tail), numbers in groups.items() for part in _parts(head, numbers, tail))


def _parts(head: str, numbers: list[str], tail: str) -> list[str]:
    if not numbers:
        return [head + tail]
    padded = any(number.startswith("0") and len(number) > 1 for number in numbers)
    widths: dict[int, list[str]] = {}
    for number in numbers:
        widths.setdefault(len(number) if padded else 0, []).append(number)
    return [f"{head}{_ranges(same)}{tail}" for same in widths.values()]


def _ranges(numbers: list[str]) -> str:
    if len(numbers) == 1:
        return numbers[0]
    runs: list[list[str]] = []
    for number in sorted(numbers, key=int):
        if runs and int(runs[-1][-1]) + 1 == int(number):
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return "[" + ",".join("-".join(run) for run in runs) + "]"


def count(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"
