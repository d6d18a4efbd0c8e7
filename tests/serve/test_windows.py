"""Windows of a session whose connection is cut, stalled or replaced."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.serve.browser import PATIENCE, eventually
from tests.serve.served import aiohttp, children_of, gone, replayed, shown, window

KEY = "&window=one"


async def cut(ws: Any) -> None:
    ws._response.connection.transport.abort()


async def test_a_window_comes_back_to_its_session_after_a_cut_and_no_other_takes_it() -> None:
    async with replayed() as server:
        async with window(server.url, KEY) as ws:
            terminal = await shown(ws, "3 of 56 GPU pairs are bad")
            async with window(server.url, "&window=two&again=1") as other:
                message = await other.receive()
                assert (message.type, other.close_code) == (aiohttp.WSMsgType.CLOSE, 4404)
            await ws.send_json(["stdin", "?"])
            await shown(ws, "help: grid", terminal)
            apps = children_of(server.child.pid)
            await cut(ws)
        async with window(server.url, f"{KEY}&again=1") as ws:
            await shown(ws, "help: grid")
            assert children_of(server.child.pid) == apps
        await gone(apps)


async def test_without_its_window_a_session_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    from fabtui.serve import web as module

    monkeypatch.setattr(module, "RECONNECT_SECONDS", 0.1)
    window = FakeWindow()
    session = module.Session(["cat"], "one", window)  # type: ignore[arg-type]
    window.end()
    async with asyncio.timeout(PATIENCE):
        await session.task
    assert session.ending
    assert not await session.take(window, "one", again=True)  # type: ignore[arg-type]


async def test_a_window_that_takes_nothing_does_not_stall_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    from fabtui.serve import web as module

    monkeypatch.setattr(module, "_MOST_HELD", 1000)
    socket, app = FakeSocket(), FakeApp()
    window = module.Window(socket, {})
    window.attach(app)  # type: ignore[arg-type]
    for number in range(100):
        window.show(b"%04d" % number * 25)
        await asyncio.sleep(0)
    assert len(socket.sent) == 1
    socket.taking.set()
    # What was dropped is drawn again, and later output arrives.
    assert await eventually(lambda: app.signals == [{"type": "redraw"}])
    window.show(b"later")
    assert await eventually(lambda: socket.sent[-1] == b"later")
    assert len(socket.sent) < 10
    await window.finish()
    # The app may still draw until the session notices; nobody would take it.
    window.show(b"after the end")
    assert window._queue.empty()


async def test_pings_of_a_window_that_reads_nothing_are_not_kept() -> None:
    from fabtui.serve import web as module

    socket = FakeSocket([json.dumps(["ping", text]) for text in ["x" * 900_000, *map(str, range(400))]])
    window = module.Window(socket, {})
    assert await eventually(lambda: not socket.coming)
    socket.taking.set()
    assert await eventually(lambda: len(socket.sent) > 0)
    await window.finish()
    assert socket.sent == ['["pong", "0"]', '["pong", "1"]'][: len(socket.sent)]


async def test_connections_without_the_token_are_few_and_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    from fabtui.serve import web as module

    monkeypatch.setattr(module, "_MOST_STRANGERS", 3)
    monkeypatch.setattr(module, "_TIME_OF_STRANGERS", 0.2)
    async with asyncio.timeout(PATIENCE), module.listening(module.WebServer(["cat"], "token"), 0) as port:
        idle = [await asyncio.open_connection(module.HOST, port) for _ in range(5)]
        # The oldest ones are closed for the others, and these after a while, also half a request.
        for reader, _ in idle[:2]:
            assert await closed(reader)
        idle[4][1].write(b"GET /token/ HTTP/1.1\r\nHost: 127")
        for reader, _ in idle[2:]:
            assert await closed(reader)
        reader, writer = await asyncio.open_connection(module.HOST, port)
        for pause in (0.4, 0):
            writer.write(b"GET /token/page.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await reader.readuntil(b"HTTP/1.1 200")
            # One that has sent the token stays.
            await asyncio.sleep(pause)
        writer.close()


async def closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


class FakeWindow:
    """A window that can be cut, and takes everything."""

    size = (80, 24)
    closed = False

    def __init__(self) -> None:
        self._ended = asyncio.Event()
        self.connection = asyncio.create_task(self._ended.wait())

    def end(self) -> None:
        self._ended.set()

    def attach(self, app: object) -> None: ...
    def show(self, data: bytes) -> None: ...


class FakeSocket:
    def __init__(self, coming: Sequence[str] = ()) -> None:
        self.taking = asyncio.Event()
        self.sent: list[bytes | str] = []
        self.coming = list(coming)

    async def send_bytes(self, data: bytes | str) -> None:
        self.sent.append(data)
        await self.taking.wait()

    send_str = send_bytes

    async def receive(self) -> aiohttp.WSMessage:
        if not self.coming:
            await asyncio.Event().wait()
        return aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, self.coming.pop(0), None)

    async def close(self) -> None: ...


class FakeApp:
    def __init__(self) -> None:
        self.signals: list[dict[str, object]] = []

    async def signal(self, **values: object) -> None:
        self.signals.append(values)
