"""Nodes of a job, and how srun places a step on each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from fabtui.nodeset import fold


class Allocation(NamedTuple):
    """Nodes of a job or of several, of a step, or of pods."""

    title: str  #: What they belong to: ``job 12``, ``step 12.0``.
    nodes: tuple[str, ...]  #: Their names, in order.
    source: str  #: Where that is from: ``squeue``, a variable.
    job: str = ""  #: The job or jobs as the scheduler names them, with commas.
    #: Options of srun that select the job and the node, by node; none outside Slurm.
    placements: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    groups: Mapping[str, str] = MappingProxyType({})  #: Group within a heterogeneous job, by node.

    def describe(self) -> str:
        """Return one line with the nodes and where they are from."""
        names = fold(self.nodes)
        if len(set(self.groups.values())) > 1:
            by_group: dict[str, list[str]] = {}
            for node in self.nodes:
                by_group.setdefault(self.groups.get(node, ""), []).append(node)
            names = ", ".join(f"{fold(nodes)} (group {group})" for group, nodes in by_group.items())
        return f"nodes of {self.title}: {names} ({self.source})"
