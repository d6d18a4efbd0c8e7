"""Sessions in the foreground: they run until they end or a signal ends them, and ask the user on the terminal."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import termios
from collections.abc import Iterator
from functools import partial
from importlib import import_module

from fabtui.cli.options_from_args import Request, print_problems
from fabtui.cli.printing import is_plain, shown_from
from fabtui.cli.written_files import write_first
from fabtui.config.file import ConfigFile
from fabtui.hangup import watch_terminal
from fabtui.report.document import Shown
from fabtui.report.progress import Progress
from fabtui.session.feeds.base import Feed
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions
from fabtui.transport.login_answers import LoginQuestion

Ended = asyncio.Future[signal.Signals]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupted_code(number: signal.Signals) -> int:
    """Print which signal ended the session; return the exit code for it."""
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


async def played(
    options: SessionOptions, progress: Progress, watch: float = 0.0
) -> tuple[LiveFeed, signal.Signals | None]:
    """Run a session, watch for some seconds and close it; return its feed, and the signal that ended it early."""
    feed = LiveFeed(options)
    feed.ask = ask_on_terminal
    # While the nodes work: somebody waits for what is imported at the end.
    feed.ahead = partial(import_module, "fabtui.cli.outputs")
    progress.watch(feed)
    with caught_signals() as ended:
        interrupted = await run_until(ended, feed, watch=watch)
    progress.end()
    return feed, interrupted


async def run_until(
    ended: Ended, feed: Feed, *, watch: float = 0.0, budget: float | None = None
) -> signal.Signals | None:
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


async def sleep_until(ended: Ended, seconds: float) -> signal.Signals | None:
    """Wait; return the signal that ended it early, or None."""
    await asyncio.wait({ended}, timeout=max(0.0, seconds))
    return ended.result() if ended.done() else None


_MOST_BYTES = 4096
#: What `termios.tcgetattr` returns.
Attributes = list[int | list[bytes | int]]


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
        found = []
        for text, echo in question.prompts:
            line = await _line(terminal, before, f"{text} ", echo)
            if line is None:
                return None
            found.append(line)
        return found
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
    args: argparse.Namespace,
    config: ConfigFile,
    request: Request,
    watch: float = 0.0,
    *,
    every_layer: bool = False,
) -> int:
    """Run the session of a request, and watch for a time (s); return the exit code.

    With ``every_layer`` there is no live line either, for screen readers and logs.

    Raises:
        InputError: An output could not be written.
    """
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

    found = feed.diagnosis()

    def report(lines: list[str]) -> int:
        # Printed even if a file could not be written: the recording is what remains then.
        if request.options.record is not None:
            lines.append(recording_line(request.options.record, feed.recording_stopped))
        if feed.history_problem:
            lines.append(feed.history_problem)
        return print_session(found, ascii_only or is_plain(), shown, lines)

    code = write_first(write_outputs(feed.model, request, found), report)
    return code if interrupted is None else interrupted_code(interrupted)
