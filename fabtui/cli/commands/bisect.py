"""``fabtui bisect``: search by halves for the nodes that make a collective of many slow or fail."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fabtui.cli.commands.run import interrupted_code, played
from fabtui.cli.options_from_args import print_problems, request_from
from fabtui.cli.outputs import recording_line
from fabtui.cli.printing import TEXT_FORMATS, is_plain, print_text, text_outputs, write_first, write_texts
from fabtui.config.file import read_config
from fabtui.exit_status import ALL_OK, BAD, NOT_TESTED
from fabtui.export.json import bisection_text
from fabtui.model.session_model import Model
from fabtui.presentation.bisection import bisection_lines
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import plain
from fabtui.report.document import USUAL_WIDTH
from fabtui.report.progress import Progress
from fabtui.session.options import SessionOptions
from fabtui_node.registry import PREFLIGHT

HELP = """\
Search by halves for the nodes that make a collective of many slow or fail, though no pair of them shows it.

examples:
  fabtui bisect --nodes 'n[060-123]'           all_reduce; the app has it under B
  fabtui bisect --jobid 4711 --collectives alltoall --sizes 64M
  fabtui bisect --nodes @rack1 --below 180     groups below 180 GB/s are slow
  fabtui bisect --nodes @rack1 --json - | jq .culprits

Both halves are tested at once, filled up with nodes that were cleared, and single results are repeated until they are
sure. It finds up to three nodes, two that are bad only together, or that only all together are bad.

exit codes: 0 nothing found; 1 found; 2 bad usage or input; 3 no answer, or nothing could be tested; 130 interrupted
"""

_CODES = {"nothing": ALL_OK, "found": BAD, "more": BAD, "whole": BAD}


def execute(args: argparse.Namespace) -> int:
    given = vars(args)
    outputs = text_outputs(given)
    config = read_config(args)
    print_problems(config)
    named = {name: value for name, value in given.items() if name not in TEXT_FORMATS}
    options = request_from(argparse.Namespace(**named), config).options
    # Tests of pairs and collectives would come before it.
    return asyncio.run(_session(replace(options, probes=PREFLIGHT, bisect=True), outputs, given))


async def _session(options: SessionOptions, outputs: dict[str, Path | None], given: dict[str, Any]) -> int:
    feed, interrupted = await played(options, Progress(sys.stderr, quiet="quiet" in given))

    def report(lines: list[str]) -> None:
        if None not in outputs.values():
            if options.record:
                lines.append(recording_line(options.record, feed.recording_stopped))
            print_text("\n".join([*_text(feed.model, plain_only=is_plain(given)), *lines, ""]), given)

    write_first(write_texts({"json": partial(bisection_text, feed.model)}, outputs), report)
    if interrupted is not None:
        return interrupted_code(interrupted)
    last = feed.model.bisection.last
    return NOT_TESTED if last is None else _CODES.get(last.outcome, NOT_TESTED)


def _text(model: Model, *, plain_only: bool) -> list[str]:
    lines = bisection_lines(model, USUAL_WIDTH, Glyphs(plain_only))
    return [plain(line).rstrip() for line in lines[1:]] or ["no search was made: no node could be tested"]
