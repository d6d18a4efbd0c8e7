"""Nodes that are down, hang, talk or drop us, and jump hosts: each failure by its name, nobody waits for another."""

import asyncio
import shlex
import shutil
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

from fabtui.transport.framed_link import Limits
from fabtui.transport.link import Link, NodeUnreachable
from tests.wire import fakeside, sshd
from tests.wire.sshd import children, until

Reaching = Callable[..., Any]


async def outcome(reach: Any, host: str) -> Link | NodeUnreachable:
    try:
        link: Link = await reach.open(host)
    except NodeUnreachable as failure:
        return failure
    return link


async def kind_of(reach: Any, host: str) -> str:
    result = await outcome(reach, host)
    if isinstance(result, NodeUnreachable):
        return result.kind
    await result.close()
    return "ok"


NOISE = "i=0; while [ $i -lt 1000 ]; do echo " + shlex.quote("x" * 98 + "\x1b") + "; i=$((i+1)); done\n"


def chatty(field: sshd.Field, name: str = "chatty", megabytes: bool = False) -> sshd.Server:
    noise = "head -c 2000000 /dev/zero\n" if megabytes else f"echo hello there\n{NOISE}echo the end >&2\n"
    script = field.script(f"shell_{name}", f'#!/bin/sh\n{noise}exec sh -c "$SSH_ORIGINAL_COMMAND"\n')
    return field.serve(name, sshd=[f"ForceCommand '{script}'"])


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_bad_nodes_do_not_delay_good_ones(field: sshd.Field, reach_for: Reaching, transport: str) -> None:
    changed = field.serve("changed", known=False)
    field.know(changed.known_name, sshd.make_key(field.folder / "old"))
    field.serve("unknown", known=False)
    field.nobody("down")
    field.silent("hangs")
    field.serve("good1")
    field.serve("good2")
    chatty(field)
    reach = reach_for(
        field.config(),
        transport=transport,
        connect_timeout=8,
        # Fewer places than bad nodes: those that hang must not keep them.
        direct_handshakes=1,
        **fakeside.options(),
    )
    results: dict[str, Link | NodeUnreachable] = {}

    async def open_one(host: str) -> None:
        results[host] = await outcome(reach, host)

    # The one that hangs is first in line.
    hosts = ["hangs", "down", "changed", "unknown", "chatty", "good1", "good2"]
    async with asyncio.TaskGroup() as group:
        for host in hosts:
            group.create_task(open_one(host))
    kinds = {host: result.kind if isinstance(result, NodeUnreachable) else "ok" for host, result in results.items()}
    assert kinds == {
        "hangs": "banner",
        "down": "refused",
        "changed": "changed-host-key",
        "unknown": "unknown-host-key",
        "chatty": "ok",
        "good1": "ok",
        "good2": "ok",
    }
    order = list(results)
    assert all(order.index("hangs") > order.index(host) for host in hosts if kinds[host] == "ok")
    for result in results.values():
        if not isinstance(result, NodeUnreachable):
            await result.close()


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_a_shell_that_prints_100_kb_is_kept_as_the_banner(
    field: sshd.Field, reach_for: Reaching, transport: str
) -> None:
    chatty(field)
    link = await reach_for(field.config(), transport=transport, **fakeside.options()).open("chatty")
    assert link.banner.startswith("hello there\nxxx")
    assert "bytes left out" in link.banner
    assert len(link.banner) < 20_000
    assert "\x1b" not in link.banner
    assert "the end" in link.stderr_tail()
    await link.send({"t": "echo", "n": 1})
    assert await link.receive() == {"t": "echo", "n": 1}
    await link.close()


async def test_a_shell_that_prints_without_end_is_given_up(field: sshd.Field, reach_for: Reaching) -> None:
    chatty(field, megabytes=True)
    result = await outcome(reach_for(field.config(), **fakeside.options()), "chatty")
    assert isinstance(result, NodeUnreachable)
    assert result.kind == "protocol"


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_no_python(field: sshd.Field, reach_for: Reaching, transport: str) -> None:
    field.serve("n1")
    reach = reach_for(field.config(), transport=transport, remote_python="/no/such/python3", **fakeside.options())
    result = await outcome(reach, "n1")
    assert isinstance(result, NodeUnreachable)
    assert result.kind == "no-python"
    assert "/no/such/python3" in result.text


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_a_login_that_ends_at_once_reports_its_last_words(
    field: sshd.Field, reach_for: Reaching, transport: str
) -> None:
    script = field.script("nologin", "#!/bin/sh\necho this account is closed\nexit 1\n")
    field.serve("n1", sshd=[f"ForceCommand '{script}'"])
    result = await outcome(reach_for(field.config(), transport=transport, **fakeside.options()), "n1")
    assert isinstance(result, NodeUnreachable)
    assert result.kind == "closed"
    assert "this account is closed" in result.text


