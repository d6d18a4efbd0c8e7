"""Printing of answers about running jobs, and words of their command lines."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from fabtui.importers.result import Result
from fabtui.report.imported_output import text_of
from fabtui.report.tables import takes_unicode


def print_result(result: Result, given: Mapping[str, Any]) -> None:
    """Print a result as text, or as JSON if that was asked for."""
    unicode = takes_unicode(sys.stdout)
    if "json" in given:
        print(json.dumps(result.as_json(), ensure_ascii=not unicode, allow_nan=False))
        return
    limited = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = shutil.get_terminal_size().columns if limited else 10_000
    sys.stdout.write(text_of(result, width, plain="ascii" in given or not unicode))


def words_without(words: list[str], switches: tuple[str, ...], valued: tuple[str, ...]) -> list[str]:
    """Return the words of a command line without some options."""
    left = iter(words)
    found = []
    for word in left:
        if word in valued:
            next(left, None)
        elif word not in switches and not word.startswith(tuple(f"{option}=" for option in valued)):
            found.append(word)
    return found
