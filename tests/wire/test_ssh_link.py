"""A link while it lives and when it ends: every end has its name, nothing is waited for without a bound."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from fabtui.transport.framed_link import Limits
from fabtui.transport.link import Link, LinkLost, NodeUnreachable
from tests.wire import fakeside, sshd
from tests.wire.sshd import alive, until, wait_gone

Reaching = Callable[..., Any]

BACKENDS = ["ssh", "openssh", "local"]


async def open_link(field: sshd.Field, reach_for: Reaching, transport: str = "ssh", **options: Any) -> Link:
    if transport != "local" and "n1" not in field.servers:
        field.serve("n1")
    config = None if transport == "local" else field.config()
    link: Link = await reach_for(config, transport=transport, **fakeside.options(**options)).open("n1")
    return link


async def end_of(link: Link) -> LinkLost:
    async with asyncio.timeout(30):
        while True:
            try:
                await link.receive()
            except LinkLost as lost:
                return lost


@pytest.mark.parametrize("transport", BACKENDS)
async def test_heartbeats_go_on_and_are_not_handed_out(field: sshd.Field, reach_for: Reaching, transport: str) -> None:
    link = await open_link(field, reach_for, transport, limits=Limits(heartbeat=0.05))
    assert link.round_trip is None
    async with asyncio.timeout(20):
        while True:
            await link.send({"t": "beats"})
            answer = await link.receive()
            assert answer["t"] == "beats"
            if answer["beats"] >= 3:
                break
            await asyncio.sleep(0.05)
    assert link.round_trip is not None
    assert 0 < link.round_trip < 20
    await link.close()
    await wait_gone(link.hello["pid"])


@pytest.mark.parametrize("transport", BACKENDS)
async def test_the_node_side_ends(field: sshd.Field, reach_for: Reaching, transport: str) -> None:
    link = await open_link(field, reach_for, transport)
    await link.send({"t": "echo", "n": 1})
    await link.send({"t": "exit", "status": 3, "text": "first line\nout of\x1b[2J memory\n"})
    # What came before the end is not lost.
    assert await link.receive() == {"t": "echo", "n": 1}
    lost = await end_of(link)
    assert lost.kind == "exit"
    assert "status 3" in lost.text
    assert "out of[2J memory" in lost.text
    assert "first line" in link.stderr_tail()
    with pytest.raises(LinkLost):
        await link.send({"t": "echo"})
    await link.close()


@pytest.mark.parametrize("transport", BACKENDS)
async def test_the_node_side_is_killed(field: sshd.Field, reach_for: Reaching, transport: str) -> None:
    link = await open_link(field, reach_for, transport)
    os.kill(link.hello["pid"], signal.SIGKILL)
    lost = await end_of(link)
    if transport == "openssh":
        # ssh ends with 255 for that and for a connection that broke.
        assert lost.kind == "lost"
    else:
        assert lost.kind == "exit"
        assert "KILL" in lost.text
    await link.close()


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_the_connection_breaks(field: sshd.Field, reach_for: Reaching, transport: str) -> None:
    link = await open_link(field, reach_for, transport)
    for pid in field.servers["n1"].sessions():
        os.kill(pid, signal.SIGKILL)
    lost = await end_of(link)
    assert lost.kind == "lost"
    await link.close()
    await wait_gone(link.hello["pid"])


@pytest.mark.parametrize("transport", BACKENDS)
async def test_a_silent_node_side_is_frozen(field: sshd.Field, reach_for: Reaching, transport: str) -> None:
    link = await open_link(field, reach_for, transport, limits=Limits(heartbeat=0.1, frozen=1.0, grace=0.5))
    pid = link.hello["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        lost = await end_of(link)
        assert lost.kind == "frozen"
        await link.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    await wait_gone(pid)


async def test_a_stop_of_this_side_is_no_silence_of_the_node(field: sshd.Field, reach_for: Reaching) -> None:
    link = await open_link(field, reach_for, "local", limits=Limits(heartbeat=0.1, frozen=2.0))
    await asyncio.sleep(0.3)
    time.sleep(3)  # noqa: ASYNC251 - the whole loop stands still, as after ^Z
    for number in range(5):
        await link.send({"t": "echo", "n": number})
        assert (await link.receive())["n"] == number
        await asyncio.sleep(0.1)
    await link.close()


@pytest.mark.parametrize("transport", BACKENDS)
async def test_a_node_side_that_takes_nothing(field: sshd.Field, reach_for: Reaching, transport: str) -> None:
    link = await open_link(field, reach_for, transport, limits=Limits(send=1.0, frozen=30, grace=0.5))
    await link.send({"t": "deaf"})

    async def send_on() -> None:
        while True:
            await link.send({"t": "echo", "fill": "x" * 1_000_000})

    with pytest.raises(LinkLost) as caught:
        await asyncio.wait_for(send_on(), 30)
    assert caught.value.kind == "stalled"
    await link.close()
    await wait_gone_or_kill(link.hello["pid"], transport)


async def wait_gone_or_kill(pid: int, transport: str) -> None:
    # It sleeps and reads nothing, so the end of its input does not reach it; that is the real node side's art.
    if alive(pid):
        os.kill(pid, signal.SIGKILL)
    await wait_gone(pid)


@pytest.mark.parametrize("transport", BACKENDS)
async def test_what_is_not_fetched_is_not_read_and_then_all_there(
    field: sshd.Field, reach_for: Reaching, transport: str
) -> None:
    limits = Limits(heartbeat=0.1, frozen=2.0, queue=200_000, send=30)
    link = await open_link(field, reach_for, transport, limits=limits)
    count, size = 300, 100_000
    await link.send({"t": "flood", "count": count, "size": size})
    # Longer than the bound on silence: a node that is held back is not frozen.
    await asyncio.sleep(3.0)
    assert link._queued < 400_000  # type: ignore[attr-defined]
    for number in range(count):
        assert (await link.receive())["number"] == number
    await link.close()


@pytest.mark.parametrize("transport", ["ssh", "local"])
async def test_close_does_not_wait_for_a_node_that_floods_or_sleeps(
    field: sshd.Field, reach_for: Reaching, transport: str
) -> None:
    limits = Limits(queue=100_000, grace=1.0)
    link = await open_link(field, reach_for, transport, limits=limits)
    await link.send({"t": "flood", "count": 50, "size": 100_000})
    await asyncio.sleep(0.2)
    async with asyncio.timeout(20):
        await link.close()
        await link.close()
    await wait_gone(link.hello["pid"])
    other = await open_link(field, reach_for, transport, limits=limits)
    await other.send({"t": "deaf"})
    async with asyncio.timeout(20):
        await other.close()
    await wait_gone_or_kill(other.hello["pid"], transport)
    assert (await end_of(other)).kind == "closed"


@pytest.mark.parametrize(
    ("sent", "what"),
    [
        (b"\xff\xff\xff\xff", "frame of"),
        (b"\x00\x00\x00\x03[1]", "not an object"),
        (b"\x00\x00\x00\x0a" + b'{"a": NaN}', "not a frame"),
        (b"\x00\x00\x00\x46" + b'{"a":' + b"[" * 32 + b"]" * 32 + b"}", "deeper"),
        (b"\x00\x00\x00\x02\xff\xfe", "not a frame"),
    ],
)
async def test_what_is_no_message_ends_the_link(field: sshd.Field, reach_for: Reaching, sent: bytes, what: str) -> None:
    link = await open_link(field, reach_for, "local")
    await link.send({"t": "raw", "hex": sent.hex()})
    lost = await end_of(link)
    assert lost.kind == "protocol"
    assert what in lost.text
    await link.close()


async def test_a_node_may_send_only_so_much(field: sshd.Field, reach_for: Reaching) -> None:
    link = await open_link(field, reach_for, "local", limits=Limits(total=1_000_000))
    await link.send({"t": "flood", "count": 100, "size": 50_000})
    assert (await end_of(link)).kind == "protocol"
    await link.close()


async def test_messages_that_cannot_be_sent_leave_the_link_alone(field: sshd.Field, reach_for: Reaching) -> None:
    link = await open_link(field, reach_for, "local")
    for message in ({"t": "x", "value": float("nan")}, {"t": "x", "fill": "x" * 5_000_000}, {"t": object()}):
        with pytest.raises(ValueError, match=r"encode|frame|out of range"):
            await link.send(message)
    await link.send({"t": "echo"})
    assert await link.receive() == {"t": "echo"}
    await link.close()


@pytest.mark.parametrize("hello", [{"protocol": 99}, {"t": "result"}])
async def test_a_wrong_hello(field: sshd.Field, reach_for: Reaching, hello: dict[str, Any]) -> None:
    with pytest.raises(NodeUnreachable) as caught:
        await open_link(field, reach_for, "local", env={"hello": hello})
    assert caught.value.kind == "protocol"


async def test_an_open_that_is_given_up_leaves_nothing(field: sshd.Field, reach_for: Reaching) -> None:
    script = field.script("slow", f"#!/bin/sh\necho $$ > '{field.folder}/pid'\nexec cat >/dev/null\n")
    server = field.serve("n1", sshd=[f"ForceCommand '{script}'"])
    pid_file = field.folder / "pid"

    def pid_there() -> bool:
        return pid_file.exists() and bool(pid_file.read_text())

    for transport in ("ssh", "openssh"):
        pid_file.unlink(missing_ok=True)
        opening = asyncio.create_task(open_link(field, reach_for, transport))
        await until(pid_there)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await wait_gone(int(pid_file.read_text()))
        await until(lambda: not server.sessions())


@pytest.mark.parametrize("transport", BACKENDS)
async def test_the_lease_of_the_real_node_side(field: sshd.Field, reach_for: Reaching, transport: str) -> None:
    field.serve("n1")
    # A controller that sends no heartbeats: as if it had been stopped.
    limits = Limits(heartbeat=60, frozen=60)
    link = await reach_for(field.config(), transport=transport, lease=1.0, limits=limits).open("n1")
    lost = await end_of(link)
    assert lost.kind == "lease"
    assert "no heartbeat for 1 s" in lost.text
    await link.close()
    await wait_gone(link.hello["pid"])


async def test_kill_9_of_the_controller_leaves_no_node_side(field: sshd.Field) -> None:
    """The real node side over real SSH: the controller is killed, the node side goes by itself."""
    field.serve("n1")
    program = (
        "import asyncio, sys, pathlib\n"
        "from fabtui.transport.connector import Connector, ConnectorOptions\n"
        "async def main():\n"
        "    reach = Connector(ConnectorOptions(ssh_config=pathlib.Path(sys.argv[1])), print)\n"
        "    link = await reach.open('n1')\n"
        "    print(link.hello['pid'], flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    controller = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, str(field.config())), stdout=asyncio.subprocess.PIPE
    )
    assert controller.stdout is not None
    try:
        pid = int(await asyncio.wait_for(controller.stdout.readline(), 30))
        assert alive(pid)
    finally:
        controller.kill()
        await controller.wait()
    await wait_gone(pid)


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_a_node_sees_no_variable_agent_or_display_of_the_user(
    field: sshd.Field, reach_for: Reaching, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SECRET_TOKEN", "AWS_SECRET_ACCESS_KEY", "LC_SECRET"):
        monkeypatch.setenv(name, "canary-of-the-environment")
    mine = ["SendEnv *", "SetEnv LC_MINE=canary-of-the-config", "ForwardAgent yes", "ForwardX11 yes"]
    field.serve("n1", sshd=["AcceptEnv *", "X11Forwarding yes"], config=mine)
    with sshd.agent(field.user_key) as agent:
        monkeypatch.setenv("SSH_AUTH_SOCK", agent)
        monkeypatch.setenv("DISPLAY", ":99")
        link = await open_link(field, reach_for, transport)
        assert b"PATH=" in (environment := environ_of(link.hello["pid"]))
        assert b"canary" not in environment
        assert b"SSH_AUTH_SOCK=" not in environment, "the agent is not forwarded"
        assert b"DISPLAY=localhost" not in environment, "a display of sshd"
        await link.close()


def environ_of(pid: int) -> bytes:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()
