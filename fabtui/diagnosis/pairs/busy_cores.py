"""Cores that CPU ranks share with each other or with other programs: their values change with the load of the cores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fabtui.diagnosis.finding import Pair
from fabtui.model.facts import node_view
from fabtui.model.facts.node_view import field, text
from fabtui.model.session_model import Model


class Cores(NamedTuple):
    """Cores of one machine, which may host several nodes in namespaces or containers."""

    nodes: tuple[str, ...]  #: The nodes on it that have CPU ranks.
    ranks: int  #: Number of their CPU ranks.
    number: float  #: Number of cores they may use.
    load: float | None  #: Load average before the tests; None if unknown.

    @property
    def busy(self) -> bool:
        """True if ranks have to wait for cores."""
        return self.ranks > self.number or (self.load is not None and self.load >= self.number)


class BusyCores:
    """Cores of the machines whose nodes have CPU ranks."""

    def __init__(self, model: Model) -> None:
        ends = [end for end in model.endpoints if end.kind == "cpu"]
        by_machine: dict[str, list[str]] = {}
        for node in dict.fromkeys(end.node for end in ends):
            if (boot := text(_seen(model, node, "boot_id", "identity", "boot_id"))) is not None:
                by_machine.setdefault(boot, []).append(node)
        known = [_cores(model, nodes) for nodes in by_machine.values()]
        #: Machines whose cores are known.
        self.machines = [one for one in known if one is not None]
        #: Machines whose ranks have to wait for cores.
        self.busy = [one for one in self.machines if one.busy]
        self._busy_nodes = {node for one in self.busy for node in one.nodes}
        self._ends = {str(end): end.node for end in ends}
        #: Whether all endpoints are CPU ranks.
        self.only_cpus = bool(ends) and len(ends) == sum(end.kind != "none" for end in model.endpoints)
        #: Whether all CPU ranks are known to have cores enough.
        self.enough = not self.busy and set(self._ends.values()) <= {n for one in self.machines for n in one.nodes}

    def shared_by(self, pair: Pair) -> bool:
        """Return True if both ends of a pair are CPU ranks, and one of them has to wait for a core, or may have to.

        Ranks of one node use no link: if their cores are unknown, these are the likeliest reason.
        """
        nodes = [self._ends.get(end) for end in pair]
        if None in nodes:
            return False
        return not self._busy_nodes.isdisjoint(nodes) or (nodes[0] == nodes[1] and not self.enough)

    def among(self, pairs: Iterable[Pair]) -> bool:
        """Return True if all of some pairs share cores."""
        return all(map(self.shared_by, pairs))

    def on(self, nodes: Iterable[str]) -> bool:
        """Return True if one of some nodes has busy cores, and all endpoints are CPU ranks."""
        return self.only_cpus and not self._busy_nodes.isdisjoint(nodes)


def _cores(model: Model, nodes: list[str]) -> Cores | None:
    """Return the cores of a machine with some nodes, or None if their number is unknown."""
    usable = [node_view.number(field(model.nodes[node].inventory, "cpus")) for node in nodes]
    counts = [one for one in usable if one is not None and one > 0]
    if len(counts) < len(nodes):
        return None
    listed = [_seen(model, node, "cpus_online", "processors", "cpus_online") for node in nodes]
    numbers = [len(cores) if isinstance(cores, list) else node_view.number(cores) for cores in listed]
    online = [number for number in numbers if number]
    # Nodes of one machine may have all of its cores each, or a part each.
    count = min([sum(counts), *online]) if len(nodes) > 1 else counts[0]
    averages = (node_view.number(_seen(model, node, "load", "processors", "load")) for node in nodes)
    loads = [load for load in averages if load is not None]
    ranks = sum(end.kind == "cpu" for node in nodes for end in model.table.of_node(node))
    return Cores(tuple(nodes), ranks, count, max(loads, default=None))


def _seen(model: Model, node: str, name: str, *path: str) -> object:
    """Return a value of the probe ``host``, as it was before the tests; if it did not run, that of the inventory."""
    value = field(model.nodes[node].first_probe_results.get("host"), *path)
    return field(model.nodes[node].inventory, name) if value is None else value
