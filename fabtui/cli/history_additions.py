"""Recordings that ``fabtui history add`` adds, each to the history of the site or to that of its labs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK, BAD_INPUT
from fabtui.history.history_file import history_file
from fabtui.history.ingest import add_recordings
from fabtui.model.events import SessionStart
from fabtui.model.recording import read_events
from fabtui.nodeset import count
from fabtui.paths import user_path
from fabtui.presentation.findings import title
from fabtui.sanitize import one_line


def add_to_history(names: Sequence[str], path: Path | None) -> int:
    """Add recordings to a history, that of the site or of labs for None; return the exit code.

    What cannot be added is one line on standard error.
    """
    paths: dict[Path, list[Path]] = {}
    problems = 0
    for name in names:
        try:
            found = user_path(name)
            start = next(read_events(found))
            lab = isinstance(start, SessionStart) and bool(start.lab)
            paths.setdefault(path or history_file(lab), []).append(found)
        except InputError as error:
            problems += _left_out(str(error))
    for file, mine in paths.items():
        added = 0
        for one in add_recordings(mine, file, title):
            added += not one.problem
            problems += _left_out(one.problem) if one.problem else 0
        print(f"{count(added, 'recording')} added to {file}")
    return BAD_INPUT if problems else ALL_OK


def _left_out(problem: str) -> int:
    """Report why a recording is not added; return 1, its number."""
    print(f"fabtui: not added: {one_line(problem, 300)}", file=sys.stderr)
    return 1
