"""The screen in a browser: a server of one page with one terminal, protected by a token, on 127.0.0.1 only."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import WSMsgType, web

from fabtui.errors import InputError
from fabtui.sanitize import clean

INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>fabtui</title>
<link rel="stylesheet" href="static/css/xterm.css">
<link rel="stylesheet" href="page.css">
<script src="page.js" defer></script>
<script src="static/js/textual.js" defer></script>
</head>
<body>
<div id="terminal" class="textual-terminal" data-session-websocket-url="" data-font-size="16"></div>
<div id="ended">The session has ended. Reload the page for a new one.</div>
</body>
</html>
"""

STYLE = """
@font-face { font-family: "Roboto Mono"; src: url("static/fonts/RobotoMono-VariableFont_wght.ttf"); }
html, body { margin: 0; height: 100%; background: #121212; overflow: hidden; }
#terminal { position: absolute; inset: 0; }
#ended { display: none; position: absolute; left: 0; right: 0; bottom: 0; padding: 8px; text-align: center;
         background: #f0b429; color: #121212; font: 16px "Roboto Mono", monospace; }
body.-closed #ended { display: block; }
"""

#: The terminal connects to the address of the page: a tunnel may have changed the port.
SCRIPT = """
const page = new URL(window.location.href);
page.protocol = page.protocol === "https:" ? "wss:" : "ws:";
page.search = page.hash = "";
document.getElementById("terminal").dataset.sessionWebsocketUrl = page.href.replace(/[^/]*$/, "") + "ws";
const size = Number(new URLSearchParams(window.location.search).get("fontsize"));
if (size >= 6 && size <= 60) document.getElementById("terminal").dataset.fontSize = size;
// Keys go to the terminal without a click on it first, once it is connected.
const take = () => document.querySelector(".xterm-helper-textarea")?.focus();
const connecting = setInterval(() => {
  if (!document.body.classList.contains("-loaded")) return;
  clearInterval(connecting);
  take();
  window.addEventListener("focus", take);
}, 50);
"""


HOST = "127.0.0.1"
#: Names of this machine in a browser; a request with a different name comes from a foreign page.
_NAMES = ("127.0.0.1", "localhost", "::1")
_MOST_MESSAGE = 1 << 20
_WIDEST = 1000
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
_WAITING = b"\x1b[2J\x1b[Hfabtui is open in another window; this one begins when that one is closed ...\r\n"

_DRIVER = "fabtui.screen.terminal.serve_driver:ServedDriver"
#: First line of the driver.
_READY = b"__GANGLION__\n"
#: Maximum size of a packet (bytes); a screen takes some hundred kB.
_MOST_PACKET = 16 << 20
_MOST_ERRORS = 64 << 10
#: Timeout (s) for the app to stop everything on the nodes before it is killed.
END_DEADLINE = 25.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Bridge:
    """Runs the app once, as a child process that draws on a pipe; ``write`` receives its output for the terminal."""

    def __init__(self, argv: Sequence[str], write: Callable[[bytes], Awaitable[None]]) -> None:
        self._argv = list(argv)
        self._write = write
        self._child: asyncio.subprocess.Process | None = None
        self._errors = b""

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
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read_errors(child.stderr))
                tasks.create_task(self._read(child.stdout))
            await child.wait()
        finally:
            await self.end()
        last = clean(self._errors).strip().replace("\n", "\r\n")
        # Its output goes where the screen was: a browser has no other place for it.
        await self._write(b"\x1b[?1003l\x1b[?1000l\x1b[?1049l\x1b[0m\x1b[2J\x1b[H" + last.encode() + b"\r\n")

    async def end(self) -> None:
        """Stop the app, which stops everything on the nodes; kill it after a timeout."""
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
                    await self._write(payload)

    async def _read_errors(self, stderr: asyncio.StreamReader) -> None:
        while found := await stderr.read(4096):
            self._errors = (self._errors + found)[-_MOST_ERRORS:]


