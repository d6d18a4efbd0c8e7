"""Ways between rails that are dead as a whole: between some nodes, or between two rails of all nodes."""

from __future__ import annotations

from typing import NamedTuple

from fabtui.diagnosis.pairs.tally import DEAD, Pair, Tally, rail_of
from fabtui.model.endpoints import PairClass
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.nodeset import fold

#: Fewer dead pairs than this are told one by one.
_FEWEST = 4


class Crossing(NamedTuple):
    """Pairs across rails that are all dead, while their nodes reach each other within rails.

    Attributes:
        title: What is dead, on one line.
        cells: The pairs.
        evidence: What says so.
    """

    title: str
    cells: frozenset[Pair]
    evidence: tuple[str, ...]


def crossings(model: Model, tally: Tally, left: dict[Pair, Verdict]) -> list[Crossing]:
    """Return the dead ways between rails among what is left to explain: those of nodes, then those of two rails."""
    dead = {p for p, verdict in left.items() if verdict in DEAD and tally.kinds.get(p) is PairClass.CROSS_RAIL}
    found = [_of_nodes(model, tally, dead)]
    told = set() if found[0] is None else set(found[0].cells)
    found += _of_rails(model, tally, dead - told)
    return [one for one in found if one is not None]


def _of_nodes(model: Model, tally: Tally, dead: set[Pair]) -> Crossing | None:
    whole = {nodes for nodes, (tested, lost) in tally.across.items() if 1 < tested == lost and nodes in tally.joined}
    cells = frozenset(pair for pair in dead if _nodes(pair) in whole)
    if len(cells) < _FEWEST:
        return None
    within = "within their rails they reach each other"
    if whole == tally.across.keys():
        others = f"all {len(cells)} pairs across rails fail; within rails some pass"
        return Crossing("rail-isolated fabric", cells, (others,))
    order = list(model.nodes)
    sources, targets = (fold(sorted({nodes[side] for nodes in whole}, key=order.index)) for side in (0, 1))
    way = f"among {sources}" if sources == targets else f"from {sources} to {targets}"
    return Crossing(f"nothing gets across rails {way}", cells, (within,))


def _of_rails(model: Model, tally: Tally, dead: set[Pair]) -> list[Crossing]:
    by_rails: dict[tuple[int, int], set[Pair]] = {}
    for pair in dead:
        by_rails.setdefault((rail_of(model, pair[0]), rail_of(model, pair[1])), set()).add(pair)
    whole = {
        rails
        for rails, pairs in by_rails.items()
        if len(pairs) >= _FEWEST
        and tally.lanes[rails][0] == tally.lanes[rails][1]
        and all(end in tally.alive for pair in pairs for end in pair)
    }
    found = []
    for rails in sorted(whole):
        both = rails[::-1] in whole
        if both and rails > rails[::-1]:
            continue
        cells = frozenset(by_rails[rails] | (by_rails[rails[::-1]] if both else set()))
        way = "between rails {} and {}" if both else "from rail {} to rail {}"
        evidence = "on every node, and within their rails all of these endpoints reach others"
        found.append(Crossing(f"nothing gets through {way.format(*rails)}", cells, (evidence,)))
    return found


def _nodes(pair: Pair) -> Pair:
    return pair[0].rpartition(":")[0], pair[1].rpartition(":")[0]
