"""What changed on nodes since an earlier preflight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fabtui.model.facts.compare import Compare, Fact, FactTable, differs, shown
from fabtui.model.facts.node_view import Value

#: The values of an earlier preflight: by node, then by the name of the fact.
Earlier = Mapping[str, Mapping[str, Value]]


class Change(NamedTuple):
    """Something that is not as it was.

    Attributes:
        title: What it is.
        before: What it was, with its unit.
        now: What it is now.
        nodes: The nodes on which it changed so.
    """

    title: str
    before: str
    now: str
    nodes: list[str]


class Compared(NamedTuple):
    """What changed.

    Attributes:
        changes: What is not as it was, in the order of the facts.
        new: Nodes of which there is no earlier value.
        gone: Nodes that were there then and are not now.
    """

    changes: list[Change]
    new: list[str]
    gone: list[str]

    @property
    def any(self) -> bool:
        """Whether anything changed."""
        return bool(self.changes or self.new or self.gone)


def earlier_of(table: FactTable) -> Earlier:
    """Return the values of a preflight, to be compared with later ones."""
    return {node: {fact.name: table.values[fact.name][node] for fact in table.facts} for node in table.nodes}


def compare(before: Earlier, now: FactTable) -> Compared:
    """Return what changed since an earlier preflight; what was not known at one of the times is no change."""
    changes: list[Change] = []
    both = [node for node in now.nodes if node in before]
    for fact in now.facts:
        groups: dict[tuple[str, str], list[str]] = {}
        for node in both:
            old, new = before[node].get(fact.name), now.values[fact.name][node]
            if _changed(fact, old, new):
                groups.setdefault((shown(old, fact.unit), shown(new, fact.unit)), []).append(node)
        changes += _told(fact, groups.items())
    return Compared(
        changes, [node for node in now.nodes if node not in before], [node for node in before if node not in now.nodes]
    )


def _changed(fact: Fact, old: Value, new: Value) -> bool:
    # A clock that is read through a slow connection is known to a fraction of a second at best; the floor covers it.
    return differs(fact, old, new)


def _told(fact: Fact, groups: Iterable[tuple[tuple[str, str], list[str]]]) -> list[Change]:
    if fact.name == "boot_id":
        restarted = [node for _, nodes in groups for node in nodes]
        return [Change("started anew", "-", "since then", restarted)] if restarted else []
    if fact.compare is Compare.UNLIKE:
        return [Change(fact.title, old, new, [node]) for (old, new), nodes in groups for node in nodes]
    return [Change(fact.title, old, new, nodes) for (old, new), nodes in groups]
