"""``fabtui run``: a session without a screen."""

from __future__ import annotations

import argparse
import asyncio
import sys

from fabtui.cli.foreground import ask_on_terminal, interrupted_code, run_until_signal
from fabtui.cli.options_from_args import Request, print_problems, request_from
from fabtui.cli.outputs import print_lines, print_session, recording_line, write_first, write_outputs
from fabtui.config.file import ConfigFile, read_config
from fabtui.config.values import seconds
from fabtui.report.grid import Shown, shown_from
from fabtui.report.progress import Progress
from fabtui.report.text import takes_unicode
from fabtui.session.feeds.live import LiveFeed

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

exit codes: 0 everything ok; 1 something is slow, failed or timed out, or a finding is bad;
2 bad usage or input; 3 something could not be tested; 130 interrupted (what was measured until
then is written)
"""

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
    return as_text(args, config, request, watch, every_layer="text" in args)


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
    feed = LiveFeed(request.options)
    feed.ask = ask_on_terminal
    progress.watch(feed)
    interrupted = await run_until_signal(feed, watch)
    progress.end()
    found = feed.diagnosis()

    def report(lines: list[str]) -> int:
        code = print_session(found, ascii_only or not takes_unicode(sys.stdout), shown)
        # Printed even if a file could not be written: the recording is what remains then.
        if request.options.record is not None:
            lines.append(recording_line(request.options.record, feed.recording_stopped))
        print_lines(lines)
        return code

    code = write_first(write_outputs(feed.model, request, found), report)
    return code if interrupted is None else interrupted_code(interrupted)
