"""Changes of nodes since an earlier preflight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fabtui.model.facts.compare import Compare, Fact, FactTable, differs, shown
from fabtui.model.facts.node_view import Value

#: Values of an earlier preflight, by node and name of the fact.
Earlier = Mapping[str, Mapping[str, Value]]


class Change(NamedTuple):
    """A changed fact.

    Attributes:
        title: Title of the fact.
        before: Earlier value with its unit.
        now: Current value.
        nodes: Nodes with this change.
    """

    title: str
    before: str
    now: str
    nodes: list[str]


class PreflightChanges(NamedTuple):
    """Changes since an earlier preflight.

    Attributes:
        changes: Changed facts, in the order of the facts.
        new: Nodes without earlier values.
        gone: Nodes with earlier values only.
    """

    changes: list[Change]
    new: list[str]
    gone: list[str]

    @property
    def any(self) -> bool:
        """Return True if anything changed."""
        return bool(self.changes or self.new or self.gone)


def earlier_of(table: FactTable) -> Earlier:
    """Return the values of a preflight for a later comparison."""
    return {node: {fact.name: table.values[fact.name][node] for fact in table.facts} for node in table.nodes}


def compare(before: Earlier, now: FactTable) -> PreflightChanges:
    """Return the changes since an earlier preflight; a value that was unknown at one time is no change."""
    changes: list[Change] = []
    both = [node for node in now.nodes if node in before]
    for fact in now.facts:
        groups: dict[tuple[str, str], list[str]] = {}
        for node in both:
            old, new = before[node].get(fact.name), now.values[fact.name][node]
            if differs(fact, old, new):
                groups.setdefault((shown(old, fact.unit), shown(new, fact.unit)), []).append(node)
        changes += _changes(fact, groups.items())
    return PreflightChanges(
        changes, [node for node in now.nodes if node not in before], [node for node in before if node not in now.nodes]
    )


def _changes(fact: Fact, groups: Iterable[tuple[tuple[str, str], list[str]]]) -> list[Change]:
    if fact.name == "boot_id":
        restarted = [node for _, nodes in groups for node in nodes]
        return [Change("rebooted", "-", "since then", restarted)] if restarted else []
    if fact.compare is Compare.UNLIKE:
        return [Change(fact.title, old, new, [node]) for (old, new), nodes in groups for node in nodes]
    return [Change(fact.title, old, new, nodes) for (old, new), nodes in groups]
