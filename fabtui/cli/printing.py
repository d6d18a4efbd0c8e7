"""Output of commands on standard output, and the questions that they ask first."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Container
from typing import Any

from fabtui.errors import InputError
from fabtui.importers.result import Result
from fabtui.report.imported_output import text_of
from fabtui.report.text import takes_unicode

#: Width of texts in a pipe or a file: unlimited.
_UNLIMITED = 10_000


def is_plain(given: Container[str] = ()) -> bool:
    """Return True if only ASCII can be printed: the options have ``ascii``, or standard output takes no more."""
    return "ascii" in given or not takes_unicode(sys.stdout)


def print_text(text: str, given: Container[str] = ()) -> None:
    """Print a text as it is, in ASCII where `is_plain` is true."""
    sys.stdout.write(text.encode("ascii", "replace").decode("ascii") if is_plain(given) else text)


def print_json(value: Any, given: Container[str] = ()) -> None:
    """Print a value as JSON, on one line."""
    print(json.dumps(value, ensure_ascii=is_plain(given), allow_nan=False), flush=True)


def print_result(result: Result, given: Container[str]) -> None:
    """Print a result as text, or as JSON if that was asked for."""
    if "json" in given:
        print_json(result.as_json(), given)
        return
    limited = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = shutil.get_terminal_size().columns if limited else _UNLIMITED
    sys.stdout.write(text_of(result, width, plain=is_plain(given)))


def confirmed(question: str, why: str) -> bool:
    """Ask a question, and return whether the user answers yes.

    Raises:
        InputError: Standard input is no terminal; ``why`` names what needs an answer.
    """
    if not sys.stdin.isatty():
        raise InputError(f"{why}; standard input is no terminal: add --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