class WebServer:
    """Serves the app (a command) to one window at a time; ``token`` is the first part of every valid path."""

    def __init__(self, argv: Sequence[str], token: str) -> None:
        self._argv = list(argv)
        self._token = token
        self._one = asyncio.Lock()
        self._sockets: set[web.WebSocketResponse] = set()

    def application(self) -> web.Application:
        """Return the web application."""
        app = web.Application(middlewares=[web.middleware(partial(self._guarded))])
        base = f"/{self._token}"
        app.router.add_get(f"{base}/", partial(_text, INDEX, "text/html"))
        app.router.add_get(f"{base}/page.css", partial(_text, STYLE, "text/css"))
        app.router.add_get(f"{base}/page.js", partial(_text, SCRIPT, "text/javascript"))
        app.router.add_get(f"{base}/ws", self._terminal)
        app.router.add_static(f"{base}/static/", static_folder())
        app.on_response_prepare.append(_add_headers)
        app.on_shutdown.append(self._close_all)
        return app

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject requests without the token and requests of other pages in the browser."""
        given = request.path.split("/")[1] if request.path.startswith("/") else ""
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token.encode()):
            raise web.HTTPForbidden(text="fabtui: this is not the whole address that was printed\n", headers=_HEADERS)
        origin = request.headers.get("Origin")
        if _name_of(f"//{request.host}") not in _NAMES or (origin and urlsplit(origin).netloc != request.host):
            raise web.HTTPForbidden(text="fabtui: asked by another page, or by another name\n", headers=_HEADERS)
        return await handler(request)

    async def _terminal(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(heartbeat=15, max_msg_size=_MOST_MESSAGE)
        await socket.prepare(request)
        self._sockets.add(socket)
        try:
            if self._one.locked():
                await socket.send_bytes(_WAITING)
            async with self._one:
                if not socket.closed:
                    await self._session(socket, _size(request.query))
        finally:
            self._sockets.discard(socket)
            await socket.close()
        return socket

    async def _session(self, socket: web.WebSocketResponse, size: tuple[int, int]) -> None:
        async def show(data: bytes) -> None:
            with contextlib.suppress(ConnectionError, RuntimeError):
                await socket.send_bytes(data)

        bridge = Bridge(self._argv, show)
        running = asyncio.create_task(bridge.run(*size))
        typing = asyncio.create_task(_hand_on(socket, bridge))
        try:
            await asyncio.wait((running, typing), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await bridge.end()
            await running
        finally:
            typing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await typing
            if not running.done():
                # The server itself is being ended in the middle of all this.
                await bridge.end()

    async def _close_all(self, _: web.Application) -> None:
        for socket in list(self._sockets):
            await socket.close(code=1001, message=b"fabtui serve was ended")


async def _hand_on(socket: web.WebSocketResponse, bridge: Bridge) -> None:
    """Forward input of the browser's terminal to the app until the window is closed."""
    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            continue
        try:
            kind, *rest = json.loads(message.data)
        except (ValueError, TypeError):
            continue
        value = rest[0] if rest else None
        if kind == "stdin" and isinstance(value, str):
            await bridge.send(b"D", value.encode("utf-8", "replace"))
        elif kind == "resize" and isinstance(value, dict):
            width, height = _size(value)
            await bridge.signal(type="resize", width=width, height=height)
        elif kind in ("focus", "blur"):
            await bridge.signal(type=kind)
        elif kind == "ping":
            await socket.send_json(["pong", value])


def _size(values: object) -> tuple[int, int]:
    """Return the size of a terminal within sane limits."""
    found = []
    for name, usual in (("width", 80), ("height", 24)):
        value = values.get(name, usual) if hasattr(values, "get") else usual
        try:
            found.append(max(1, min(int(value), _WIDEST)))
        except (TypeError, ValueError, OverflowError):
            found.append(usual)
    return found[0], found[1]


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
    found = find_spec("textual_serve")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "static"


async def serve(argv: Sequence[str], token: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until a signal arrives, on a port (0: a free one) that ``ready`` is called with; InputError if in use."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    # What a window shows goes to that window; nothing is logged, as addresses hold the token.
    runner = web.AppRunner(WebServer(argv, token).application(), access_log=None, shutdown_timeout=30.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        try:
            await site.start()
        except OSError as error:
            raise InputError(f"cannot listen on {HOST}:{port}: {error.strerror}; --port 0 takes a free one") from None
        server = site._server
        assert isinstance(server, asyncio.Server)
        ready(server.sockets[0].getsockname()[1])
        await ended.wait()
    finally:
        await runner.cleanup()
