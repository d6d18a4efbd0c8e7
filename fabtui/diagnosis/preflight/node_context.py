"""Nodes that were inspected, and the base of the rules about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from fabtui.diagnosis.finding import Domain, Rule, Severity, Steps, finished
from fabtui.diagnosis.knowledge import xids
from fabtui.diagnosis.preflight.state_facts import state_facts
from fabtui.model.facts.catalogue import facts_for
from fabtui.model.facts.compare import FactTable, fact_table
from fabtui.model.facts.node_view import ProbedNode, dicts
from fabtui.model.facts.states import PROBE, States
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line
from fabtui_node import registry

_FIELDS = ("subject", "verdict", "text")
#: Maximum number of judgements per probe and node.
_MOST = 200


class NodeJudgement(NamedTuple):
    """Judgement of a probe about a node, with cleaned texts; see `fabtui_node.registry.Judgement`."""

    node: str
    probe: str
    subject: str
    verdict: str
    text: str
    check: str = ""
    action: str = ""
    devices: str = ""


def judgements(node: ProbedNode) -> list[NodeJudgement]:
    judgements_of: list[NodeJudgement] = []
    for probe, value in [("inventory", node.inventory), *node.probe_results.items()]:
        spec = registry.PROBES.get(probe)
        judged: Any = _user_probe(probe, value)
        if spec is not None and spec.judge is not None and value and value.keys() != {"error"}:
            try:
                judged = spec.judge(dict(value)) + (xids.judged(value) if probe == "kernel" else [])
            except Exception as error:
                # A malformed result of one probe must not hide the judgements of other probes.
                text = f"cannot interpret the result of {probe}: {type(error).__name__}: {error}"
                judged = [{"subject": probe, "verdict": "note", "text": text}]
        for entry in dicts(judged)[:_MOST]:
            # A user probe has no place in the catalogue.
            names = _FIELDS if spec is None else (*_FIELDS, "check", "action")
            texts = {name: one_line(str(entry.get(name, "")), 300) for name in names}
            devices = entry.get("devices")
            listed = " ".join(map(str, devices))[:300] if isinstance(devices, list) else ""
            judgements_of.append(NodeJudgement(node.name, probe, **texts, devices=listed))
    return judgements_of


def _user_probe(probe: str, value: Mapping[str, Any]) -> list[Any]:
    if value.get("own") is not True:
        return []
    problem = f"your probe {probe} did not work: {value.get('problem')}"
    own: list[Any] = [{"subject": probe, "verdict": "note", "text": problem}] if value.get("problem") else []
    return [*dicts(value.get("judged")), *own]


def severity_of(verdict: str) -> Severity:
    if verdict in list(Severity):
        return Severity(verdict)
    if verdict in ("failed", "error", "timeout", "fatal"):
        return Severity.BAD
    return Severity.WARN if verdict in ("warning", "slow", "inconclusive") else Severity.NOTE


class NodeContext:
    """Nodes that were inspected (by default all of the model), their facts, and expected values of facts."""

    def __init__(
        self, model: Model, nodes: Sequence[ProbedNode] | None = None, expected: Mapping[str, str] | None = None
    ) -> None:
        self.model = model
        self.expected = expected or {}
        records = [record for record in model.nodes.values() if record.inventory is not None]
        known = [ProbedNode(record.name, record.inventory or {}, record.probe_results) for record in records]
        self.nodes = known if nodes is None else list(nodes)

    def prepare(self) -> Steps[None]:
        """Compare the facts and judge the nodes in small steps; otherwise the first rule that needs them does it."""
        first = {name: record.first_probe_results.get(PROBE) for name, record in self.model.nodes.items()}
        states = States(self.nodes, first)
        yield
        facts = facts_for(self.nodes)
        # A node may not take the place of a fact that fabtui has.
        known = {fact.name for fact in facts}
        facts += [fact for fact in state_facts(states) if fact.name not in known]
        self.__dict__["table"] = yield from fact_table(self.nodes, facts)
        judged: dict[str, list[NodeJudgement]] = {}
        for node in self.nodes:
            for each in judgements(node):
                judged.setdefault(each.check, []).append(each)
            yield
        self.__dict__["judged"] = judged

    @cached_property
    def table(self) -> FactTable:
        finished(self.prepare())
        return self.table

    @cached_property
    def buses(self) -> dict[tuple[str, str], str]:
        return {(end.node, slot_of(end.bus)): str(end) for end in self.model.endpoints if end.bus}

    @cached_property
    def judged(self) -> dict[str, list[NodeJudgement]]:
        finished(self.prepare())
        return self.judged


class NodeRule(Rule[NodeContext]):
    """Base of the rules about nodes."""

    domain = Domain.NODES
    #: The nodes of a lab are one machine, by intent, and communicate over its loopback.
    not_in_lab: ClassVar[bool] = False


def slot_of(bus: str) -> str:
    """Return a PCI bus id without its function, which the driver leaves out of messages about Xids."""
    return bus.lower().partition(".")[0]
