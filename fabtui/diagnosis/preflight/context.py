"""State of nodes, as rules of the preflight see it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from fabtui.diagnosis.finding import Domain, Rule
from fabtui.model.facts.catalogue import facts_for
from fabtui.model.facts.compare import FactTable, fact_table
from fabtui.model.facts.node_view import ProbedNode
from fabtui.model.session_model import Model


class NodeContext:
    """Nodes and their facts.

    Args:
        model: The session model.
        nodes: The inspected nodes; by default those of the model.
    """

    def __init__(self, model: Model, nodes: Sequence[ProbedNode] | None = None) -> None:
        self.model = model
        records = (record for record in model.nodes.values() if record.inventory is not None)
        self.nodes = (
            [ProbedNode(record.name, record.inventory or {}, record.probe_results) for record in records]
            if nodes is None
            else list(nodes)
        )

    @cached_property
    def table(self) -> FactTable:
        """The facts of all nodes side by side."""
        return fact_table(self.nodes, facts_for(self.nodes))


class NodeRule(Rule[NodeContext]):
    """Base of the rules about nodes.

    Attributes:
        not_in_lab: Whether the rule is skipped in a lab, whose nodes are one machine.
    """

    domain = Domain.NODES
    not_in_lab: ClassVar[bool] = False
