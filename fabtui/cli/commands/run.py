"""``fabtui run``: the same as the app without a screen."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from fabtui.cli.arguments import add_config_argument, add_node_arguments, add_output_arguments, add_test_arguments

if TYPE_CHECKING:
    import signal

    from fabtui.cli.options_from_args import Request
    from fabtui.report.grid import Shown
    from fabtui.report.progress import Progress
    from fabtui.session.feeds.base import Feed
    from fabtui.session.feeds.live import LiveFeed

_EXAMPLES = """\
examples:
  fabtui run --nodes n060,n061 --csv pairs.csv
  fabtui run --nodes @rack1 --probes p2p --bytes 64M --quiet && echo fabric is well
  fabtui run --nodes n060,n061 --collectives all --sizes 1M-1G:4 --table collectives.csv
  fabtui run --nodes n060,n061 --ab NCCL_IB_DISABLE=0,1
  fabtui run --nodes n060,n061 --pair 'n060:3>n061:5' --probes p2p
  fabtui run --nodes @rack1 --watch 3600       a pair that breaks now and then is told
  fabtui run --nodes n060,n061 --text          every layer, for screen readers and logs
  fabtui run --lab 2x4 --lab-fault 'n000:1>n001:2=drop'

exit codes: 0 all ok; 1 something is slow, failed or timed out; 2 bad usage or input;
3 something could not be tested; 130 interrupted, what was measured until then is written
"""


class Look(NamedTuple):
    """How the summary looks: ASCII only, and with which grids."""

    plain: bool
    shown: Shown


def add_command(commands: Any) -> None:
    """Add the command to the sub-parsers of the command line."""
    parser = commands.add_parser(
        "run",
        help="the same without a screen: progress on stderr, a summary on stdout",
        description="Run a session without a screen: progress goes to stderr, a summary to stdout.",
        epilog=_EXAMPLES,
    )
    add_node_arguments(parser)
    add_test_arguments(parser)
    add_output_arguments(parser)
    parser.add_argument("--watch", metavar="SECONDS", help="after the sweep, go on testing in the background so long")
    shown = parser.add_argument_group("summary")
    shown.add_argument("--text", action="store_true", help="for screen readers and logs: every layer, no live line")
    shown.add_argument("--grids", metavar="LIST", help="the grids of these layers (health,p2p,world,...), or all")
    shown.add_argument("--quiet", "-q", action="store_true", help="no progress on stderr")
    shown.add_argument("--ascii", action="store_true", help="only ASCII characters")
    add_config_argument(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Run a session to its end; returns the exit code.

    Raises:
        InputError: The arguments are wrong, or an output could not be written.
    """
    from fabtui.cli.options_from_args import request_from
    from fabtui.config.file import read_config
    from fabtui.report.grid import shown_from

    config = read_config(args)
    request = request_from(args, config)
    seconds = _watched(args)
    shown = shown_from(vars(args), everything="text" in args)
    import asyncio

    from fabtui.report.progress import Progress

    for problem in config.problems:
        print(f"fabtui: {config.told(problem)}; what is wrong there is left out", file=sys.stderr)
    progress = Progress(sys.stderr, quiet="quiet" in args, text="text" in args)
    look = Look("ascii" in args or config.says("screen.ascii"), shown)
    return asyncio.run(_session(request, progress, look, seconds))


def _watched(args: argparse.Namespace) -> float:
    if "watch" not in args:
        return 0.0
    from fabtui.cli.quantities import seconds

    return seconds(args.watch, "--watch", 1.0, 30 * 86400.0)


async def _session(request: Request, progress: Progress, look: Look, watched: float) -> int:
    from fabtui.session.feeds.live import LiveFeed

    feed = LiveFeed(request.options)
    progress.watch(feed)
    interrupted = await run_until_signal(feed, watched)
    progress.end()
    code = _finish(feed, request, look)
    if interrupted is not None:
        print(f"fabtui: interrupted by {interrupted.name}; the above is what was known by then", file=sys.stderr)
        return 128 + interrupted.value
    return code


async def _run_and_watch(feed: Feed, seconds: float) -> None:
    import asyncio

    await feed.run()
    if seconds:
        feed.watch(True)
        await asyncio.sleep(seconds)


async def run_until_signal(feed: Feed, watched: float = 0.0) -> signal.Signals | None:
    """Run the feed, watch for some seconds, and close it; returns the signal that ended it early, or None."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    caught: list[signal.Signals] = []
    running = asyncio.ensure_future(_run_and_watch(feed, watched))

    def end(number: signal.Signals) -> None:
        caught.append(number)
        running.cancel()

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, end, number)
    try:
        await running
    except asyncio.CancelledError:
        if not caught:
            raise
    finally:
        # The handlers stay while nodes are being left, so that an impatient second Ctrl-C leaves nothing behind.
        await feed.close()
        for number in signals:
            loop.remove_signal_handler(number)
    return caught[0] if caught else None


def _finish(feed: LiveFeed, request: Request, look: Look) -> int:
    from fabtui.cli.write_outputs import print_lines, recording_line, write_first, write_outputs
    from fabtui.model.exit_codes import exit_code
    from fabtui.report.summary import summary, takes_unicode

    def tell(lines: list[str]) -> int:
        sys.stdout.write(summary(feed.model, look.plain or not takes_unicode(sys.stdout), look.shown))
        # Where a file cannot be written, the recording is what is left.
        if request.options.record is not None:
            lines.append(recording_line(request.options.record, feed))
        print_lines(lines)
        return exit_code(feed.model)

    return write_first(write_outputs(feed.model, request), tell)
