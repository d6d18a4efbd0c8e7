"""A window of a browser: its keys go to the app, and what the app draws goes to it."""

from __future__ import annotations

import asyncio
import contextlib
import json

from aiohttp import WSMsgType, web

from fabtui.serve.bridge import Bridge

_WIDEST = 1000
#: Output held for a window that does not take it (bytes). Beyond that it is dropped, and the screen is drawn again
#: later: a stalled window must not stall the app, whose deadlines would pass.
_MOST_HELD = 4 << 20
#: Timeout (s) for a window to take the last output.
_LAST = 5.0


class Window:
    """The connection of a window, from its beginning to its end."""

    def __init__(self, socket: web.WebSocketResponse, values: object) -> None:
        self.size = size_from(values)
        #: True after the page was closed, rather than its connection cut.
        self.closed = False
        self._socket = socket
        self._app: Bridge | None = None
        self._queue: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self._held = 0
        self._stale = False
        self._sending = asyncio.create_task(self._send())
        self.connection = asyncio.create_task(self._read())

    def attach(self, app: Bridge) -> None:
        """Send keys and sizes to an app from now on."""
        self._app = app

    def waits(self, reason: str) -> None:
        """Show what the window waits for, until the first frame."""
        self._queue.put_nowait(json.dumps(["waits", reason]))

    def show(self, data: bytes) -> None:
        """Send output of the app, as far as the window takes it."""
        if self._stale:
            return
        self._held += len(data)
        if self._held <= _MOST_HELD:
            self._queue.put_nowait(data)
            return
        self._stale = True
        while not self._queue.empty():
            self._queue.get_nowait()

    async def finish(self) -> None:
        """Send what is left, and close the connection."""
        self._queue.put_nowait(None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST):
                await self._sending
        self.connection.cancel()
        await self._socket.close()

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""
        self._queue.put_nowait(None)
        await self._socket.close(code=code, message=reason.encode())

    async def _send(self) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            while (data := await self._queue.get()) is not None:
                if isinstance(data, str):
                    await self._socket.send_str(data)
                    continue
                await self._socket.send_bytes(data)
                self._held -= len(data)
                if self._stale and self._app is not None:
                    self._held, self._stale = 0, False
                    await self._app.signal(type="redraw")

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
                self.closed = message.type is WSMsgType.CLOSE
                return
            if message.type is WSMsgType.TEXT:
                with contextlib.suppress(ValueError, TypeError):
                    kind, *rest = json.loads(message.data)
                    await self._take(kind, rest[0] if rest else None)

    async def _take(self, kind: object, value: object) -> None:
        if kind == "resize" and isinstance(value, dict):
            self.size = size_from(value)
        if kind == "ping":
            self._queue.put_nowait(json.dumps(["pong", value]))
        elif self._app is None:
            return
        elif kind == "stdin" and isinstance(value, str):
            await self._app.send(b"D", value.encode("utf-8", "replace"))
        elif kind == "resize" and isinstance(value, dict):
            await self._app.resize(*self.size)
        elif kind in ("focus", "blur"):
            await self._app.signal(type=kind)


def size_from(values: object) -> tuple[int, int]:
    """Return the size of a terminal within sane limits."""
    found = []
    for name, usual in (("width", 80), ("height", 24)):
        value = values.get(name, usual) if hasattr(values, "get") else usual
        try:
            found.append(max(1, min(int(value), _WIDEST)))
        except (TypeError, ValueError, OverflowError):
            found.append(usual)
    return found[0], found[1]
