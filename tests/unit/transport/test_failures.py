import asyncio
import socket
import time

import asyncssh
import pytest

from fabtui.transport.byte_pipe import Ending, explain_end, shorten
from fabtui.transport.client_keys import Offer
from fabtui.transport.connection import explain_login, explain_tunnel
from fabtui.transport.dial import Dialer, Gates, unreachable, with_retries
from fabtui.transport.known_hosts import HostEntries
from fabtui.transport.launcher import classify_openssh, ssh_argv
from fabtui.transport.link import LinkLost, NodeUnreachable
from fabtui.transport.ssh_config import SshSettings
from fabtui_node.runtime.bootloader import INPUT_TAKEN

HOST = SshSettings("n1", "10.0.0.1", "me", 2200)

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Offending ED25519 key in /home/me/.ssh/known_hosts:7
  remove with:
  ssh-keygen -f "/home/me/.ssh/known_hosts" -R "n1"
Host key for n1 has changed and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("reported", "kind"),
    [
        (CHANGED, "changed-host-key"),
        ("No ED25519 host key is known for n1 and you have requested strict checking.\r\n"
         "Host key verification failed.\r\n", "unknown-host-key"),
        ("@       WARNING: REVOKED HOST KEY DETECTED!       @\nHost key verification failed.\n", "revoked-host-key"),
        ("ssh: Could not resolve hostname n1: Name or service not known", "dns"),
        ("ssh: connect to host n1 port 22: Connection refused", "refused"),
        ("ssh: connect to host n1 port 22: No route to host", "no-route"),
        ("ssh: connect to host n1 port 22: Connection timed out", "timeout"),
        ("Connection timed out during banner exchange\nConnection to n1 port 22 timed out", "banner"),
        ("me@n1: Permission denied (publickey,gssapi-with-mic).", "auth"),
        ("Received disconnect from n1 port 22:2: Too many authentication failures", "auth"),
        ("kex_exchange_identification: read: Connection reset by peer\nConnection reset by n1 port 22", "busy"),
        ("kex_exchange_identification: Connection closed by remote host", "busy"),
        ("/home/me/.ssh/config: line 3: Bad configuration option: foo\n"
         "/home/me/.ssh/config: terminating, 1 bad configuration options", "config"),
        ("hostname contains invalid characters", "config"),
        ("Unable to negotiate with n1: no matching key exchange method found. Their offer: x", "protocol"),
        ("Connection closed by 10.0.0.1 port 22", "closed"),
        ("channel 0: open failed: administratively prohibited: open failed", "refused"),
    ],
)  # fmt: skip
def test_what_openssh_reports(reported: str, kind: str) -> None:
    failure = classify_openssh("n1", reported)
    assert failure is not None
    assert failure.kind == kind
    assert "\n" not in failure.text
    assert failure.text


def test_unknown_words_are_not_guessed_at() -> None:
    assert classify_openssh("n1", "") is None
    assert classify_openssh("n1", "something quite new happened") is None


def test_a_changed_key_reports_where_the_old_one_is() -> None:
    failure = classify_openssh("n1", CHANGED)
    assert failure is not None
    assert "/home/me/.ssh/known_hosts:7" in failure.text
    assert failure.hint is not None
    assert 'ssh-keygen -f "/home/me/.ssh/known_hosts" -R "n1"' in failure.hint


@pytest.mark.parametrize(
    ("error", "greeted", "kind"),
    [
        (asyncssh.ConnectionLost("Connection lost"), False, "busy"),
        (ConnectionResetError(104, "Connection reset by peer"), False, "busy"),
        (asyncssh.ConnectionLost("Connection lost"), True, "closed"),
        (asyncssh.PermissionDenied("no"), True, "auth"),
        (asyncssh.ProtocolError("Too many authentication failures"), True, "auth"),
        (asyncssh.KeyExchangeFailed("No matching"), True, "protocol"),
        (OSError(113, "No route to host"), False, "no-route"),
        (OSError(24, "Too many open files"), False, "local"),
        (ValueError("odd"), True, "protocol"),
        (asyncssh.HostKeyNotVerifiable("Host key is revoked"), True, "revoked-host-key"),
        (asyncssh.HostKeyNotVerifiable("Host key is not trusted"), True, "unknown-host-key"),
    ],
)
def test_what_asyncssh_raises(error: Exception, greeted: bool, kind: str) -> None:
    assert explain_login(error, HOST, HostEntries("n1"), Offer(), None, greeted).kind == kind


def test_what_a_jump_host_reports() -> None:
    prohibited = asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "open failed")
    assert explain_tunnel(prohibited, "n1", "gate").kind == "refused"
    for reason, kind in (("Connection refused", "refused"), ("No route to host", "no-route"), ("hm", "closed")):
        failed = asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, reason)
        assert explain_tunnel(failed, "n1", "gate").kind == kind


