"""``fabtui watchdog``: watch a running job, and report once when it hangs and who is behind."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from typing import NamedTuple

from fabtui.cli.options_from_args import job_options, notice
from fabtui.cli.printing import is_plain
from fabtui.config.values import seconds
from fabtui.errors import InputError
from fabtui.export.atomic_write import write_bytes
from fabtui.jobs.watchdog import IDLE, State, WatchdogVerdict
from fabtui.nodeset import fold
from fabtui.paths import private_folder, state_folder
from fabtui.report.text import wrapped
from fabtui.sanitize import one_line
from fabtui.session.options import JobQuery, SessionOptions
from fabtui.session.running_job.evidence import HangReport, report_hang
from fabtui.session.running_job.inquiry import over_new_links
from fabtui.session.running_job.monitor import JobMonitor
from fabtui.session.running_job.watch import EVERY, HangWatch, Sample, links_to, run_command

HELP = """\
Watch a running job until it ends; when it hangs, collect evidence and report which rank is behind.

examples:
  fabtui watchdog 4711                         a job of Slurm: its logs, its nodes, NCCL RAS
  fabtui watchdog --nodes n060,n061 --logs '/scratch/me/run7/*.log'
  fabtui watchdog 4711 --on-hang 'mail -s "$FABTUI_FINDING" me@site < "$FABTUI_REPORT"'
  fabtui watchdog 4711 --once || scancel 4711  end after the first hang

A hang needs two of six signals: no output, no iteration, GPUs that spin, no traffic, RAS counts that stand and
differ, a timeout of PyTorch's watchdog. The command gets FABTUI_JOB, FABTUI_NODES, FABTUI_FINDING and
FABTUI_REPORT (a JSON file). fabtui itself changes nothing: it prints commands, and runs none of them.

exit codes: 0 the job has ended and did not hang; 1 it hung; 2 bad usage or input; 3 nothing of it could be read;
130 interrupted
"""

#: Exit codes: the job hung; nothing of it could be read; interrupted.
HUNG, UNREAD, INTERRUPTED = 1, 3, 130
_LONGEST = 86400.0


class _Settings(NamedTuple):
    """Arguments of the command."""

    every: float
    command: str
    once: bool
    as_json: bool
    unicode: bool


def execute(args: argparse.Namespace) -> int:
    """Watch until the job ends; return the exit code."""
    given = vars(args)
    if job := given.get("job"):
        if "jobid" in given and given["jobid"] != job:
            raise InputError(f"two jobs are given: {job} and --jobid {given['jobid']}")
        args.jobid = job
    idle = seconds(given.get("idle", str(IDLE)), "--idle", 1.0, _LONGEST)
    settings = _Settings(
        seconds(given.get("every", str(EVERY)), "--every", 0.5, 600.0),
        str(given.get("on_hang", "")),
        "once" in given,
        "json" in given,
        not is_plain(given),
    )
    options = job_options(args)
    if "," in options.job:
        raise InputError("one job at a time; each job has logs of its own")
    query = JobQuery(options.job, tuple(given.get("logs", ())), None, idle, options.hosts)
    try:
        return asyncio.run(_Watching(options, query, settings).run())
    except KeyboardInterrupt:
        return INTERRUPTED


class _Watching:
    """The watched job, and what was printed about it."""

    def __init__(self, options: SessionOptions, query: JobQuery, settings: _Settings) -> None:
        self._options = options
        self._query = query
        self._settings = settings
        self._printed = ""
        self._problems: set[str] = set()
        self._hangs = 0
        self._known = False

    async def run(self) -> int:
        """Watch until the job ends, or with ``once`` until it hangs; return the exit code."""
        self._line(f"watching {self._options.job and f'job {self._options.job} on '}{fold(self._options.hosts)}")
        commands: list[asyncio.Task[None]] = []
        async with links_to(self._options, notice) as links:
            watch = HangWatch(JobMonitor(self._query, links.client, every=True), links.client, self._options.hosts)
            async for sample in watch.samples(self._settings.every):
                self._show(sample)
                if sample.verdict.fired:
                    self._hangs += 1
                    commands.append(asyncio.create_task(self._command(*await self._report(sample.verdict))))
                    if self._settings.once:
                        break
            else:
                self._line("the job has ended")
        await asyncio.gather(*commands)
        return HUNG if self._hangs else 0 if self._known else UNREAD

    def _show(self, sample: Sample) -> None:
        """Print a change of the state, and what could not be read, once."""
        verdict = sample.verdict
        self._known = self._known or any(one.state is not State.UNKNOWN for one in verdict.readings)
        for problem in sample.unread:
            if problem not in self._problems:
                self._problems.add(problem)
                self._line(f"could not be read: {problem}")
        if verdict.recovered:
            self._line(f"the job goes on: {verdict.why}")
        elif verdict.phase != self._printed:
            self._line(f"{verdict.phase}: {verdict.why}" if verdict.why else str(verdict.phase))
        self._printed = verdict.phase

    async def _report(self, verdict: WatchdogVerdict) -> tuple[HangReport, str]:
        """Collect the evidence, write the report and print it; return it with the path of its file, "" without one."""
        signals = tuple(one.text for one in verdict.readings if one.state is State.HANG)
        report = await report_hang(self._options, signals, over_new_links(self._options, notice))
        path = self._write(report)
        if self._settings.as_json:
            values = {**report.values(), "report": path or None}
            print(json.dumps(values, ensure_ascii=not self._settings.unicode), flush=True)
            return report, path
        lines = [f"finding: {report.title}", *report.answer.sentences]
        lines += [f"next: {command}" for command in report.answer.next]
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
        for line in [*lines, *([f"report: {path}"] if path else [])]:
            self._print("\n".join(wrapped("  ", one_line(line, 2000), width)))
        return report, path

    def _write(self, report: HangReport) -> str:
        """Write a report to a file of its own; return its path, "" if that is not possible."""
        name = f"hang-{report.job or 'job'}-{time.strftime('%Y%m%d-%H%M%S')}.json"
        try:
            path = private_folder(state_folder() / "hangs") / name
            data = json.dumps(report.values(), indent=1).encode() + b"\n"
            write_bytes(path, data)
        except OSError as error:
            self._line(f"the report cannot be written: {error}")
            return ""
        return str(path)

    async def _command(self, report: HangReport, path: str) -> None:
        """Run the user's command with the report, and print how it ended."""
        if not self._settings.command:
            return
        first = next(iter(report.answer.sentences), "")
        variables = {
            "FABTUI_JOB": report.job,
            "FABTUI_NODES": fold(report.nodes),
            "FABTUI_FINDING": one_line(f"{report.title}: {first}", 1000),
            "FABTUI_REPORT": path,
        }
        self._line(f"the command of --on-hang {await run_command(self._settings.command, variables)}")

    def _line(self, text: str) -> None:
        """Print a line with the time; with ``--json`` to standard error."""
        self._print(f"{time.strftime('%H:%M:%S')}  {one_line(text, 1000)}", error=self._settings.as_json)

    def _print(self, text: str, *, error: bool = False) -> None:
        plain = text if self._settings.unicode else text.encode("ascii", "replace").decode("ascii")
        print(plain, file=sys.stderr if error else sys.stdout, flush=True)
