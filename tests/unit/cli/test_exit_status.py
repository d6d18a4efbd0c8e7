"""Exit codes: one table for all commands."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from fabtui import exit_status
from fabtui.cli import commands

LISTED = "exit codes:"
COMMANDS = sorted(path.stem for path in Path(commands.__path__[0]).glob("[a-z]*.py") if LISTED in path.read_text())
CODES = {value for name, value in vars(exit_status).items() if name.isupper()}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_names_codes_of_the_table(command: str) -> None:
    text: str = import_module(f"fabtui.cli.commands.{command}").HELP
    listed = " ".join(text.partition(LISTED)[2].split())
    codes = {int(number) for number in re.findall(r"(?:^|; |, )(\d{1,3}) ", f"{listed} ")}
    assert codes
    assert codes <= CODES
