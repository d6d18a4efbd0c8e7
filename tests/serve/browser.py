"""A headless Chromium, driven over its DevTools protocol."""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.serve.vt import Terminal

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
#: How long (s) anything may take: other tests may keep all processors busy.
PATIENCE = 100.0
#: Names of keys in the protocol that are not their own characters.
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "ArrowDown": (40, ""), "ArrowRight": (39, "")}


def find_browser() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """A page, and the terminal that its websocket feeds."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.size = (400, 200)
        self.terminal = Terminal(*self.size)
        self.asked: list[str] = []
        self.failed: list[str] = []

    async def listen(self) -> None:
        async for message in self._socket:
            value = json.loads(message.data)
            if (waiting := self._answers.pop(value.get("id", 0), None)) is not None:
                waiting.set_result(value)
            elif value.get("method") == "Network.webSocketFrameReceived":
                frame = value["params"]["response"]
                if frame["opcode"] == 2:
                    self.terminal.feed(base64.b64decode(frame["payloadData"]))
            elif value.get("method") == "Network.webSocketCreated":
                query = parse_qs(urlsplit(value["params"]["url"]).query)
                self.size = (int(query["width"][0]), int(query["height"][0]))
                self.clear()
            elif value.get("method") == "Network.webSocketFrameSent":
                kind, *rest = json.loads(value["params"]["response"]["payloadData"])
                if kind == "resize" and self.size != (size := (rest[0]["width"], rest[0]["height"])):
                    self.size = size
                    self.clear()
            elif value.get("method") == "Network.requestWillBeSent":
                self.asked.append(value["params"]["request"]["url"])
            elif value.get("method") == "Runtime.exceptionThrown":
                self.failed.append(str(value["params"]["exceptionDetails"])[:500])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        waiting = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE):
            answer = await waiting
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def open(self, url: str) -> None:
        self.clear()
        await self.call("Page.navigate", url=url)

    def clear(self) -> None:
        """Forget what was drawn. What the app draws for an earlier size is cut as in the browser, and drawn over."""
        self.terminal = Terminal(*self.size)

    async def evaluate(self, code: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=code, returnByValue=True)
        return answer["result"].get("value")

    async def press(self, *keys: str) -> None:
        await self.until_is("document.activeElement?.className", "xterm-helper-textarea")
        for key in keys:
            code, text = KEYS.get(key, (ord(key.upper()) if len(key) == 1 else 0, key))
            common = {"key": key, "windowsVirtualKeyCode": code}
            await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
            await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def click(self, words: str, beside: str = "") -> None:
        """Click on words of the screen, in the first line that has also those ``beside`` them."""
        await self.until(lambda text: any(words in line and beside in line for line in text.splitlines()))
        row, line = next(
            (y, line) for y, line in enumerate(self.terminal.text.splitlines()) if words in line and beside in line
        )
        width, height = await self.evaluate(
            "(r => [r.width, r.height])(document.querySelector('.xterm-screen').getBoundingClientRect())"
        )
        x = (line.index(words) + len(words) / 2) * width / self.size[0]
        y = (row + 0.5) * height / self.size[1]
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def set_window(self, width: int, height: int) -> None:
        """Change the size of the window; a page without a terminal sends nothing then."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def resize(self, width: int, height: int) -> None:
        """Change the size of the window, and wait until the page has sent it on."""
        before = self.size
        await self.set_window(width, height)
        assert await eventually(lambda: self.size != before)

    async def until_seen(self, name: str, words: str) -> str:
        """Wait until a part of the page has these words; none: until it is hidden."""
        code = f"(e => getComputedStyle(e).display === 'none' ? '' : e.innerText)(document.getElementById('{name}'))"
        return await self.until_is(code, words)

    async def until_is(self, code: str, words: str) -> str:
        """Wait until a text in the page has these words; none: until it is empty."""
        end = time.monotonic() + PATIENCE
        while True:
            text = str(await self.evaluate(code))
            if (words in text) if words else not text:
                return text
            assert time.monotonic() < end, f"it is {text!r}"
            await asyncio.sleep(0.05)

    async def until(self, what: Callable[[str], bool]) -> str:
        assert await eventually(lambda: what(self.terminal.text)), f"it shows:\n{self.terminal.text}"
        return self.terminal.text

    async def picture(self, *others: bytes) -> bytes:
        """Return a picture that differs from others: the browser paints later than the output arrives."""
        end = time.monotonic() + PATIENCE
        while (picture := base64.b64decode((await self.call("Page.captureScreenshot"))["data"])) in others:
            assert time.monotonic() < end, "the page shows what it showed before"
        return picture


@asynccontextmanager
async def browser(width: int = 1100, height: int = 700) -> AsyncIterator[Callable[[], Any]]:
    """A browser; what is given makes a new page in it."""
    import aiohttp

    path = find_browser()
    assert path is not None
    with tempfile.TemporaryDirectory(prefix="fabtui-browser-", ignore_cleanup_errors=True) as folder:
        argv = [path, "--headless", "--remote-debugging-port=0", f"--user-data-dir={folder}", "--no-first-run"]
        argv += ["--disable-gpu", f"--window-size={width},{height}", "--disable-background-networking"]
        if os.geteuid() == 0:
            argv.append("--no-sandbox")
        devnull = asyncio.subprocess.DEVNULL
        # Its helpers outlive a browser that is ended while it starts one; a session of their own ends all.
        child = await asyncio.create_subprocess_exec(
            *argv, "about:blank", stdout=devnull, stderr=devnull, start_new_session=True
        )
        listeners: list[asyncio.Task[None]] = []
        try:
            async with aiohttp.ClientSession() as session:
                port = await _port(Path(folder) / "DevToolsActivePort")

                async def page() -> Page:
                    async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
                        address = (await answer.json())["webSocketDebuggerUrl"]
                    made = Page(await session.ws_connect(address, max_msg_size=0))
                    listeners.append(asyncio.create_task(made.listen()))
                    for method in ("Page.enable", "Network.enable", "Runtime.enable"):
                        await made.call(method)
                    return made

                yield page
                for listener in listeners:
                    listener.cancel()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()


async def _port(file: Path) -> int:
    def text() -> str:
        return file.read_text() if file.exists() else ""

    assert await eventually(lambda: "\n" in text()), "the browser does not start"
    return int(text().split()[0])


async def eventually(what: Callable[[], bool]) -> bool:
    """Wait for a condition; return True if it came true in time."""
    end = time.monotonic() + PATIENCE
    while not what() and time.monotonic() < end:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.05)
    return what()
