"""Exit codes: one table for all commands."""

from __future__ import annotations

import re

import pytest

from fabtui import exit_status
from fabtui.cli.parser import COMMANDS, FURTHER, help_of

LISTED = "exit codes:"
LISTING = [command for command in ("", *COMMANDS, *FURTHER) if LISTED in help_of(command)[1]]
CODES = {value for name, value in vars(exit_status).items() if name.isupper()}


@pytest.mark.parametrize("command", LISTING)
def test_the_help_of_a_command_names_codes_of_the_table(command: str) -> None:
    listed = " ".join(help_of(command)[1].partition(LISTED)[2].split())
    codes = {int(number) for number in re.findall(r"(?:^|; |, )(\d{1,3}) ", f"{listed} ")}
    assert codes
    assert codes <= CODES
