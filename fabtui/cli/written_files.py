"""Files and texts that commands write, with a line for each file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fabtui.errors import InputError
from fabtui.export.atomic_write import check_writable, write_text
from fabtui.paths import user_path
from fabtui.report.document import check_suffix

Returned = TypeVar("Returned")
#: Formats of reports that may go to standard output.
TEXT_FORMATS = ("json", "csv")
_STDOUT = "-"


def write_first(writing: Iterable[str], report: Callable[[list[str]], Returned]) -> Returned:
    """Write files before anything is printed: the reader of standard output may be gone.

    ``report`` prints and returns the result, with a line for each file; called even if one could not be written.
    """
    lines: list[str] = []
    try:
        lines += writing
    finally:
        result = report(lines)
        sys.stdout.flush()
    return result


def print_lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def output_path(given: dict[str, Any], name: str) -> Path | None:
    """Return the path of an output option, None if it was not given.

    Raises:
        InputError: It cannot be written.
    """
    if name not in given:
        return None
    if given[name] in ("", "-"):
        raise InputError(f"--{name}: {given[name]!r} names no file; standard output is for the summary")
    path = user_path(given[name])
    if name == "report":
        check_suffix(path, "--report")
    check_writable(path, f"--{name}")
    return path.absolute()


def write_each(files: Iterable[tuple[Path, Callable[[Path], int | None]]]) -> Iterator[str]:
    """Write files, each with a function that may return its number of rows, and yield a line for each.

    Raises:
        InputError: A file could not be written (disk full); the others are.
    """
    problems = []
    for path, write in files:
        try:
            rows = write(path)
        except OSError as error:
            problems.append(f"cannot write {path}: {error.strerror}")
        else:
            yield f"wrote {path}" + ("" if rows is None else f" ({rows} rows)")
    if problems:
        raise InputError("; ".join(problems))


def text_outputs(given: dict[str, Any]) -> dict[str, Path | None]:
    """Return the paths of ``--json`` and ``--csv`` that were given, None for standard output.

    Raises:
        InputError: One cannot be written, or both have the same destination.
    """
    asked = [name for name in TEXT_FORMATS if name in given]
    found = {name: None if given[name] == _STDOUT else output_path(given, name) for name in asked}
    if len(found) > 1 and len(set(found.values())) == 1:
        raise InputError("--json and --csv name the same destination; name a file for one of them")
    return found


def write_texts(texts: Mapping[str, Callable[[], str]], outputs: Mapping[str, Path | None]) -> Iterator[str]:
    """Write the texts of formats to files or standard output; see `write_each`."""

    def files() -> Iterator[tuple[Path, Callable[[Path], None]]]:
        for name, path in outputs.items():
            if path is None:
                sys.stdout.write(texts[name]())
            else:
                yield path, partial(write_text, text=texts[name]())

    return write_each(files())
