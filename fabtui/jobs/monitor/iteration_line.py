"""Lines of Megatron-LM and its forks about an iteration: ``iteration 20/ 100 | name: value | name: value |``."""

from __future__ import annotations

import re
from typing import NamedTuple

from fabtui_node.parsers.lines import number

_LINE = re.compile(r"\biteration\s{1,20}(\d{1,12})/\s{0,20}(\d{1,12})\s{0,20}\|", re.ASCII)
_ELAPSED = re.compile(r"elapsed time per iteration \((ms|s)\)")
#: Length of a line that is examined, and of a name and a value.
_LONGEST_LINE = 4000
_LONGEST = 60


class IterationLine(NamedTuple):
    """A printed iteration.

    Attributes:
        number: Its number.
        total: The last iteration of the training.
        fields: Names and values, as printed.
        start: Where it begins in its line.
        cut: True if the last field is not closed by a bar; it may have lost its end and is left out.
    """

    number: int
    total: int
    fields: dict[str, str]
    start: int
    cut: bool

    @property
    def elapsed(self) -> tuple[float | None, str]:
        """Time (s) per iteration, and the unit in which it is printed; None and "" without one."""
        for name, text in self.fields.items():
            if found := _ELAPSED.fullmatch(name):
                value = number(text)
                return None if value is None else value / (1.0 if found[1] == "s" else 1000.0), found[1]
        return None, ""


def iteration_line(line: str) -> IterationLine | None:
    """Return the iteration of a line, None for other lines."""
    if "iteration" not in line or (found := _LINE.search(line)) is None:
        return None
    rest = line[found.end() : found.end() + _LONGEST_LINE].rstrip()
    *closed, last = rest.split("|")
    parts = (part.partition(":") for part in closed)
    fields = [(name.strip(), value.strip()) for name, colon, value in parts if colon]
    short = {name: value for name, value in fields if 0 < len(name) <= _LONGEST >= len(value)}
    return IterationLine(int(found[1]), int(found[2]), short, found.start(), bool(last) or not rest)
