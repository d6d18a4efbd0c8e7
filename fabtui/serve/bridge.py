"""The app as a child process that draws on a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Sequence

from fabtui.sanitize import clean

_DRIVER = "fabtui.screen.terminal.serve_driver:ServedDriver"
#: First line of the driver.
_READY = b"__GANGLION__\n"
#: Maximum size of a packet (bytes); a screen takes some hundred kB.
_MOST_PACKET = 16 << 20
_MOST_ERRORS = 64 << 10
#: Timeout (s) for the app to stop everything on the nodes before it is killed.
END_DEADLINE = 25.0


class Bridge:
    """Runs the app once, as a child process that draws on a pipe; ``show`` receives what it writes to its terminal."""

    def __init__(self, argv: Sequence[str], show: Callable[[bytes], None]) -> None:
        self._argv = list(argv)
        self._show = show
        self._child: asyncio.subprocess.Process | None = None
        self._errors = b""
        self._ended = False

    async def run(self, width: int, height: int) -> None:
        """Run the app until it ends, in a terminal of ``width`` columns; then show its last output."""
        environment = {
            **os.environ,
            "TEXTUAL_DRIVER": _DRIVER,
            "TEXTUAL_COLOR_SYSTEM": "truecolor",
            "TERM": "xterm-256color",
            "COLUMNS": str(width),
            "ROWS": str(height),
        }
        pipe = asyncio.subprocess.PIPE
        self._child = child = await asyncio.create_subprocess_exec(
            *self._argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, limit=1 << 20
        )
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            if self._ended:
                return
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read_errors(child.stderr))
                tasks.create_task(self._read(child.stdout))
            await child.wait()
        finally:
            await self.end()
        last = clean(self._errors).strip().replace("\n", "\r\n")
        # Its output goes where the screen was: a browser has no other place for it.
        self._show(b"\x1b[?1003l\x1b[?1000l\x1b[?1049l\x1b[0m\x1b[2J\x1b[H" + last.encode() + b"\r\n")

    async def end(self) -> None:
        """Stop the app, which stops everything on the nodes; kill it after a timeout."""
        self._ended = True
        child = self._child
        if child is None or child.returncode is not None:
            return
        assert child.stdin is not None
        # The end of its input is what the app takes for the end of its terminal.
        child.stdin.close()
        try:
            async with asyncio.timeout(END_DEADLINE):
                await child.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    async def resize(self, width: int, height: int) -> None:
        """Send the app the size of its terminal."""
        await self.signal(type="resize", width=width, height=height)

    async def signal(self, **values: object) -> None:
        """Send the app an event of its terminal or its window."""
        await self.send(b"M", json.dumps(values).encode())

    async def send(self, kind: bytes, payload: bytes) -> None:
        """Send a packet to the app: D, keyboard input; M, an event."""
        child = self._child
        if child is None or child.stdin is None or child.stdin.is_closing():
            return
        with contextlib.suppress(ConnectionError, RuntimeError):
            child.stdin.write(kind + len(payload).to_bytes(4, "big") + payload)
            await child.stdin.drain()

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            if await stdout.readuntil(b"\n") != _READY:
                return
            while True:
                kind = await stdout.readexactly(1)
                size = int.from_bytes(await stdout.readexactly(4), "big")
                if size > _MOST_PACKET:
                    return
                payload = await stdout.readexactly(size)
                if kind == b"D":
                    self._show(payload)

    async def _read_errors(self, stderr: asyncio.StreamReader) -> None:
        while found := await stderr.read(4096):
            self._errors = (self._errors + found)[-_MOST_ERRORS:]
