"""A job's report as JSON."""

from __future__ import annotations

from typing import Any

from fabtui.jobs.monitor.gpu_history import NodeGpus
from fabtui.jobs.monitor.iteration_times import Iteration
from fabtui.jobs.monitor.report import JobReport, NodeRow
from fabtui.sanitize import clean

KIND = "fabtui job"
#: Version of the format; it grows if a value changes its meaning or goes.
FORMAT = 1
#: Iterations that are listed, and lines at the end of each log.
_ITERATIONS, _TAIL = 100, 3


def job_values(report: JobReport) -> dict[str, Any]:
    """Return a report as JSON-able values; times in s, memory in bytes, unknown values None, texts cleaned."""
    status, facts = report.status, report.facts
    times = facts.logs.iterations
    return {
        "kind": KIND,
        "format": FORMAT,
        "when": facts.when,
        "job": status.job or None,
        "state": status.state or None,
        "reason": clean(status.reason) or None,
        "name": clean(status.name) or None,
        "user": clean(status.user) or None,
        "elapsed": status.elapsed,
        "limit": status.limit,
        "exit_code": status.exit_code or None,
        "verdict": report.verdict,
        "exit": report.exit_code,
        "findings": [
            {
                **{"rule": one.rule.id, "severity": str(one.severity), "text": clean(one.facts["text"])},
                **{"nodes": list(one.nodes), "evidence": [clean(text) for text in one.facts["evidence"] or ()]},
                "next": clean("".join(one.next)) or None,
            }
            for one in report.findings
        ],
        "quiet": facts.logs.quiet(),
        "silence_limit": facts.silence_limit,
        "iterations": {
            "median": times.median,
            "interval": times.interval,
            "warm_up": None if times.warm_up is None else _iteration(times.warm_up),
            "restarts": times.restarts,
            "latest": [_iteration(one) for one in times.all[-_ITERATIONS:]],
        },
        "settings": {
            clean(who): {name: clean(text) for name, text in values.items()} for who, values in _settings(report)
        },
        # It had a file to compare with in the first release.
        "configuration": None,
        "nodes": [_row(row) for row in report.rows],
        "logs": [
            {
                **{"path": clean(file.path), "node": file.node or None, "stream": file.stream, "lines": file.lines},
                **{"bytes": file.size, "skipped": file.skipped, "read_on": file.reader or None},
                **{"age": facts.logs.age(file), "errors": file.errors.count},
                "tail": [clean(line) for line in file.tail(_TAIL)],
            }
            for file in facts.logs.files.values()
        ],
        "unread": list(report.unread),
    }


def _settings(report: JobReport) -> list[tuple[str, dict[str, str]]]:
    return list(report.facts.logs.settings.of.items())


def _iteration(one: Iteration) -> dict[str, Any]:
    return {"iteration": one.number, "total": one.total, "seconds": one.seconds, "loss": clean(one.loss) or None}


def _row(row: NodeRow) -> dict[str, Any]:
    return {
        **{"node": row.node, "state": row.state, "quiet": row.quiet, "iteration": row.iteration or None},
        **{"errors": row.errors, "ranks": row.ranks, "gpus": None if row.sample is None else _gpus(row.sample)},
        "gpus_age": row.sample_age,
    }


def _gpus(sample: NodeGpus) -> list[dict[str, Any]]:
    return [{**gpu._asdict(), "busy": gpu.busy} for gpu in sample.gpus]
