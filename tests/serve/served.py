"""A server of the app, and windows of it without a browser."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.serve.browser import PATIENCE, eventually
from tests.serve.vt import Terminal

aiohttp = pytest.importorskip("aiohttp", reason="the extra serve is not installed")
pytest.importorskip("textual_serve", reason="the extra serve is not installed")
ROOT = Path(__file__).resolve().parent.parent.parent
RECORDING = ROOT / "tests" / "samples" / "sessions" / "h200x8-lab-2x4-faults.jsonl.gz"


class Served(NamedTuple):
    url: str
    port: int
    printed: str
    child: asyncio.subprocess.Process


@asynccontextmanager
async def served(*argv: str, folder: str | Path = ROOT, **environment: str) -> AsyncIterator[Served]:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "fabtui", "serve", "--port", "0", *argv),
        cwd=folder,
        stdout=pipe,
        stderr=pipe,
        env={**os.environ, **environment},
    )
    assert child.stdout is not None
    try:
        printed = ""
        async with asyncio.timeout(PATIENCE):
            while "Ctrl+C here" not in printed:
                line = await child.stdout.readline()
                assert line, (await child.stderr.read()).decode() if child.stderr else ""
                printed += line.decode()
        url = re.search(r"http://127\.0\.0\.1:(\d+)/[\w-]{32}/", printed)
        assert url is not None, printed
        yield Served(url.group(), int(url.group(1)), printed, child)
    finally:
        if child.returncode is None:
            child.terminate()
        async with asyncio.timeout(PATIENCE):
            await child.wait()


def replayed(folder: str | Path = ROOT) -> Any:
    return served("--replay", str(RECORDING), "--speed", "max", folder=folder)


@asynccontextmanager
async def window(url: str, more: str = "") -> AsyncIterator[Any]:
    """A window without a browser: a websocket."""
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{url}ws?width=120&height=36{more}") as ws:
        yield ws


async def waits_for(ws: Any, words: str) -> None:
    """Wait until a window is sent what it waits for."""
    async with asyncio.timeout(PATIENCE):
        while words not in str((await ws.receive()).data):
            pass


async def shown(ws: Any, words: str, terminal: Terminal | None = None) -> Terminal:
    terminal = terminal or Terminal()
    async with asyncio.timeout(PATIENCE):
        while words not in terminal.text:
            message = await ws.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                terminal.feed(message.data)
            else:
                assert message.type is aiohttp.WSMsgType.TEXT, (message, terminal.text)
    return terminal


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


async def gone(pids: list[int]) -> None:
    assert await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
