"""The user's command for a hang: it gets the report, and is ended with its children after the deadline."""

import asyncio
import contextlib
import os
from pathlib import Path
from shlex import quote

import pytest

from fabtui.cli.commands.hang import run_command


async def test_variables_and_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "out"
    command = f'printf "%s" "$FABTUI_FINDING" > {quote(str(path))}; exit 3'
    ended = await run_command(command, {"FABTUI_FINDING": "a 'b' $(c)"})
    assert (ended, path.read_text()) == ("ended with exit code 3", "a 'b' $(c)")
    assert await run_command("true", {}) == "ended well"


def _gone(path: Path) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(path.read_text()), 0)
        return Path(f"/proc/{path.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.slow
async def test_a_command_that_does_not_end(tmp_path: Path, cancelled: bool) -> None:
    path = tmp_path / "pid"
    command = f"sleep 600 & echo $! > {quote(str(path))}; wait"
    running = asyncio.create_task(run_command(command, {}, 60.0 if cancelled else 1.0))
    async with asyncio.timeout(20):
        while not path.exists() or not path.read_text().strip():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)
        if cancelled:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            assert await running == "was ended after 1 s"
        while not _gone(path):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