async def test_a_shell_that_never_starts_anything(field: sshd.Field, reach_for: Reaching) -> None:
    script = field.script("stuck", "#!/bin/sh\necho loading modules\nexec sleep 60\n")
    field.serve("n1", sshd=[f"ForceCommand '{script}'"])
    reach = reach_for(field.config(), limits=Limits(start=1.5), **fakeside.options())
    result = await outcome(reach, "n1")
    assert isinstance(result, NodeUnreachable)
    assert result.kind == "timeout"
    assert "loading modules" in result.text


async def test_a_name_nobody_knows(field: sshd.Field, reach_for: Reaching) -> None:
    reach = reach_for(field.config(), **fakeside.options())
    assert await kind_of(reach, "no-such-host.invalid") == "dns"


async def test_something_that_is_no_ssh_server(field: sshd.Field, reach_for: Reaching) -> None:
    server = field.nobody("web")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-1.5-old\r\n")
        await writer.drain()

    async with await asyncio.start_server(answer, server.address, server.port):
        assert await kind_of(reach_for(field.config(), **fakeside.options()), "web") == "protocol"


def jumps(server: sshd.Server) -> int:
    return server.logged().count("Accepted publickey")


async def test_one_connection_serves_all_nodes_behind_a_jump_host(field: sshd.Field, reach_for: Reaching) -> None:
    gate = field.serve("gate", sshd=["MaxStartups 2:100:2"])
    hosts = [f"n{number}" for number in range(6)]
    for host in hosts:
        field.serve(host, config=["ProxyJump gate"])
    reach = reach_for(field.config(), **fakeside.options())
    links = await asyncio.gather(*(reach.open(host) for host in hosts))
    for number, link in enumerate(links):
        await link.send({"t": "echo", "n": number})
        assert await link.receive() == {"t": "echo", "n": number}
    assert jumps(gate) == 1
    assert all(link.backend == "asyncssh" for link in links)
    await asyncio.gather(*(link.close() for link in links))


async def test_a_chain_of_jump_hosts(field: sshd.Field, reach_for: Reaching) -> None:
    first, second = field.serve("first"), field.serve("second")
    field.serve("n1", config=["ProxyJump first,second"])
    field.serve("n2", config=["ProxyJump first,second"])
    reach = reach_for(field.config(), **fakeside.options())
    assert [await kind_of(reach, host) for host in ("n1", "n2")] == ["ok", "ok"]
    assert (jumps(first), jumps(second)) == (1, 1)
    assert f"Connection from {first.address}" in second.logged() or "Connection from 127." in second.logged()


async def test_faults_behind_and_of_a_jump_host(field: sshd.Field, reach_for: Reaching) -> None:
    field.serve("gate")
    field.serve("closed", sshd=["DisableForwarding yes"])
    field.serve("strange", known=False)
    field.nobody("gone")
    field.serve("good", config=["ProxyJump gate"])
    field.nobody("down", config=["ProxyJump gate"])
    field.serve("unknown", config=["ProxyJump gate"], known=False)
    for gate in ("closed", "strange", "gone"):
        field.serve(f"behind-{gate}", config=[f"ProxyJump {gate}"])
    reach = reach_for(field.config(), **fakeside.options())
    hosts = ["down", "unknown", "good", "behind-closed", "behind-strange", "behind-gone"]
    kinds = await asyncio.gather(*(kind_of(reach, host) for host in hosts))
    assert kinds == ["refused", "unknown-host-key", "ok", "refused", "unknown-host-key", "refused"]
    behind = await outcome(reach, "behind-gone")
    assert isinstance(behind, NodeUnreachable)
    assert "jump host gone" in behind.text


async def test_a_jump_host_that_jumps_to_itself(field: sshd.Field, reach_for: Reaching) -> None:
    field.serve("a", config=["ProxyJump b"])
    field.serve("b", config=["ProxyJump a"])
    assert await kind_of(reach_for(field.config(), **fakeside.options()), "a") == "config"


