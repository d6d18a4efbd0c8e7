"""``fabtui preflight``: look at the nodes, test nothing, and tell what is wrong and what differs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabtui.cli.arguments import add_config_argument, add_node_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabtui.diagnosis.preflight.changes import Compared, Earlier
    from fabtui.diagnosis.preflight.rules import Preflight
    from fabtui.model.session_model import Model
    from fabtui.session.options import SessionOptions

_EXAMPLES = """\
examples:
  fabtui preflight --nodes 'n[060-067]'
  fabtui preflight --hostfile hosts --all
  fabtui preflight --nodes @rack1 --json before.json
  fabtui preflight --nodes @rack1 --baseline before.json
  fabtui preflight --nodes @rack1 --csv - | column -s, -t | less -S

exit codes: 0 nothing found (notes do not count); 1 something is wrong, differs or has changed;
2 bad usage or input; 3 something could not be looked at; 130 interrupted
"""
#: A pipe or a file gets lines of this width.
_FILE_WIDTH = 120
_STDOUT = "-"


def add_command(commands: Any) -> None:
    """Add the command to the sub-parsers of the command line."""
    parser = commands.add_parser(
        "preflight",
        help="look at the nodes, test nothing: what is wrong, what differs",
        description="Look at the nodes with all light probes, start no rank, and name the odd ones out.",
        epilog=_EXAMPLES,
    )
    add_node_arguments(parser)
    shown = parser.add_argument_group("what is told")
    shown.add_argument("--all", action="store_true", help="all facts and all evidence")
    shown.add_argument("--baseline", metavar="FILE", help="what changed since this: JSON of preflight, or a recording")
    shown.add_argument("--json", nargs="?", const=_STDOUT, metavar="FILE", help="write everything as JSON (-: stdout)")
    shown.add_argument("--csv", nargs="?", const=_STDOUT, metavar="FILE", help="write the facts as CSV (-: stdout)")
    shown.add_argument("--quiet", "-q", action="store_true", help="no progress on stderr")
    shown.add_argument("--ascii", action="store_true", help="only ASCII characters")
    record = shown.add_mutually_exclusive_group()
    record.add_argument("--record", metavar="FILE", help="where the recording goes (a new file in the state folder)")
    record.add_argument("--no-record", action="store_true", help="keep no recording")
    add_config_argument(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Run a preflight; returns the exit code.

    Raises:
        InputError: The arguments are wrong, or an output could not be written.
    """
    given = vars(args)
    outputs = _outputs(given)
    options = _options(args)
    earlier: Earlier | None = None
    if "baseline" in given:
        from fabtui.export.preflight import read_earlier

        earlier = read_earlier(Path(given["baseline"]).expanduser())
    import asyncio

    from fabtui.report.progress import Progress

    progress = Progress(sys.stderr, quiet="quiet" in given)
    return asyncio.run(_session(options, outputs, earlier, progress, given))


def _outputs(given: dict[str, Any]) -> dict[str, Path | None]:
    """Return where JSON and CSV go, None for standard output."""
    from fabtui.cli.options_from_args import output_path
    from fabtui.errors import InputError

    found = {name: None if given[name] == _STDOUT else output_path(given, name) for name in _FORMATS if name in given}
    if len(found) == len(_FORMATS) and found["json"] == found["csv"]:
        raise InputError("--json and --csv go to the same place; name a file for one of them")
    return found


_FORMATS = ("json", "csv")


def _options(args: argparse.Namespace) -> SessionOptions:
    from dataclasses import replace

    from fabtui.cli.options_from_args import request_from
    from fabtui.config.file import read_config

    config = read_config(args)
    for problem in config.problems:
        print(f"fabtui: {config.told(problem)}; what is wrong there is left out", file=sys.stderr)

    own = (*_FORMATS, "all", "baseline", "quiet", "ascii")
    asked = {name: value for name, value in vars(args).items() if name not in own}
    request = request_from(argparse.Namespace(**asked), config)
    # Everything there is; what a node has nothing for is left out there.
    from fabtui.session.probe_runner import PREFLIGHT

    return replace(request.options, probes=PREFLIGHT, looks_only=True)


async def _session(
    options: SessionOptions,
    outputs: dict[str, Path | None],
    earlier: Earlier | None,
    progress: Any,
    given: dict[str, Any],
) -> int:
    from fabtui.cli.commands.run import run_until_signal
    from fabtui.cli.write_outputs import print_lines, recording_line, write_first
    from fabtui.diagnosis.preflight.changes import compare
    from fabtui.diagnosis.preflight.rules import FOUND, preflight
    from fabtui.session.feeds.live import LiveFeed

    feed = LiveFeed(options)
    progress.watch(feed)
    interrupted = await run_until_signal(feed)
    progress.end()
    found = preflight(feed.model)
    changed = None if earlier is None else compare(earlier, found.table)

    def tell(lines: list[str]) -> None:
        if _STDOUT not in [given.get(name) for name in _FORMATS]:
            lines += [recording_line(options.record, feed)] if options.record else []
            sys.stdout.write(_text(feed.model, found, changed, given))
            print_lines(lines)

    write_first(_write(feed.model, found, outputs), tell)
    if interrupted is not None:
        print(f"fabtui: interrupted by {interrupted.name}; the above is what was known by then", file=sys.stderr)
        return 128 + interrupted.value
    return FOUND if changed is not None and changed.any else found.exit_code


def _write(model: Model, found: Preflight, outputs: dict[str, Path | None]) -> Iterator[str]:
    """Write what was asked for; see `write_each`."""
    from functools import partial

    from fabtui.cli.write_outputs import write_each
    from fabtui.export.atomic_write import write_atomically
    from fabtui.export.preflight import csv_text, json_text

    def put(text: str, path: Path) -> str:
        write_atomically(path, lambda file: file.write(text.encode("utf-8", "backslashreplace")))
        return ""

    def files() -> Iterator[tuple[Path, Callable[[Path], str]]]:
        for name, path in outputs.items():
            text = json_text(model, found) if name == "json" else csv_text(found)
            if path is None:
                sys.stdout.write(text)
            else:
                yield path, partial(put, text)

    return write_each(files())


def _text(model: Model, found: Preflight, changed: Compared | None, given: dict[str, Any]) -> str:
    from fabtui.report.summary import takes_unicode

    plain = "ascii" in given or not takes_unicode(sys.stdout)
    return _printed(model, found, changed, given.get("baseline", ""), "all" in given, plain)


def _printed(
    model: Model, found: Preflight, changed: Compared | None, baseline: str, everything: bool, plain: bool
) -> str:
    import shutil

    from fabtui.report.preflight import preflight_text

    color = sys.stdout.isatty()
    width = shutil.get_terminal_size((_FILE_WIDTH, 24)).columns if color else _FILE_WIDTH
    return preflight_text(model, found, changed, baseline, width, everything, plain, color)


def print_preflight(model: Model, plain: bool) -> int:
    """Print the preflight of a recording; returns the exit code."""
    from fabtui.diagnosis.preflight.rules import preflight

    found = preflight(model)
    sys.stdout.write(_printed(model, found, None, "", False, plain))
    return found.exit_code
