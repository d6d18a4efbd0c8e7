"""Nodes that were inspected, and the base of the rules about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from fabtui.diagnosis.finding import Domain, Rule
from fabtui.diagnosis.probe_judgements import judgements
from fabtui.model.facts.catalogue import facts_for
from fabtui.model.facts.compare import FactTable, fact_table
from fabtui.model.facts.node_view import ProbedNode
from fabtui.model.session_model import Model


class NodeContext:
    """Nodes that were inspected (by default those of the model), their facts, and expected values of facts."""

    def __init__(
        self, model: Model, nodes: Sequence[ProbedNode] | None = None, expected: Mapping[str, str] | None = None
    ) -> None:
        self.model = model
        self.expected = expected or {}
        records = [record for record in model.nodes.values() if record.inventory is not None]
        known = [ProbedNode(record.name, record.inventory or {}, record.probe_results) for record in records]
        self.nodes = known if nodes is None else list(nodes)

    @cached_property
    def table(self) -> FactTable:
        return fact_table(self.nodes, facts_for(self.nodes))

    @cached_property
    def buses(self) -> dict[tuple[str, str], str]:
        """Endpoint of each GPU, by node and `slot_of` its PCI bus id."""
        return {(end.node, slot_of(end.bus)): str(end) for end in self.model.endpoints if end.bus}

    @cached_property
    def judged(self) -> dict[str, list[tuple[str, dict[str, str]]]]:
        """Judgements with their nodes, by the name of their check."""
        found: dict[str, list[tuple[str, dict[str, str]]]] = {}
        for node in self.nodes:
            for one in judgements(node):
                found.setdefault(one["check"], []).append((node.name, one))
        return found


class NodeRule(Rule[NodeContext]):
    """Base of the rules about nodes."""

    domain = Domain.NODES
    #: The nodes of a lab are one machine, by intent, and communicate over its loopback.
    not_in_lab: ClassVar[bool] = False


def slot_of(bus: str) -> str:
    """Return a PCI bus id without its function, which the driver leaves out of messages about Xids."""
    return bus.lower().partition(".")[0]
