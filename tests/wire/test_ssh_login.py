"""Logins to real OpenSSH servers: host keys, client keys, and who makes the connection."""

import asyncio
import getpass
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabtui.transport.link import Link, NodeUnreachable
from tests.wire import fakeside, sshd
from tests.wire.sshd import alive

Reaching = Callable[..., Any]


async def echo(link: Link) -> None:
    await link.send({"t": "echo", "text": "caf\u00e9"})
    assert await link.receive() == {"t": "echo", "text": "caf\u00e9"}


async def refused(reach: Any, host: str) -> NodeUnreachable:
    with pytest.raises(NodeUnreachable) as caught:
        await reach.open(host)
    assert "\n" not in caught.value.text
    return caught.value


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_a_node_is_reached_and_left(field: sshd.Field, reach_for: Reaching, transport: str) -> None:
    field.serve("n1")
    reach = reach_for(field.config(), transport=transport, **fakeside.options(env={"NCCL_DEBUG": "INFO"}, lease=7))
    link = await reach.open("n1")
    assert (link.node, link.backend) == ("n1", "asyncssh" if transport == "ssh" else "openssh")
    assert link.hello["config"]["node"] == "n1"
    assert link.hello["config"]["lease"] == 7
    assert link.hello["config"]["env"] == {"NCCL_DEBUG": "INFO"}
    await echo(link)
    await link.close()
    assert not alive(link.hello["pid"])
    assert reach.notices == []


async def test_the_real_node_side_answers(field: sshd.Field, reach_for: Reaching) -> None:
    field.serve("n1")
    link = await reach_for(field.config()).open("n1")
    await link.send({"t": "probe", "id": 1, "name": "no such probe", "args": {}, "deadline": 5})
    while (message := await link.receive())["t"] == "log":
        pass
    assert (message["t"], message["id"], message["ok"]) == ("result", 1, False)
    await link.close()
    assert not alive(link.hello["pid"])


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_unknown_and_changed_host_keys_are_different_words(
    field: sshd.Field, reach_for: Reaching, transport: str
) -> None:
    field.serve("new", known=False)
    changed = field.serve("changed", known=False)
    old = sshd.make_key(field.folder / "old")
    field.know(changed.known_name, old)
    reach = reach_for(field.config(), transport=transport, **fakeside.options())
    unknown = await refused(reach, "new")
    assert unknown.kind == "unknown-host-key"
    assert "not known" in unknown.text
    other = await refused(reach, "changed")
    assert other.kind == "changed-host-key"
    assert "CHANGED" in other.text
    assert other.hint is not None
    assert "ssh-keygen" in other.hint
    if transport == "ssh":
        assert "SHA256:" in unknown.text
        assert unknown.hint is not None
        assert f"-p {field.servers['new'].port}" in unknown.hint
        assert str(field.known_hosts) in other.text


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
@pytest.mark.parametrize("how", ["option", "no", "accept-new"])
async def test_new_keys_are_taken_on_request_and_changed_ones_never(
    field: sshd.Field, reach_for: Reaching, how: str, transport: str
) -> None:
    new = field.serve("new", known=False)
    changed = field.serve("changed", known=False)
    field.know(changed.known_name, sshd.make_key(field.folder / "old"))
    config = field.config() if how == "option" else field.config("Host *", f"  StrictHostKeyChecking {how}")
    policy = {"host_key_policy": "accept-new"} if how == "option" else {}
    reach = reach_for(config, transport=transport, **policy, **fakeside.options())
    link = await reach.open("new")
    await link.close()
    assert f"{new.known_name} {new.host_key}\n" in field.known_hosts.read_text()
    assert (await refused(reach, "changed")).kind == "changed-host-key"
    # What was written is what counts from now on.
    strict = reach_for(field.config(), **fakeside.options())
    await (await strict.open("new")).close()


async def test_strict_counts_over_a_lax_configuration(field: sshd.Field, reach_for: Reaching) -> None:
    field.serve("new", known=False)
    config = field.config("Host *", "  StrictHostKeyChecking no")
    reach = reach_for(config, host_key_policy="strict", **fakeside.options())
    assert (await refused(reach, "new")).kind == "unknown-host-key"


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_off_checks_nothing_and_reports_it(field: sshd.Field, reach_for: Reaching, transport: str) -> None:
    changed = field.serve("changed", known=False)
    field.know(changed.known_name, sshd.make_key(field.folder / "old"))
    reach = reach_for(field.config(), transport=transport, host_key_policy="off", **fakeside.options())
    for _ in range(2):
        await (await reach.open("changed")).close()
    assert len(reach.notices) == 1
    assert "not checked" in reach.notices[0]


