"""``fabtui completion``: shell completion."""

from __future__ import annotations

import argparse

import shtab

from fabtui.importers.catalogue import formats


def execute(args: argparse.Namespace) -> int:
    """Print the completion script of a shell; return the exit code."""
    _complete_values(args.parser)
    print(shtab.complete(args.parser, args.shell))
    return 0


def _complete_values(parser: argparse.ArgumentParser) -> None:
    """Complete file names and the formats of ``read --as``."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_values(command)
        elif action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "KIND":
            action.choices = sorted(formats(), key=str.lower)
