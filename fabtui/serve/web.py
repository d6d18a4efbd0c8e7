"""The screen in a browser: a server of one page with one terminal, protected by a token, on 127.0.0.1 only."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import html
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

from aiohttp import WSMsgType, web

from fabtui.errors import InputError
from fabtui.sanitize import clean

#: Maximum time (s) in which a window whose connection was cut comes back; its session continues meanwhile.
RECONNECT_SECONDS = 120
#: Close code of a session that no longer exists.
GONE = 4404

_DRIVER = "fabtui.screen.terminal.serve_driver:ServedDriver"
#: First line of the driver.
_READY = b"__GANGLION__\n"
#: Maximum size of a packet (bytes); a screen takes some hundred kB.
_MOST_PACKET = 16 << 20
_MOST_ERRORS = 64 << 10
#: Timeout (s) for the app to stop everything on the nodes before it is killed.
END_DEADLINE = 25.0
_WIDEST = 1000
#: Output held for a window that does not take it (bytes). Beyond that it is dropped, and the screen is drawn again
#: later: a stalled window must not stall the app, whose deadlines would pass.
_MOST_HELD = 4 << 20
#: Longest value of a ping that is answered (characters).
_MOST_PING = 100
#: Timeout (s) for a window to take the last output.
_LAST = 5.0
#: Modes of the terminal in a page that was loaded again: alternate screen, mouse, no cursor, bracketed paste.
_MODES = b"\x1b[?1049h\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h\x1b[?25l\x1b[?2004h"
HOST = "127.0.0.1"
#: Names of this machine in a browser; a request with a different name comes from a foreign page.
_NAMES = ("127.0.0.1", "localhost", "::1")
_MOST_MESSAGE = 1 << 20
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self' ws://127.0.0.1:* ws://localhost:*; frame-ancestors 'none'"
    ),
}
_BUSY = "fabtui is open in another window; this one begins when that one is closed ..."
_CUT = "The connection of another window was cut; this one begins when that one has not come back in time ..."
_ENDING = "The session before this one stops its processes on the nodes ..."
#: Number of connections that have not sent the token, and the time (s) that each has for it.
_MOST_STRANGERS = 64
_TIME_OF_STRANGERS = 10.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _file(name: str) -> str:
    return (files("fabtui.serve") / name).read_text(encoding="utf-8")


def index(host: str) -> str:
    """Return the page; ``host`` is the name of this machine."""
    return Template(_file("index.html")).substitute(host=html.escape(host), seconds=RECONNECT_SECONDS, gone=GONE)


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
        environment = os.environ | {"TEXTUAL_DRIVER": _DRIVER, "TEXTUAL_COLOR_SYSTEM": "truecolor"}
        environment |= {"TERM": "xterm-256color", "COLUMNS": str(width), "ROWS": str(height)}
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

    async def signal(self, **values: object) -> None:
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
        while text := await stderr.read(4096):
            self._errors = (self._errors + text)[-_MOST_ERRORS:]


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
        #: True from its end on: nothing more is sent, and so nothing may be kept.
        self._over = False
        #: True while an answer to a ping waits: one is enough to keep a connection alive.
        self._answering = False
        self._sending = asyncio.create_task(self._send())
        self.connection = asyncio.create_task(self._read())

    def attach(self, app: Bridge) -> None:
        self._app = app

    def waits(self, reason: str) -> None:
        """Show what the window waits for, until the first frame."""
        self._queue.put_nowait(json.dumps(["waits", reason]))

    def show(self, data: bytes) -> None:
        if self._stale or self._over:
            return
        self._held += len(data)
        if self._held <= _MOST_HELD:
            self._queue.put_nowait(data)
            return
        self._stale = True
        self._answering = False
        while not self._queue.empty():
            self._queue.get_nowait()

    async def finish(self) -> None:
        self._over = True
        self._queue.put_nowait(None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST):
                await self._sending
        self.connection.cancel()
        await self._socket.close()

    async def close(self, code: int, reason: str) -> None:
        self._over = True
        self._queue.put_nowait(None)
        await self._socket.close(code=code, message=reason.encode())

    async def _send(self) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            while (data := await self._queue.get()) is not None:
                if isinstance(data, str):
                    await self._socket.send_str(data)
                    self._answering = False
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
            answer = json.dumps(["pong", value])
            if not self._answering and len(answer) <= _MOST_PING:
                self._answering = True
                self._queue.put_nowait(answer)
        elif self._app is None:
            return
        elif kind == "stdin" and isinstance(value, str):
            await self._app.send(b"D", value.encode("utf-8", "replace"))
        elif kind == "resize" and isinstance(value, dict):
            await self._app.signal(type="resize", width=self.size[0], height=self.size[1])
        elif kind in ("focus", "blur"):
            await self._app.signal(type=kind)


def size_from(values: Any) -> tuple[int, int]:
    def bounded(name: str, usual: int) -> int:
        with contextlib.suppress(AttributeError, TypeError, ValueError, OverflowError):
            return max(1, min(int(values.get(name, usual)), _WIDEST))
        return usual

    return bounded("width", 80), bounded("height", 24)


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
        return self._window is not None

    async def take(self, window: Window, key: str, *, again: bool) -> bool:
        """Continue in a window if it is the one of this session, after a cut (``again``) or a reload."""
        if self.ending or not key or key != self._key or (self.attended and not again):
            return False
        if self._window is not None:
            self._window.connection.cancel()
        self._attend(window)
        window.show(_MODES)
        await self._app.signal(type="resize", width=window.size[0], height=window.size[1])
        await self._app.signal(type="redraw")
        return True

    async def end(self) -> None:
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


class WebServer:
    """Serves the app (a command) to one window at a time; ``token`` is the first part of every valid path."""

    def __init__(self, argv: Sequence[str], token: str) -> None:
        self._argv = list(argv)
        self._token = token
        self._host = clean(socket.gethostname())
        self._session: Session | None = None
        self._windows: set[Window] = set()
        self._strangers: dict[web.RequestHandler, asyncio.TimerHandle] = {}

    def application(self) -> web.Application:
        app = web.Application(middlewares=[web.middleware(partial(self._guarded))])
        base = f"/{self._token}"
        app.router.add_get(f"{base}/", partial(_text, index(self._host), "text/html"))
        app.router.add_get(f"{base}/page.css", partial(_text, _file("page.css"), "text/css"))
        app.router.add_get(f"{base}/page.js", partial(_text, _file("page.js"), "text/javascript"))
        app.router.add_get(f"{base}/ws", self._terminal)
        app.router.add_static(f"{base}/static/", static_folder())
        app.on_response_prepare.append(_add_headers)
        app.on_shutdown.append(self._close_all)
        return app

    def connection(self, made: web.RequestHandler) -> web.RequestHandler:
        """Return a new connection, which is closed if it does not send the token in time, or if many others come."""
        if len(self._strangers) >= _MOST_STRANGERS:
            # The oldest, not this one: who has the token sends it at once.
            self._turn_away(next(iter(self._strangers)))
        timer = asyncio.get_running_loop().call_later(_TIME_OF_STRANGERS, self._turn_away, made)
        self._strangers[made] = timer
        return made

    def _turn_away(self, stranger: web.RequestHandler) -> None:
        self._strangers.pop(stranger).cancel()
        if stranger.transport is not None:
            stranger.transport.abort()

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject requests without the token and requests of other pages in the browser."""
        given = request.path.split("/")[1] if request.path.startswith("/") else ""
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token.encode()):
            raise web.HTTPForbidden(text="fabtui: this is not the whole address that was printed\n", headers=_HEADERS)
        origin = request.headers.get("Origin")
        if _name_of(f"//{request.host}") not in _NAMES or (origin and urlsplit(origin).netloc != request.host):
            raise web.HTTPForbidden(text="fabtui: asked by another page, or by another name\n", headers=_HEADERS)
        if (timer := self._strangers.pop(request.protocol, None)) is not None:
            timer.cancel()
        return await handler(request)

    async def _terminal(self, request: web.Request) -> web.WebSocketResponse:
        connection = web.WebSocketResponse(heartbeat=15, max_msg_size=_MOST_MESSAGE)
        await connection.prepare(request)
        window = Window(connection, request.query)
        self._windows.add(window)
        key, again = request.query.get("window", ""), "again" in request.query
        try:
            session = self._session
            if session is None or not await session.take(window, key, again=again):
                session = None if again else await self._begin(window, key)
            if session is not None:
                await asyncio.wait((session.task, window.connection), return_when=asyncio.FIRST_COMPLETED)
            elif again:
                await connection.close(code=GONE)
        finally:
            self._windows.discard(window)
            await window.finish()
        return connection

    async def _begin(self, window: Window, key: str) -> Session | None:
        """Begin a session as soon as the one before has ended; None if the window is closed before."""
        reason = ""
        while (session := self._session) is not None:
            if reason != (reason := _ENDING if session.ending else _BUSY if session.attended else _CUT):
                window.waits(reason)
            await asyncio.wait((session.task, window.connection), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            if window.connection.done():
                return None
        window.waits(f"fabtui starts on {self._host}, which takes some seconds on a busy machine ...")
        self._session = session = Session(self._argv, key, window)
        session.task.add_done_callback(self._ended)
        return session

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._session = None
        task.result()

    async def _close_all(self, _: web.Application) -> None:
        for window in list(self._windows):
            await window.close(1001, "fabtui serve was ended")
        if self._session is not None:
            await self._session.end()


def _name_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


async def _text(text: str, kind: str, _: web.Request) -> web.StreamResponse:
    return web.Response(text=text, content_type=kind)


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    if not isinstance(response, web.WebSocketResponse):
        response.headers.update(_HEADERS)


def static_folder() -> Path:
    """Return the folder with the browser's terminal, which textual-serve brings."""
    package = find_spec("textual_serve")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "static"


@contextlib.asynccontextmanager
async def listening(server: WebServer, port: int) -> AsyncIterator[int]:
    """Serve on a port (0: a free one), which is returned.

    Raises:
        InputError: It is in use.
    """
    # What a window shows goes to that window; nothing is logged, as addresses hold the token.
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=30.0)
    await runner.setup()
    try:
        make = runner.server
        assert make is not None
        try:
            loop = asyncio.get_running_loop()
            listener = await loop.create_server(lambda: server.connection(make()), HOST, port)
        except OSError as error:
            raise InputError(f"cannot listen on {HOST}:{port}: {error.strerror}; --port 0 takes a free one") from None
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            listener.close()
    finally:
        await runner.cleanup()


async def serve(argv: Sequence[str], token: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until a signal arrives, on a port (0: a free one) that ``ready`` is called with; InputError if in use."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with listening(WebServer(argv, token), port) as used:
        ready(used)
        await ended.wait()
