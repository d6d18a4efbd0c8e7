"""Groups of rows and columns: by leaf switch, or by rail."""

from __future__ import annotations

from typing import NamedTuple

from fabtui.model.facts.leaf_names import leaf_names
from fabtui.model.session_model import Model
from fabtui.screen.grid.axis import Axis, fit_text
from fabtui.screen.grid.cells import Order

#: Why an order by groups is not possible, and what to do.
UNKNOWN = {
    Order.LEAF: "leaf switches are unknown: the probe ibfabric reports none, and results show no groups of nodes",
    Order.RAIL: "rails are unknown: no node has reported a NIC for its endpoints",
}


class Grouped(NamedTuple):
    """Positions of endpoints group by group, and the name of the group of each position."""

    positions: list[int]
    names: dict[int, str]


def group_by(model: Model, axis: Axis, order: Order) -> Grouped | None:
    """Return the endpoints by leaf switch or rail, in the order of the axis within a group; None if none is known.

    Leaf switches come in the order of their first endpoint, rails by number, and endpoints of which neither is known
    last.
    """
    if order is Order.LEAF:
        words = leaf_names(model.nodes.values())
        leaves = {at: leaf for number, at in axis.position.items() if (leaf := model.leaves.get(number)) is not None}
        names = {at: fit_text(words.get(leaf, leaf), 24) for at, leaf in sorted(leaves.items())}
        known = list(dict.fromkeys(names.values()))
    else:
        rails = {at: rail for number, at in axis.position.items() if (rail := model.endpoints[number].rail) is not None}
        names = {at: f"rail {rail}" for at, rail in rails.items()}
        known = [f"rail {rail}" for rail in sorted(set(rails.values()))]
    if not known:
        return None
    ranks = {name: rank for rank, name in enumerate(known)}
    positions = sorted(range(axis.size), key=lambda at: ranks.get(names.get(at, ""), len(ranks)))
    return Grouped(positions, {at: names.get(at, f"{order} unknown") for at in positions})


def groups_of_nodes(axis: Axis, names: dict[int, str]) -> dict[int, str]:
    """Return the name of the group of each node: the one that all of its endpoints share, or the first and how many."""
    found: dict[int, dict[str, None]] = {}
    for at, node in enumerate(axis.node_at):
        found.setdefault(node, {}).setdefault(names[at])
    return {node: next(iter(own)) + (f" +{len(own) - 1}" if len(own) > 1 else "") for node, own in found.items()}
