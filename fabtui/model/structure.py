"""Structure of a fabric, inferred from results: halves of nodes and groups of nodes that are slower by design.

A class of pairs that holds two kinds of paths has two clusters of values. Where the slower cluster has the same pattern
on all nodes, or splits the nodes into groups, it is a property of the machines: such pairs are compared among
themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fabtui.model.endpoints import EndpointTable
from fabtui.model.pair_table import PairTable, quantile

if TYPE_CHECKING:
    Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]

#: Minimum difference of two kinds of paths (logarithm), and in standard deviations of single values.
_LEAST, _DEVIATIONS = 0.1, 2.0
#: Quantile that stands for the best values of a kind of hardware.
_BEST = 0.85
#: Minimum share of the nodes that must show a pattern.
_MOST_NODES = 0.7
_FEWEST_OF_GROUP = 2
#: Maximum share of node pairs that may differ from a pattern by chance.
_CHANCE = 0.05


def halves(results: PairTable, table: EndpointTable) -> dict[int, int]:
    """Return the NUMA half of each endpoint on nodes of a hardware kind whose halves are slower between each other."""
    found: dict[int, int] = {}
    kinds: dict[tuple[str, int], list[str]] = {}
    for node in dict.fromkeys(end.node for end in table.endpoints):
        mine = table.of_node(node)
        kinds.setdefault((mine[0].name, len(mine)), []).append(node)
    within = results.kind == 0
    source, target, share = results.source[within], results.target[within], results.share[within]
    for (_, count), nodes in kinds.items():
        if count < 4 or count % 2:
            continue
        votes = 0
        for node in nodes:
            numbers = [end.number for end in table.of_node(node)]
            first = numbers[0]
            mine = (source >= first) & (source <= numbers[-1])
            half = (source[mine] - first >= count // 2) != (target[mine] - first >= count // 2)
            votes += _are_apart(share[mine][half], share[mine][~half])
        if votes >= _MOST_NODES * len(nodes):
            found.update((end.number, int(at >= count // 2)) for n in nodes for at, end in enumerate(table.of_node(n)))
    return found


def _are_apart(across: Floats, inside: Floats) -> bool:
    """Return True if values across are clearly and evenly lower than those inside."""
    across, inside = across[~np.isnan(across)], inside[~np.isnan(inside)]
    if len(across) < 4 or len(inside) < 2:
        return False
    low, high = quantile(across), quantile(inside)
    noise = quantile(np.abs(np.concatenate((across - low, inside - high)))) / 0.6745
    even = np.abs(across - low) <= max(4.5 * noise, 0.1)
    return high - low > max(_LEAST, _DEVIATIONS * noise) and bool(even.mean() > 0.9)


def node_groups(results: PairTable, table: EndpointTable) -> dict[int, str]:
    """Return a group for each endpoint where the nodes fall into groups between which all pairs are slower."""
    names = list(dict.fromkeys(end.node for end in table.endpoints))
    if len(names) < 2 * _FEWEST_OF_GROUP:
        return {}
    place = {name: at for at, name in enumerate(names)}
    of = np.array([place[end.node] for end in table.endpoints])
    known = (results.kind > 0) & ~np.isnan(results.share)
    a, b, share = of[results.source[known]], of[results.target[known]], results.share[known]
    if _too_few(a, b, len(names), len(set(table.hardware))):
        return {}
    noise = quantile(results.spread[known]) if known.any() else 0.0
    limit = -max(_LEAST, _DEVIATIONS * noise)
    hardware = np.array(table.hardware)
    share = _from_the_best(share, hardware, results.source[known], results.target[known], -limit)
    middle = _medians_between(a, b, share, len(names))
    middle = np.fmin(middle, middle.T)
    # Two nodes whose hardware no other two have are compared with themselves alone.
    alone = _alone(hardware[[table.of_node(name)[0].number for name in names]])
    middle[alone] = np.nan
    # Single pairs may be near the others by chance: two nodes are of one group if they agree about most others.
    near = np.where(np.isnan(middle), False, middle > limit)
    np.fill_diagonal(near, val=True)
    # Counts below 2^24 are exact in single precision, and a product of integers takes 30 times as long.
    close, far = (near & ~alone).astype(np.float32), (~near & ~alone).astype(np.float32)
    near = close @ close.T + far @ far.T > 0.8 * ((close + far) @ (close + far).T)
    groups = _components(near)
    if len(groups) < 2 or min(map(len, groups)) < _FEWEST_OF_GROUP:
        return {}
    member = np.zeros(len(names), dtype=int)
    for number, group in enumerate(groups):
        member[group] = number
    same = member[:, np.newaxis] == member
    between = middle[~same & ~alone]
    counts = ~alone & ~np.eye(len(names), dtype=bool)
    inside = [middle[np.ix_(group, group)][counts[np.ix_(group, group)]] for group in groups]
    if not len(between) or np.isnan(between).any():
        return {}
    low = min(limit, quantile(between) / 2)
    # Within the groups, all is usual; between them, all is evenly slower.
    if any(np.mean(values <= low) > _CHANCE for values in inside if len(values)):
        return {}
    if np.mean(np.abs(between - quantile(between)) > max(0.12, 3.5 * noise)) > _CHANCE:
        return {}
    group_of = {at: f"group of {names[group[0]]}" for group in groups for at in group}
    return {end.number: group_of[place[end.node]] for end in table.endpoints}


def _too_few(a: Any, b: Any, nodes: int, kinds: int) -> bool:
    """Return True if fewer node pairs have values than any two groups have between each other.

    All of these need one, but those whose two kinds of hardware no other pair has: a sparse sweep shows no groups, and
    whether thousands of nodes agree takes seconds to find out.
    """
    known = np.zeros(nodes * nodes, dtype=bool)
    known[np.minimum(a, b) * nodes + np.maximum(a, b)] = True
    return int(np.count_nonzero(known)) + kinds * (kinds + 1) // 2 < _FEWEST_OF_GROUP * (nodes - _FEWEST_OF_GROUP)


def _from_the_best(share: Floats, hardware: Any, source: Any, target: Any, least: float) -> Floats:
    """Return shares in which the best sixth of each kind of hardware is usual, where noise does not account for it.

    Where most pairs of two GPU models cross the groups, what is usual for them is what is slower by design.
    """
    low, high = np.minimum(hardware[source], hardware[target]), np.maximum(hardware[source], hardware[target])
    code = low * (int(hardware.max(initial=0)) + 1) + high
    found = np.array(share)
    for one in np.flatnonzero(np.bincount(code)):
        best = quantile(found[code == one], _BEST)
        if best > least:
            found[code == one] -= best
    return found


def _alone(hardware: Any) -> Any:
    """Return True for each two nodes, by the hardware of all nodes, that alone have their two kinds of hardware."""
    size = int(hardware.max(initial=0)) + 1
    low, high = np.minimum.outer(hardware, hardware), np.maximum.outer(hardware, hardware)
    code = low * size + high
    pairs = np.bincount(code[np.triu_indices(len(hardware), 1)], minlength=size * size)
    found = pairs[code] == 1
    np.fill_diagonal(found, val=False)
    return found


def _medians_between(a: Any, b: Any, share: Floats, count: int) -> Floats:
    """Return the median share of each ordered pair of nodes; NaN without values."""
    found = np.full((count, count), np.nan)
    order = np.lexsort((share, a * count + b))
    code, values = (a * count + b)[order], share[order]
    cuts = np.flatnonzero(np.diff(code)) + 1
    starts, ends = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(code)]))
    if len(code):
        found.flat[code[starts]] = values[(starts + ends - 1) // 2]
    return found


def _components(near: Any) -> list[list[int]]:
    """Return the connected groups of a symmetric relation."""
    left, groups = set(range(len(near))), []
    while left:
        group, todo = [], [left.pop()]
        while todo:
            one = todo.pop()
            group.append(one)
            more = [other for other in np.flatnonzero(near[one]).tolist() if other in left]
            left.difference_update(more)
            todo += more
        groups.append(sorted(group))
    return sorted(groups)
