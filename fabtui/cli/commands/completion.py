"""``fabtui completion``: shell completion."""

from __future__ import annotations

import argparse

import shtab

from fabtui.cli.parser import OneLineParser, build_parser, help_of
from fabtui.importers.catalogue import formats
from fabtui.screen.themes import all_theme_names

HELP = """\
Print a script that completes the options of fabtui in a shell.

examples:
  fabtui completion bash > ~/.local/share/bash-completion/completions/fabtui
  fabtui completion zsh > ~/.zfunc/_fabtui     # fpath+=~/.zfunc before compinit in ~/.zshrc
  fabtui completion fish > ~/.config/fish/completions/fabtui.fish
"""


def execute(args: argparse.Namespace) -> int:
    """Print the completion script of a shell; return the exit code."""
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