async def test_no_known_hosts_and_no_checking_is_common_and_works(field: sshd.Field, reach_for: Reaching) -> None:
    field.serve("new", known=False)
    config = field.config("Host *", "  StrictHostKeyChecking no", "  UserKnownHostsFile /dev/null")
    await (await reach_for(config, **fakeside.options()).open("new")).close()
    # Without a file there is nothing to trust, and "none" does not switch the check off.
    config = field.config("Host *", "  UserKnownHostsFile none")
    assert (await refused(reach_for(config, **fakeside.options()), "new")).kind == "unknown-host-key"


async def test_several_known_hosts_files_one_missing_one_hashed(
    field: sshd.Field, reach_for: Reaching, plain_folder: Path
) -> None:
    server = field.serve("n1", known=False)
    field.serve("new", known=False)
    field.know(server.known_name, server.host_key)
    field.hash_known()
    assert server.address not in field.known_hosts.read_text()
    written = plain_folder / "missing"
    files = f"{written} {field.known_hosts.rename(plain_folder / 'known')}"
    config = field.config("Host *", f"  UserKnownHostsFile {files}", "  HashKnownHosts yes")
    await (await reach_for(config, **fakeside.options()).open("n1")).close()
    await (await reach_for(config, host_key_policy="accept-new", **fakeside.options()).open("new")).close()
    assert written.read_text().startswith("|1|")
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    await (await reach_for(config, **fakeside.options()).open("new")).close()


async def test_a_revoked_key_is_called_so(field: sshd.Field, reach_for: Reaching) -> None:
    server = field.serve("n1")
    field.know("*", server.host_key, "@revoked")
    reach = reach_for(field.config(), host_key_policy="accept-new", **fakeside.options())
    assert (await refused(reach, "n1")).kind == "revoked-host-key"


async def test_another_key_type_than_the_known_one_is_a_change(field: sshd.Field, reach_for: Reaching) -> None:
    server = field.serve("n1", known=False, kind="ecdsa")
    field.know(server.known_name, sshd.make_key(field.folder / "old"))
    reach = reach_for(field.config(), host_key_policy="accept-new", **fakeside.options())
    failure = await refused(reach, "n1")
    assert failure.kind == "changed-host-key"
    assert "ecdsa" in failure.text


async def test_host_certificates(field: sshd.Field, reach_for: Reaching) -> None:
    authority = field.folder / "ca"
    public = sshd.make_key(authority)
    server = field.serve("n1", known=False, certify=authority)
    reach = reach_for(field.config(), **fakeside.options())
    assert (await refused(reach, "n1")).kind == "unknown-host-key"
    field.know(server.known_name, public, "@cert-authority")
    await (await reach_for(field.config(), **fakeside.options()).open("n1")).close()


async def test_a_host_certificate_does_not_hide_a_plain_key(field: sshd.Field, reach_for: Reaching) -> None:
    authority = field.folder / "ca"
    sshd.make_key(authority)
    field.serve("known", certify=authority)
    field.serve("new", known=False, certify=authority)
    await (await reach_for(field.config(), **fakeside.options()).open("known")).close()
    accepting = reach_for(field.config(), host_key_policy="accept-new", **fakeside.options())
    await (await accepting.open("new")).close()


async def test_a_key_that_is_not_authorized(field: sshd.Field, reach_for: Reaching) -> None:
    field.serve("n1")
    other = field.folder / "other"
    sshd.make_key(other)
    config = field.config("Host *", f'  IdentityFile "{other}"')
    text = config.read_text().replace(f'  IdentityFile "{field.user_key}"\n', "")
    config.write_text(text)
    failure = await refused(reach_for(config, **fakeside.options()), "n1")
    assert failure.kind == "auth"
    assert (await refused(reach_for(config, transport="openssh", **fakeside.options()), "n1")).kind == "auth"


