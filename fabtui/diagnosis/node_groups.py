"""Groups of nodes between which traffic fails while it passes within each: nodes of several leaf switches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fabtui.model.pair_table import Flags

#: Share of the tested pairs of nodes of different groups that have to fail, and of those within groups that may.
_LEAST_ACROSS, _MOST_WITHIN = 0.8, 0.2
#: Minimum number of nodes of a group: what a single node has is about that node.
_FEWEST = 2


class NodeGroups(NamedTuple):
    """Groups of nodes between which traffic fails."""

    groups: tuple[tuple[str, ...], ...]  #: Nodes of each group; if one direction fails, the group that sends first.
    one_way: bool  #: Whether nothing fails in the opposite direction, which was tested.
    partly: bool = False  #: Whether only some of what is between the groups fails.


def groups_of(nodes: Sequence[str], passes: Flags, fails: Flags) -> NodeGroups | None:
    """Return the groups of nodes between which traffic fails, or None if the failing pairs have another pattern.

    Pairs within a group pass, except a few that another fault may have; at least 80 % of the tested ones between groups
    fail; and each group has several nodes. Nodes that fail with none belong to no group.

    Args:
        nodes: The nodes, in the order of the result.
        passes: Between which nodes something passes; sources are rows, destinations columns.
        fails: Between which nodes something fails; these count even if something else passes.
    """
    bad: Flags = fails | fails.T
    good: Flags = (passes | passes.T) & ~bad
    involved: Flags = np.logical_or.reduce(bad, axis=1)
    for members in (_sides(bad, involved), _islands(good, involved)):
        # One group is not a cut: its few failing pairs have other causes.
        if len(members) > 1 and _is_cut(members, bad, good):
            groups = [tuple(nodes[at] for at in np.flatnonzero(group).tolist()) for group in members]
            if len(members) > 2:
                return NodeGroups(tuple(groups), False)
            there, back = (a[:, None] & b[None, :] for a, b in (members, members[::-1]))
            sends, receives = (bool((fails & part).any()) for part in (there, back))
            one_way = sends is not receives and bool((passes & (back if sends else there)).any())
            return NodeGroups(tuple(groups if sends else groups[::-1]), one_way)
    return None


def sides_of(nodes: Sequence[str], passes: Flags, fails: Flags) -> NodeGroups | None:
    """Return two groups of nodes between which all that fails is, while some passes there too; None without such.

    One of several equal paths between the groups fails then: what takes it is chosen by addresses and ports.
    """
    bad: Flags = fails | fails.T
    members = _sides(bad, np.logical_or.reduce(bad, axis=1))
    good = (passes | passes.T) & ~bad
    if not members or any(np.count_nonzero(group) < _FEWEST or not good[group][:, group].any() for group in members):
        return None
    sends = [bool(fails[one][:, other].any()) for one, other in (members, members[::-1])]
    groups = [tuple(nodes[at] for at in np.flatnonzero(group).tolist()) for group in members]
    return NodeGroups(tuple(groups if sends[0] else groups[::-1]), not all(sends), True)


def _is_cut(members: list[Flags], bad: Flags, good: Flags) -> bool:
    own = np.zeros(bad.shape, dtype=bool)
    for group in members:
        inside = group[:, None] & group[None, :]
        few = np.count_nonzero(bad & inside) <= _MOST_WITHIN * np.count_nonzero((bad | good) & inside)
        # A node without a pair that passes within its group may belong to a different group.
        paired = np.logical_or.reduce(good & inside, axis=1)[group].all()
        if np.count_nonzero(group) < _FEWEST or not few or not paired:
            return False
        own |= inside
    all_of_them: Flags = np.logical_or.reduce(members)
    across = all_of_them[:, None] & all_of_them[None, :] & ~own
    tested = np.count_nonzero((bad | good) & across)
    return bool(np.count_nonzero(bad & across) >= _LEAST_ACROSS * tested)


def _sides(bad: Flags, involved: Flags) -> list[Flags]:
    """Return the two sides of all failing pairs; none if they are not sides of one cut."""
    if not involved.any():
        return []
    sides = [np.zeros(len(bad), dtype=bool) for _ in range(2)]
    sides[0][np.flatnonzero(involved)[0]] = True
    known = 0
    while known < (known := sum(int(np.count_nonzero(side)) for side in sides)):
        sides[1] |= bad[sides[0]].any(axis=0)
        sides[0] |= bad[sides[1]].any(axis=0)
    reached = (sides[0] | sides[1]) == involved
    return sides if reached.all() and not (sides[0] & sides[1]).any() else []


def _islands(good: Flags, involved: Flags) -> list[Flags]:
    return list(_connected(good & involved[:, None] & involved[None, :], involved))


def _connected(good: Flags, involved: Flags) -> Iterator[Flags]:
    left = involved.copy()
    while left.any():
        group = np.zeros(len(good), dtype=bool)
        group[np.flatnonzero(left)[0]] = True
        known = 0
        while known < (known := int(np.count_nonzero(group))):
            group |= good[group].any(axis=0)
        yield group
        left &= ~group
