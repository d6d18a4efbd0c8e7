"""The app in a browser: who is let in, what is seen there, and that nothing stays when window or server goes."""

import asyncio
import re
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fabtui.cli.main import main
from tests.serve.browser import PATIENCE
from tests.serve.served import Served, aiohttp, children_of, gone, replayed, served, shown, waits_for, window


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Served]:
    async with replayed() as server:
        yield server


def listeners() -> list[str]:
    return [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]


@pytest.mark.asyncio(loop_scope="module")
async def test_only_the_whole_address_is_let_in(server: Served) -> None:
    async with aiohttp.ClientSession() as session:
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


@pytest.mark.asyncio(loop_scope="module")
async def test_other_pages_and_other_names_are_kept_out(server: Served) -> None:
    async with aiohttp.ClientSession() as session:
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            async with session.get(server.url, headers=headers) as answer:
                assert answer.status == 403, headers
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(f"{server.url}ws", headers=headers)
        # Through a tunnel the port differs.
        tunnel = {"Host": "localhost:9123", "Origin": "http://localhost:9123"}
        async with session.get(server.url, headers=tunnel) as answer:
            assert answer.status == 200


@pytest.mark.asyncio(loop_scope="module")
async def test_it_listens_on_loopback_and_prints_the_tunnel_command(server: Served) -> None:
    assert re.search(rf"ssh -L {server.port}:127\.0\.0\.1:{server.port} \S+@\S+", server.printed)
    listening = listeners()
    assert f"0100007F:{server.port:04X}" in listening
    assert f"00000000:{server.port:04X}" not in listening
    with pytest.raises(OSError, match=r"refused"), socket.socket() as other:
        other.connect(("127.0.0.2", server.port))


@pytest.mark.asyncio(loop_scope="module")
async def test_a_second_window_waits_until_the_first_is_closed_and_nonsense_is_passed_over(server: Served) -> None:
    async with window(server.url) as first:
        terminal = await shown(first, "3 of 56 GPU pairs are bad")
        for text in ("{", "[]", "3", '["stdin"]', '["stdin",3]', '["resize",{"width":"x","height":-5}]', '["what",{}]'):
            await first.send_str(text)
        await first.send_bytes(b"\x00\x01")
        await first.send_json(["resize", {"width": 70, "height": 20}])
        await first.send_json(["stdin", "?"])
        await shown(first, "help: grid", terminal)
        apps = children_of(server.child.pid)
        assert len(apps) == 1
        async with window(server.url) as second:
            await waits_for(second, "open in another window")
            assert children_of(server.child.pid) == apps
            await first.close()
            await gone(apps)
            await shown(second, "3 of 56 GPU pairs are bad")


@pytest.mark.asyncio(loop_scope="module")
async def test_the_browser_shows_why_the_app_cannot_start(tmp_path: Path) -> None:
    record = tmp_path / "one.jsonl.gz"
    async with served("--nodes", "192.0.2.1", "--connect-timeout", "0.5", "--record", str(record)) as server:
        record.write_text("in the way")
        async with window(server.url) as ws:
            await shown(ws, "already exists and is not overwritten")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.asyncio(loop_scope="module")
async def test_no_app_is_left_when_the_server_ends_and_no_code_of_the_folder_runs(
    number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "fabtui").mkdir()
    (tmp_path / "fabtui" / "__main__.py").write_text("open('ran', 'w')\n")
    for name in ("json", "asyncio", "textual"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')\n")
    async with replayed(folder=tmp_path) as server, window(server.url) as ws:
        await shown(ws, "3 of 56 GPU pairs are bad")
        apps = children_of(server.child.pid)
        assert len(apps) == 1
        server.child.send_signal(number)
        async with asyncio.timeout(PATIENCE):
            await server.child.wait()
        await gone(apps)
        assert server.child.returncode == (0 if number is not signal.SIGKILL else -signal.SIGKILL)
    assert not (tmp_path / "ran").exists()


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
def test_wrong_arguments_are_refused_before_anything_is_served(
    capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    assert main(["serve", *argv]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert words in error
    assert error.count("\n") == 1


def test_a_port_in_use_is_reported_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert main(["serve", "--nodes", "a", "--no-record", "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}: " in error
    assert "--port 0 takes a free one" in error
    assert error.count("\n") == 1
