"""Writing the files that were asked for when a session is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabtui.fabric.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fabtui.cli.request import Request
    from fabtui.fabric.model import Model
    from fabtui.session.live import LiveFeed


def recording_line(path: Path, feed: LiveFeed) -> str:
    """Say where the recording of a session is, and whether it has all of it."""
    if feed.recording_stopped is None:
        return f"recorded in {path}"
    return f"NOT WHOLLY RECORDED ({feed.recording_stopped}): {path} has what came before"


def write_outputs(model: Model, request: Request) -> Iterator[str]:
    """Write the files of a request, and yield a line for each that is written.

    Raises:
        InputError: One of them cannot be written any more (disk full); the others are.
    """
    problems = []
    for path, write in ((request.csv, _csv), (request.json, _json), (request.table, _table)):
        if path is None:
            continue
        try:
            line = f"wrote {path}{write(model, path)}"
        except OSError as error:
            problems.append(f"cannot write {path}: {error.strerror}")
        else:
            yield line
    if problems:
        raise InputError("; ".join(problems))


def _csv(model: Model, path: Path) -> str:
    from fabtui.export.csv import write_csv

    return f" ({write_csv(model, path)} rows)"


def _json(model: Model, path: Path) -> str:
    from fabtui.export.json import write_json

    write_json(model, path)
    return ""


def _table(model: Model, path: Path) -> str:
    from fabtui.export.table import write_table

    return f" ({write_table(model, path)} rows)"
