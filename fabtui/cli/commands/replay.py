"""``fabtui replay``: a recording in the app, or as text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fabtui.cli.launch_screen import screen_settings, show
from fabtui.cli.options_from_args import Request, output_paths
from fabtui.cli.write_outputs import write_outputs
from fabtui.cli.write_texts import print_lines, print_outcome, write_first
from fabtui.config.file import read_config
from fabtui.config.values import ratio
from fabtui.diagnosis.preflight.rules import preflight
from fabtui.diagnosis.session import exit_code
from fabtui.errors import InputError
from fabtui.model.recording import DamagedRecording, apply_recorded, read_events
from fabtui.model.session_model import Model
from fabtui.paths import recordings_folder
from fabtui.report.grid import shown_from
from fabtui.report.preflight import print_preflight
from fabtui.report.recordings import recordings_text
from fabtui.report.summary import summary
from fabtui.report.tables import takes_unicode
from fabtui.session.feeds.replay import ReplayFeed
from fabtui.session.options import SessionOptions


def execute(args: argparse.Namespace) -> int:
    """Replay a recording, or list the recordings without one; return the exit code.

    Raises:
        InputError: The file is not a recording, or the arguments are not valid.
    """
    if "file" not in args:
        return _list(args)
    path = Path(args.file).expanduser()
    speed = None if getattr(args, "speed", "") == "max" else ratio(getattr(args, "speed", "1"), "--speed", 0.01, 1e4)
    # Checked before the screen opens.
    check_recording(path)
    if "text" in args:
        return _as_text(path, args)
    if {"csv", "json", "table", "grids"} & set(vars(args)):
        raise InputError("--csv, --json, --table and --grids of replay need --text; in the app, press e")
    settings = screen_settings(args, read_config(args), path.name)
    feed = ReplayFeed(path, speed)
    code = show(lambda: feed, settings, "fabtui replay --text")
    print_outcome(feed.model, code)
    return code


def _list(args: argparse.Namespace) -> int:
    """Print the recordings in the folder of the settings."""
    if given := sorted({"text", "csv", "json", "table", "grids", "speed"} & set(vars(args))):
        raise InputError(f"--{given[0]} needs a recording: fabtui replay FILE; without arguments, replay lists them")
    config = read_config(args)
    own = config.values.get("recording.folder")
    folder = recordings_folder() if own is None else Path(str(own.value)).expanduser()
    sys.stdout.write(recordings_text(folder))
    return 0


def check_recording(path: str | Path) -> None:
    """Check that a file is a recording.

    Raises:
        InputError: It is not.
    """
    next(iter(read_events(Path(path).expanduser())))


def _as_text(path: Path, args: argparse.Namespace) -> int:
    """Print a recording and write the outputs, up to where it is damaged, if it is."""
    request = Request(SessionOptions(), *output_paths(vars(args)))
    shown = shown_from(vars(args))
    plain = "ascii" in args or read_config(args).enabled("screen.ascii") or not takes_unicode(sys.stdout)
    model = Model()
    damage: DamagedRecording | None = None
    try:
        for event in read_events(path):
            apply_recorded(model, event, path)
    except DamagedRecording as found:
        damage = found

    def report(lines: list[str]) -> int:
        if model.options.get("looks_only"):
            found = preflight(model)
            print_preflight(model, found, None, "", False, plain)
            code = found.exit_code
        else:
            sys.stdout.write(summary(model, plain, shown))
            code = exit_code(model)
        print_lines(lines)
        return code

    code = write_first(write_outputs(model, request), report)
    if damage is None:
        return code
    raise InputError(f"{damage}; the part before it is shown, the rest is left out")
