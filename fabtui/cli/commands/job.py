"""``fabtui job``: watch a running job, or report on one that has ended, from its logs and its nodes."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fabtui.argument_name import argument
from fabtui.cli.commands.app import screen_settings, show
from fabtui.cli.options_from_args import notice, print_problems, request_from
from fabtui.cli.printing import is_plain, print_json
from fabtui.config.file import ConfigFile, read_config
from fabtui.config.values import launcher, seconds
from fabtui.errors import InputError
from fabtui.exit_status import INTERRUPTED
from fabtui.export.json import job_report_json
from fabtui.jobs.monitor.job_logs import missing
from fabtui.jobs.monitor.report import JobReport
from fabtui.nodeset import chosen_nodes
from fabtui.presentation.job_lines import job_text
from fabtui.sanitize import one_line
from fabtui.scheduler.slurm import job_ids, own_jobs
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import USUAL_IDLE, JobQuery, SessionOptions
from fabtui.session.running_job.job_report import options_for, reported
from fabtui.session.running_job.monitor import JobMonitor

HELP = """\
Watch a running job, or report on one that has ended, from its logs, from Slurm and from its nodes.

examples:
  fabtui job 4711                              the job on the screen; as text where there is no terminal
  fabtui job 4711 --once                       one report as text: findings, nodes, iterations, ends of the logs
  fabtui job 4711 --logs '../log/{job}' --follow
  fabtui job --logs /scratch/me/logs --once    logs without Slurm: folders or files, such as run7/*.err
  fabtui job 4711 --once --json | jq .findings

Nothing is started or changed on the nodes, and Slurm is asked at most every 5 s.

exit codes: 0 nothing is wrong; 1 something is wrong, the job hangs, failed or was cancelled; 2 bad usage or input;
3 something could not be read; 130 interrupted
"""

#: Time (s) between two readings; a reading that takes long is followed by a longer pause.
EVERY = 2.0
_SHARE = 5.0
_LONGEST_IDLE = 7 * 86400.0
#: Maximum number of jobs that an error names.
_MOST_LISTED = 8
#: Arguments that name nodes, which Slurm does here; ``--json`` names no file.
_OWN = ("json", "jobid", "nodes", "hostfile", "exclude", "no_job", "pods", "transport", "via")


def execute(args: argparse.Namespace) -> int:
    """Report on a job: on the screen, or as text or JSON; return the exit code."""
    config = read_config(args)
    query = query_from(vars(args), os.environ)
    options = links_options(args, config, query)
    as_text = {"once", "follow", "json", "no_links"} & set(vars(args)) or not sys.stdout.isatty()
    monitor = JobMonitor(query)
    if not as_text:
        first = asyncio.run(monitor.refresh())
        if first.status.stage == "running":
            return _on_screen(args, config, options_for(options, first.status), monitor)
    print_problems(config)
    try:
        return asyncio.run(_as_text(args, monitor, options))
    except KeyboardInterrupt:
        return INTERRUPTED


def query_from(given: Mapping[str, Any], environ: Mapping[str, str]) -> JobQuery:
    """Return what is asked; without a job id the job that this runs in, unless only logs are named.

    Raises:
        InputError: There is neither a job nor logs, or a value is not valid.
    """
    logs = tuple(given.get("logs", ()))
    own = given.get("job") or given.get("jobid")
    if not own and len(logs) > 1 and re.fullmatch("[0-9_+]{1,22}", logs[-1]) and not os.path.exists(logs[-1]):
        # fabtui job --logs FOLDER 4711
        own, logs = logs[-1], logs[:-1]
    text = own or ("" if logs else environ.get("SLURM_JOB_ID", ""))
    where = argument("jobid", "JOBID")
    jobs = job_ids(text, where) if text else [""]
    if len(jobs) > 1:
        raise InputError(f"{where}: one job at a time; each job has its own logs")
    if not jobs[0] and not logs:
        jobs = [_only_job()]
    if not jobs[0] and len(logs) > 1 and (path := missing(logs)):
        raise InputError(f"{argument('logs')}: no such file or folder: {one_line(path, 200)}")
    nodes, hostfiles = given.get("nodes", []), given.get("hostfile", [])
    return JobQuery(
        jobs[0],
        logs,
        seconds(given["idle"], "--idle", 1.0, _LONGEST_IDLE) if "idle" in given else USUAL_IDLE,
        tuple(chosen_nodes(nodes, hostfiles, given.get("exclude", []))) if nodes or hostfiles else (),
    )


def _only_job() -> str:
    own, _ = own_jobs()
    named = argument("jobid", "fabtui job")
    if not own:
        raise InputError(f"no job given; use {named} 4711, or {argument('logs')} FOLDER for logs without Slurm")
    if len(own) > 1:
        listed = ", ".join(one_line(f"{one.job} {one.name} ({one.state.lower()})", 60) for one in own[:_MOST_LISTED])
        more = f" and {len(own) - _MOST_LISTED} more" if len(own) > _MOST_LISTED else ""
        raise InputError(f"you have several jobs; name one, such as {named} {own[0].job}; there are {listed}{more}")
    return own[0].job


def links_options(args: argparse.Namespace, config: ConfigFile, query: JobQuery) -> SessionOptions:
    """Return the options that reach the nodes of a job, and the nodes if they are named.

    Raises:
        InputError: An argument is not valid.
    """
    given = vars(args)
    namespace = argparse.Namespace(**{name: value for name, value in given.items() if name not in _OWN})
    options = request_from(argparse.Namespace(**vars(namespace), transport="local", no_record=True), config).options
    via = launcher(given["via"], "--via") if "via" in given else ""
    transport: Any = "via" if via else given.get("transport", "ssh")
    fallback = "srun" if transport == "ssh" and "transport" not in given else ""
    return replace(options, transport=transport, via=via, fallback=fallback, hosts=query.nodes, query=query)


def _on_screen(args: argparse.Namespace, config: ConfigFile, options: SessionOptions, monitor: JobMonitor) -> int:
    """Show the job in the app until the user leaves it."""
    title = f"job {options.job}"
    settings = screen_settings(args, config, title)._replace(first_view="job")
    feed = LiveFeed(options)
    feed.watch_job(monitor)
    code, _ = show(lambda: feed, settings, f"fabtui job {options.job} --once")
    return monitor.report.exit_code if monitor.report is not None else code


async def _as_text(args: argparse.Namespace, monitor: JobMonitor, options: SessionOptions) -> int:
    given = set(vars(args))
    async with reported(monitor, options, notice, ask_nodes="no_links" not in given) as report:
        show_report = _printer(args)
        show_report(report)
        while "follow" in given and report.status.stage != "ended":
            began = time.monotonic()
            await asyncio.sleep(EVERY)
            report = await monitor.refresh()
            show_report(report)
            # A slow file system is not read all the time.
            await asyncio.sleep(max(0.0, (time.monotonic() - began - EVERY) * _SHARE))
    return report.exit_code


def _printer(args: argparse.Namespace) -> Callable[[JobReport], None]:
    """Return what prints reports: whole ones, in follow mode after the first one a line for each change."""
    given = set(vars(args))
    printed: set[str] = set()

    def print_report(report: JobReport) -> None:
        lines = _lines(report)
        if "json" in given:
            print_json(job_report_json(report), given)
        elif not printed:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
            print(job_text(report, max(60, width), ascii_only=is_plain(given)), end="", flush=True)
        else:
            for line in [line for key, line in lines.items() if key not in printed]:
                print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)
        printed.update(lines)

    return print_report


def _lines(report: JobReport) -> dict[str, str]:
    """Return what follow mode prints once: the state, findings, and the last iteration."""
    latest = report.facts.logs.iterations.latest
    state = f"{report.status.state or 'unknown'}: {report.verdict}"
    lines = {state: state}
    for one in report.findings:
        # Durations and counts grow.
        text = f"{one.rule.id} {one_line(one.facts['text'], 600)}"
        lines[re.sub("[0-9]+", "0", text)] = text
    if latest is not None and latest.seconds is not None:
        text = f"iteration {latest.number}/{latest.total}: {latest.seconds:.4g} s"
        lines[text] = text
    return lines
