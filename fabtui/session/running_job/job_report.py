"""Report about a job from its logs, from Slurm, and from its nodes over links that stay open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from fabtui.errors import InputError, argument
from fabtui.jobs.monitor.report import JobReport
from fabtui.sanitize import one_line
from fabtui.scheduler.slurm import JobStatus
from fabtui.session.options import SessionOptions
from fabtui.session.running_job.job_links import links_to
from fabtui.session.running_job.monitor import JobMonitor


def options_for(options: SessionOptions, status: JobStatus) -> SessionOptions:
    """Return the options that reach the nodes of a job of Slurm."""
    return replace(
        options,
        hosts=options.hosts or status.nodes,
        job=status.job,
        placements=dict(status.placements),
        fallback=options.fallback if status.placements else "",
        origin=f"nodes of job {status.job}: squeue",
        probes=("host",),
    )


@asynccontextmanager
async def reported(
    monitor: JobMonitor,
    options: SessionOptions,
    notice: Callable[[str], None],
    *,
    ask_nodes: bool = True,
    check: Callable[[Sequence[str]], None] = lambda nodes: None,
) -> AsyncIterator[JobReport]:
    """Yield the first report; the monitor may be refreshed meanwhile.

    Args:
        monitor: The monitor of the job.
        options: How its nodes are reached.
        notice: Called with notices of connections.
        ask_nodes: Whether nodes of a running job are asked.
        check: Called with the nodes before they are asked; may raise `InputError`.

    Raises:
        InputError: Slurm does not know the job and it has no logs: probably a wrong number.
    """
    report, query = await monitor.refresh(), monitor.query
    if report.status.stage == "unknown" and not report.facts.logs.files:
        if not report.status.problem:
            raise InputError(f"{argument('logs')}: no logs were found: {one_line(', '.join(query.logs), 200)}")
        known = f"the logs of a job that Slurm has forgotten: {argument('logs')} FOLDER"
        raise InputError(f"{report.status.problem}; {known}")
    async with AsyncExitStack() as stack:
        if ask_nodes and (report.status.stage == "running" or (query.nodes and not query.job)):
            linked = options_for(options, report.status)
            check(linked.hosts)
            links = await stack.enter_async_context(links_to(linked, notice))
            monitor.client_of = links.client
            report = await monitor.refresh()
        yield report
