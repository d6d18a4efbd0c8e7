"""All findings of a session. Importing this module registers all rules."""

from __future__ import annotations

from collections.abc import Iterator

from fabtui.diagnosis.finding import RULES, Domain, Finding, Rule, Severity, register, rules_of
from fabtui.diagnosis.links import rules as link_rules
from fabtui.diagnosis.mesh.rules import mesh_findings, settled_mesh_findings
from fabtui.diagnosis.pairs import rules as pair_rules
from fabtui.diagnosis.pairs.context import PairContext
from fabtui.diagnosis.pairs.tally import Tally
from fabtui.diagnosis.preflight.rules import latest_preflight, preflight
from fabtui.model.session_model import Model

__all__ = ["RULES", "findings", "link_rules", "pair_rules", "preflight"]

_MOST_RELATED = 6


@register
class PreflightSummary(Rule[PairContext]):
    """The preflight has findings other than notes. They are one line among the findings of a session."""

    id = "FT300"
    name = "preflight"
    title = "Findings of the preflight"
    message = "preflight: [{bad:count_bad finding}][{both:flag}, ][{warnings:count_warning}]"
    next_step = "Run fabtui preflight, or press P."

    def check(self, context: PairContext) -> Iterator[Finding]:
        serious = [one for one in latest_preflight(context.model).findings if one.severity is not Severity.NOTE]
        if not serious:
            return
        bad = sum(one.severity is Severity.BAD for one in serious)
        facts = {
            "bad": bad or None,
            "warnings": len(serious) - bad or None,
            "both": 0 < bad < len(serious),
            "related": tuple(serious[:_MOST_RELATED]),
        }
        commands = [command for one in serious[:_MOST_RELATED] for command in one.next]
        yield self.finding("preflight", severity=serious[0].severity, facts=facts, commands=commands)


def findings(model: Model, tally: Tally | None = None, *, settled: bool = False) -> list[Finding]:
    """Return all findings of a session, the worst and largest first.

    Args:
        model: The session model.
        tally: The verdicts of its pairs; by default they are gathered now.
        settled: While the mesh is being filled, return its findings of before.
    """
    context = PairContext(model, tally)
    found = [finding for rule in rules_of(Domain.PAIRS) for finding in rule.check(context)]
    found += [finding for rule in rules_of(Domain.LINKS) for finding in rule.check(model)]
    found += settled_mesh_findings(model) if settled else mesh_findings(model)
    return sorted(found, key=lambda one: (one.severity.rank, -len(one.cells) - one.weight))
