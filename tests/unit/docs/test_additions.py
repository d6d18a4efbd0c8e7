"""The additions of docs/development.md, made in a copy: each is where the page promises."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from .blocks import ROOT
from .running import check_transcript

PAGE = (ROOT / "docs" / "development.md").read_text()
_CODE = re.compile(
    r"^`(?P<path>\S+)`, (?:a new file|at the end|in `(?P<name>[\w.\[\]]+)`|before `(?P<before>[^`]+)`):\n\n"
    r"<!-- [^\n]* -->\n\n```\w+\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
_SHOWN = re.compile(r"^```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)^```", re.MULTILINE | re.DOTALL)


class Addition(NamedTuple):
    """An addition, and the command that shows it.

    Attributes:
        title: Its heading.
        path: The file that is new or changed.
        name: The table in the file that gets a row, or "".
        before: The line before which it stands, or "".
        text: What is added.
        command: The command, and what it prints.
    """

    title: str
    path: str
    name: str
    before: str
    text: str
    command: tuple[str, str]


def additions() -> list[Addition]:
    found = []
    for section in re.split(r"^### ", PAGE.partition("\n## Rooms")[0], flags=re.MULTILINE)[1:]:
        code, shown = _CODE.search(section), _SHOWN.search(section)
        assert code is not None, section
        assert shown is not None, section
        title = section.partition("\n")[0]
        command = (shown["command"], shown["output"])
        found.append(Addition(title, code["path"], code["name"] or "", code["before"] or "", code["text"], command))
    return found


ADDITIONS = additions()


def add(root: Path, addition: Addition) -> None:
    path = root / addition.path
    before = path.read_text() if path.exists() else ""
    if addition.before:
        line = re.search(rf"^ *{re.escape(addition.before)}\n", before, re.MULTILINE)
        assert line is not None, f"{addition.path} has no {addition.before}"
        path.write_text(before[: line.start()] + addition.text + before[line.start() :])
        return
    if not addition.name:
        path.write_text(f"{before}\n\n{addition.text}" if before else addition.text)
        return
    table = rf"{re.escape(addition.name)}\n" if "[" in addition.name else rf" *{addition.name}\b[^\n]*= [\[({{]\n"
    opening = re.search("^" + table, before, re.MULTILINE)
    assert opening is not None, f"{addition.path} has no {addition.name}"
    after = before[opening.end() :]
    if path.suffix == ".toml":
        # A row of the same name gives way; the table ends where the next one begins.
        rows, mark, others = after.partition("\n[")
        row = re.compile(rf"^{re.escape(addition.text.split()[0])} = [^\n]*\n", re.MULTILINE)
        after = row.sub("", rows) + mark + others
    path.write_text(before[: opening.end()] + addition.text + after)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("copy")
    for name in ("fabtui", "probes", "themes", "recordings"):
        # With what is compiled, as copies keep their times.
        shutil.copytree(ROOT / name, root / name)
    shutil.copy(ROOT / "pyproject.toml", root)
    for addition in ADDITIONS:
        add(root, addition)
    (root / "bin").mkdir()
    for name, words in (("fabtui", " -m fabtui"), ("python3", "")):
        program = root / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable}{words} "$@"\n')
        program.chmod(0o755)
    return root


def test_the_page_has_each_kind() -> None:
    kinds = [addition.title.split()[-1] for addition in ADDITIONS]
    assert kinds == [
        *("probe", "layer", "key", "rule", "catalogue", "Xid", "format", "option", "launcher"),
        *("CSV", "metric", "report", "assistants", "theme", "verdict"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("addition", ADDITIONS, ids=lambda addition: addition.title.split()[-1])
def test_an_addition_is_where_the_page_promises(addition: Addition, copy: Path, tmp_path: Path) -> None:
    command, output = addition.command
    env = {**os.environ, "PYTHONPATH": f"{copy}:{copy / 'probes'}", "PATH": f"{copy / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", command], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    check_transcript(output, done.stdout + done.stderr)
