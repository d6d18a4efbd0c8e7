"""``fabtui run`` and ``fabtui resume``: sessions without a screen; a signal ends them, questions go to the terminal."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shlex
import signal
import sys
import termios
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fabtui.cli.commands.app import on_screen
from fabtui.cli.options_from_args import Request, print_problems, request_from, resumed_request
from fabtui.cli.printing import confirmed, is_plain, shown_from, write_first
from fabtui.config.file import ConfigFile, read_config
from fabtui.config.options import session_changes
from fabtui.config.values import seconds
from fabtui.errors import InputError
from fabtui.exit_status import INTERRUPTED
from fabtui.hangup import watch_terminal
from fabtui.nodeset import count, fold
from fabtui.report.document import Shown
from fabtui.report.progress import Progress
from fabtui.sanitize import one_line
from fabtui.session.feeds.base import Feed
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions
from fabtui.session.resumption import Resumption, resumption
from fabtui.transport.login_answers import LoginQuestion

Ended = asyncio.Future[signal.Signals]
Caught = signal.Signals | None
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HELP = """\
Run a session without a screen: progress goes to stderr, a summary to stdout.

examples:
  fabtui run --nodes n060,n061 --csv pairs.csv
  fabtui run --nodes @rack1 --probes p2p --bytes 64M --quiet && echo fabric ok
  fabtui run --nodes n060,n061 --collectives all --sizes 1M-1G:4 --table collectives.csv
  fabtui run --nodes n060,n061 --ab NCCL_IB_DISABLE=0,1
  fabtui run --nodes n060,n061 --pair 'n060:3>n061:5' --probes p2p
  fabtui run --nodes @rack1 --confirm          also test what the findings blame
  fabtui run --nodes @rack1 --watch 3600       find a pair that fails now and then
  fabtui run --nodes n060,n061 --text          every layer, for screen readers and logs
  fabtui run --lab 2x4 --lab-fault 'n000:1>n001:2=drop'

exit codes: 0 everything ok; 1 a test was slow, failed or timed out, or a finding is bad;
2 bad usage or input; 3 something could not be tested; 130 interrupted (what was measured until
then is written)
"""

#: Longest time of ``--watch`` (s): 30 days.
_MAX_WATCH = 30 * 86400.0
HELP_RESUME = """\
Continue a recorded session with the pairs that are left: same nodes, options and transport.

examples:
  fabtui resume session.jsonl.gz               in the app
  fabtui resume session.jsonl.gz --text --csv pairs.csv    without a screen, for scripts

Pairs with a result are not tested again, unless they failed; nodes are inspected and pinged again. The recording is not
changed: the new one begins with a copy of it, and replays the whole session.

exit codes: those of run; 2 also if nothing is left to test; 130 not confirmed, or interrupted
"""
_MOST_BYTES = 4096
#: What `termios.tcgetattr` returns.
Attributes = list[int | list[bytes | int]]


def interrupted_code(number: signal.Signals) -> int:
    print(f"fabtui: interrupted by {number.name}; the results above are incomplete", file=sys.stderr)
    return 128 + number.value


@contextlib.contextmanager
def caught_signals() -> Iterator[Ended]:
    """Yield what will hold the first signal that would end this process; it is not ended by one meanwhile."""
    loop = asyncio.get_running_loop()
    ended: Ended = loop.create_future()

    def note(number: signal.Signals) -> None:
        if not ended.done():
            ended.set_result(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, note, number)

    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def gone() -> None:
        # What is printed after this goes nowhere; it must not be an error.
        with open(os.devnull, "w") as nowhere:
            for descriptor in terminals:
                os.dup2(nowhere.fileno(), descriptor)
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(note, signal.SIGHUP)

    # Not standard input: a session in the background outlives its terminal if it prints elsewhere.
    watches = [watch_terminal(descriptor, gone) for descriptor in terminals[:1]]
    try:
        yield ended
    finally:
        for unwatch in watches:
            unwatch()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def played(options: SessionOptions, progress: Progress, watch: float = 0.0) -> tuple[LiveFeed, Caught]:
    """Run a session, watch for some seconds and close it; return its feed, and the signal that ended it early."""
    feed = LiveFeed(options)
    feed.ask = ask_on_terminal
    progress.watch(feed)
    with caught_signals() as ended:
        interrupted = await run_until(ended, feed, watch=watch)
    progress.end()
    return feed, interrupted


async def run_until(ended: Ended, feed: Feed, *, watch: float = 0.0, budget: float | None = None) -> Caught:
    """Run a feed, watch for some seconds and close it; return the signal that ended it early, or None.

    The caller catches the signals, while the nodes are closed as well.

    Raises:
        TimeoutError: The first sweep took longer than ``budget`` seconds.
    """

    async def run() -> None:
        async with asyncio.timeout(budget):
            await feed.run()
        if watch:
            feed.watch(True)
            # Without nodes there is nothing to watch.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(watch):
                    await feed.all_gone()

    running = asyncio.ensure_future(run())
    ended.add_done_callback(lambda _: running.cancel())
    try:
        await running
    except asyncio.CancelledError:
        if not ended.done():
            raise
    finally:
        # A second Ctrl+C must not leave anything running there.
        await feed.close()
    return ended.result() if ended.done() else None


async def sleep_until(ended: Ended, seconds: float) -> Caught:
    await asyncio.wait({ended}, timeout=max(0.0, seconds))
    return ended.result() if ended.done() else None


async def ask_on_terminal(question: LoginQuestion) -> list[str] | None:
    """Return the answers that the user types; None without a terminal, or at its end (Ctrl+D)."""
    try:
        # Not standard input: that may be a file or a pipe.
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.tcgetpgrp(terminal) != os.getpgrp():
            # In the background, the terminal would stop this process.
            return None
        before = termios.tcgetattr(terminal)
        again = " (the answer was refused)" if question.refused else ""
        os.write(terminal, f"{question.node} has a question for {question.user}{again}\n".encode())
        if question.instruction:
            os.write(terminal, f"{question.instruction}\n".encode())
        answers = []
        for text, echo in question.prompts:
            line = await _line(terminal, before, f"{text} ", echo)
            if line is None:
                return None
            answers.append(line)
        return answers
    except (OSError, termios.error):
        return None
    finally:
        os.close(terminal)


async def _line(terminal: int, before: Attributes, prompt: str, echo: bool) -> str | None:
    """Return a line without its end; None at the end of the input."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        if not typed.done():
            typed.set_result(os.read(terminal, _MOST_BYTES))

    hidden = termios.tcgetattr(terminal)
    hidden[3] &= ~termios.ECHO
    if not echo:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, hidden)
    try:
        os.write(terminal, prompt.encode())
        loop.add_reader(terminal, read)
        data = await typed
    finally:
        loop.remove_reader(terminal)
        if not echo:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
            os.write(terminal, b"\n")
    return data.decode(errors="replace").rstrip("\r\n") if data else None


