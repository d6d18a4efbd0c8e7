"""The app in a browser: who is let in, what is seen there, and that nothing stays when window or server goes."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.served import RECORDING, aiohttp, children_of, gone, replayed, served, shown, waits_for, window


def listeners() -> list[str]:
    """The local addresses of TCP sockets, as the kernel writes them."""
    return [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]


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


async def test_no_code_of_the_working_directory_runs(tmp_path: Path) -> None:
    (tmp_path / "fabtui").mkdir()
    (tmp_path / "fabtui" / "__main__.py").write_text("open('ran', 'w')\n")
    for name in ("json", "asyncio", "textual"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')\n")
    argv = ("--replay", str(RECORDING), "--speed", "max")
    async with served(*argv, folder=tmp_path) as server, window(server.url) as ws:
        await shown(ws, "3 of 56 GPU pairs are bad")
    assert not (tmp_path / "ran").exists()


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
            terminal = await shown(ws, "3 of 56 GPU pairs are bad")
            await ws.send_json(["resize", {"width": 70, "height": 20}])
            await ws.send_json(["stdin", "?"])
            await shown(ws, "help: grid", terminal)
            apps = children_of(server.child.pid)
            assert len(apps) == 1
        await gone(apps)
        async with window(server.url) as ws:
            await shown(ws, "3 of 56 GPU pairs are bad")


async def test_a_second_window_waits_for_the_first() -> None:
    async with replayed() as server, window(server.url) as first:
        await shown(first, "3 of 56 GPU pairs are bad")
        async with window(server.url) as second:
            await waits_for(second, "open in another window")
            assert len(children_of(server.child.pid)) == 1
            await first.close()
            await shown(second, "3 of 56 GPU pairs are bad")


async def test_nonsense_from_the_browser_is_passed_over() -> None:
    async with replayed() as server, window(server.url) as ws:
        terminal = await shown(ws, "3 of 56 GPU pairs are bad")
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
        await shown(ws, "3 of 56 GPU pairs are bad")
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
