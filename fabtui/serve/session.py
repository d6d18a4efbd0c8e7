"""One run of the app in one window, whose connection may be cut and made again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fabtui.serve.bridge import Bridge
from fabtui.serve.page import RECONNECT_SECONDS
from fabtui.serve.window import Window

#: Modes of the terminal in a page that was loaded again: alternate screen, mouse, no cursor, bracketed paste.
_MODES = b"\x1b[?1049h\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h\x1b[?25l\x1b[?2004h"


class Session:
    """Runs the app (a command) for the window with a key; ``task`` ends with the session."""

    def __init__(self, argv: Sequence[str], key: str, window: Window) -> None:
        self.ending = False
        self._key = key
        self._window: Window | None = None
        self._came = asyncio.Event()
        self._app = Bridge(argv, self._show)
        self._running = asyncio.create_task(self._app.run(*window.size))
        self._attend(window)
        self.task = asyncio.create_task(self._run())

    @property
    def attended(self) -> bool:
        """True while a window is connected."""
        return self._window is not None

    async def take(self, window: Window, key: str, *, again: bool) -> bool:
        """Continue in a window if it is the one of this session, after a cut (``again``) or a reload."""
        if self.ending or not key or key != self._key or (self.attended and not again):
            return False
        if self._window is not None:
            self._window.connection.cancel()
        self._attend(window)
        window.show(_MODES)
        await self._app.resize(*window.size)
        await self._app.signal(type="redraw")
        return True

    async def end(self) -> None:
        """Stop the app, which stops everything on the nodes."""
        self.ending = True
        await self._app.end()
        await asyncio.wait((self.task,))

    async def _run(self) -> None:
        try:
            while not self._running.done() and (window := self._window) is not None:
                await asyncio.wait((self._running, window.connection), return_when=asyncio.FIRST_COMPLETED)
                if self._window is window and window.connection.done():
                    self._window = None
                    if not window.closed:
                        await self._wait_for_window()
            self.ending = True
            await self._app.end()
            await self._running
        finally:
            if not self._running.done():
                # The server itself is being ended in the middle of all this.
                await self._app.end()

    async def _wait_for_window(self) -> None:
        self._came.clear()
        came = asyncio.create_task(self._came.wait())
        await asyncio.wait((self._running, came), timeout=RECONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        came.cancel()

    def _attend(self, window: Window) -> None:
        self._window = window
        window.attach(self._app)
        self._came.set()

    def _show(self, data: bytes) -> None:
        if self._window is not None:
            self._window.show(data)
