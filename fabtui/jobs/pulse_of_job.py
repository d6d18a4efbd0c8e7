"""Sample for the watchdog from a report about a job, the answers of its nodes, and a report of RAS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabtui.jobs.hang_signals import GpuPulse, Pulse, RasPulse
from fabtui.jobs.monitor.report import JobReport
from fabtui.jobs.ras_report import RasReport
from fabtui.model.facts.node_view import number
from fabtui.sanitize import one_line

#: Age (s) from which a sample of GPUs is too old.
_OLD = 30.0
_SUSPENDED = ("SUSPENDED", "STOPPED")
#: Kind of error line (`fabtui.jobs.monitor.error_lines`) of PyTorch's watchdog.
_TIMEOUT = "collective_timeout"


def pulse_of(
    when: float, report: JobReport, nodes: Mapping[str, Mapping[str, Any]], ras: RasReport | None = None
) -> Pulse:
    """Return the sample at ``when`` (s, a clock that only goes forward).

    Args:
        when: Time of the sample.
        report: What the logs and the scheduler show.
        nodes: Values of the probe ``pulse`` by node.
        ras: A new report of RAS, or None.
    """
    logs = report.facts.logs
    quiet, latest = logs.quiet(), logs.iterations.latest
    late = None
    if latest is not None:
        # A line that was there before the first reading is at least as old as the last growth of a log.
        late = report.facts.when - latest.seen if latest.seen is not None else quiet
    return Pulse(
        when,
        quiet,
        logs.iterations.interval,
        None if late is None else max(0.0, late),
        _gpus(report),
        _totals(nodes, "traffic"),
        None if ras is None else ras_pulse(ras),
        _timeout(report),
        _totals(nodes, "files"),
        report.status.state in _SUSPENDED,
    )


def ras_pulse(report: RasReport) -> RasPulse:
    """Return the counts of a RAS report, and whether ranks differ or are silent."""
    every = report.communicators.values()
    counts = {
        (one.name, operation, rank): launched
        for one in every
        for operation, ranks in one.counts.items()
        for rank, launched in ranks.items()
    }
    return RasPulse(counts, any(one.gaps() or one.silent for one in every) or bool(report.missing))


def _gpus(report: JobReport) -> tuple[GpuPulse, ...]:
    found = []
    for node, history in report.facts.logs.gpus.items():
        sample = history.latest
        if sample is None or sample.when is None or report.facts.when - sample.when > _OLD:
            continue
        found += [GpuPulse(node, gpu.number, gpu.utilization, gpu.used, gpu.power) for gpu in sample.gpus]
    return tuple(found)


def _timeout(report: JobReport) -> str:
    """Return the latest line of PyTorch's watchdog, with its time so that a later one differs."""
    found = [
        (error.when or 0.0, error.text)
        for file in report.facts.logs.files.values()
        for error in file.errors.kept
        if error.kind.name == _TIMEOUT
    ]
    return one_line(max(found)[1], 300) if found else ""


def _totals(nodes: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, int] | None:
    """Return a count of each node that has it, None if none has."""
    found = {node: int(count) for node, value in nodes.items() if (count := number(value.get(name))) is not None}
    return found or None


def age_of(report: JobReport, nodes: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return how long (s) a job runs: as Slurm knows it, else the age of its oldest rank."""
    if report.status.elapsed is not None:
        return report.status.elapsed
    ages = [age for value in nodes.values() if (age := number(value.get("age"))) is not None]
    return max(ages) if ages else None
