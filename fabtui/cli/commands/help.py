"""``fabtui help``: help about a command, or the list of all commands."""

from __future__ import annotations

import argparse
import sys

from fabtui.cli.parser import ALIASES, COMMANDS, FURTHER, NAMES, SOURCES, build_parser, rows_text
from fabtui.config.values import nearest
from fabtui.errors import InputError

HELP = """\
Print the help of a command, or list all commands.

examples:
  fabtui help                                  what people use, as fabtui --help
  fabtui help preflight                        the same as fabtui preflight --help
  fabtui help --all                            every command, earlier names included
"""


def execute(args: argparse.Namespace) -> int:
    """Print the help; return the exit code."""
    if "all" in args:
        earlier = {name: f"earlier name of fabtui {' '.join(words)}" for name, words in ALIASES.items()}
        parts = [
            rows_text("commands", {"": "the app on live nodes", **COMMANDS}.items()),
            rows_text("further commands", FURTHER.items()),
            rows_text("single sources of fabtui hang", SOURCES.items()),
            rows_text("earlier names", earlier.items()),
        ]
        sys.stdout.write("\n\n".join(parts) + "\n")
        return 0
    topic = getattr(args, "topic", "")
    words = ALIASES.get(topic, (topic,) if topic else ())
    if topic and topic not in NAMES:
        raise InputError(f"unknown command '{topic}'{nearest(topic, NAMES)}; fabtui help --all lists all")
    # The parser prints the help, and ends the program.
    build_parser(words).parse_args([*words[:1], "--help"])
    return 0
