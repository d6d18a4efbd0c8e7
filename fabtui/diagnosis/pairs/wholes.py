"""Where nothing passes at all: between any two endpoints, or with any endpoint of a node, not even within it.

Each endpoint of those fails with all others, and it would be wrong to blame one after the other for it.
"""

from __future__ import annotations

from typing import NamedTuple

from fabtui.diagnosis.pairs.tally import DEAD, Pair, Tally
from fabtui.model.measurement import Verdict

#: Fewer dead pairs than this are told one by one.
_FEWEST = 4


class Whole(NamedTuple):
    """Dead pairs that have a node in common, or all that there is.

    Attributes:
        title: What is dead, on one line.
        cells: The pairs.
        node: The node, or None for all.
    """

    title: str
    cells: frozenset[Pair]
    node: str | None


def wholes(tally: Tally, left: dict[Pair, Verdict]) -> list[Whole]:
    """Return what is dead as a whole among what is left to explain."""
    dead = {pair for pair, verdict in left.items() if verdict in DEAD}
    tested = tally.of_class.total()
    if tested == sum(verdict in DEAD for verdict in tally.bad.values()):
        title = f"all {len(dead)} pairs fail: look at what they have in common"
        return [Whole(title, frozenset(dead), None)] if len(dead) >= _FEWEST else []
    found = []
    for node in _dead_nodes(tally):
        cells = frozenset(pair for pair in dead if node in (_node(pair[0]), _node(pair[1])))
        dead -= cells
        if len(cells) >= _FEWEST:
            found.append(Whole(f"{node} fails with all others, and within itself", cells, node))
    return found


def _node(end: str) -> str:
    return end.rpartition(":")[0]


def _dead_nodes(tally: Tally) -> list[str]:
    """Return the nodes of several endpoints each of which fails with all others on its node and on other nodes."""
    ends: dict[str, list[str]] = {}
    for end in dict.fromkeys(end for end, _ in tally.tested):
        ends.setdefault(_node(end), []).append(end)

    def dead(end: str) -> bool:
        return all(0 < tally.tested[end, off] == tally.dead[end, off] for off in (False, True))

    return [node for node, mine in ends.items() if len(mine) > 1 and all(map(dead, mine))]
