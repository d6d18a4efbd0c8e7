"""The one diagnosis: evidence in, findings and everything that was derived on the way out.

    found = diagnose(model)                                  # a live session, a recording, outputs turned into a model
    found = diagnose(Evidence(errors=reader.result()))       # lines of logs, kernel logs, pasted text
    found = diagnose(Evidence(model, errors, job=facts))     # all that is known about a job and its nodes

A command calls `diagnose` once and hands the result to every writer. Evidence is facts and measurements from any
source: the rules and the error catalogue never see the source. Output of a tool becomes the facts that a probe would
report (`importers.to_model`) or `Causes` (`LogReader`), not a new rule. Then the same fault has the same
`Finding.rule.id` or the same `Finding.code` at every door.

Importing this module registers all rules about sessions; those about logs of jobs are registered by
`fabtui.diagnosis.job.logs`, those about earlier sessions by `fabtui.history`, whose findings come with the model
(`Model.past`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from fabtui.diagnosis.experiment import confirmed
from fabtui.diagnosis.finding import (
    RULES,
    Domain,
    Finding,
    Rule,
    Severity,
    Steps,
    findings_of,
    in_steps,
    register,
    rules_of,
)
from fabtui.diagnosis.healthy_set import HealthySet, healthy_set
from fabtui.diagnosis.job import running_job_rules as running_job_rules
from fabtui.diagnosis.job import uneven_traffic as uneven_traffic
from fabtui.diagnosis.job.job_verdict import JobVerdict
from fabtui.diagnosis.job.judge import job_verdict
from fabtui.diagnosis.knowledge.error_catalogue import prepared
from fabtui.diagnosis.knowledge.log_causes import Causes, error_findings
from fabtui.diagnosis.links import link_rules as link_rules
from fabtui.diagnosis.links import lone_counters as lone_counters
from fabtui.diagnosis.merge_findings import in_order, joined
from fabtui.diagnosis.mesh.addresses import AddressRule, explained_endpoints
from fabtui.diagnosis.mesh.mesh_rules import mesh_findings_in_steps, settled_mesh_findings
from fabtui.diagnosis.pairs import bisection_rules as bisection_rules
from fabtui.diagnosis.pairs import collective_rules as collective_rules
from fabtui.diagnosis.pairs import pair_rules as pair_rules
from fabtui.diagnosis.pairs import transport_rules as transport_rules
from fabtui.diagnosis.pairs.pair_context import PairContext, group_results, uses_any
from fabtui.diagnosis.pairs.tally import LayerCounts, Survey, Tally, layer_counts, runs_tests
from fabtui.diagnosis.pairs.traffic_path import Carriers, carriers
from fabtui.diagnosis.preflight.checks import (
    Preflight,
    latest_preflight,
    latest_preflight_in_steps,
    preflight,
    without_entries,
)
from fabtui.diagnosis.price import priced
from fabtui.exit_status import BAD
from fabtui.model import exit_codes
from fabtui.model.facts.compare import FactTable
from fabtui.model.session_model import Model

__all__ = ["RULES", "Diagnosis", "Evidence", "Findings", "diagnose", "search"]

#: Maximum number of findings of the preflight that are listed one by one.
_MOST_LISTED = 3
_MOST_RELATED = 6
#: Maximum numbers of differences of a blamed node that are shown, and of nodes that a finding blames.
_MOST_DIFFERENCES, _MOST_BLAMED = 4, 2


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a diagnosis may look at."""

    model: Model = field(default_factory=Model)  #: Facts of nodes and measurements of pairs.
    errors: Causes | None = None  #: Errors in lines of logs; None if no log was read.
    job: Any = None  #: Facts of a running job, the context of the rules of `Domain.JOBS`; None without a job.
    #: Values of facts that the user expects, by the name of the fact.
    expected: Mapping[str, str] = field(default_factory=dict)


class Findings(NamedTuple):
    """Findings, the worst and largest first, those that the user knows about last."""

    listed: list[Finding]  #: The findings of a session; several about the preflight alone are one.
    all: list[Finding]  #: The same, one by one.


