"""A report from facts: rules and rows."""

from __future__ import annotations

from collections.abc import Sequence

from fabtui.diagnosis.finding import Domain, Severity, rules_of
from fabtui.jobs.monitor.iteration_times import iteration_of
from fabtui.jobs.monitor.job_logs import LogFile
from fabtui.jobs.monitor.job_rules import gpu_age
from fabtui.jobs.monitor.report import JobFacts, JobReport, NodeRow


def report_of(facts: JobFacts, unread: Sequence[str] = ()) -> JobReport:
    """Return the report of a job: the most severe findings first, and what hangs before others."""
    found = [one for rule in rules_of(Domain.JOBS) for one in rule.findings(facts)]
    found.sort(key=lambda one: (one.severity.rank, not one.facts.get("hangs")))
    suspects = {node for one in found if one.severity is not Severity.NOTE for node in one.nodes}
    rows = tuple(_row(facts, node, node in suspects) for node in facts.logs.nodes)
    return JobReport(facts, rows, tuple(found), tuple(unread))


def _row(facts: JobFacts, node: str, suspect: bool) -> NodeRow:
    logs = facts.logs
    files = logs.of(node, "out", "err")
    written = [file for file in files if file.size]
    reported = facts.nodes.get(node)
    history = logs.gpus.get(node)
    state = "suspect" if suspect else "ok" if files or logs.of("", "out", "err") else "no logs"
    return NodeRow(
        node,
        state,
        logs.quiet(node),
        written[-1].stream if written else None,
        _iteration(files),
        history.latest if history is not None else None,
        gpu_age(facts, node),
        sum(file.errors.count for file in files),
        None if reported is None or reported.ranks is None else len(reported.ranks),
    )


def _iteration(files: Sequence[LogFile]) -> str:
    """Return the last iteration that a node has printed, such as ``30/50``."""
    for file in reversed(files):
        for line in reversed(file.tail()):
            if (found := iteration_of(line)) is not None:
                return f"{found.number}/{found.total}"
    return ""
