"""``fabtui replay``: a recording in the app, or as text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabtui.cli.arguments import add_config_argument, add_display_arguments
from fabtui.errors import InputError

if TYPE_CHECKING:
    from fabtui.session.feeds.base import Feed

_EXAMPLES = """\
examples:
  fabtui replay session.jsonl.gz               watch it again, as fast as it was
  fabtui replay session.jsonl.gz --speed 10    ten times faster
  fabtui replay session.jsonl.gz --speed max   its end at once
  fabtui replay session.jsonl.gz --text        the summary that run would have printed
  fabtui replay session.jsonl.gz --text --csv pairs.csv
"""


def add_command(commands: Any) -> None:
    """Add the command to the sub-parsers of the command line."""
    parser = commands.add_parser(
        "replay",
        help="a recorded session again, in the app or as text",
        description="Show a recorded session again. Recordings lie in the state folder (fabtui info).",
        epilog=_EXAMPLES,
    )
    parser.add_argument("file", metavar="FILE", help="the recording")
    parser.add_argument("--speed", metavar="X", help="times faster than it was, or max (1)")
    parser.add_argument("--text", action="store_true", help="no app: print the summary; exit codes as of run")
    parser.add_argument("--grids", metavar="LIST", help="with --text: the grids of these layers, or all")
    parser.add_argument("--csv", metavar="FILE", help="with --text: write the measurements as CSV")
    parser.add_argument("--json", metavar="FILE", help="with --text: write everything as JSON")
    parser.add_argument("--table", metavar="FILE", help="with --text: write the tables of the collectives as CSV")
    add_display_arguments(parser)
    add_config_argument(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Show a recording; returns the exit code.

    Raises:
        InputError: The file is not a recording, or the arguments are wrong.
    """
    path = Path(args.file).expanduser()
    speed = _speed(getattr(args, "speed", "1"))
    # Asked now, so that a wrong file is told before the screen is taken.
    check_recording(path)
    if "text" in args:
        return _as_text(path, args)
    if {"csv", "json", "table", "grids"} & set(vars(args)):
        raise InputError("--csv, --json, --table and --grids of replay go with --text; in the app, press e")
    from fabtui.cli.launch_screen import screen_settings, show
    from fabtui.config.file import read_config

    def make_feed() -> Feed:
        from fabtui.session.feeds.replay import ReplayFeed

        return ReplayFeed(path, speed)

    return show(make_feed, screen_settings(args, read_config(args), path.name), "fabtui replay --text")


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    from fabtui.cli.quantities import ratio

    return ratio(text, "--speed", 0.01, 10_000.0)


def check_recording(path: str | Path) -> None:
    """Make sure that a file is a recording.

    Raises:
        InputError: It is not.
    """
    from fabtui.model.recording import read_events

    next(iter(read_events(Path(path).expanduser())))


def _as_text(path: Path, args: argparse.Namespace) -> int:
    """Print a recording and write what was asked for, up to where it is damaged, if it is."""
    from fabtui.cli.options_from_args import Request, output_paths
    from fabtui.cli.write_outputs import print_lines, write_first, write_outputs
    from fabtui.config.file import read_config
    from fabtui.model.exit_codes import exit_code
    from fabtui.model.recording import DamagedRecording, apply_recorded, read_events
    from fabtui.model.session_model import Model
    from fabtui.report.grid import shown_from
    from fabtui.report.summary import summary, takes_unicode
    from fabtui.session.options import SessionOptions

    request = Request(SessionOptions(), *output_paths(vars(args)))
    shown = shown_from(vars(args))
    plain = "ascii" in args or read_config(args).says("screen.ascii")
    model = Model()
    damage: DamagedRecording | None = None
    try:
        for event in read_events(path):
            apply_recorded(model, event, path)
    except DamagedRecording as found:
        damage = found
    plain = plain or not takes_unicode(sys.stdout)

    def tell(lines: list[str]) -> int:
        if model.options.get("looks_only"):
            from fabtui.cli.commands.preflight import print_preflight

            code = print_preflight(model, plain)
        else:
            sys.stdout.write(summary(model, plain, shown))
            code = exit_code(model)
        print_lines(lines)
        return code

    code = write_first(write_outputs(model, request), tell)
    if damage is None:
        return code
    raise InputError(f"{damage}; what comes before it is shown, what comes after is left out")
