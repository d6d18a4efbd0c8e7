"""``fabtui run``: a session without a screen."""

from __future__ import annotations

import argparse
import asyncio
import sys

from fabtui.cli.options_from_args import Request, print_problems, request_from
from fabtui.cli.until_signal import interrupted_code, run_until_signal
from fabtui.cli.write_outputs import write_outputs
from fabtui.cli.write_texts import print_lines, recording_line, write_first
from fabtui.config.file import read_config
from fabtui.config.values import seconds
from fabtui.diagnosis.session import exit_code
from fabtui.report.grid import Shown, shown_from
from fabtui.report.progress import Progress
from fabtui.report.summary import summary
from fabtui.report.tables import takes_unicode
from fabtui.session.feeds.live import LiveFeed

#: Longest time of ``--watch`` (s): 30 days.
_MAX_WATCH = 30 * 86400.0


def execute(args: argparse.Namespace) -> int:
    """Run a session to its end; return the exit code.

    Raises:
        InputError: The arguments are not valid, or an output could not be written.
    """
    config = read_config(args)
    request = request_from(args, config)
    watch = seconds(args.watch, "--watch", 1.0, _MAX_WATCH) if "watch" in args else 0.0
    shown = shown_from(vars(args), everything="text" in args)
    print_problems(config)
    if request.options.origin and "quiet" not in args:
        print(request.options.origin, file=sys.stderr)
    progress = Progress(sys.stderr, quiet="quiet" in args, text="text" in args)
    ascii_only = "ascii" in args or config.enabled("screen.ascii")
    return asyncio.run(_session(request, progress, shown, ascii_only, watch))


async def _session(request: Request, progress: Progress, shown: Shown, ascii_only: bool, watch: float) -> int:
    feed = LiveFeed(request.options)
    progress.watch(feed)
    interrupted = await run_until_signal(feed, watch)
    progress.end()

    def report(lines: list[str]) -> int:
        sys.stdout.write(summary(feed.model, ascii_only or not takes_unicode(sys.stdout), shown))
        # Printed even if a file could not be written: the recording is what remains then.
        if request.options.record is not None:
            lines.append(recording_line(request.options.record, feed.recording_stopped))
        print_lines(lines)
        return exit_code(feed.model)

    code = write_first(write_outputs(feed.model, request), report)
    return code if interrupted is None else interrupted_code(interrupted)