@dataclass(frozen=True)
class Diagnosis:
    """Result of a diagnosis, computed once and handed to every writer."""

    evidence: Evidence  #: What was looked at.
    tally: Tally  #: Verdicts of all pairs, with the tables that they were read from.
    findings: list[Finding]  #: The findings, the first one first; several about the preflight alone are one.
    all_findings: list[Finding]  #: The same, one by one.
    preflight: Preflight  #: Facts of the nodes, findings about them, and what could not be inspected.

    @property
    def model(self) -> Model:
        return self.evidence.model

    @cached_property
    def not_examined(self) -> list[str]:
        """Requested tests that could not be run, one line each."""
        return exit_codes.not_tested(self.model)

    @cached_property
    def job(self) -> JobVerdict | None:
        """Verdict about the job that runs on the nodes; None if none was observed."""
        return job_verdict(self.model)

    @cached_property
    def code(self) -> int:
        """Exit code of the session, or of its preflight if the session only inspected nodes; 1 if its job alerts."""
        if self.job is not None and self.job.alerts:
            return BAD
        if self.model.options.get("looks_only"):
            return self.preflight.exit_code
        if self.past and self.model.options.get("fail_on_past") is True:
            return BAD
        return _exit_code(self.model, (*self.all_findings, *self.preflight.findings))

    @cached_property
    def bad_layers(self) -> LayerCounts:
        """Number of pairs of each layer with each bad verdict."""
        *_, found = layer_counts(self.model, self.tally.layers)
        return found or {}

    @property
    def past(self) -> list[Finding]:
        """Findings about what was bad within the session and no longer is, in the order of time."""
        events = [one for one in self.all_findings if "past" in one.facts]
        return sorted(events, key=lambda one: float(one.facts["past"].since))

    @cached_property
    def carriers(self) -> Carriers:
        """Way of the bytes of the pairs between nodes: RDMA or TCP."""
        return carriers(self.model)

    @cached_property
    def healthy(self) -> HealthySet | None:
        """The nodes and endpoints that are healthy together; None if no pair of endpoints was tested."""
        return healthy_set(self.model, self.tally, self.findings)


def diagnose(evidence: Evidence | Model) -> Diagnosis:
    """Return the diagnosis of all evidence, or of a session model alone."""
    given = Evidence(evidence) if isinstance(evidence, Model) else evidence
    model = given.model
    tally = Survey(model).finish()
    *_, findings = search(model, tally)
    assert findings is not None
    inspected = preflight(model, given.expected) if given.expected else latest_preflight(model)
    more = error_findings(given.errors) if given.errors is not None else []
    if given.job is not None:
        more += findings_of(Domain.JOBS, given.job)
    return _with(Diagnosis(given, tally, findings.listed, findings.all, inspected), more)


def with_errors(found: Diagnosis, errors: Causes) -> Diagnosis:
    return _with(replace(found, evidence=replace(found.evidence, errors=errors)), error_findings(errors))


def _with(found: Diagnosis, more: list[Finding]) -> Diagnosis:
    listed, each = (in_order(found.model, [*more, *some]) for some in (found.findings, found.all_findings))
    return replace(found, findings=listed, all_findings=each) if more else found


@register
class PreflightSummary(Rule[list[Finding]]):
    """The preflight has further findings besides notes. They are one line among the findings of a session."""

    id = "FT300"
    domain = Domain.SUMMARY

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


def _exit_code(model: Model, found: Iterable[Finding]) -> int:
    """Return the exit code of a session: the code of its results, or 1 if a finding about something else is bad.

    A fabric may be evenly slow: all pairs are alike, and only their transport shows that they could be faster. A GPU
    with memory errors may be as fast as the others.
    """
    listed = list(found)
    # Where the load of their cores explains slow ranks, what is slow by itself has a finding.
    results = any(one.severity is Severity.BAD and one.rule.domain in (Domain.PAIRS, Domain.MESH) for one in listed)
    by_load = any(isinstance(one.rule, pair_rules.CoresBusy) and one.severity is Severity.WARN for one in listed)
    code = exit_codes.exit_code(model, slow_by_load=by_load and not results)
    bad = any(one.severity is Severity.BAD and _counts(one) for one in listed)
    return BAD if bad else code


