"""``fabtui watch``: a small sweep again and again, and a file of metrics after each."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from fabtui.cli.commands.run import Ended, caught_signals, run_until, sleep_until
from fabtui.cli.options_from_args import Request, print_problems, request_from
from fabtui.cli.outputs import write_outputs
from fabtui.config.file import read_config
from fabtui.config.values import seconds
from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.errors import InputError
from fabtui.exit_status import BAD_INPUT, NOT_TESTED
from fabtui.export.openmetrics import RoundState, WatchRound, write_round
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.presentation.findings import placed_title, step_text
from fabtui.presentation.verdict_line import sentence_of
from fabtui.sanitize import one_line
from fabtui.session.feeds.live import CLOSE_DEADLINE, LiveFeed

HELP = """\
Repeat a small sweep (--mode quick) within a time budget, and write metrics for node_exporter after each.

examples:
  fabtui watch --nodes @rack1 --prom /var/lib/node_exporter/fabtui.prom
  fabtui watch --nodes @rack1 --prom fabtui.prom --every 3600 --budget 300 --bytes 64M
  fabtui watch --nodes @rack1 --prom fabtui.prom --once    for cron and timers of systemd
  fabtui watch --nodes @rack1 --passive                    beside a running job: no tests, findings as lines
  fabtui watch --lab 1x2 --prom /tmp/fabtui.prom --every 20 --budget 15

With --passive a round tests nothing: it observes for the time of its budget (180 s) what jobs do, and compares the
traffic and the errors of ports, rails and NVLinks with those of their peers. The metrics are optional then.

Between rounds nothing runs on the nodes, and GPUs in use are not tested. A round that fails, or takes longer than its
budget, leaves the values of the last good one: fabtui_run_timestamp_seconds is their age, and
fabtui_watch_round_state what the latest round came to. No round is recorded.

