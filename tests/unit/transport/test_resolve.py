import asyncio
import getpass
import os
import shutil
from dataclasses import replace
from pathlib import Path
from shlex import quote

import pytest

from fabtui.transport.link import NodeUnreachable
from fabtui.transport.ssh_config import (
    ConfigBroken,
    Jump,
    Resolver,
    SshSettings,
    check_host,
    expand,
    expand_path,
    home,
    parse,
    parse_jumps,
    patterns_after,
    split_files,
    unsupported_setting,
)

OUTPUT = """\
host n1
user admin
hostname 10.1.1.1
port 2200
addressfamily inet
stricthostkeychecking accept-new
identityfile ~/.ssh/a key
identityfile none
identityfile %d/second
certificatefile ~/.ssh/c.pub
userknownhostsfile /one /two
globalknownhostsfile none
connecttimeout 5
proxyjump u@gate:33,[fe80::1]:44,plain
hashknownhosts yes
identitiesonly yes
hostkeyalias Alias
ciphers aes256-ctr
macs hmac-sha2-256
"""
needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")


def test_a_whole_output() -> None:
    resolved = parse("n1", OUTPUT, {"ciphers": "aes128-ctr,aes256-ctr", "macs": "hmac-sha2-256"})
    assert (resolved.name, resolved.hostname, resolved.user, resolved.port) == ("n1", "10.1.1.1", "admin", 2200)
    assert resolved.strict == "accept-new"
    assert resolved.identities == ("~/.ssh/a key", "%d/second")
    assert resolved.certificates == ("~/.ssh/c.pub",)
    assert resolved.user_known_hosts == ("/one", "/two")
    assert resolved.global_known_hosts == ()
    assert resolved.connect_timeout == 5
    assert resolved.jumps == (Jump("gate", "u", 33), Jump("fe80::1", None, 44), Jump("plain"))
    assert resolved.hash_known_hosts
    assert resolved.identities_only
    assert resolved.host_key_alias == "Alias"
    # Only what differs from the defaults was chosen by somebody.
    assert resolved.algorithms == {"ciphers": ("aes256-ctr",)}


@pytest.mark.parametrize(
    ("printed", "meant"),
    [("true", "yes"), ("ask", "ask"), ("accept-new", "accept-new"), ("false", "no"), ("off", "no"), ("odd", "ask")],
)
def test_strictness(printed: str, meant: str) -> None:
    assert parse("n1", f"stricthostkeychecking {printed}").strict == meant


def test_an_empty_output_has_defaults_and_a_senseless_one_is_refused() -> None:
    resolved = parse("n1", "")
    assert (resolved.hostname, resolved.port, resolved.user) == ("n1", 22, getpass.getuser())
    for text in ("port many", "connecttimeout soon", "proxyjump -oX=y"):
        with pytest.raises(ConfigBroken):
            parse("n1", text)


@pytest.mark.parametrize("host", ["n1", "10.0.0.1", "fe80::1%eth0", "[::1]", "a-b_c.example"])
def test_host_names(host: str) -> None:
    check_host(host)


@pytest.mark.parametrize("host", ["", "-n", "a b", "a\n", "a;b", "$x", "a@b", "ä", "x" * 256, "a/b", "`a`", "a\x1b"])
def test_what_is_no_host_name(host: str) -> None:
    with pytest.raises(NodeUnreachable) as caught:
        check_host(host)
    assert caught.value.kind == "config"
    assert "\x1b" not in caught.value.text


def test_jumps() -> None:
    assert parse_jumps("ssh://me@gate:22/") == (Jump("gate", "me", 22),)
    assert parse_jumps("a@b@gate") == (Jump("gate", "a@b"),)
    assert parse_jumps("fe80::1") == (Jump("fe80::1"),)
    for text in ("", ",", "a b", "me@", "-x", "gate:port", "[::1"):
        with pytest.raises(ValueError, match="not a jump host"):
            parse_jumps(text)


def test_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = SshSettings("n1", "10.0.0.1", "me", 2200)
    assert expand("%n %h %p %r 100%%", resolved) == "n1 10.0.0.1 2200 me 100%"
    assert expand("%%h", resolved) == "%h"
    for text in ("%C", "%", "a%"):
        with pytest.raises(KeyError):
            expand(text, resolved)
    monkeypatch.setenv("KEYS", "/keys")
    monkeypatch.setenv("HOME", "/elsewhere")
    assert expand_path("${KEYS}/%h", resolved) == Path("/keys/10.0.0.1")
    assert expand_path("~/.ssh/id", resolved) == Path(home(), ".ssh/id")
    assert expand_path("${NO_SUCH_VARIABLE}/x", resolved) is None


