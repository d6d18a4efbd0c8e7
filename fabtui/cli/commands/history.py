"""``fabtui history``: what earlier sessions saw of the components of a site."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from functools import partial
from pathlib import Path

from fabtui.cli.printing import is_plain, print_lines, text_outputs, write_first, write_texts
from fabtui.config import values
from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK, BAD_INPUT
from fabtui.export.history import csv_text, json_text
from fabtui.history.file import history_file
from fabtui.history.query import Overview, read_overview, usual_start
from fabtui.nodeset import count, fold
from fabtui.paths import user_path
from fabtui.presentation.cell_levels import ASCII, UNICODE
from fabtui.presentation.component_history import empty_text
from fabtui.presentation.findings import title
from fabtui.report.history import history_blocks
from fabtui.report.text import text
from fabtui.sanitize import one_line

HELP = """\
Print what earlier sessions saw: components that are getting worse, flapping or new; or the course of one of them.

examples:
  fabtui history                               what stands out in the last 30 days, the worst first
  fabtui history n061                          the course of a node, its GPUs and its ports
  fabtui history n061:3                        of one endpoint; also a GUID, a UUID or a serial number
  fabtui history --since 2026-09-01 --json | jq .standouts
  fabtui history add ~/recordings/*.jsonl.gz   add earlier recordings

Each session adds itself at its end, unless --no-history is given. A component is known by its identity: its history
moves with it. The file stays on this machine; share refuses it.

exit codes: 0 printed; 2 bad usage or input
"""

_ADD = "add"


def execute(args: argparse.Namespace) -> int:
    given = vars(args)
    words: list[str] = given.get("subject", [])
    if words[:1] == [_ADD]:
        return _add(words[1:], user_path(args.file) if "file" in args else None, given)
    path = values.readable_file(args.file, "--file") if "file" in args else history_file("labs" in args)
    subject = " ".join(words).strip()
    outputs = text_outputs(given)
    since = values.since(args.since, "--since") if "since" in args else usual_start(subject)
    overview = read_overview(path, since, subject)
    if subject and not overview.courses:
        raise InputError(_unknown(overview))

    def report(lines: list[str]) -> None:
        if None not in outputs.values():
            sys.stdout.write(_text(overview, is_plain(given)))
            print_lines(lines)

    texts = {"json": partial(json_text, overview), "csv": partial(csv_text, overview)}
    write_first(write_texts(texts, outputs), report)
    return 0


def _text(overview: Overview, plain: bool) -> str:
    if not overview.total:
        return f"{empty_text(overview)}\n"
    limited = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = shutil.get_terminal_size().columns if limited else None
    return text(history_blocks(overview, ASCII if plain else UNICODE, width), width, plain)


def _unknown(overview: Overview) -> str:
    if not overview.total:
        return f"{one_line(overview.subject, 80)!r} is not in the history: {empty_text(overview)}"
    names = fold({name for session in overview.sessions for name in session.nodes})
    known = f"; it has the nodes {one_line(names, 200)}" if names else ""
    return f"{one_line(overview.subject, 80)!r} is not a node, endpoint, port or identity in the history{known}"


def _add(names: list[str], path: Path | None, given: dict[str, object]) -> int:
    """Add recordings to a history, that of the site or of labs for None; return the exit code."""
    from fabtui.history.entry import add_recordings, history_of

    for option in ("since", "labs", "json", "csv"):
        if option in given:
            raise InputError(f"--{option} does not belong to history add")
    if not names:
        raise InputError("history add needs recordings: fabtui history add FILE ...")
    recordings: dict[Path, list[Path]] = {}
    problems: list[str] = []
    for name in names:
        try:
            recording = user_path(name)
            recordings.setdefault(path or history_of(recording), []).append(recording)
        except InputError as error:
            problems.append(str(error))
    for file, mine in recordings.items():
        wrong = [problem for _, problem in add_recordings(mine, file, title) if problem]
        problems += wrong
        print(f"{count(len(mine) - len(wrong), 'recording')} added to {file}")
    for problem in problems:
        print(f"fabtui: not added: {one_line(problem, 300)}", file=sys.stderr)
    return BAD_INPUT if problems else ALL_OK