def _with_differences(table: FactTable, one: Finding) -> Finding:
    """Return a finding with what differs on the nodes that it blames: nobody foresaw all causes."""
    blamed = {subject.node for subject in (one.subject, *one.rivals)} - {None}
    if one.severity is Severity.NOTE or not (one.cells or one.measurements) or len(blamed) > _MOST_BLAMED:
        return one
    lines = [line for node in sorted(map(str, blamed)) for line in table.differences(node)]
    if not lines:
        return one
    more = [f"and {len(lines) - _MOST_DIFFERENCES} more (fabtui preflight --all)"][: len(lines) > _MOST_DIFFERENCES]
    return one.replace(facts={**one.facts, "differs": (*lines[:_MOST_DIFFERENCES], *more)})


def _counts(found: Finding) -> bool:
    rule = found.rule
    if rule.domain in (Domain.LINKS, Domain.NODES, Domain.RUNNING):
        # Where nodes differ and no value has a majority, none is known to be wrong.
        return not found.facts.get("tie")
    return isinstance(rule, (transport_rules.TransportRule, transport_rules.BelowLinkLimit, AddressRule))


def _checked(domain: Domain, context: Any, *, lasting: bool = False) -> Steps[list[Finding]]:
    findings = []
    for rule in rules_of(domain):
        if lasting and not rule.lasts:
            continue
        for finding in rule.check(context):
            if finding is not None:
                findings.append(finding)
            yield
        yield
    return findings


def search(model: Model, tally: Tally, *, settled: bool = False) -> Iterator[Findings | None]:
    """Yield None after each small step, and all findings at the end; the model must not change meanwhile.

    Args:
        model: The session model.
        tally: The verdicts of its pairs.
        settled: While a sweep runs, leave out what may not last: use the findings of before about a mesh that is being
            filled, and no rule about what is usual among all results.
    """
    yield from prepared() if tally.bad else ()
    mesh = yield from settled_mesh_findings(model) if settled else mesh_findings_in_steps(model)
    yield None
    explained = [explained_endpoints(model, one) for one in mesh]
    groups = yield from group_results(model)
    context = PairContext(model, tally, frozenset().union(*explained), groups)
    yield None
    results = yield from _checked(Domain.PAIRS, context, lasting=settled and runs_tests(model))
    for one, ends in zip(mesh, explained, strict=True):
        cells: list[tuple[str, str]] = []
        for some in in_steps([*context.tally.bad, *context.tally.only_inside] if ends else []):
            cells += [pair for pair in some if uses_any(model, pair, ends)]
            yield None
        results.append(one.replace(cells=frozenset(cells)) if cells else one)
    yield None
    facts = yield from _checked(Domain.LINKS, model)
    preflight_now = yield from latest_preflight_in_steps(model)
    inspected = preflight_now.findings
    # Rules about addresses are among the results.
    facts += [one for one in inspected if one.severity is not Severity.NOTE and one.rule.domain is not Domain.MESH]
    facts = without_entries(facts, mesh)
    yield None
    running = yield from _checked(Domain.RUNNING, model)
    findings, left = yield from joined(model, results, facts)
    findings += running
    if model.past is not None:
        # Parts of other nodes, and versions, which are of no node, are of no concern here.
        findings += [one for one in model.past.findings if one.nodes and {*one.nodes} <= model.nodes.keys()]
    # A GPU in use is left out of a sweep; it and counters of any name matter where they explain something.
    only_facts = (link_rules.GpuInUse, lone_counters.LoneCounters)
    findings += [one for one in left if one.rule.domain is not Domain.NODES and not isinstance(one.rule, only_facts)]
    for at, one in enumerate(findings):
        findings[at] = _with_differences(preflight_now.table, confirmed(model, one))
        yield None
    if not (settled and runs_tests(model)):
        findings = yield from priced(model, findings)
    checks = [one for one in left if one.rule.domain is Domain.NODES]
    few = checks
    if len(checks) > _MOST_LISTED:
        # What is bad is named, also among many warnings.
        few = [one for one in checks if one.severity is Severity.BAD][:_MOST_LISTED]
        few += findings_of(Domain.SUMMARY, [one for one in checks if one not in few])
    yield Findings(in_order(model, [*findings, *few]), in_order(model, [*findings, *checks]))
