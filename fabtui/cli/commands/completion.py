"""``fabtui completion``: completion for a shell."""

from __future__ import annotations

import argparse
from typing import Any

_SHELLS = ("bash", "zsh", "tcsh")
_EXAMPLES = """\
examples:
  fabtui completion bash > ~/.local/share/bash-completion/completions/fabtui
  fabtui completion zsh > ~/.zfunc/_fabtui
"""


def add_command(commands: Any) -> None:
    """Add the command to the sub-parsers of the command line."""
    parser = commands.add_parser(
        "completion",
        help="completion for bash, zsh or tcsh",
        description="Print a script that makes a shell complete the options of fabtui.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("shell", choices=_SHELLS, help="the shell")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Print the script; returns the exit code."""
    import shtab

    from fabtui.cli.parser import build_parser

    parser = build_parser()
    _complete_files(parser, shtab.FILE)
    print(shtab.complete(parser, args.shell))
    return 0


def _complete_files(parser: argparse.ArgumentParser, files: Any) -> None:
    """Have file names completed where an option takes one, and the kinds of outputs where one is named."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_files(command, files)
        elif action.metavar == "FILE":
            action.complete = files  # type: ignore[attr-defined]
        elif action.metavar == "KIND":
            from fabtui.importers.catalogue import formats

            action.choices = sorted(formats(), key=str.lower)
