"""Bytes that a collective sends from endpoint to endpoint, by algorithm: rings, double binary trees, all to all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fabtui.model.pair_table import Floats, Ints

#: Shares of the message that a hop of a ring carries, times (n - 1) / n: nccl-tests, doc/PERFORMANCE.md.
_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


class Traffic(NamedTuple):
    """Hops of a collective with their shares of the message size, and the number of its steps."""

    source: Ints  #: Number of the endpoint that sends, for each hop.
    target: Ints  #: The one that receives.
    share: Floats  #: Share of the message size that goes over it.
    steps: int  #: Number of messages one after the other, each with one latency.


def traffic(
    kind: str, algorithm: str, ranks: Ints, node: Ints, port: Ints, rings: Sequence[Ints] = ()
) -> Traffic | None:
    """Return the traffic of a collective; None if the algorithm is not modelled.

    Args:
        kind: The collective, such as ``all_reduce``.
        algorithm: ``ring`` or ``tree``; an all to all has one of its own.
        ranks: Numbers of the endpoints that take part, in rank order.
        node: Number of the node of each endpoint of the session.
        port: Number of the NIC of each endpoint.
        rings: The rings of NCCL's channels, numbers of endpoints; without any, a ring per rail in rank order.
    """
    count = len(ranks)
    if count < 2:
        return None
    if kind == "alltoall":
        # Each rank sends an n-th of its buffer to every other.
        source, target = np.nonzero(~np.eye(count, dtype=bool))
        return Traffic(ranks[source], ranks[target], np.full(len(source), 1 / count), 1)
    if kind not in _PASSES:
        return None
    if algorithm == "ring":
        orders = [*rings] or _rings(ranks, node, port)
        source = np.concatenate(orders)
        target = np.concatenate([np.roll(order, -1) for order in orders])
        source, target = _by_rail(source, target, ranks, node, port, orders) if not rings else (source, target)
        passes = _PASSES[kind]
        share = passes * (count - 1) / count / len(orders)
        return Traffic(source, target, np.full(len(source), share), passes * (count - 1))
    if algorithm == "tree" and kind == "all_reduce":
        return _trees(ranks, node, port)
    return None


def _by_node(ranks: Ints, node: Ints) -> list[Ints]:
    """Return the ranks of each node, in rank order."""
    return [ranks[node[ranks] == one] for one in dict.fromkeys(node[ranks].tolist())]


def _rails(groups: list[Ints], port: Ints) -> list[list[int]]:
    """Return for each rail that all nodes have the place of its first endpoint on each node."""
    places = [
        list({number: at for at, number in reversed([*enumerate(port[mine].tolist())])}.values()) for mine in groups
    ]
    ordered = [sorted(mine) for mine in places]
    return [[mine[at] for mine in ordered] for at in range(min(map(len, ordered)))]


def _rings(ranks: Ints, node: Ints, port: Ints) -> list[Ints]:
    """Return a ring for each rail: node after node, and within a node from the endpoint of the rail on."""
    groups = _by_node(ranks, node)
    if len(groups) == 1:
        return [ranks]
    sizes = np.array([len(mine) for mine in groups])
    members, own = np.concatenate(groups), np.repeat(np.arange(len(groups)), sizes)
    within = np.arange(len(members)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # Turned within its node, so that the endpoint of the rail comes first.
    return [
        members[np.argsort(own * len(members) + (within - np.array(places)[own]) % sizes[own])]
        for places in _rails(groups, port)
    ]


def _by_rail(source: Ints, target: Ints, ranks: Ints, node: Ints, port: Ints, orders: list[Ints]) -> tuple[Ints, Ints]:
    """Return the hops with those between nodes on the rail of their ring: it leaves by the NIC that it entered by."""
    if len(set(node[ranks].tolist())) == 1:
        return source, target
    source = source.copy()
    crossing = node[source] != node[target]
    # The endpoint by which a ring enters a node is the first of this node in its order.
    at = 0
    for order in orders:
        part = slice(at, at + len(order))
        _, first, own = np.unique(node[order], return_index=True, return_inverse=True)
        source[part] = np.where(crossing[part], order[first[own]], source[part])
        at += len(order)
    return source, target


def _up(count: int) -> list[int]:
    """Return the parent of each node in NCCL's binary tree (ncclGetBtree of src/graph/trees.cc); -1: the root."""
    found = [-1]
    for number in range(1, count):
        bit = number & -number
        up = (number ^ bit) | (bit << 1)
        found.append(number ^ bit if up >= count else up)
    return found


def double_tree(count: int) -> list[list[int]]:
    """Return the parents of both trees (ncclGetDtree): the second is shifted by one, or mirrored for an even number."""
    up = _up(count)
    if count % 2:
        second = [-1 if up[(at - 1) % count] < 0 else (up[(at - 1) % count] + 1) % count for at in range(count)]
    else:
        second = [-1 if up[count - 1 - at] < 0 else count - 1 - up[count - 1 - at] for at in range(count)]
    return [up, second]


def _trees(ranks: Ints, node: Ints, port: Ints) -> Traffic:
    """Return the traffic of both trees on each rail: up and down between nodes, and along a chain within each."""
    groups = _by_node(ranks, node)
    rails = _rails(groups, port)
    trees = double_tree(len(groups))
    pairs: list[tuple[int, int]] = []
    for places in rails:
        for parents in trees:
            heads = [int(mine[at]) for mine, at in zip(groups, places, strict=True)]
            edges = [(heads[child], heads[parent]) for child, parent in enumerate(parents) if parent >= 0]
            for mine, at in zip(groups, places, strict=True):
                chain = np.roll(mine, -at).tolist()
                edges += list(zip(chain[1:], chain, strict=False))
            pairs += [way for a, b in edges for way in ((a, b), (b, a))]
    source, target = np.array(pairs, dtype=np.int64).T
    steps = 2 * (max(len(mine) for mine in groups) - 1 + max(1, len(groups) - 1).bit_length())
    return Traffic(source, target, np.full(len(pairs), 1 / (len(rails) * len(trees))), steps)