async def test_a_server_that_is_full_is_tried_again(field: sshd.Field, reach_for: Reaching) -> None:
    server = field.serve("full", sshd=["MaxStartups 1:100:1"])
    reach = reach_for(field.config(), **fakeside.options())
    # Somebody who connects and does not log in takes the only place.
    with socket.create_connection((server.address, server.port)) as occupant:
        occupant.recv(100)
        opening = asyncio.create_task(outcome(reach, "full"))
        await until(lambda: "MaxStartups" in server.logged())
    result = await opening
    assert not isinstance(result, NodeUnreachable), result.text
    await result.close()


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_a_server_that_stays_full_is_called_busy(field: sshd.Field, reach_for: Reaching, transport: str) -> None:
    server = field.serve("full", sshd=["MaxStartups 1:100:1"])
    reach = reach_for(field.config(), transport=transport, **fakeside.options())
    with socket.create_connection((server.address, server.port)) as occupant:
        occupant.recv(100)
        result = await outcome(reach, "full")
    assert isinstance(result, NodeUnreachable)
    assert result.kind == "busy"
    assert "MaxStartups" in result.text


async def test_a_proxy_command_with_all_its_tokens(field: sshd.Field, reach_for: Reaching) -> None:
    field.serve("gate")
    config = field.config()
    ssh = shutil.which("ssh")
    proxy = f"ProxyCommand {ssh} -F '{config}' -W %h:%p gate; echo %n %r 100%% >/dev/null"
    server = field.serve("n1", config=[proxy])
    field.config()
    reach = reach_for(config, **fakeside.options())
    link = await reach.open("n1")
    assert link.backend == "asyncssh"
    await link.send({"t": "echo"})
    assert await link.receive() == {"t": "echo"}
    await link.close()
    assert jumps(server) == 1
    assert [line for line in children() if "-W" in line] == []


async def test_a_connection_that_ends_in_the_key_exchange_is_tried_once_more_then_by_openssh(
    field: sshd.Field, reach_for: Reaching
) -> None:
    came = 0

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came += 1
        writer.write(b"SSH-2.0-ends\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        field.nobody("ends", config=["HostName 127.0.0.1", f"Port {port}"])
        assert await kind_of(reach_for(field.config(), **fakeside.options()), "ends") == "closed"
    # OpenSSH has the last word: its server may want algorithms that asyncssh lacks.
    assert came == 3


async def test_proxy_commands_that_fail(field: sshd.Field, reach_for: Reaching) -> None:
    field.nobody("says", config=["ProxyCommand echo no way through >&2"])
    field.nobody("sleeps", config=["ProxyCommand sleep 60"])
    field.nobody("odd", config=["ProxyCommand nc %h %C"])
    reach = reach_for(field.config(), connect_timeout=2, **fakeside.options())
    failure = await outcome(reach, "says")
    assert isinstance(failure, NodeUnreachable)
    assert failure.kind == "closed"
    assert "no way through" in failure.text
    assert await kind_of(reach, "sleeps") == "timeout"
    assert await kind_of(reach, "odd") == "config"


async def test_an_old_python_hands_over_to_a_newer_one(field: sshd.Field, reach_for: Reaching) -> None:
    folder = field.folder / "bin"
    folder.mkdir()
    old = folder / "python3"
    old.write_text(
        "#!/bin/sh\n"
        # What an old interpreter does with BOOT: it looks at its version and tries the names it was given.
        f'shift 2; exec {sys.executable} -c "import sys; sys.version_info = (3, 6, 8); sys.argv[1:2] = []; '
        'exec(sys.argv[1])" "$@"\n'
    )
    old.chmod(0o755)
    newer = folder / "python3.9"
    newer.symlink_to(sys.executable)
    script = field.script("path", f'#!/bin/sh\nPATH="{folder}:/usr/bin:/bin" exec sh -c "$SSH_ORIGINAL_COMMAND"\n')
    field.serve("n1", sshd=[f"ForceCommand '{script}'"])
    link = await reach_for(field.config(), **fakeside.options()).open("n1")
    assert link.hello["config"]["node"] == "n1"
    await link.close()
    old.write_text(old.read_text().replace("exec(sys.argv[1])", "del sys.argv[2:]; exec(sys.argv[1])"))
    result = await outcome(reach_for(field.config(), **fakeside.options()), "n1")
    assert isinstance(result, NodeUnreachable)
    assert result.kind == "no-python"
    assert "too old" in result.text


@pytest.mark.parametrize("shell", [name for name in ("sh", "bash", "zsh", "tcsh", "fish") if shutil.which(name)])
async def test_login_shells(field: sshd.Field, reach_for: Reaching, shell: str) -> None:
    script = field.script("shell", f'#!/bin/sh\nexec {shell} -c "$SSH_ORIGINAL_COMMAND"\n')
    field.serve("n1", sshd=[f"ForceCommand '{script}'"])
    assert await kind_of(reach_for(field.config(), **fakeside.options()), "n1") == "ok"
