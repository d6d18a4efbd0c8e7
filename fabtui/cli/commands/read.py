"""``fabtui read``: recognise, show and convert the output of other tools, or open it in the grid."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from fabtui.cli.commands.app import screen_settings, show
from fabtui.cli.options_from_args import Request
from fabtui.cli.outputs import print_result, write_outputs
from fabtui.cli.printing import output_path, write_first
from fabtui.config.file import read_config
from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK, NOT_TESTED
from fabtui.importers.catalogue import chosen, formats
from fabtui.importers.formats.job_dumps import results_of
from fabtui.importers.result import Result
from fabtui.importers.to_model.dispatch import check_comparable, convertible, events, model
from fabtui.presentation.wrapping import aligned
from fabtui.session.feeds.replay import StillFeed
from fabtui.session.options import SessionOptions

HELP = """\
Read outputs of nccl-tests, perftest, ibstat, nvidia-smi and many others, and judge them.

examples:
  fabtui read nccl.log                         detect the format and show the content
  ssh n060 ibstat | fabtui read -              read standard input
  fabtui read --json results/                  one JSON object per file, one per line
  fabtui read bw-n06*.txt --csv pairs.csv      all files in one CSV snapshot
  fabtui read p2p-runs/ --open                 show the measurements in the grid
  fabtui read --list                           all formats

exit codes: 0 all formats recognised; 2 bad usage or input; 3 a format was not recognised
"""

#: Error of a baseline without a screen to show it.
BASELINE = "--baseline of read needs --open; as text: fabtui diff EARLIER LATER"


def execute(args: argparse.Namespace) -> int:
    if "list" in args:
        return _list()
    files = getattr(args, "files", [])
    if not files:
        raise InputError("no file given; fabtui read FILE..., - for standard input, --list for the formats")
    if "open" in args and "json" in args:
        raise InputError("--open and --json exclude each other; --json prints, --open needs the screen")
    if "baseline" in args and "open" not in args:
        raise InputError(BASELINE)
    # Checked before anything is read.
    csv = output_path(vars(args), "csv")
    kind = chosen(getattr(args, "as")).name if "as" in args else None
    return show_results(results_of(files, kind), args, csv)


def show_results(read: Iterable[Result], args: argparse.Namespace, csv: Path | None) -> int:
    results: list[Result] = []
    recognised = True
    keep = csv is not None or "open" in args
    for number, result in enumerate(read):
        recognised = recognised and result.known
        if csv is None:
            _show(result, number, args)
        if keep:
            results.append(result)
    check_comparable(results, "; read them separately")
    if csv is not None:

        def report(lines: list[str]) -> bool:
            for number, result in enumerate(results):
                _show(result, number, args)
            for line in lines:
                print(line, file=sys.stderr if "json" in args else sys.stdout)
            return bool(lines)

        recognised = write_first(_export(results, csv), report) and recognised
    if "open" in args:
        return _open(results, args)
    return ALL_OK if recognised else NOT_TESTED


def _list() -> int:
    names = sorted(formats(), key=str.lower)
    rows = [[f"{'*' if convertible(name) else ' '} {name}", formats()[name].title] for name in names]
    print("\n".join(aligned(rows, (0, 1), indent="")))
    print("* contains measurements: works with --csv and --open")
    return 0


def _show(result: Result, number: int, args: argparse.Namespace) -> None:
    if "open" in args:
        return
    if "json" not in args:
        sys.stdout.write("\n" if number else "")
    print_result(result, vars(args))


def _export(results: list[Result], csv: Path) -> Iterator[str]:
    measured = model(results)
    if not any(True for _ in measured.measurements()):
        print(f"fabtui: nothing to export: {_why_nothing(results)}", file=sys.stderr)
        return
    yield from write_outputs(measured, Request(SessionOptions(), {"csv": csv}))


def _why_nothing(results: list[Result]) -> str:
    others = [kind for kind in dict.fromkeys(result.kind for result in results) if not convertible(kind)]
    if others:
        return f"{', '.join(others)} has no pairs and no collectives (fabtui read --list)"
    return "it names no pair and no collective"


def _open(results: list[Result], args: argparse.Namespace) -> int:
    if not model(results).endpoints:
        raise InputError(f"nothing to show in the grid: {_why_nothing(results)}")
    title = Path(results[0].source.name).name if len(results) == 1 else f"{len(results)} files"
    feed_events = events(results)
    settings = screen_settings(args, read_config(args), title)
    code, _ = show(lambda: StillFeed(feed_events, f"READ {title}"), settings, "fabtui read without --open")
    return code
