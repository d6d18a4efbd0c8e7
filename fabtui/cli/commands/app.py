"""``fabtui`` without a command: the app on live nodes."""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from fabtui.cli.launch_screen import screen_settings, show
from fabtui.cli.options_from_args import Request, request_from
from fabtui.config.file import ConfigFile, read_config

if TYPE_CHECKING:
    from fabtui.session.feeds.base import Feed
    from fabtui.session.feeds.live import LiveFeed


def execute(args: argparse.Namespace) -> int:
    """Show the nodes of the arguments on the screen; return the exit code.

    Raises:
        InputError: The arguments are not valid, or there is no terminal.
    """
    # Until the first frame only modules are imported; `fabtui.screen.launch` enables the garbage collector again.
    gc.disable()
    config = read_config(args)
    request = request_from(args, config)
    return on_screen(args, config, request, _title(args, request), "fabtui run --text")


def on_screen(args: argparse.Namespace, config: ConfigFile, request: Request, title: str, without_screen: str) -> int:
    """Show the session of a request; ``without_screen`` is the command that needs no terminal. Return the exit code.

    Raises:
        InputError: There is no terminal.
    """
    settings = screen_settings(args, config, title, request.outputs.get("csv"))
    settings = replace(settings, recorded=request.options.record is not None)
    feeds: list[LiveFeed] = []

    def make_feed() -> Feed:
        from fabtui.session.feeds.live import LiveFeed

        feeds.append(LiveFeed(request.options))
        return feeds[-1]

    code = show(make_feed, settings, without_screen)
    if feeds:
        _report(feeds[-1], request, code)
    return code


def _report(feed: LiveFeed, request: Request, code: int) -> None:
    """Write the files and print a line for each, then one line that sums up the session."""
    from fabtui.cli.outputs import print_outcome, recording_line, write_outputs

    record = request.options.record
    recorded = recording_line(record, feed.recording_stopped) if record is not None and record.exists() else ""
    try:
        for line in write_outputs(feed.model, request):
            # The terminal may be gone; the files are not.
            with contextlib.suppress(OSError):
                print(line, file=sys.stderr)
    finally:
        print_outcome(feed.model, code, recorded)


def _title(args: argparse.Namespace, request: Request) -> str:
    given = vars(args)
    if request.options.origin:
        return request.options.origin.removeprefix("nodes of ").partition(":")[0]
    if "lab" in given:
        return f"lab {given['lab']}"
    return ",".join([*given.get("nodes", []), *given.get("hostfile", [])]) or "this host"
