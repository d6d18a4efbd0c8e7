"""Output of commands on standard output, and the questions that they ask first."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Container
from typing import Any

from fabtui.config.values import listed
from fabtui.errors import InputError
from fabtui.model.layers import Layer, grid_layers
from fabtui.report.document import USUAL_WIDTH, Shown
from fabtui.report.text import takes_unicode


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
    """Ask a question, and return whether the user answers yes.

    Raises:
        InputError: Standard input is not a terminal; ``why`` names what needs an answer.
    """
    if not sys.stdin.isatty():
        raise InputError(f"{why}; standard input is not a terminal: add --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