async def test_a_key_that_the_first_nodes_refuse_is_offered_to_no_other(field: sshd.Field, reach_for: Reaching) -> None:
    names = [f"n{number}" for number in range(6)]
    for name in names:
        field.serve(name)
        (field.folder / f"authorized_{name}").write_text("")
    reach = reach_for(field.config(), **fakeside.options())
    failures = await asyncio.gather(*(refused(reach, name) for name in names))
    assert {failure.kind for failure in failures} == {"auth"}
    assert sum("no key is offered: n" in failure.text for failure in failures) == len(names) - 2
    asked = [name for name in names if "Failed publickey" in field.servers[name].logged()]
    assert len(asked) == 2
    # One node that refuses is the fault of that node.
    (field.folder / "authorized_n1").write_text(field.authorized + "\n")
    (field.folder / "authorized_n2").write_text(field.authorized + "\n")
    reach = reach_for(field.config(), **fakeside.options())
    assert (await refused(reach, "n0")).kind == "auth"
    for name in ("n1", "n2"):
        await (await reach.open(name)).close()
    assert "no key" not in (await refused(reach, "n3")).text


async def test_a_locked_key_wants_an_agent_and_is_used_from_one(field: sshd.Field, reach_for: Reaching) -> None:
    field.serve("n1")
    locked = field.folder / "locked"
    public = sshd.make_key(locked, passphrase="open sesame")
    field.script("askpass", "#!/bin/sh\necho open sesame\n")
    (field.folder / "authorized_n1").write_text(public + "\n")
    config = field.config()
    text = config.read_text().replace(f'  IdentityFile "{field.user_key}"\n', f'  IdentityFile "{locked}"\n')
    config.write_text(text)
    failure = await refused(reach_for(config, **fakeside.options()), "n1")
    assert failure.kind == "auth"
    assert "passphrase" in failure.text
    assert failure.hint == f"ssh-add {locked}"
    with sshd.agent(locked) as path:
        config.write_text(text.replace("IdentityAgent none", f'IdentityAgent "{path}"'))
        await (await reach_for(config, **fakeside.options()).open("n1")).close()


async def test_user_certificates(field: sshd.Field, reach_for: Reaching) -> None:
    authority = field.folder / "ca"
    sshd.make_key(authority)
    field.serve("n1", sshd=[f'TrustedUserCAKeys "{authority}.pub"'])
    (field.folder / "authorized_n1").write_text("")
    assert (await refused(reach_for(field.config(), **fakeside.options()), "n1")).kind == "auth"
    field.sign_user(authority)
    await (await reach_for(field.config(), **fakeside.options()).open("n1")).close()


async def test_what_asyncssh_cannot_do_goes_through_ssh_with_one_notice(field: sshd.Field, reach_for: Reaching) -> None:
    field.serve("n1", config=["KnownHostsCommand /bin/true"])
    field.serve("n2", config=["KnownHostsCommand /bin/true"])
    field.serve("n3")
    reach = reach_for(field.config(), **fakeside.options())
    links = [await reach.open(name) for name in ("n1", "n2", "n3")]
    assert [link.backend for link in links] == ["openssh", "openssh", "asyncssh"]
    assert len(reach.notices) == 1
    assert "KnownHostsCommand" in reach.notices[0]
    for link in links:
        await link.close()


async def test_a_shared_connection_is_used_and_none_is_made(field: sshd.Field, reach_for: Reaching) -> None:
    server = field.serve("n1", config=[f'ControlPath "{field.folder}/%n.sock"', "ControlMaster auto"])
    config = field.config()
    link = await reach_for(config, **fakeside.options()).open("n1")
    assert link.backend == "asyncssh"
    await link.close()
    master = await asyncio.create_subprocess_exec(
        "ssh", "-F", str(config), "-M", "-N", "n1", stdin=asyncio.subprocess.PIPE
    )
    socket = field.folder / "n1.sock"
    try:
        await sshd.until(socket.exists)
        logins = server.logged().count("Accepted publickey")
        link = await reach_for(config, **fakeside.options()).open("n1")
        assert link.backend == "openssh"
        await link.close()
        assert server.logged().count("Accepted publickey") == logins
    finally:
        master.kill()
        await master.wait()
    # What it leaves behind is a socket that nobody listens on.
    assert socket.exists()
    link = await reach_for(config, **fakeside.options()).open("n1")
    assert link.backend == "asyncssh"
    await link.close()


@pytest.mark.filterwarnings("ignore:Diffie-Hellman")
async def test_a_server_with_algorithms_that_asyncssh_lacks(field: sshd.Field, reach_for: Reaching) -> None:
    field.serve("n1", sshd=["KexAlgorithms sntrup761x25519-sha512@openssh.com"])
    field.serve("n2", sshd=["KexAlgorithms diffie-hellman-group14-sha256"])
    reach = reach_for(field.config(), **fakeside.options())
    link = await reach.open("n1")
    # asyncssh has this one only where liboqs is installed.
    assert link.backend == ("openssh" if reach.notices else "asyncssh")
    await link.close()
    link = await reach.open("n2")
    assert link.backend == "asyncssh"
    await link.close()


