"""``fabtui help``: commands and JSON Schemas; and ``fabtui completion``, the same for shells."""

from __future__ import annotations

import argparse
import json
import sys

import shtab

from fabtui.cli.parser import COMMANDS, FURTHER, OneLineParser, build_parser, expanded, help_of, rows_text
from fabtui.config.values import nearest
from fabtui.errors import InputError
from fabtui.export.formats import FORMATS, schema
from fabtui.importers.catalogue import formats
from fabtui.screen.themes import all_theme_names

HELP = """\
Print the help of a command, the list of all commands, or a JSON Schema (2020-12) of what a command writes.

examples:
  fabtui help                                  what people use, as fabtui --help
  fabtui help preflight                        the same as fabtui preflight --help
  fabtui help --all                            every command
  fabtui help --schema > session.schema.json   of --json of run
  fabtui help --schema diff | jq .properties.pairs
"""
HELP_COMPLETION = """\
Print a script that completes the options of fabtui in a shell.

examples:
  fabtui completion bash > ~/.local/share/bash-completion/completions/fabtui
  fabtui completion zsh > ~/.zfunc/_fabtui     # fpath+=~/.zfunc before compinit in ~/.zshrc
  fabtui completion fish > ~/.config/fish/completions/fabtui.fish
"""


def execute(args: argparse.Namespace) -> int:
    if "schema" in args:
        if args.schema not in FORMATS:
            raise InputError(f"there is no schema {args.schema!r}; there are {', '.join(FORMATS)}")
        print(json.dumps(schema(args.schema), indent=1))
        return 0
    if "all" in args:
        usual = rows_text("commands", {"": "the app on live nodes", **COMMANDS}.items())
        sys.stdout.write(f"{usual}\n\n{rows_text('further commands', FURTHER.items())}\n")
        return 0
    topic = getattr(args, "topic", "")
    words = expanded((topic,) if topic else ())
    known = (*COMMANDS, *FURTHER)
    if topic and topic not in known:
        raise InputError(f"unknown command '{topic}'{nearest(topic, known)}; fabtui help --all lists all")
    # The parser prints the help, and ends the program.
    build_parser(words).parse_args([*words, "--help"])
    return 0


def execute_completion(args: argparse.Namespace) -> int:
    parser = build_parser()
    _complete_values(parser)
    print(shtab.complete(parser, args.shell))
    return 0


def _complete_values(parser: OneLineParser) -> None:
    """Complete file names, themes and the formats of ``read --as``; commands have their descriptions."""
    parser.description = help_of(parser.command)[0]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_values(command)
        elif action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif "--theme" in action.option_strings:
            action.choices = all_theme_names()
        elif action.metavar == "KIND":
            action.choices = sorted(formats(), key=str.lower)
