"""Writing the files that were asked for when a session is over."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from fabtui.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from fabtui.cli.options_from_args import Request
    from fabtui.model.session_model import Model
    from fabtui.session.feeds.live import LiveFeed

Told = TypeVar("Told")


def write_first(writing: Iterable[str], tell: Callable[[list[str]], Told]) -> Told:
    """Write files, then print: whoever reads standard output may be gone, and the files are wanted all the same.

    Args:
        writing: Writes the files, and yields a line for each that is written.
        tell: Prints what is known, and those lines; also where a file could not be written.

    Returns:
        What ``tell`` returns.
    """
    lines: list[str] = []
    try:
        lines += writing
    finally:
        told = tell(lines)
        sys.stdout.flush()
    return told


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on standard output."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


def recording_line(path: Path, feed: LiveFeed) -> str:
    """Say where the recording of a session is, and whether it has all of it."""
    if feed.recording_stopped is None:
        return f"recorded in {path}"
    return f"NOT WHOLLY RECORDED ({feed.recording_stopped}): {path} has what came before"


def write_outputs(model: Model, request: Request) -> Iterator[str]:
    """Write the files of a request; see `write_each`."""
    asked = ((request.csv, _csv), (request.json, _json), (request.table, _table))
    return write_each((path, partial(write, model)) for path, write in asked if path is not None)


def write_each(files: Iterable[tuple[Path, Callable[[Path], str]]]) -> Iterator[str]:
    """Write files, and yield a line for each that is written.

    Args:
        files: Each with what writes it and returns what to say of it besides.

    Raises:
        InputError: One of them cannot be written any more (disk full); the others are.
    """
    problems = []
    for path, write in files:
        try:
            line = f"wrote {path}{write(path)}"
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
    from fabtui.export.collectives_table import write_table

    return f" ({write_table(model, path)} rows)"
