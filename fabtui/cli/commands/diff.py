"""``fabtui diff``: pairs, facts of nodes and findings that changed between two sessions."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from fabtui.cli.outputs import reading_progress
from fabtui.cli.written_files import print_lines, text_outputs, write_first, write_texts
from fabtui.diagnosis.session_diff import has_facts, session_diff
from fabtui.errors import InputError
from fabtui.export.session_diff import csv_text, json_text
from fabtui.importers.result import Result, read
from fabtui.importers.session import is_recording, replayed
from fabtui.importers.sources import sources
from fabtui.importers.to_model.dispatch import check_comparable, model, without_facts
from fabtui.model.exit_codes import ALL_OK, BAD
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.paths import user_path
from fabtui.report.session_diff import print_diff
from fabtui.sanitize import one_line

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
    """Compare two sessions; return 1 if something is worse, or new and bad, else 0."""
    outputs = text_outputs(vars(args))
    names = (args.before, args.after)
    for path in outputs.values():
        if path is not None and any(path == user_path(name).absolute() for name in names):
            raise InputError(f"{path} is one of the two files to compare; name another file to write")
    if names == ("-", "-"):
        raise InputError("standard input (-) can be read only once")
    recorded = [_recorded(name) for name in names]
    results = [_read(name) if found is None else [] for name, found in zip(names, recorded, strict=True)]
    check_comparable([*results[0], *results[1]], ours=any(recorded))
    then, now = (each or _model(name, found) for name, each, found in zip(names, recorded, results, strict=True))
    if not then.nodes.keys() & now.nodes.keys():
        ours, others = (one_line(fold(each.nodes), 80) for each in (then, now))
        raise InputError(f"nothing to compare: {names[0]} has the nodes {ours}, {names[1]} has {others}")
    if has_facts(then) != has_facts(now):
        # Findings from facts would all be new or gone.
        then, now = without_facts(then), without_facts(now)
    diff = session_diff(then, now)

    def report(lines: list[str]) -> None:
        if None not in outputs.values():
            print_diff(names, (then, now), diff)
            print_lines(lines)

    texts = {"json": partial(json_text, names, diff), "csv": partial(csv_text, diff)}
    write_first(write_texts(texts, outputs), report)
    return BAD if diff.worse else ALL_OK


def _recorded(name: str) -> Model | None:
    """Return the model of a recording, read event by event; None for any other file."""
    path = user_path(name)
    if name == "-" or not is_recording(path):
        return None
    model, damage = replayed(path, reading_progress(path))
    if damage is not None:
        print(f"fabtui: {one_line(str(damage), 300)}; what follows is left out", file=sys.stderr)
    return model


def _read(name: str) -> list[Result]:
    """Read a file or folder; warnings go to standard error."""
    found = []
    for source in sources([name]):
        if source.cut:
            # The state at the end of a session would be different.
            advice = "; fabtui replay FILE --text --csv FILE writes a snapshot of a large recording"
            raise InputError(f"{source.name}: {source.cut}{advice}")
        result = read(source)
        for warning in result.warnings if result.known else ():
            print(f"fabtui: {one_line(source.name)}: {one_line(warning, 300)}", file=sys.stderr)
        found.append(result)
    return found


def _model(name: str, results: list[Result]) -> Model:
    found = model(results)
    if not found.nodes:
        unknown = next((one.warnings[0] for one in results if not one.known and one.warnings), "no pair, no node")
        raise InputError(f"nothing to compare in {name}: {unknown}; expected a recording, a CSV or a JSON of fabtui")
    return found
