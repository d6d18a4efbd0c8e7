"""Windows of a session whose connection is cut, stalled or replaced."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.serve.browser import eventually
from tests.serve.served import aiohttp, children_of, gone, replayed, shown, window

KEY = "&window=one"


async def cut(ws: Any) -> None:
    """End a connection without a word."""
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
    async with asyncio.timeout(40):
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
    assert await eventually(lambda: app.signals == [{"type": "redraw"}], 20)
    window.show(b"later")
    assert await eventually(lambda: socket.sent[-1] == b"later", 20)
    assert len(socket.sent) < 10
    await window.finish()


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
    """A websocket that takes output once it may."""

    def __init__(self) -> None:
        self.taking = asyncio.Event()
        self.sent: list[bytes] = []

    async def send_bytes(self, data: bytes) -> None:
        self.sent.append(data)
        await self.taking.wait()

    async def receive(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None: ...


class FakeApp:
    def __init__(self) -> None:
        self.signals: list[dict[str, object]] = []

    async def signal(self, **values: object) -> None:
        self.signals.append(values)