exit codes: 0 ended by SIGTERM; 130 by Ctrl+C; 2 bad usage or input; with --once those of run, 3 if the round failed
"""

_LONGEST = 7 * 86400.0
#: Time (s) of a round that tests nothing: ports are compared in windows of a minute, two of which have to agree.
PASSIVE_BUDGET = "180"


class _Settings(NamedTuple):
    """Times (s) of the rounds, the file of metrics, whether there is one round only, and whether it tests nothing."""

    every: float
    budget: float
    prom: Path | None
    once: bool
    passive: bool


def execute(args: argparse.Namespace) -> int:
    config = read_config(args)
    # Days of rounds would fill the disk.
    args.no_record = True
    if "mode" not in args and "session.mode" not in config.values:
        args.mode = "quick"
    passive = "passive" in args
    if passive:
        args.read_only = True
    request = request_from(args, config)
    if "prom" not in request.outputs and not passive:
        raise InputError("watch needs --prom FILE.prom, the file of metrics to keep up to date")
    every = seconds(getattr(args, "every", "900"), "--every", 1.0, _LONGEST)
    budget = seconds(getattr(args, "budget", PASSIVE_BUDGET if passive else "120"), "--budget", 1.0, _LONGEST)
    if "once" not in args and budget + CLOSE_DEADLINE > every:
        ending = f"ending a round takes up to {CLOSE_DEADLINE:g} s more"
        raise InputError(f"--budget {budget:g} does not fit in --every {every:g}: {ending}")
    print_problems(config)
    prom = request.outputs.get("prom")
    others = {name: path for name, path in request.outputs.items() if name != "prom"}
    with _alone(prom) if prom is not None else nullcontext():
        settings = _Settings(every, budget, prom, "once" in args, passive)
        return asyncio.run(_Watching(request._replace(outputs=others), settings).run())


@contextmanager
def _alone(prom: Path) -> Iterator[None]:
    """Hold a lock beside the file of metrics: rounds of two processes would disturb each other."""
    lock = prom.with_name(f".{prom.name[:200]}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"cannot lock {lock}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            text = f"another fabtui watch writes {prom}; its round has not ended, or it is a service"
            raise InputError(text) from None
        yield
    finally:
        os.close(descriptor)


class _Watching:
    """Rounds, one after the other."""

    def __init__(self, request: Request, settings: _Settings) -> None:
        self._request = request
        self._settings = settings
        self._printed: set[str] = set()

    async def run(self) -> int:
        # Also caught between rounds, while files are written.
        with caught_signals() as ended:
            return await self._repeat(ended)

    async def _repeat(self, ended: Ended) -> int:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(1, sys.maxsize):
            caught, code = await self._round(number, ended)
            if self._settings.once and caught is None:
                return code
            if caught is None:
                # A round that took too long leaves no debt of rounds.
                passed = math.floor((loop.time() - began) / self._settings.every) + 1
                caught = await sleep_until(ended, began + passed * self._settings.every - loop.time())
            if caught is not None:
                self._line(f"ended by {caught.name}")
                return 0 if caught is signal.SIGTERM and not self._settings.once else 128 + caught.value
        return 0

    async def _round(self, number: int, ended: Ended) -> tuple[signal.Signals | None, int]:
        """Run a session within the budget and write the files; return the signal that ended it, and its exit code."""
        feed = LiveFeed(self._request.options)
        began, state, problem = time.time(), RoundState.COMPLETE, ""
        try:
            budget = self._settings.budget
            caught = await run_until(ended, feed, budget=budget, watch=budget if self._settings.passive else 0.0)
        except TimeoutError:
            caught, state = None, RoundState.OVER_BUDGET
            problem = f"it took longer than --budget {self._settings.budget:g} s, in {feed.model.phase.name}"
        except InputError as error:
            if number == 1:
                raise
            caught, state, problem = None, RoundState.ERROR, one_line(str(error), 300)
        if caught is not None:
            return caught, 0
        if not problem and not _holds_results(feed.model):
            state, problem = RoundState.NOTHING_TESTED, _why_nothing(feed.model)
        good = state is RoundState.COMPLETE
        diagnosis = feed.diagnosis() if good else None
        code = NOT_TESTED if diagnosis is None else diagnosis.code
        summed = (
            sentence_of(diagnosis).removesuffix(".")
            if diagnosis is not None
            else f"{state}: {problem}; the values of the last good round stay"
        )
        done = WatchRound(state, began, time.time())
        try:
            if self._settings.prom is not None:
                write_round(done, diagnosis, self._settings.prom, self._request.exposition)
            list(write_outputs(feed.model, self._request, diagnosis) if good else ())
        except (OSError, InputError) as error:
            # The next round may find room on the disk.
            summed += f"; cannot write: {one_line(str(error), 300)}"
            code = BAD_INPUT
        self._line(f"round {number}: {summed}, {done.ended - began:.1f} s")
        if diagnosis is not None and self._settings.passive:
            self._report(diagnosis)
        return None, code

    def _report(self, diagnosis: Diagnosis) -> None:
        titles = {f"{finding.rule.id} {finding.topic} {fold(finding.nodes)}": finding for finding in diagnosis.findings}
        for identity, finding in titles.items():
            if identity not in self._printed:
                self._line(
                    f"{finding.severity}: {one_line(placed_title(finding), 500)}"
                    + (f"; next: {step_text(finding.next[0])}" if finding.next else "")
                )
        self._printed = set(titles)

    @staticmethod
    def _line(text: str) -> None:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}", flush=True)


def _holds_results(model: Model) -> bool:
    return any(True for _ in model.measurements()) or any(record.probe_results for record in model.nodes.values())


def _why_nothing(model: Model) -> str:
    gone = [f"{one_line(node.name)}: {one_line(node.text, 200)}" for node in model.nodes.values() if node.state.gone]
    more = f" and {len(gone) - 1} more nodes" if len(gone) > 1 else ""
    return f"{gone[0]}{more}" if gone else "no result"
