"""Nodes at fault, the bad pairs that each answers for, and stray bad pairs that no component explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import numpy as np

from fabtui.diagnosis.finding import Finding, Kind, Pair, Severity
from fabtui.diagnosis.pairs.tally import Tally
from fabtui.model.endpoints import node_of
from fabtui.model.measurement import Verdict

#: Maximum share of the tested pairs of a node that are stray; more of them are not an accident.
_MOST_STRAY = 0.02
#: Rule about nodes that are gone, which may have no pair.
_LOST = "FT001"


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """Bad pairs by the nodes that answer for them."""

    #: The nodes at fault, each with the finding that blames it, in the order of the findings.
    causes: dict[str, Finding] = field(default_factory=dict)
    #: Nodes that answer for each bad pair: those at fault; both ends where neither is.
    holders: dict[Pair, frozenset[str]] = field(default_factory=dict)
    #: Bad pairs between two nodes that no component explains, and that are rare at both.
    strays: dict[Pair, Verdict] = field(default_factory=dict)


def node_faults(tally: Tally, findings: Sequence[Finding]) -> NodeFaults:
    """Attribute the bad pairs of a tally to nodes, as findings do."""
    causes: dict[str, Finding] = {}
    holders: dict[Pair, frozenset[str]] = {}
    explained: set[Pair] = set()
    for one in findings:
        if one.blames is not None and one.blames.kind is not Kind.PAIR:
            explained |= one.cells
        if one.severity is not Severity.BAD:
            continue
        mine = frozenset(one.at_fault)
        if mine and (one.cells or one.rule.id == _LOST):
            for node in one.at_fault:
                causes.setdefault(node, one)
        for pair in one.cells & tally.bad.keys() if mine else ():
            if ends := mine.intersection(map(node_of, pair)):
                holders.setdefault(pair, ends)
    left: dict[Pair, Verdict] = {}
    for pair, verdict in tally.bad.items():
        if pair not in holders:
            both = frozenset(map(node_of, pair))
            # Findings follow results: what has come since is of the nodes that are at fault.
            holders[pair] = both & causes.keys() or both
            if len(both) > 1 and verdict is not Verdict.WRONG and pair not in explained:
                left[pair] = verdict
    return NodeFaults(causes, holders, _rare(tally, left, causes))


def _rare(tally: Tally, pairs: dict[Pair, Verdict], causes: Container[str]) -> dict[Pair, Verdict]:
    """Return those of some bad pairs that are few among the tested pairs of either node.

    At a node, pairs with nodes at fault do not count.
    """
    if tally.table is None or tally.places is None or not pairs:
        return {}
    places, nodes = tally.places, [tuple(map(node_of, pair)) for pair in pairs]
    of_node = Counter(mine for a, b in nodes for mine, other in ((a, b), (b, a)) if other not in causes)
    tested = sum(
        np.bincount(places.node[ends], minlength=len(places.nodes)) for ends in (tally.table.source, tally.table.target)
    )
    number = {name: int(count) for name, count in zip(places.nodes, np.atleast_1d(tested), strict=True)}
    rare = {node for node in number if of_node[node] <= _MOST_STRAY * number[node]}
    return {pair: verdict for pair, verdict in pairs.items() if rare.issuperset(map(node_of, pair))}
