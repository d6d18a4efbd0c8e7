"""The byte pipe of a node side that connected back; its standard error comes by srun."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from fabtui.transport.byte_pipe import BytePipe, Ending

#: Timeout (s) for a connection that is being closed.
_GONE = 2.0


class CalledPipe(BytePipe):
    """A connection that a task of a step made, and what srun reports of the task.

    Args:
        reader: The stream from the node.
        writer: The stream to the node.
        errors: Returns the next output on standard error of the task, none at its end.
        how_it_ended: Returns how the task ended, waiting a bounded time.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        errors: Callable[[], Awaitable[bytes]],
        how_it_ended: Callable[[], Awaitable[Ending]],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._errors = errors
        self._how_it_ended = how_it_ended
        self._over = asyncio.Event()

    async def read(self) -> bytes:
        """Return bytes from the node, none at the end."""
        try:
            data = await self._reader.read(64 * 1024)
        except OSError:
            data = b""
        if not data:
            self._over.set()
        return data

    async def read_error(self) -> bytes:
        """Return some bytes of standard error, none at its end."""
        return await self._errors()

    async def write(self, data: bytes) -> None:
        """Write to the node."""
        self._writer.write(data)
        await self._writer.drain()

    def write_eof(self) -> None:
        """End the node's input."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write_eof()

    async def ending(self) -> Ending:
        """Wait for the end of the connection."""
        await self._over.wait()
        return await self._how_it_ended()

    def abort(self) -> None:
        """Close the connection; the node side ends by its end of input."""
        self._over.set()
        self._writer.transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed, a bounded time."""
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), _GONE)
