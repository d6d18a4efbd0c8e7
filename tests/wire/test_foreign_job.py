"""A process of another user beside whose program lie tools: root looks at the job through each door, and runs none."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from tests.foreign import started_stranger
from tests.forked import fabtui
from tests.wire import sshd
from tests.wire.assistant import connected

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users"),
    pytest.mark.timeout(240),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    with started_stranger() as process:
        yield process.folder


@pytest.mark.parametrize("words", [("hang",), ("hang", "--source", "stacks")])
def test_from_the_command_line(folder: Path, field: sshd.Field, words: tuple[str, ...]) -> None:
    field.serve("a")
    done = fabtui(*words, "--nodes", "a", "--ssh-config", str(field.config()), "--json", timeout=90)
    assert "rank" in done.stdout, done.stdout + done.stderr
    assert not (folder / "ran").exists()


async def test_by_an_assistant(folder: Path, field: sshd.Field, tmp_path: Path) -> None:
    field.serve("a")
    options = ["--nodes", "a", "--ssh-config", str(field.config()), "--remote-python", sys.executable]
    home = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    async with connected(*options, **home) as client:
        result = await client.call_tool("hang", {"nodes": "a"})
    assert not result.is_error
    assert not (folder / "ran").exists()
