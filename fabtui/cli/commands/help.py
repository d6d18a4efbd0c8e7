"""``fabtui help``: help about a command, or the list of all commands."""

from __future__ import annotations

import argparse
import sys

from fabtui.cli.parser import COMMANDS, FURTHER, build_parser, expanded, rows_text
from fabtui.config.values import nearest
from fabtui.errors import InputError

HELP = """\
Print the help of a command, or list all commands.

examples:
  fabtui help                                  what people use, as fabtui --help
  fabtui help preflight                        the same as fabtui preflight --help
  fabtui help --all                            every command
"""


def execute(args: argparse.Namespace) -> int:
    """Print the help; return the exit code."""
    if "all" in args:
        parts = [
            rows_text("commands", {"": "the app on live nodes", **COMMANDS}.items()),
            rows_text("further commands", FURTHER.items()),
        ]
        sys.stdout.write("\n\n".join(parts) + "\n")
        return 0
    topic = getattr(args, "topic", "")
    words = expanded((topic,) if topic else ())
    known = (*COMMANDS, *FURTHER)
    if topic and topic not in known:
        raise InputError(f"unknown command '{topic}'{nearest(topic, known)}; fabtui help --all lists all")
    # The parser prints the help, and ends the program.
    build_parser(words).parse_args([*words, "--help"])
    return 0