def test_known_hosts_files_with_blanks(tmp_path: Path) -> None:
    odd = tmp_path / "a b"
    assert split_files("/none/a b") == ("/none/a", "b")
    odd.touch()
    assert split_files(str(odd)) == (str(odd),)
    assert split_files("none") == ()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("hostbasedauthentication yes", "HostbasedAuthentication"),
        ("hostbasedauthentication no", None),
        ("pkcs11provider /lib/x.so", "PKCS11Provider"),
        ("pkcs11provider none", None),
        ("pubkeyauthentication false", "PubkeyAuthentication no"),
        ("pubkeyauthentication true", None),
        ("knownhostscommand /bin/keys %H", "KnownHostsCommand"),
        ("revokedhostkeys /etc/revoked", "RevokedHostKeys"),
        ("verifyhostkeydns true", "VerifyHostKeyDNS"),
        ("verifyhostkeydns false", None),
        ("gssapiauthentication yes", None),
    ],
)
def test_what_asyncssh_cannot_do(line: str, found: str | None) -> None:
    assert unsupported_setting(parse("n1", line)) == found


async def test_kerberos_counts_only_with_a_ticket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = parse("n1", "gssapiauthentication yes")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/cache")
    assert await Resolver(None).why_openssh(resolved) is None
    (tmp_path / "cache").touch()
    reason = await Resolver(None).why_openssh(resolved)
    assert reason is not None
    assert "Kerberos" in reason
    klist = tmp_path / "klist"
    klist.write_text("#!/bin/sh\nexit 1\n")
    klist.chmod(0o755)
    assert await Resolver(None).why_openssh(resolved) is None


@needs_ssh
async def test_ssh_is_asked_once_for_a_host(tmp_path: Path) -> None:
    count = tmp_path / "count"
    config = tmp_path / "config"
    config.write_text(f'Match exec "echo x >> {quote(str(count))}"\n  User matched\nHost *\n  Port 2200 # a comment\n')
    resolver = Resolver(config)
    first, second = await asyncio.gather(resolver.resolve("n1"), resolver.resolve("n1"))
    assert first is second
    assert (first.user, first.port) == ("matched", 2200)
    assert count.read_text() == "x\n"
    other = await resolver.resolve("n1", "somebody", 99)
    assert (other.user, other.port) == ("somebody", 99)
    await resolver.close()


