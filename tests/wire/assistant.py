"""A client of the Model Context Protocol as assistants have it, over a real process of ``fabtui mcp``."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")
from mcp import Client
from mcp.client.stdio import StdioServerParameters

#: Variables that a server gets besides those that the client passes on by itself.
_PASSED = ("PYTHONPATH", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "COVERAGE_PROCESS_START")


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "fabtui", "mcp", *options]


def variables(**more: str) -> dict[str, str]:
    """Return the environment of a server, with more variables."""
    return {**{name: os.environ[name] for name in _PASSED if name in os.environ}, **more}


def connected(*options: str, mode: str = "auto", **more: str) -> contextlib.AbstractAsyncContextManager[Client]:
    """Run a server with options and more variables, and a client; both end with the context."""
    return connected_to(command(*options), variables(**more), mode)


@contextlib.asynccontextmanager
async def connected_to(program: Sequence[str], environ: dict[str, str], mode: str = "auto") -> AsyncIterator[Client]:
    """Run a server by a command, and a client; both end with the context.

    The client belongs to the task that opened it, so that it has one of its own: fixtures may end in a different one.
    """
    opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()
    server = StdioServerParameters(command=program[0], args=list(program[1:]), env=environ)

    async def hold() -> None:
        try:
            async with Client(server, mode=mode) as client:
                opened.set_result(client)
                await ended.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)

    holding = asyncio.create_task(hold())
    try:
        yield await asyncio.wait_for(opened, 60)
    finally:
        ended.set()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(holding, 30)


class RawClient:
    """A client without the package, which can close its end or be killed in any moment."""

    def __init__(self, options: Sequence[str] = (), program: Sequence[str] = (), **more: str) -> None:
        self.process = subprocess.Popen(
            program or command(*options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **variables(**more)},
        )
        client = {"name": "test", "version": "1"}
        version = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        self.send("initialize", version, number=1)
        assert self.process.stdout is not None
        assert json.loads(self.process.stdout.readline())["id"] == 1
        self.send("notifications/initialized", {})

    def send(self, method: str, params: dict[str, Any], number: int | None = None) -> None:
        """Send a request with a number, or a notification."""
        assert self.process.stdin is not None
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.process.stdin.write(json.dumps({**message, **({} if number is None else {"id": number})}).encode() + b"\n")
        self.process.stdin.flush()

    def call(self, tool: str, arguments: dict[str, Any], number: int) -> None:
        """Call a tool, and do not wait for its answer."""
        self.send("tools/call", {"name": tool, "arguments": arguments}, number)