def test_names_and_addresses() -> None:
    unknown = unreachable(socket.gaierror(-2, "Name or service not known"), "n1 port 22")
    assert (unknown.kind, unknown.text) == ("dns", "the name n1 is not known: Name or service not known")
    assert unknown.hint == "check the spelling, or ask: getent hosts n1"
    assert unreachable(ConnectionRefusedError(111, "Connection refused"), "n1").kind == "refused"
    assert unreachable(TimeoutError(110, "Connection timed out"), "n1").kind == "timeout"


@pytest.mark.parametrize(
    ("ending", "kind", "part"),
    [
        (Ending(status=127), "no-python", "python3.9: not found"),
        (Ending(status=1), "closed", "status 1"),
        (Ending(signal="ALRM"), "closed", "signal ALRM"),
        (Ending(reason="keepalive"), "closed", "keepalive"),
    ],
)
def test_ends_before_the_start(ending: Ending, kind: str, part: str) -> None:
    failure = explain_end(ending, "motd\n", "\x1b[2Jsh: python3.9: not found\n")
    assert failure.kind == kind
    assert part in failure.text
    assert "motd" in failure.detail
    assert "\x1b" not in failure.detail


def test_errors_are_one_clean_line() -> None:
    lost = LinkLost("lost", "a\nb\x1b[2J" + "x" * 10_000)
    assert lost.text.startswith("a b[2J")
    assert len(lost.text) <= 500
    failure = NodeUnreachable("closed", "a\x07\nb", "c\x1b", "d\u202e")
    assert (failure.text, failure.hint, failure.detail) == ("a b", "c", "d")


def test_long_banners_keep_both_ends() -> None:
    text = shorten(b"begin" + b"x" * 100_000 + b"end", 1000)
    assert text.startswith("begin")
    assert text.endswith("end")
    assert "99008 bytes left out" in text


def test_the_words_given_to_ssh() -> None:
    words = ssh_argv("ssh", None, "n1", "true", "accept-new", 10)
    assert words[-3:] == ["--", "n1", "true"]
    assert {"ForwardAgent=no", "BatchMode=yes", "StrictHostKeyChecking=accept-new", "ConnectTimeout=10"} <= set(words)
    # With "no", ssh would continue after a changed key that it knows.
    for policy in ("strict", "accept-new"):
        assert "StrictHostKeyChecking=no" not in ssh_argv("ssh", None, "n1", "true", policy, 1)


async def test_only_drops_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.transport.dial.BACK_OFF", (0.0, 0.001))
    calls: list[str] = []

    async def attempt() -> str:
        calls.append("x")
        if len(calls) < 3:
            raise NodeUnreachable("busy", "full")
        return "in"

    assert await with_retries(attempt) == "in"
    assert len(calls) == 3
    calls.clear()

    async def refuse() -> str:
        calls.append("x")
        raise NodeUnreachable("auth", "no")

    with pytest.raises(NodeUnreachable):
        await with_retries(refuse)
    assert len(calls) == 1


async def test_gates_bound_logins_and_let_go_of_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.transport.dial.PATIENCE", 0.05)
    gates = Gates(2, 64)
    inside = 0
    most = 0
    hung = asyncio.Event()

    async def login(greets: bool) -> None:
        nonlocal inside, most
        async with gates.login("gate", lambda: greets):
            if not greets:
                await hung.wait()
                return
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.01)
            inside -= 1

    async with asyncio.TaskGroup() as group:
        stuck = [group.create_task(login(False)) for _ in range(2)]
        good = [group.create_task(login(True)) for _ in range(10)]
        await asyncio.wait_for(asyncio.gather(*good), 10)
        assert not any(task.done() for task in stuck)
        hung.set()
    assert most == 2


@pytest.mark.slow
async def test_a_slow_name_server_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def slow(host: str, *more: object, flags: int = 0) -> object:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host.startswith("slow"):
            time.sleep(1.0)
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return real("127.0.0.1", *more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    dialer = Dialer()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done: list[str] = []

        async def dial(host: str, within: float) -> None:
            try:
                (await dialer.dial(SshSettings(host, host, "me", port), within)).close()
            except NodeUnreachable as failure:
                done.append(f"{host} {failure.kind}")
            else:
                done.append(host)

        await asyncio.gather(dial("slow1", 0.3), *(dial(f"slow{n}", 5) for n in range(2, 12)), dial("fast", 5))
    assert done[0] == "fast"
    assert done[1] == "slow1 timeout"
    assert set(done[2:]) == {f"slow{n} dns" for n in range(2, 12)}
    await dialer.close()


def test_a_login_that_reads_what_was_sent_to_the_node_side() -> None:
    failure = explain_end(Ending(status=INPUT_TAKEN), "Accept terms?", "")
    assert failure.text == (
        "a command of the login reads standard input, and took what was meant for the node side: Accept terms?"
    )
    assert failure.hint is not None
    assert "ForceCommand" in failure.hint
