"""All findings of a session. Importing this module registers all rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fabtui.diagnosis.acknowledged import in_order
from fabtui.diagnosis.confirmation import confirmed
from fabtui.diagnosis.finding import RULES, Domain, Finding, Rule, Severity, register, rules_of
from fabtui.diagnosis.joined import joined
from fabtui.diagnosis.links import rules as link_rules
from fabtui.diagnosis.mesh.addresses import AddressRule, explained_endpoints
from fabtui.diagnosis.mesh.rules import mesh_findings, settled_mesh_findings
from fabtui.diagnosis.pairs import rules as pair_rules
from fabtui.diagnosis.pairs import transports as transport_rules
from fabtui.diagnosis.pairs.context import PairContext, in_steps
from fabtui.diagnosis.pairs.tally import Tally
from fabtui.diagnosis.preflight.rules import latest_preflight, preflight
from fabtui.model import exit_codes
from fabtui.model.session_model import Model

__all__ = ["RULES", "exit_code", "findings", "link_rules", "pair_rules", "preflight", "transport_rules"]

#: Maximum number of findings of the preflight that are listed one by one.
_MOST_LISTED = 3
_MOST_RELATED = 6


@register
class PreflightSummary(Rule[list[Finding]]):
    """The preflight has further findings other than notes. They are one line among the findings of a session."""

    id = "FT300"
    name = "preflight"
    title = "Findings of the preflight"
    domain = Domain.SUMMARY
    message = "preflight: [{bad:count_bad finding}][{both:flag}, ][{warnings:count_warning}]"
    next_step = "Run fabtui preflight, or press P."

    def check(self, context: list[Finding]) -> Iterator[Finding]:
        if not context:
            return
        bad = sum(one.severity is Severity.BAD for one in context)
        facts = {
            "bad": bad or None,
            "warnings": len(context) - bad or None,
            "both": 0 < bad < len(context),
            "related": tuple(context[:_MOST_RELATED]),
        }
        commands = [command for one in context[:_MOST_RELATED] for command in one.next]
        nodes = list(dict.fromkeys(node for one in context for node in one.nodes))
        yield self.finding("preflight", severity=context[0].severity, nodes=nodes, facts=facts, commands=commands)


def exit_code(model: Model, found: Iterable[Finding] | None = None) -> int:
    """Return the exit code of a session: that of its results, or 1 if a finding about something else is bad.

    A fabric may be evenly slow: all pairs are alike, and only their transport shows that they could be faster. A GPU
    with memory errors may be as fast as the others.

    Args:
        model: The session model.
        found: Its findings; by default they are searched now.
    """
    code = exit_codes.exit_code(model)
    if code == exit_codes.BAD:
        return code
    known = [*(findings(model) if found is None else found), *latest_preflight(model).findings]
    bad = any(one.severity is Severity.BAD and _counts(one) for one in known)
    return exit_codes.BAD if bad else code


def _counts(found: Finding) -> bool:
    """Return whether a bad finding is about something else than results, which have counted already."""
    rule = found.rule
    if rule.domain in (Domain.LINKS, Domain.NODES):
        # Where nodes differ and no value has a majority, none is known to be wrong.
        return not found.facts.get("tie")
    return isinstance(rule, (transport_rules.TransportRule, transport_rules.BelowLinkLimit, AddressRule))


def findings(model: Model, tally: Tally | None = None, *, settled: bool = False, every: bool = False) -> list[Finding]:
    """Return all findings of a session, the worst and largest first, those that the user knows about last.

    Args:
        model: The session model.
        tally: The verdicts of its pairs; by default they are gathered now.
        settled: While the mesh is being filled, return its findings of before.
        every: List the findings of the preflight one by one, however many.
    """
    *_, found = search(model, tally, settled=settled, every=every)
    assert found is not None
    return found


def search(
    model: Model, tally: Tally | None = None, *, settled: bool = False, every: bool = False
) -> Iterator[list[Finding] | None]:
    """Yield None after each small step, and all findings at the end; the model must not change meanwhile."""
    mesh = settled_mesh_findings(model) if settled else mesh_findings(model)
    explained = [explained_endpoints(model, one) for one in mesh]
    context = PairContext(model, tally, frozenset().union(*explained))
    yield None
    results = []
    for rule in rules_of(Domain.PAIRS):
        if isinstance(rule, pair_rules.BlameRule):
            yield from context.search()
        for finding in rule.check(context):
            if finding is not None:
                results.append(finding)
            yield None
        yield None
    for one, ends in zip(mesh, explained, strict=True):
        cells: list[tuple[str, str]] = []
        for some in in_steps([*context.tally.bad, *context.tally.only_inside] if ends else []):
            cells += [pair for pair in some if not ends.isdisjoint(pair)]
            yield None
        results.append(one.replace(cells=frozenset(cells)) if cells else one)
    yield None
    facts = []
    for fact_rule in rules_of(Domain.LINKS):
        for finding in fact_rule.check(model):
            if finding is not None:
                facts.append(finding)
            yield None
    yield None
    facts += [one for one in latest_preflight(model).findings if one.severity is not Severity.NOTE]
    yield None
    found, left = yield from joined(model, results, facts)
    # A GPU in use is left out of a sweep; it matters where it explains something.
    listed = [
        one for one in left if one.rule.domain is not Domain.NODES and not isinstance(one.rule, link_rules.GpuInUse)
    ]
    checks = [one for one in left if one.rule.domain is Domain.NODES]
    if every or len(checks) <= _MOST_LISTED:
        listed += checks
    else:
        listed += [finding for rule in rules_of(Domain.SUMMARY) for finding in rule.findings(checks)]
    known = []
    for one in (*found, *listed):
        known.append(confirmed(model, one))
        yield None
    yield in_order(model, known)
