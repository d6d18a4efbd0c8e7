"""``fabtui diff``: pairs, facts of nodes and findings that changed between two sessions."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from fabtui.cli.outputs import reading_progress
from fabtui.cli.printing import print_lines, text_outputs, write_first, write_texts
from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK, BAD
from fabtui.importers.session import compared
from fabtui.paths import user_path
from fabtui.report.session_diff import csv_text, json_text, print_diff

HELP = """\
Compare recordings, CSV snapshots and JSON sessions: pairs, facts of nodes, and findings that changed.

examples:
  fabtui diff monday.jsonl.gz today.jsonl.gz
  fabtui diff good.csv today.jsonl.gz          a CSV holds pairs only: facts are not compared
  fabtui diff a.json b.json --csv changes.csv
  fabtui diff a.json b.json --json | jq .findings.new

exit codes: 0 nothing is worse; 1 something is worse, or new and bad; 2 bad usage or input
"""


def execute(args: argparse.Namespace) -> int:
    outputs = text_outputs(vars(args))
    names = (args.before, args.after)
    for path in outputs.values():
        if path is not None and any(path == user_path(name).absolute() for name in names):
            raise InputError(f"{path} is one of the two files to compare; name another file to write")
    comparison = compared(names, reading_progress)
    for notice in comparison.notices:
        print(f"fabtui: {notice}", file=sys.stderr)

    def report(lines: list[str]) -> None:
        if None not in outputs.values():
            print_diff(names, (comparison.then, comparison.now), comparison.diff)
            print_lines(lines)

    texts = {"json": partial(json_text, names, comparison.diff), "csv": partial(csv_text, comparison.diff)}
    write_first(write_texts(texts, outputs), report)
    return BAD if comparison.diff.worse else ALL_OK
