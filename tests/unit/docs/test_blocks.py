"""Code blocks of the documentation: commands are valid and run, data is well formed.

Commands need no marker: those that need no node run here, the others are parsed. A block that is neither commands nor
data, or whose commands cannot run here, has a comment above it with the reason, ``<!-- not run: REASON -->``; commands
of fabtui in it are parsed all the same.
"""

import configparser
import glob
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabtui.cli.main import main
from fabtui.cli.options_from_args import request_from
from fabtui.cli.parser import COMMANDS, FURTHER, LIVE, build_parser, expanded, help_of
from fabtui.config.options import session_changes

from .blocks import NAMES, ROOT, SHELL, arguments, blocks, commands, inline_commands
from .running import VARIABLES, check_transcript, run_in_shell
from .working_folder import fill

#: Commands that need nodes, a terminal, a question or root, by what makes them need nothing; these are parsed only.
NOT_HERE: dict[str | None, str] = {
    **dict.fromkeys((*LIVE, "serve", "resume"), "--help"),
    "replay": "--text",
    "share": "--yes",
    "lab": "--list",
}
#: Runs as a whole, in tests/wire/test_tutorial.py.
TUTORIAL = "docs/tutorial.md"
#: Other programs that blocks may use.
FILTERS = {"jq", "test", "head", "sort", "zcat", "echo", "cat", "column"}
#: Data by the language of its block.
READERS: dict[str, Callable[[str], Any]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "ini": configparser.ConfigParser(strict=False).read_string,
    "yaml": yaml.safe_load,
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("docs"))


def check_command(words: list[str]) -> None:
    """Parse the arguments of fabtui, and the values of options of a session."""
    for name, value in VARIABLES.items():
        words = [word.replace(f"${name}", value) for word in words]
    # Three dots stand for further options, or for the value of one.
    line = re.sub(
        r"(--[\w-]+\0)?\.\.\.(\0|$)",
        "",
        "\0".join(word for word in words if word not in ("--help", "--help-all", "--version")),
    )
    given = [word for word in line.split("\0") if word]
    given = expanded(given)
    args = build_parser(given).parse_args(given)
    # The file of a lab that stands.
    vars(args).pop("ssh_config", None)
    if getattr(args, "command", None) in (None, "run", "preflight"):
        session_changes(vars(args))
        if "lab" in args:
            request_from(args)


def check_statement(statement: str) -> None:
    """Parse the commands of fabtui in a statement; of other programs alone, the files and names that they give."""
    found = commands(statement)
    own = [words for words in map(arguments, found) if words is not None]
    for words in own:
        check_command(words)
    if not own:
        first, *rest = found[0]
        if first == "make":
            assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), statement
        elif first in ("pip", "pipx", "uv"):
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            assert {word for group in re.findall(r"\[(.*)\]", statement) for word in group.split(",")} <= set(extras)
        else:
            assert first in FILTERS or (ROOT / first).is_file(), f"{statement}: needs <!-- not run: REASON -->"


def check_output(text: str) -> None:
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        try:
            found = [arguments(words) for words in commands(line.removeprefix("$ "))]
        except ValueError:
            continue  # an apostrophe: it is not a command
        for words in found:
            if words:
                check_command(words)


@pytest.mark.parametrize("name", NAMES)
def test_blocks_are_valid(name: str) -> None:
    for block in blocks(name):
        try:
            if block.reason:
                check_output(block.text)
            elif block.language in READERS:
                READERS[block.language](block.text)
                check_output(block.text)
            elif block.language == "python":
                compile(block.text, block.place, "exec")
            else:
                assert block.language in SHELL, "an unknown language"
                for statement in block.statements():
                    check_statement(statement)
        except BaseException as problem:
            problem.add_note(block.place)
            raise


@pytest.mark.parametrize("name", NAMES)
def test_commands_in_the_text_are_valid(name: str) -> None:
    for command in inline_commands(name):
        # The name alone stands for the command.
        if command.split()[1:] not in [[name] for name in (*COMMANDS, *FURTHER)]:
            check_output(command)


@pytest.mark.parametrize("command", ["", *COMMANDS, *FURTHER])
def test_examples_of_the_help_are_valid(command: str) -> None:
    check_output(re.sub(r"(?m)   .*$", "", help_of(command)[1].replace("\n  ", "\n")))


def is_run(statement: str) -> bool:
    """Return True if all programs of a statement can run here; absolute paths are those of other machines."""
    for words in commands(statement):
        own = arguments(words)
        if own is None and words[0] not in FILTERS:
            return False
        if own is not None:
            command = own[0] if own and not own[0].startswith("-") else None
            if words[0] != "fabtui" or NOT_HERE.get(command, "") not in ("", *own) or "--open" in own:
                return False
    return not re.search(r" [/~]", statement)


def run(statement: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a statement, in this process if it is a single command; return what it printed."""
    found = commands(statement)
    own = arguments(found[0])
    if len(found) > 1 or own is None or ">" in statement:
        code, out, err = run_in_shell(statement)
    else:
        code = main([name for word in own for name in sorted(glob.glob(word)) or [word]])
        out, err = capsys.readouterr()
    # 1 is an answer: something is bad, or worse.
    assert code in (0, 1), f"{statement}: {code}: {err}"
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_blocks_run(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "120")
    names: dict[str, Any] = {}
    for block in blocks(name):
        if block.reason or block.place.startswith(TUTORIAL):
            continue
        if block.language == "python":
            exec(compile(block.text, block.place, "exec"), names)
        elif block.language in SHELL:
            expected = dict(block.transcript())
            for statement in filter(is_run, block.statements()):
                printed = run(statement, capsys)
                if statement in expected:
                    check_transcript(expected[statement], printed)
