"""``fabtui read``: outputs that people already have, recognised, shown, exported and opened in the grid."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabtui.cli.arguments import add_config_argument, add_display_arguments
from fabtui.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabtui.importers.result import Result
    from fabtui.session.feeds.base import Feed

#: Something was not recognised, or there was nothing to export.
NOT_KNOWN = 3

_EXAMPLES = """\
examples:
  fabtui read nccl.log                         what it is, and what it says
  ssh n060 ibstat | fabtui read -              from standard input
  fabtui read --json results/                  one JSON object a file, one a line
  fabtui read bw-n06*.txt --csv pairs.csv      all of them in one CSV snapshot
  fabtui read p2p-runs/ --open                 in the grid, as if it had been tested
  fabtui read --list                           all kinds

exit codes: 0 all recognised; 2 bad usage or input; 3 something was not recognised
"""


def add_command(commands: Any) -> None:
    """Add the command to the sub-parsers of the command line."""
    parser = commands.add_parser(
        "read",
        help="outputs you already have: show, export, open in the grid",
        description="Read the output of nccl-tests, nvbandwidth, perftest, ibstat, nvidia-smi and many others.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="a file (.gz too), a folder, or - for standard input")
    parser.add_argument("--as", dest="kind", metavar="KIND", help="what it is, instead of finding out (--list)")
    parser.add_argument("--list", action="store_true", help="name all kinds")
    parser.add_argument("--json", action="store_true", help="one JSON object a file, one a line")
    parser.add_argument("--csv", metavar="FILE", help="write the measurements as CSV")
    parser.add_argument("--open", action="store_true", help="show the measurements in the app")
    add_display_arguments(parser)
    add_config_argument(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Read the files; returns the exit code.

    Raises:
        InputError: A file cannot be read, or the arguments are wrong.
    """
    if "list" in args:
        return _list()
    files = getattr(args, "files", [])
    if not files:
        raise InputError("no file given; fabtui read FILE..., - for standard input, --list for all kinds")
    if "open" in args and "json" in args:
        raise InputError("--open and --json do not go together; --json prints, --open takes the screen")
    from fabtui.cli.options_from_args import output_path
    from fabtui.cli.write_outputs import write_first
    from fabtui.importers.result import chosen, read
    from fabtui.importers.sources import sources

    # Known to be writable and to exist before anything is read.
    csv = output_path(vars(args), "csv")
    kind = chosen(args.kind).name if "kind" in args else None
    results: list[Result] = []
    known = True
    keep = csv is not None or "open" in args
    for number, source in enumerate(sources(files)):
        result = read(source, kind)
        known = known and result.known
        if csv is None:
            _show(result, number, args)
        if keep:
            results.append(result)
    if keep:
        _check_comparable(results)
    if csv is not None:

        def tell(lines: list[str]) -> bool:
            for number, result in enumerate(results):
                _show(result, number, args)
            for line in lines:
                print(line, file=sys.stderr if "json" in args else sys.stdout)
            return bool(lines)

        known = write_first(_export(results, csv), tell) and known
    if "open" in args:
        return _open(results, args)
    return 0 if known else NOT_KNOWN


def _list() -> int:
    from fabtui.importers.catalogue import formats
    from fabtui.importers.to_model.dispatch import convertible

    width = max(map(len, formats()))
    for name in sorted(formats(), key=str.lower):
        mark = "*" if convertible(name) else " "
        print(f"{mark} {name:<{width}}  {formats()[name].title}")
    print("* has measurements: --csv and --open take it")
    return 0


def _show(result: Result, number: int, args: argparse.Namespace) -> None:
    if "json" in args:
        _print_json(result)
    elif "open" not in args:
        _print_text(result, number, plain="ascii" in args or not _unicode())


def _print_json(result: Result) -> None:
    import json

    print(json.dumps(result.as_json(), ensure_ascii=not _unicode(), allow_nan=False))


def _unicode() -> bool:
    from fabtui.report.summary import takes_unicode

    return takes_unicode(sys.stdout)


def _print_text(result: Result, number: int, plain: bool) -> None:
    from fabtui.report.imported_output import text_of

    text = text_of(result, _width(), plain)
    sys.stdout.write(("\n" if number else "") + text)


def _width() -> int:
    """Return the width of the terminal; what goes into a file or a pipe is as wide as it is."""
    import os
    import shutil

    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return 10_000
    return shutil.get_terminal_size().columns


def _check_comparable(results: list[Result]) -> None:
    from fabtui.importers.to_model.dispatch import rivals

    found = rivals(results)
    if len(found) > 1:
        raise InputError(
            f"what {' and '.join(found)} measure between pairs cannot be compared; read them into grids of their own"
        )


def _export(results: list[Result], csv: Any) -> Iterator[str]:
    """Write the measurements, and yield what to tell of that: nothing where there were none."""
    from fabtui.cli.options_from_args import Request
    from fabtui.cli.write_outputs import write_outputs
    from fabtui.importers.to_model.dispatch import model
    from fabtui.session.options import SessionOptions

    found = model(results)
    if not any(True for _ in found.measurements()):
        print(f"fabtui: nothing to export: {_why_not(results)}", file=sys.stderr)
        return
    yield from write_outputs(found, Request(SessionOptions(), csv, None))


def _why_not(results: list[Result]) -> str:
    """Say why there is no measurement in files."""
    from fabtui.importers.to_model.dispatch import convertible

    kinds = list(dict.fromkeys(result.kind for result in results))
    others = [kind for kind in kinds if not convertible(kind)]
    if others:
        return f"{', '.join(others)} has no pairs and no collectives (fabtui read --list)"
    return "no pair and no collective is named in it"


def _open(results: list[Result], args: argparse.Namespace) -> int:
    from fabtui.importers.to_model.dispatch import events, model

    shown = model(results)
    if not shown.endpoints:
        raise InputError(f"nothing to show in the grid: {_why_not(results)}")
    from fabtui.cli.launch_screen import screen_settings, show
    from fabtui.config.file import read_config

    title = Path(results[0].source.name).name if len(results) == 1 else f"{len(results)} files"
    happened = events(results)

    def make_feed() -> Feed:
        from fabtui.session.feeds.static import StillFeed

        return StillFeed(happened, f"READ {title}")

    return show(make_feed, screen_settings(args, read_config(args), title), "fabtui read without --open")
