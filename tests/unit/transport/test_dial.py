"""Connections to hosts: what is given up is closed, and what fails has a reason."""

import asyncio
import socket

import pytest

from fabtui.transport.dial import Dialer
from fabtui.transport.link import NodeUnreachable
from fabtui.transport.ssh_config import SshSettings


async def test_a_dial_that_is_given_up_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        dialer, host = Dialer(), SshSettings("n1", "127.0.0.1", "me", server.getsockname()[1])
        dialing = asyncio.create_task(dialer.dial(host, 5))
        await asyncio.sleep(0)
        dialing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialing
        server.settimeout(0.2)
        try:
            taken = server.accept()[0]
        except TimeoutError:
            pass
        else:
            with taken:
                taken.settimeout(5)
                assert taken.recv(1) == b""
        await dialer.close()


async def test_a_dial_that_fails_reports_why() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host = SshSettings("n1", "127.0.0.1", "me", taken.getsockname()[1])
        dialer = Dialer()
        with pytest.raises(NodeUnreachable) as caught:
            await dialer.dial(host, 5)
        assert caught.value.kind == "refused"
        await dialer.close()


async def test_a_connection_that_was_begun_is_taken_once_and_else_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        dialer, host = Dialer(), SshSettings("n1", "127.0.0.1", "me", server.getsockname()[1])
        dialer.begin(host, 5)
        with await dialer.dial(host, 5) as taken, server.accept()[0] as first:
            assert taken.getsockname() == first.getpeername()
        with await dialer.dial(host, 5) as another, server.accept()[0] as second:
            assert another.getsockname() == second.getpeername()
        dialer.begin(host, 5)
        await asyncio.sleep(0.05)
        await dialer.close()
        with server.accept()[0] as left:
            left.settimeout(5)
            assert left.recv(1) == b""