async def test_a_configuration_that_does_not_parse(field: sshd.Field, reach_for: Reaching) -> None:
    field.serve("n1")
    reach = reach_for(field.config("Blorp yes"), **fakeside.options())
    failure = await refused(reach, "n1")
    assert failure.kind == "config"
    assert "blorp" in failure.text.lower()
    assert len(reach.notices) == 1
    assert "line 1" in reach.notices[0]


@pytest.mark.parametrize("host", ["-oProxyCommand=touch X", "a;touch X", "$(touch X)", "a b", "a\nb", "", "a/../b"])
async def test_names_that_are_no_hosts(
    field: sshd.Field, reach_for: Reaching, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(field.folder)
    for transport in ("ssh", "openssh", "local"):
        assert (await refused(reach_for(field.config(), transport=transport), host)).kind == "config"
    assert "X" not in os.listdir()


async def test_an_ssh_config_that_is_not_there(tmp_path: Path, reach_for: Reaching) -> None:
    assert (await refused(reach_for(tmp_path / "nope"), "n1")).kind == "config"


async def test_settings_that_asyncssh_misreads(field: sshd.Field, reach_for: Reaching) -> None:
    server = field.serve("n1", config=["ConnectTimeout 5s", "ServerAliveInterval 1m", "ForwardAgent yes"])
    server.lines.append("HostKeyAlias alias")
    field.know("alias", server.host_key)
    config = field.config()
    config.write_text(config.read_text().replace(f"Port {server.port}", f"Port {server.port} # a comment"))
    link = await reach_for(config, **fakeside.options()).open("n1")
    assert link.backend == "asyncssh"
    await link.close()


async def test_chosen_algorithms_are_kept_to(field: sshd.Field, reach_for: Reaching) -> None:
    chosen = ["KexAlgorithms ecdh-sha2-nistp384", "Ciphers aes256-ctr"]
    server = field.serve("n1", config=chosen, sshd=["LogLevel DEBUG1"])
    field.serve("n2", config=["KexAlgorithms sntrup761x25519-sha512@openssh.com"])
    reach = reach_for(field.config(), **fakeside.options())
    link = await reach.open("n1")
    assert link.backend == "asyncssh"
    assert "kex: algorithm: ecdh-sha2-nistp384" in server.logged()
    assert "cipher: aes256-ctr" in server.logged()
    await link.close()
    link = await reach.open("n2")
    # asyncssh has this one only where liboqs is installed.
    assert link.backend == ("asyncssh" if reach.notices == [] else "openssh")
    await link.close()


async def test_the_advice_for_an_unknown_key_adds_it_under_its_alias(field: sshd.Field, reach_for: Reaching) -> None:
    field.serve("n1", known=False, config=["HostKeyAlias cluster-node-2"])
    failure = await refused(reach_for(field.config(), **fakeside.options()), "n1")
    assert failure.kind == "unknown-host-key"
    assert "as cluster-node-2 (HostKeyAlias)" in failure.text
    assert failure.hint is not None
    advice = failure.hint.partition("then: ")[2].partition(" (or")[0]
    await asyncio.to_thread(subprocess.run, ["sh", "-c", advice], check=True, capture_output=True, timeout=60)
    assert field.known_hosts.read_text().count("cluster-node-2 ") >= 1
    await (await reach_for(field.config(), **fakeside.options()).open("n1")).close()


@pytest.mark.parametrize(
    ("method", "setting"),
    [("keyboard-interactive", "KbdInteractiveAuthentication"), ("password", "PasswordAuthentication")],
)
async def test_a_key_that_is_accepted_and_not_enough(
    field: sshd.Field, reach_for: Reaching, method: str, setting: str
) -> None:
    for name in ("n0", "n1", "n2"):
        field.serve(name, sshd=[f"{setting} yes", f"AuthenticationMethods publickey,{method}"])
    reach = reach_for(field.config(), **fakeside.options())
    failures = [await refused(reach, name) for name in ("n0", "n1", "n2")]
    assert {failure.kind for failure in failures} == {"auth"}
    for failure in failures:
        assert f"accepted the key of {getpass.getuser()} and asks for a second factor ({method})" in failure.text
        assert "no key is offered" not in failure.text, "they did not refuse the key"