def as_text(
    args: argparse.Namespace, config: ConfigFile, request: Request, watch: float = 0.0, *, every_layer: bool = False
) -> int:
    """Run a session, and watch for a time (s); return the exit code. ``every_layer``: without a live line."""
    shown = shown_from(vars(args), everything=every_layer)
    print_problems(config)
    if request.options.origin and "quiet" not in args:
        print(request.options.origin, file=sys.stderr)
    progress = Progress(sys.stderr, quiet="quiet" in args, text=every_layer)
    ascii_only = "ascii" in args or config.enabled("screen.ascii")
    return asyncio.run(_session(request, progress, shown, ascii_only, watch))


async def _session(request: Request, progress: Progress, shown: Shown, ascii_only: bool, watch: float) -> int:
    feed, interrupted = await played(request.options, progress, watch)
    # Not before the session: the diagnosis and the writers take 0.2 s to import.
    from fabtui.cli.outputs import print_session, recording_line, write_outputs

    diagnosis = feed.diagnosis()

    def report(lines: list[str]) -> int:
        # Printed even if a file could not be written: the recording is what remains then.
        if request.options.record is not None:
            lines.append(recording_line(request.options.record, feed.recording_stopped))
        if feed.history_problem:
            lines.append(feed.history_problem)
        return print_session(diagnosis, ascii_only or is_plain(), shown, lines)

    code = write_first(write_outputs(feed.model, request, diagnosis), report)
    return code if interrupted is None else interrupted_code(interrupted)


def execute(args: argparse.Namespace) -> int:
    config = read_config(args)
    request = request_from(args, config)
    watch = seconds(args.watch, "--watch", 1.0, _MAX_WATCH) if "watch" in args else 0.0
    return as_text(args, config, request, watch, every_layer="text" in args)


def execute_resume(args: argparse.Namespace) -> int:
    path = Path(args.file).expanduser().absolute()
    rest = resumption(path)
    config = read_config(args)
    given = vars(args)
    env = session_changes({"env": given["env"]} if "env" in given else {}).get("env", {})
    if absent := [name for name in rest.env if name not in env]:
        wanted = " ".join(f"--env {name}=..." for name in absent)
        raise InputError(f"{path}: values of variables are not recorded; give them again: {one_line(wanted, 300)}")
    runs = list(_runs(rest.options))
    if runs and "yes" not in args and not _confirmed(path, runs):
        return INTERRUPTED
    request = resumed_request(given, config, path, replace(rest.options, env=env))
    if "text" in args:
        if "quiet" not in args:
            print(_left(rest), file=sys.stderr)
        return as_text(args, config, request)
    return on_screen(args, config, request, f"RESUMED {path.name}", "fabtui resume FILE --text")


def _left(rest: Resumption) -> str:
    text = f"resumed: {rest.left} of {count(rest.pairs, 'pair')} left to test"
    return text + (f", and all of {one_line(fold(rest.missing), 200)}" if rest.missing else "")


def _runs(options: SessionOptions) -> Iterator[str]:
    """Yield the options that make this machine or the nodes run or trust something that a file names."""
    for name in ("via", "wrap", "remote_python", "ssh_config"):
        if value := getattr(options, name):
            yield f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
    if options.host_key_policy == "off":
        yield "--host-key-policy off"
    for words in dict.fromkeys(options.placements.values()):
        yield f"srun {shlex.join(words)}"


def _confirmed(path: Path, runs: list[str]) -> bool:
    """Ask whether these options may be used: somebody else may have written the file."""
    shown = "\n".join(f"  {one_line(text, 300)}" for text in runs[:20])
    question = f"{one_line(path.name)} has these options:\n{shown}\nUse them?"
    return confirmed(question, f"{path} would have this used: {one_line(runs[0], 200)}")
