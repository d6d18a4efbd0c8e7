"""Records of nodes, jobs and partitions as ``scontrol`` prints them: ``Name=value`` pairs, on one line or several."""

from __future__ import annotations

import re

#: Values that mean that Slurm knows none.
NOTHING = ("(null)", "N/A", "n/a", "n/s", "Unknown", "")
#: Slurm's names begin with a capital: a value such as ``train lr=0.1`` is one.
_PAIR = re.compile(r"(?:^|(?<=\s))([A-Z][\w:/.-]{0,60})=")
#: Names whose value is the rest of the line.
_REST = re.compile(r"^\s*(Reason|Comment|AdminComment|SystemComment|Command|WorkDir|OS|Extra)=(.*)$")


def pairs(line: str) -> dict[str, str]:
    """Return the pairs of a line; a value extends to the next name, so that it may hold blanks and equal signs."""
    if rest := _REST.match(line):
        return {rest[1]: rest[2].strip()}
    found = list(_PAIR.finditer(line))
    ends = [*(pair.start() for pair in found[1:]), len(line)][: len(found)]
    return {pair[1]: line[pair.end() : end].strip() for pair, end in zip(found, ends, strict=True)}


def known_pairs(line: str) -> dict[str, str]:
    return {name: value for name, value in pairs(line).items() if value not in NOTHING}
