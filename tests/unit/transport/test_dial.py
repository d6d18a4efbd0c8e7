"""Connections that are begun before they are asked for: used once, and never left open."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from fabtui.transport.asyncssh.dial import Dialer
from fabtui.transport.link import NodeUnreachable
from fabtui.transport.ssh_config import SshSettings, is_plain, parse


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        yield listener


def host_of(server: socket.socket) -> SshSettings:
    return SshSettings("n1", "127.0.0.1", "me", server.getsockname()[1])


def accepted(server: socket.socket) -> socket.socket:
    taken, _ = server.accept()
    taken.settimeout(5)
    return taken


async def test_what_was_begun_is_taken_once(server: socket.socket) -> None:
    dialer, host = Dialer(), host_of(server)
    dialer.begin(host, 5)
    dialer.begin(host, 5)
    first = await dialer.dial(host, 5)
    second = await dialer.dial(host, 5)
    with first, second, accepted(server) as one, accepted(server) as other:
        assert {one.getpeername(), other.getpeername()} == {first.getsockname(), second.getsockname()}
    server.settimeout(0.1)
    with pytest.raises(TimeoutError):
        server.accept()
    dialer.close()


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("way", ["forget", "close"])
async def test_what_nobody_takes_is_closed(server: socket.socket, settled: bool, way: str) -> None:
    dialer, host = Dialer(), host_of(server)
    dialer.begin(host, 5)
    if settled:
        await asyncio.sleep(0.1)
    if way == "forget":
        dialer.forget(host)
    dialer.close()
    await asyncio.sleep(0.1)
    server.settimeout(0.1)
    if settled:
        with accepted(server) as taken:
            assert taken.recv(1) == b""
    with pytest.raises(TimeoutError):
        server.accept()
    dialer.forget(host)


async def test_a_dial_that_is_given_up_closes_what_was_begun(server: socket.socket) -> None:
    dialer, host = Dialer(), host_of(server)
    dialer.begin(host, 5)
    dialing = asyncio.create_task(dialer.dial(host, 5))
    await asyncio.sleep(0)
    dialing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dialing
    await asyncio.sleep(0.1)
    server.settimeout(0.2)
    try:
        taken = server.accept()[0]
    except TimeoutError:
        pass
    else:
        with taken:
            assert taken.recv(1) == b""
    dialer.close()


async def test_one_that_fails_reports_it_where_it_is_asked_for() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host = SshSettings("n1", "127.0.0.1", "me", taken.getsockname()[1])
        dialer = Dialer()
        dialer.begin(host, 5)
        await asyncio.sleep(0.05)
        with pytest.raises(NodeUnreachable) as caught:
            await dialer.dial(host, 5)
        assert caught.value.kind == "refused"
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        dialer.begin(host, 5)
        await asyncio.sleep(0.05)
        dialer.close()
        await asyncio.sleep(0.05)
    assert complaints == []


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("port 22", True),
        ("proxyjump gate", False),
        ("proxycommand nc %h %p", False),
        ("controlpath /run/x", False),
        ("controlpath none", True),
        ("gssapiauthentication yes", False),
        ("pkcs11provider /lib/x.so", False),
        ("ciphers aes256-ctr", False),
    ],
)
def test_hosts_that_are_surely_reached_directly(line: str, plain: bool) -> None:
    assert is_plain(parse("n1", line, {"ciphers": "aes128-ctr"})) is plain
