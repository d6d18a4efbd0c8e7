"""A TCP tunnel that can be cut, as an SSH session with ``-L`` is when the network changes."""

import asyncio
import contextlib
from typing import Self


class Tunnel:
    def __init__(self, port: int) -> None:
        self._to = port
        self._open = True
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """End all connections without a word, and refuse new ones."""
        self._open = False
        for writer in self._writers:
            writer.transport.abort()

    def open(self) -> None:
        self._open = True

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers |= {writer, back}
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