@needs_ssh
async def test_a_broken_configuration_names_the_line(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  Frobnicate yes\n")
    resolver = Resolver(config)
    for _ in range(2):
        with pytest.raises(ConfigBroken, match="line 2"):
            await resolver.resolve("n1")
    await resolver.close()


@needs_ssh
async def test_an_asker_that_gives_up_does_not_take_the_answer_from_others(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text('Match exec "sleep 0.3"\n  User matched\n')
    resolver = Resolver(config)
    first = asyncio.create_task(resolver.resolve("n1"))
    second = asyncio.create_task(resolver.resolve("n1"))
    await asyncio.sleep(0.05)
    first.cancel()
    assert (await second).user == "matched"
    await resolver.close()


async def test_where_there_is_no_ssh_nothing_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    resolver = Resolver(None)
    with pytest.raises(NodeUnreachable, match="there is no ssh program on this machine") as refused:
        await resolver.resolve("n3")
    assert refused.value.hint == "install openssh-client, or pass --via or --transport srun"
    await resolver.close()


@needs_ssh
async def test_a_login_and_a_port_of_their_own_are_kept_apart(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host n*\n  User me\n  Port 5\n")
    resolver = Resolver(config)
    hosts = [f"n{number}" for number in range(4)]
    plain = await asyncio.gather(*(resolver.resolve(host) for host in hosts))
    other = await asyncio.gather(*(resolver.resolve(host, "you", 6) for host in hosts))
    await resolver.close()
    assert {(one.user, one.port) for one in plain} == {("me", 5)}
    assert {(one.user, one.port) for one in other} == {("you", 6)}


@needs_ssh
async def test_a_broken_configuration_is_reported_to_everybody(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  Frobnicate yes\n")
    resolver = Resolver(config)
    found = await asyncio.gather(*(resolver.resolve(f"n{number}") for number in range(4)), return_exceptions=True)
    await resolver.close()
    assert [type(error) for error in found] == [ConfigBroken] * 4
    assert all("line 2" in str(error) for error in found)


@needs_ssh
async def test_whoever_asks_first_and_gives_up_leaves_the_others_their_answer(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  Port 9\n")
    resolver = Resolver(config)
    first = asyncio.create_task(resolver.resolve("n1"))
    others = [asyncio.create_task(resolver.resolve(f"n{number}")) for number in range(2, 6)]
    await asyncio.sleep(0)
    first.cancel()
    assert [one.port for one in await asyncio.gather(*others)] == [9] * 4
    await resolver.close()


#: Configurations, and how many hosts of `NAMES` are asked about, besides the baseline.
_ALIKE = [
    ("", 3),
    ("Host *\n  Port 9\n", 3),
    ("Host=n*\n  User me\nHost m1 !n1* *\n  Port 9 # n*\n", 6),
    ("Include {more}\nHost *\n  Port 9\n", 4),
    ("Match final all\n  Port 9\nMatch all\n  User me\n", 3),
    ("Host n?\n  ProxyJump n2,gate\nHost *\n  HostKeyAlias alike\n", 4),
    ("Host n*\n  HostName n12\nHost *\n  Port 9\n", 5),
    ('Host "n1*"\n  Port 9\n', 6),
    ('Host *\n  "HostName" %h.example\n', 6),
    ("Host *\n  HostName %h.example\n", 6),
    ('Match exec "test %h = n2"\n  Port 9\n', 6),
    ("Match host n2,n3\n  Port 9\n", 6),
    ("CanonicalizeHostname no\n", 6),
    ("Host n[1-3]\n  Port 9\n", 3),
    ("Host a*\n  Include {more}\nHost n*\n  Port 9\n", 4),
]
NAMES = ("n1", "n2", "n12", "m1", "m2.example", "N3")


@needs_ssh
async def test_patterns_count_in_a_file_that_the_first_host_has_no_use_for(tmp_path: Path) -> None:
    config, more = tmp_path / "config", tmp_path / "more"
    more.write_text("Host a5*\n  User you\n")
    config.write_text(f"Host a*\n  Include {more}\nHost *\n  Port 9\n")
    resolver = Resolver(config)
    found = await asyncio.gather(*map(resolver.resolve, ("n1", "a1", "a52", "a2")))
    await resolver.close()
    assert [one.user == "you" for one in found] == [False, False, True, False]


@needs_ssh
async def test_an_address_that_ssh_writes_in_another_way_is_asked_about(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  Port 9\n")
    hosts = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.4", "10.0.0.010", "0x7f.1", "7")
    together = Resolver(config)
    found = [(await together.resolve(host)).hostname for host in hosts]
    await together.close()
    alone = []
    for host in hosts:
        resolver = Resolver(config)
        alone.append((await resolver.resolve(host)).hostname)
        await resolver.close()
    assert found == alone


@needs_ssh
async def test_a_configuration_from_a_pipe_is_not_read_again(tmp_path: Path) -> None:
    pipe = tmp_path / "config"
    os.mkfifo(pipe)
    debug = f"debug1: Reading configuration data {pipe}\n"
    first = asyncio.get_running_loop().create_task(asyncio.sleep(0, (0, "", debug)))
    assert await patterns_after(first) is None


@needs_ssh
@pytest.mark.slow
async def test_a_first_host_that_hangs_delays_the_others_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabtui.transport.ssh_config._PATIENCE", 0.05)
    config = tmp_path / "config"
    config.write_text('Match exec "test %h = n2 || sleep 1"\n  User matched\n')
    resolver = Resolver(config)
    first = asyncio.create_task(resolver.resolve("n1"))
    await asyncio.sleep(0)
    assert (await resolver.resolve("n2")).user == "matched"
    assert not first.done()
    await first
    await resolver.close()


@needs_ssh
@pytest.mark.parametrize(("text", "asked"), _ALIKE)
async def test_hosts_that_are_alike_in_the_configuration_are_asked_about_once(
    text: str, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, more = tmp_path / "config", tmp_path / "more"
    more.write_text("Host m* q5\n  User you\n")
    config.write_text(text.format(more=more))
    runs = []
    run = Resolver._run

    async def counted(self: Resolver, options: list[str], host: str) -> tuple[int | None, str, str]:
        runs.append(host)
        return await run(self, options, host)

    monkeypatch.setattr(Resolver, "_run", counted)
    together = Resolver(config)
    found = await asyncio.gather(*map(together.resolve, NAMES))
    await together.close()
    assert len(runs) - 1 == asked, runs
    for name, resolved in zip(NAMES, found, strict=True):
        alone = Resolver(config)
        assert _without_level(await alone.resolve(name)) == _without_level(resolved)
        await alone.close()


def _without_level(resolved: SshSettings) -> SshSettings:
    # The first answer is one with details, and has no level of logs.
    return replace(resolved, settings={**resolved.settings, "loglevel": ""})
