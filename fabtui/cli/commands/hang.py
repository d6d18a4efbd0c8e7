"""``fabtui hang`` and ``fabtui job``: whether a running job hangs and who is behind; and how a job goes, or ended."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from fabtui.atomic_write import write_bytes
from fabtui.cli.commands.app import screen_settings, show
from fabtui.cli.options_from_args import in_job, notice, print_problems, request_from
from fabtui.cli.printing import confirmed, is_plain, new_file, print_json, print_text
from fabtui.config.file import ConfigFile, read_config
from fabtui.config.values import launcher, seconds
from fabtui.diagnosis.job.job_verdict import JobState, JobVerdict, exit_code
from fabtui.diagnosis.job.logs.job_logs import missing
from fabtui.diagnosis.job.logs.report import JobReport
from fabtui.diagnosis.job.who_is_behind import NO_RANK
from fabtui.errors import InputError, argument
from fabtui.exit_status import BAD, INTERRUPTED, NOT_TESTED
from fabtui.export.json import job_json
from fabtui.model.facts.node_view import dicts
from fabtui.model.facts.node_view import text as text_of
from fabtui.model.job_evidence import JobSource
from fabtui.nodeset import chosen_nodes, count, fold
from fabtui.paths import private_folder, state_folder
from fabtui.presentation.job_lines import job_text
from fabtui.report.session_notes import job_blocks
from fabtui.report.text import text
from fabtui.sanitize import one_line
from fabtui.scheduler.slurm import job_ids, own_jobs
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import USUAL_IDLE, JobQuery, SessionOptions
from fabtui.session.running_job.job_session import PATIENCE, SNAPSHOT, JobSession, observed, options_for, reported
from fabtui.session.running_job.monitor import JobMonitor

HELP = """\
Report whether a running job hangs or is held up, which rank is behind and what to type next, without disturbing it.

examples:
  fabtui hang --nodes n060,n061                a snapshot of 6 s from all sources, 9 s if nothing moves
  fabtui hang 4711                             a job of Slurm; without a name, on a node of the job or in its pod
  fabtui hang 4711 --save hang.jsonl.gz        keep the evidence, then: fabtui replay, report or share hang.jsonl.gz
  fabtui hang 4711 --wait --on-hang 'mail -s "$FABTUI_FINDING" me@site < "$FABTUI_REPORT"'
  fabtui hang 4711 --source flight             have the ranks write flight recorder dumps, after a yes

Save the evidence before you stop the job. fabtui changes nothing: it prints commands, and runs none of them. The
command of --on-hang gets FABTUI_JOB, FABTUI_NODES, FABTUI_FINDING and FABTUI_REPORT (a JSON file).

exit codes: 0 the job makes progress, is paused or starting, or has ended; 1 it hangs or is held up;
2 bad usage or input; 3 nothing of it could be read, or too little; 130 interrupted
"""

#: Why no rank of a node can write a dump.
NO_RECORDER = (
    "no rank has a FIFO of the flight recorder; start the job with TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/fr and"
    " TORCH_FR_BUFFER_SIZE=2000 (docs/jobs.md)"
)
#: Timeout (s) of the user's command.
COMMAND_DEADLINE = 600.0
HELP_JOB = """\
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


class HangSettings(NamedTuple):
    """Arguments of the command."""

    wait: bool = False  #: Whether it waits for a job that hangs.
    every: float = 0.5  #: Time (s) between two looks at the verdict.
    command: str = ""  #: The user's command, or "".
    as_json: bool = False
    unicode: bool = True
    source: JobSource | None = None  #: The one source that is asked; None for all.
    write: bool = False  #: Whether ranks write dumps without a question.


def execute(args: argparse.Namespace) -> int:
    given = vars(args)
    settings = HangSettings(
        wait="wait" in given,
        command=str(given.get("on_hang", "")),
        as_json="json" in given,
        unicode=not is_plain(given),
        source=JobSource(given["source"]) if "source" in given else None,
        write="yes" in given,
    )
    options, query = hang_options(args)
    if settings.source is JobSource.FLIGHT and settings.wait:
        raise InputError("--source flight makes the ranks write dumps once; leave out --wait")
    if settings.source is JobSource.LOG and query is None:
        raise InputError("--source log needs a job of Slurm, or --logs")
    if settings.source not in (None, JobSource.LOG):
        query = None
    return asyncio.run(HangCommand(options, query, settings).run())


def job_options(args: argparse.Namespace) -> SessionOptions:
    """Return nodes and connection: without nodes those of the job around this process, else this machine."""
    config = read_config(args)
    print_problems(config)
    # Here, --json names no file.
    given = {name: value for name, value in vars(args).items() if name != "json"}
    named = {"nodes", "hostfile", "jobid", "pods", "via", "transport"} & set(given)
    if not named and ("no_job" in given or not in_job()):
        given["transport"] = "local"
    return request_from(argparse.Namespace(**given, no_record=True), config).options


