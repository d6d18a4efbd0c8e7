"""Output of commands: texts, files with a line for each, and the questions before them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fabtui.atomic_write import check_writable, write_text
from fabtui.config.values import listed
from fabtui.errors import InputError
from fabtui.model.layers import Layer, grid_layers
from fabtui.paths import user_path
from fabtui.report.document import USUAL_WIDTH, Shown, check_suffix, takes_unicode

Returned = TypeVar("Returned")
#: Formats of reports that may go to standard output.
TEXT_FORMATS = ("json", "csv")
_STDOUT = "-"


def is_plain(given: Container[str] = ()) -> bool:
    """Return True if only ASCII can be printed: the options have ``ascii``, or standard output takes no more."""
    return "ascii" in given or not takes_unicode(sys.stdout)


def shown_from(given: dict[str, Any], everything: bool = False) -> Shown:
    """Return the grids that the arguments request, by default all if ``everything``; InputError for unknown layers."""
    layers = chosen_layers(given["grids"]) if "grids" in given else None if everything else ()
    if not sys.stdout.isatty():
        # In a pipe a line stays whole: programs such as grep read it.
        return Shown(layers, USUAL_WIDTH)
    width = shutil.get_terminal_size((USUAL_WIDTH, 24)).columns
    return Shown(layers, width, width)


def chosen_layers(text: str) -> tuple[Layer, ...] | None:
    """Return the layers of ``--grids``; None for ``all``: those with values. InputError if one is unknown."""
    if text.strip() == "all":
        return None
    return tuple(map(Layer, listed([text], grid_layers(), "--grids", "layer", ", or all")))


def print_text(text: str, given: Container[str] = ()) -> None:
    sys.stdout.write(text.encode("ascii", "replace").decode("ascii") if is_plain(given) else text)


def print_json(value: Any, given: Container[str] = ()) -> None:
    print(json.dumps(value, ensure_ascii=is_plain(given), allow_nan=False), flush=True)


def confirmed(question: str, why: str) -> bool:
    """Ask a question; return True for yes. Without a terminal, InputError with ``why`` an answer is needed."""
    if not sys.stdin.isatty():
        raise InputError(f"{why}; standard input is not a terminal: add --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def write_first(writing: Iterable[str], report: Callable[[list[str]], Returned]) -> Returned:
    """Write files, then ``report``, always, with a line for each: the reader of standard output may be gone."""
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
    """Return the path of an output option, None if it was not given; InputError if it cannot be written."""
    if name not in given:
        return None
    if given[name] in ("", "-"):
        raise InputError(f"--{name}: {given[name]!r} names no file; standard output is for the summary")
    path = user_path(given[name])
    if name == "report":
        check_suffix(path, "--report")
    check_writable(path, f"--{name}")
    return path.absolute()


def new_file(text: str, option: str) -> Path:
    """Return the path of a file that an option names; InputError if it exists or cannot be written."""
    path = user_path(text)
    if os.path.lexists(path):
        raise InputError(f"{option}: {path} already exists and is not overwritten; choose another name")
    check_writable(path, option)
    return path.absolute()


def write_each(files: Iterable[tuple[Path, Callable[[Path], int | None]]]) -> Iterator[str]:
    """Write files and yield a line for each, with the number of rows if known; InputError at the end for errors."""
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
    """Return the paths of ``--json`` and ``--csv``, None for standard output; InputError for one destination."""
    asked = [name for name in TEXT_FORMATS if name in given]
    paths = {name: None if given[name] == _STDOUT else output_path(given, name) for name in asked}
    if len(paths) > 1 and len(set(paths.values())) == 1:
        raise InputError("--json and --csv name the same destination; name a file for one of them")
    return paths


def write_texts(texts: Mapping[str, Callable[[], str]], outputs: Mapping[str, Path | None]) -> Iterator[str]:

    def files() -> Iterator[tuple[Path, Callable[[Path], None]]]:
        for name, path in outputs.items():
            if path is None:
                sys.stdout.write(texts[name]())
            else:
                yield path, partial(write_text, text=texts[name]())

    return write_each(files())
