"""``fabtui`` without a command: the app on live nodes."""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fabtui.session.feeds.base import Feed
    from fabtui.session.feeds.live import LiveFeed


def execute(args: argparse.Namespace) -> int:
    """Show the nodes of the arguments on the screen; returns the exit code.

    Raises:
        InputError: The arguments are wrong, or there is no terminal to show anything on.
    """
    # Until the first frame only modules are loaded; `fabtui.screen.launch` has garbage looked for again.
    gc.disable()
    from fabtui.cli.launch_screen import screen_settings, show
    from fabtui.cli.options_from_args import request_from
    from fabtui.config.file import read_config

    config = read_config(args)
    request = request_from(args, config)
    settings = screen_settings(args, config, _title(args), request.csv)
    settings = replace(settings, recorded=request.options.record is not None)
    feeds: list[LiveFeed] = []

    def make_feed() -> Feed:
        # The session imports asyncssh, which takes longer than the first frame.
        from fabtui.session.feeds.live import LiveFeed

        feeds.append(LiveFeed(request.options))
        return feeds[-1]

    code = show(make_feed, settings, "fabtui run --text")
    record = request.options.record
    if feeds and record is not None and record.exists():
        from fabtui.cli.write_outputs import recording_line

        _say(recording_line(record, feeds[-1]))
    if feeds and (request.csv or request.json or request.table):
        from fabtui.cli.write_outputs import write_outputs

        for line in write_outputs(feeds[-1].model, request):
            _say(line)
    return code


def _say(line: str) -> None:
    # The terminal may be gone by now; the files are not.
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr)


def _title(args: argparse.Namespace) -> str:
    """Return what is looked at, as the user named it."""
    given = vars(args)
    if "lab" in given:
        return f"lab {given['lab']}"
    return ",".join([*given.get("nodes", []), *given.get("hostfile", [])]) or "this host"