def hang_options(args: argparse.Namespace) -> tuple[SessionOptions, JobQuery | None]:
    """Return the nodes with the recording, and where the logs are; None without logs to read."""
    given = vars(args)
    if job := given.get("job"):
        if "jobid" in given and given["jobid"] != job:
            raise InputError(f"two jobs are given: {job} and --jobid {given['jobid']}")
        args.jobid = job
    record = None if "save" not in given else new_file(given["save"], "--save")
    options = replace(job_options(args), record=record)
    logs = tuple(given.get("logs", ()))
    if not logs and (not options.job or "," in options.job):
        return options, None
    return options, JobQuery(options.job, logs, nodes=options.hosts)


class HangCommand:
    """A snapshot of a job, or a watch over it, and what was printed about it; without a query no log is read."""

    def __init__(self, options: SessionOptions, query: JobQuery | None, settings: HangSettings) -> None:
        self._options = options
        self._query = query
        self._settings = settings
        self._commands: list[asyncio.Task[None]] = []
        self._code = NOT_TESTED
        self._given = () if settings.unicode else ("ascii",)

    async def run(self) -> int:
        """Take a snapshot, or wait until the job hangs or ends; return the exit code."""
        patience = None if self._settings.wait else PATIENCE
        monitor = None if self._query is None else JobMonitor(self._query, every=True)
        async with observed(self._options, notice, monitor, patience, self._settings.source) as session:
            if self._settings.wait:
                await self._watch(session)
            elif self._settings.source is JobSource.FLIGHT and (refusal := await self._refusal(session)) is not None:
                return refusal
            else:
                verdict = await session.snapshot()
                self._code = exit_code(verdict)
                self._report(session, verdict)
            await asyncio.gather(*self._commands)
        if self._options.record is not None:
            self._print(f"recorded in {self._options.record}")
        return self._code

    async def _refusal(self, session: JobSession) -> int | None:
        """Have the ranks write dumps if they can and the user agrees; return the exit code if not."""
        replies = await session.observer.recorders(self._options.hosts)
        ranks = {reply.node: dicts((reply.value or {}).get("ranks")) for reply in replies}
        rows = [row for listed in ranks.values() for row in listed]
        stems = {(text_of(row.get("pipe")) or "").removesuffix(f"{row.get('rank')}.pipe") for row in rows}
        nodes = [node for node, listed in ranks.items() if listed]
        if not nodes:
            self._no_verdict([f"{reply.node}: {reply.problem or NO_RECORDER}" for reply in replies])
            return NOT_TESTED
        if len(stems) > 1:
            names = one_line(" and ".join(sorted(stems)[:4]), 500)
            raise InputError(f"several jobs with a flight recorder run there: {names}; choose one with --jobid")
        number = count(len(rows), "rank")
        question = f"{number} on {fold(nodes)} will each write a dump to a file there. Continue?"
        if not self._settings.write and not confirmed(question, f"{number} would each write a file"):
            return INTERRUPTED
        session.observer.writes = True
        return None

    async def _watch(self, session: JobSession) -> None:
        self._line(f"watching {self._options.job and f'job {self._options.job} on '}{fold(self._options.hosts)}")
        session.start()
        before: tuple[object, ...] = ()
        problems: set[str] = set()
        while True:
            await asyncio.sleep(self._settings.every)
            for problem in session.problems():
                if problem not in problems:
                    problems.add(problem)
                    self._line(f"could not be read: {problem}")
            if session.ended:
                return self._line("the job has ended")
            verdict = session.observer.verdict
            if verdict is None or not verdict.settled:
                continue
            now = verdict.state, verdict.struck, verdict.uneven
            if now != before:
                self._line(verdict.sentence)
                before = now
            if verdict.state is not JobState.UNKNOWN:
                self._code = 0
            if verdict.bad:
                self._code = BAD
                self._report(session, await session.observer.complete(SNAPSHOT))
                return None

    def _report(self, session: JobSession, verdict: JobVerdict | None) -> None:
        if verdict is None:
            return self._no_verdict(session.unread() or [f"{NO_RANK} {fold(self._options.hosts)}"])
        record = None if self._options.record is None else str(self._options.record)
        values = job_json(verdict, session.report, recording=record)
        path = self._write(verdict, values) if verdict.bad and (self._settings.command or self._settings.wait) else ""
        if self._settings.as_json:
            print_json({**values, "report": path or None}, self._given)
        else:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            print_text(text(job_blocks(verdict), width, not self._settings.unicode))
            if path:
                self._print(f"report: {path}")
        sys.stdout.flush()
        if self._settings.command and verdict.bad:
            self._commands.append(asyncio.create_task(self._command(verdict, path)))
        return None

    def _no_verdict(self, lines: list[str]) -> None:
        if self._settings.as_json:
            return print_json(job_json(None, unread=lines), self._given)
        for line in lines:
            self._print(line)
        return None

    def _write(self, verdict: JobVerdict, values: dict[str, Any]) -> str:
        """Write a report to a file of its own; return its path, "" if that is not possible."""
        job = "".join(letter for letter in verdict.job if letter.isalnum())[:40] or "job"
        name = f"hang-{job}-{time.strftime('%Y%m%d-%H%M%S')}.json"
        try:
            path = private_folder(state_folder() / "hangs") / name
            write_bytes(path, json.dumps(values, indent=1).encode() + b"\n")
        except OSError as error:
            self._line(f"the report cannot be written: {error}")
            return ""
        return str(path)

    async def _command(self, verdict: JobVerdict, path: str) -> None:
        variables = {
            "FABTUI_JOB": verdict.job or self._options.job,
            "FABTUI_NODES": fold(verdict.nodes),
            "FABTUI_FINDING": one_line(verdict.sentence, 1000),
            "FABTUI_REPORT": path,
        }
        self._line(f"the command of --on-hang {await run_command(self._settings.command, variables)}")

    def _line(self, line: str) -> None:
        self._print(line, f"{time.strftime('%H:%M:%S')}  ")

    def _print(self, line: str, before: str = "") -> None:
        """Print a line; with ``--json`` to standard error."""
        shown = before + one_line(line, 1000)
        shown = shown if self._settings.unicode else shown.encode("ascii", "replace").decode("ascii")
        print(shown, file=sys.stderr if self._settings.as_json else sys.stdout, flush=True)


