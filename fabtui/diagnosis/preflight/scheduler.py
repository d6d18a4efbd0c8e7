"""Rule about nodes that the scheduler has taken out of service."""

from __future__ import annotations

from collections.abc import Iterator

from fabtui.diagnosis.finding import Finding, Severity, register
from fabtui.diagnosis.preflight.context import NodeContext, NodeRule
from fabtui.model.facts.node_view import field, text
from fabtui.nodeset import fold

#: What a state of Slurm contains when the node gets no jobs (``sinfo`` manual, node state codes).
_OUT = ("drain", "down", "fail", "maint", "inval", "error", "unknown", "powered", "reboot")
#: Those of nodes that do not work.
_BROKEN = ("down", "fail", "inval", "error")


@register
class OutOfService(NodeRule):
    """Slurm gives a node no jobs: it is drained, down, failing or in maintenance."""

    id = "FT330"
    name = "out-of-service"
    title = "Node out of service in Slurm"
    severity = Severity.WARN
    message = "{state} in Slurm[: {reason}]"
    evidence = ("on {where}",)
    next_step = "Ask the person who set the reason; resume the node once it is repaired."
    not_in_lab = True

    def check(self, context: NodeContext) -> Iterator[Finding]:
        groups: dict[tuple[str, str], list[str]] = {}
        for record in context.model.nodes.values():
            known = record.probe_results.get("slurm")
            state = text(field(known, "state")) or ""
            if any(word in state.lower() for word in _OUT):
                groups.setdefault((state, text(field(known, "reason")) or ""), []).append(record.name)
        for (state, reason), nodes in groups.items():
            broken = any(word in state.lower() for word in _BROKEN)
            facts = {"state": state, "where": fold(nodes), **({"reason": reason} if reason else {})}
            yield self.finding(
                reason or state,
                nodes=tuple(nodes),
                facts=facts,
                severity=Severity.BAD if broken else Severity.WARN,
                commands=(f"scontrol show node {nodes[0]}",),
            )
