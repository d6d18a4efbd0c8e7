"""The app in a browser: who is let in, what is seen there, and that nothing stays when window or server goes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.serve.browser import browser, eventually, find_browser
from tests.serve.vt import Terminal

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDING = ROOT / "recordings" / "h200x8-lab-2x4-faults.jsonl.gz"

aiohttp = pytest.importorskip("aiohttp", reason="the extra serve is not installed")
pytest.importorskip("textual_serve", reason="the extra serve is not installed")


class Served(NamedTuple):
    url: str
    port: int
    printed: str
    child: asyncio.subprocess.Process


@asynccontextmanager
async def served(*argv: str, **environment: str) -> AsyncIterator[Served]:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fabtui", "serve", "--port", "0", *argv),
        cwd=ROOT,
        stdout=pipe,
        stderr=pipe,
        env={**os.environ, **environment},
    )
    assert child.stdout is not None
    try:
        printed = ""
        async with asyncio.timeout(60):
            while "Ctrl+C here" not in printed:
                line = await child.stdout.readline()
                assert line, (await child.stderr.read()).decode() if child.stderr else ""
                printed += line.decode()
        url = re.search(r"http://127\.0\.0\.1:(\d+)/[\w-]{32}/", printed)
        assert url is not None, printed
        yield Served(url.group(), int(url.group(1)), printed, child)
    finally:
        if child.returncode is None:
            child.terminate()
        async with asyncio.timeout(60):
            await child.wait()


def replayed() -> Any:
    return served("--replay", str(RECORDING), "--speed", "max")


@asynccontextmanager
async def window(url: str) -> AsyncIterator[Any]:
    """A window without a browser: a websocket."""
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{url}ws?width=120&height=36") as ws:
        yield ws


async def shown(ws: Any, words: str, terminal: Terminal | None = None) -> Terminal:
    terminal = terminal or Terminal()
    async with asyncio.timeout(40):
        while words not in terminal.text:
            message = await ws.receive()
            assert message.type is aiohttp.WSMsgType.BINARY, (message, terminal.text)
            terminal.feed(message.data)
    return terminal


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def listeners() -> list[str]:
    """The local addresses of TCP sockets, as the kernel writes them."""
    return [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]


async def gone(pids: list[int], seconds: float = 40.0) -> None:
    assert await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), seconds)


@pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed")
async def test_a_browser_shows_the_grid_and_keys_change_it() -> None:
    async with replayed() as server, browser() as new_page:
        page = await new_page()
        await page.open(server.url)
        first = await page.until(lambda text: "problems found" in text and "n000:0 > n000:1" in text)
        assert "2 p2p" in first
        pictures = [await page.picture()]
        await page.press("]")
        second = await page.until(lambda text: "n000:0 > n000:1" not in text)
        pictures.append(await page.picture())
        await page.press("4")
        third = await page.until(lambda text: "half a round trip" in text or re.search(r"\bus at ", text) is not None)
        pictures.append(await page.picture())
        await page.press("Enter")
        await page.until(lambda text: "esc back" in text)
        pictures.append(await page.picture())
        # A key that comes on the heels of Escape would be taken for one with Alt.
        await page.press("Escape")
        await page.until(lambda text: "2 p2p" in text)
        await page.press("?")
        await page.until(lambda text: "help: grid" in text)
        assert len({first, second, third}) == 3
        assert len(set(pictures)) == len(pictures)
        assert page.failed == []
        if folder := os.environ.get("FABTUI_PICTURES"):
            for number, picture in enumerate(pictures):
                (Path(folder) / f"browser-{number}.png").write_bytes(picture)
        # Nothing is fetched from elsewhere: clusters have no way out.
        assert {url.split("/")[2] for url in page.asked if "//" in url} == {f"127.0.0.1:{server.port}"}
        await page.press("q")
        await page.until(lambda text: "help: grid" not in text and "problems found" not in text)
        for _ in range(100):
            if await page.evaluate("document.body.classList.contains('-closed')"):
                break
            await asyncio.sleep(0.1)
        assert await page.evaluate("getComputedStyle(document.getElementById('ended')).display") == "block"


async def test_only_the_whole_address_is_let_in() -> None:
    async with replayed() as server, aiohttp.ClientSession() as session:
        base, token = server.url.rstrip("/").rsplit("/", 1)
        other = token[:-1] + ("a" if token[-1] != "a" else "b")
        for path in (
            "/",
            "/ws",
            "/static/js/textual.js",
            f"/{other}/",
            f"/{other}/ws",
            f"/{token}x/",
            "//",
            f"/x/{token}/",
        ):
            async with session.get(base + path) as answer:
                assert answer.status == 403, path
                assert token not in await answer.text()
        for path in ("/ws", f"/{other}/ws"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(base + path)
            assert refused.value.status == 403
        for path in ("", "page.js", "page.css", "static/js/textual.js", "static/css/xterm.css"):
            async with session.get(server.url + path) as answer:
                assert answer.status == 200, path
                assert answer.headers["Referrer-Policy"] == "no-referrer"
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        async with session.get(f"{server.url}static/../../../../etc/passwd") as answer:
            assert answer.status in (403, 404)


async def test_other_pages_and_other_names_are_kept_out() -> None:
    async with replayed() as server, aiohttp.ClientSession() as session:
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            async with session.get(server.url, headers=headers) as answer:
                assert answer.status == 403, headers
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(f"{server.url}ws", headers=headers)
        # Through a tunnel the port differs.
        tunnel = {"Host": "localhost:9123", "Origin": "http://localhost:9123"}
        async with session.get(server.url, headers=tunnel) as answer:
            assert answer.status == 200


async def test_it_listens_on_loopback_and_prints_the_tunnel_command() -> None:
    async with replayed() as server:
        assert re.search(rf"ssh -L {server.port}:127\.0\.0\.1:{server.port} \S+@\S+", server.printed)
        listening = listeners()
        assert f"0100007F:{server.port:04X}" in listening
        assert f"00000000:{server.port:04X}" not in listening
        with pytest.raises(OSError, match=r"refused"), socket.socket() as other:
            other.connect(("127.0.0.2", server.port))


async def test_closing_the_window_ends_the_app_and_the_next_one_starts_again() -> None:
    async with replayed() as server:
        async with window(server.url) as ws:
            terminal = await shown(ws, "problems found")
            await ws.send_json(["resize", {"width": 70, "height": 20}])
            await ws.send_json(["stdin", "?"])
            await shown(ws, "help: grid", terminal)
            apps = children_of(server.child.pid)
            assert len(apps) == 1
        await gone(apps)
        async with window(server.url) as ws:
            await shown(ws, "problems found")


async def test_a_second_window_waits_for_the_first() -> None:
    async with replayed() as server, window(server.url) as first:
        await shown(first, "problems found")
        async with window(server.url) as second:
            terminal = await shown(second, "open in another window")
            assert len(children_of(server.child.pid)) == 1
            await first.close()
            await shown(second, "problems found", terminal)


async def test_nonsense_from_the_browser_is_passed_over() -> None:
    async with replayed() as server, window(server.url) as ws:
        terminal = await shown(ws, "problems found")
        for text in ("{", "[]", "3", '["stdin"]', '["stdin",3]', '["resize",{"width":"x","height":-5}]', '["what",{}]'):
            await ws.send_str(text)
        await ws.send_bytes(b"\x00\x01")
        await ws.send_json(["resize", {"width": 120, "height": 36}])
        await ws.send_json(["stdin", "?"])
        await shown(ws, "help: ", terminal)


async def test_the_browser_shows_why_the_app_cannot_start(tmp_path: Path) -> None:
    record = tmp_path / "one.jsonl.gz"
    async with served("--nodes", "192.0.2.1", "--connect-timeout", "0.5", "--record", str(record)) as server:
        record.write_text("in the way")
        async with window(server.url) as ws:
            await shown(ws, "already exists and is not overwritten")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_no_app_is_left_when_the_server_ends(number: signal.Signals) -> None:
    async with replayed() as server, window(server.url) as ws:
        await shown(ws, "problems found")
        apps = children_of(server.child.pid)
        assert len(apps) == 1
        server.child.send_signal(number)
        async with asyncio.timeout(40):
            await server.child.wait()
        await gone(apps)
        assert server.child.returncode == (0 if number is not signal.SIGKILL else -signal.SIGKILL)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--nodes", "n[1-"], "unbalanced brackets"),
        ([], "no nodes given"),
        (["--replay", "/nowhere"], "cannot read /nowhere"),
        (["--nodes", "a", "--port", "x"], "--port: 'x' is not a whole number from 0 to 65535"),
        (["--nodes", "a", "--speed", "3"], "--speed needs --replay"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_served(argv: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fabtui", "serve", *argv], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_reported_on_one_line() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "fabtui", "serve", "--nodes", "a", "--no-record", "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}: " in done.stderr
    assert "--port 0 takes a free one" in done.stderr
    assert done.stderr.count("\n") == 1