async def run_command(command: str, variables: Mapping[str, str], deadline: float = COMMAND_DEADLINE) -> str:
    """Run a command of the user's shell without input, and kill it after the deadline; return how it ended."""
    child = await asyncio.create_subprocess_shell(
        command,
        # Names of jobs and nodes are of the scheduler: what no variable can hold would end the watch.
        env={**os.environ, **{name: one_line(value) for name, value in variables.items()}},
        stdin=subprocess.DEVNULL,
        stdout=2,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(deadline):
            code = await child.wait()
    except (TimeoutError, asyncio.CancelledError) as ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
        if isinstance(ended, asyncio.CancelledError):
            raise
        return f"was ended after {deadline:.0f} s"
    return f"ended with exit code {code}" if code else "ended well"


def execute_job(args: argparse.Namespace) -> int:
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
    return asyncio.run(_as_text(args, monitor, options))


def query_from(given: Mapping[str, Any], environ: Mapping[str, str]) -> JobQuery:
    """Return what is asked; by default the job around this process. InputError with neither a job nor logs."""
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
    """Return the options that reach the nodes of a job, and the nodes if they are named."""
    given = vars(args)
    namespace = argparse.Namespace(**{name: value for name, value in given.items() if name not in _OWN})
    options = request_from(argparse.Namespace(**vars(namespace), transport="local", no_record=True), config).options
    via = launcher(given["via"], "--via") if "via" in given else ""
    transport: Any = "via" if via else given.get("transport", "ssh")
    fallback = "srun" if transport == "ssh" and "transport" not in given else ""
    return replace(options, transport=transport, via=via, fallback=fallback, hosts=query.nodes, query=query)


def _on_screen(args: argparse.Namespace, config: ConfigFile, options: SessionOptions, monitor: JobMonitor) -> int:
    title = f"job {options.job}"
    settings = screen_settings(args, config, title)._replace(first_view="job")
    feed = LiveFeed(options)
    feed.watch_job(monitor)
    code, _ = show(lambda: feed, settings, f"fabtui job {options.job} --once")
    return monitor.report.exit_code if monitor.report is not None else code


async def _as_text(args: argparse.Namespace, monitor: JobMonitor, options: SessionOptions) -> int:
    given = set(vars(args))
    patience = None if "follow" in given else PATIENCE
    ask_nodes = "no_links" not in given
    async with reported(monitor, options, notice, ask_nodes=ask_nodes, patience=patience) as report:
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
            print_json(job_json(report.running, report), given)
        elif not printed:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
            print(job_text(report, max(60, width), ascii_only=is_plain(given)), end="", flush=True)
        else:
            for line in [line for key, line in lines.items() if key not in printed]:
                print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)
        printed.update(lines)

    return print_report


def _lines(report: JobReport) -> dict[str, str]:
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
