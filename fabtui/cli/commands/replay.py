"""``fabtui replay``: a recording in the app, or as text."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fabtui.cli.commands.app import screen_settings, show
from fabtui.cli.options_from_args import files_request, own_recordings
from fabtui.cli.printing import is_plain, output_path, shown_from
from fabtui.config.file import read_config
from fabtui.config.options import OUTPUT_OPTIONS
from fabtui.config.values import ratio, shipped_recording
from fabtui.errors import InputError
from fabtui.model.recording import DamagedRecording, check_recording
from fabtui.paths import user_path

if TYPE_CHECKING:
    from fabtui.session.feeds.replay import ReplayFeed

HELP = """\
Replay a recorded session. Recordings are in the state folder (see fabtui info).

examples:
  fabtui replay --demo                         a shipped session on real GPUs, with planted faults
  fabtui replay                                list the recordings, newest first
  fabtui replay session.jsonl.gz               at the original speed
  fabtui replay session.jsonl.gz --speed 10    ten times faster
  fabtui replay session.jsonl.gz --speed max   show its end at once
  fabtui replay session.jsonl.gz --text        print the summary, as run does
  fabtui replay session.jsonl.gz --text --csv pairs.csv
  fabtui replay nccl-tests.log                 the output of a tool in the grid, as read --open
"""


def execute(args: argparse.Namespace) -> int:
    if "demo" in args:
        if "file" in args:
            raise InputError(f"--demo plays a recording that ships with fabtui; without it: fabtui replay {args.file}")
        args.file = str(shipped_recording(args.demo))
    if "file" not in args:
        return _list(args)
    path = user_path(args.file)
    speed = None if getattr(args, "speed", "") == "max" else ratio(getattr(args, "speed", "1"), "--speed", 0.01, 1e4)
    # Checked before the screen opens.
    try:
        check_recording(path)
    except DamagedRecording:
        raise
    except InputError as error:
        if not path.is_file():
            raise
        return _output_of_tool(args, error)
    if "text" in args:
        return _as_text(path, args)
    if given := sorted({*OUTPUT_OPTIONS, "grids"} & set(vars(args))):
        raise InputError(f"--{given[0].replace('_', '-')} of replay needs --text; in the app, press e")
    settings = screen_settings(args, read_config(args), path.name)

    def make_feed() -> ReplayFeed:
        from fabtui.session.feeds.replay import ReplayFeed

        return ReplayFeed(path, speed)

    code, feed = show(make_feed, settings, "fabtui replay --text")
    if feed is not None:
        _outputs().print_outcome(feed, code)
    return code


def _output_of_tool(args: argparse.Namespace, error: InputError) -> int:
    """Show a file that is not a recording as `fabtui read` does; InputError if an option needs a recording."""
    # By name, as the entry point does it: replays of recordings do without the readers of outputs.
    read = import_module("fabtui.cli.commands.read")
    results = list(read.results_of([args.file], None))
    if not all(result.known for result in results):
        raise error
    needs = sorted({*OUTPUT_OPTIONS, "grids", "speed"} & set(vars(args)) - {"csv"})
    if needs:
        need = f"--{needs[0].replace('_', '-')} needs a recording, and {args.file} is the output of a tool"
        raise InputError(f"{need}: fabtui read {args.file}")
    # Checked before anything is shown.
    csv = output_path(vars(args), "csv")
    if "text" not in args:
        args.open = True
    elif "baseline" in args:
        raise InputError(read.BASELINE)
    code: int = read.show_results(results, args, csv)
    return code


def _list(args: argparse.Namespace) -> int:
    if given := sorted({*OUTPUT_OPTIONS, "text", "grids", "speed"} & set(vars(args))):
        name = given[0].replace("_", "-")
        raise InputError(f"--{name} needs a recording: fabtui replay FILE; without arguments, replay lists them")
    from fabtui.report.recordings import recordings_text

    sys.stdout.write(recordings_text(own_recordings(read_config(args))))
    return 0


def _as_text(path: Path, args: argparse.Namespace) -> int:
    if "baseline" in args:
        raise InputError("--baseline of replay needs the screen; as text: fabtui diff EARLIER LATER")
    request = files_request(vars(args))
    shown = shown_from(vars(args))
    plain = read_config(args).enabled("screen.ascii") or is_plain(vars(args))
    code: int = _outputs().print_recording(path, request, plain, shown)
    return code


def _outputs() -> ModuleType:
    """Return the module of outputs: the diagnosis and the writers take 0.2 s to import."""
    import fabtui.cli.outputs

    return fabtui.cli.outputs
