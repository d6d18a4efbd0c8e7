import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fabtui.transport.ssh_config import HostPatterns, Jump, Resolver, SshSettings, is_plain_address, output_for

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")

#: Configurations that distinguish hosts in all ways, and hosts, most of which need no answer of their own.
CONFIGS = {
    "blocks by pattern": ("Host n? !n3\n Port 1\nHost n1*\n User one\n", "n1 n2 n3 n4 n5 n6 n10 n11 n12"),
    "a name written out": ("Host n4\n HostName 10.0.0.2\n Port 7\nHost n*\n User me\n", "n1 n2 n3 n4 n5"),
    "names within host names": ("Host n*\n HostName %h.Far\nHost a*\n HostName a%h-%%\n", "n1 n2 n3 n4 a1 a2 a3 aa a"),
    "a name twice": ("Host n*\n HostName %h-%h\n", "n1 n2 n3 n4"),
    "tokens in paths": ("Host n*\n HostName %h.f\n ControlPath /%r@%h\n UserKnownHostsFile /%n\n", "n1 n2 n3 n4 n5"),
    "a token of many names": ("Host n*\n ControlPath /c-%C\n", "n1 n2 n3 n4 n5"),
    "a name that is in all": ("Host *\n User n1\n UserKnownHostsFile /n1\n", "n0 n1 n2 n3 n4 n5"),
    "tokens that stay": ("Host *\n IdentityFile ~/.ssh/%n\n ProxyCommand nc %h %p\n", "n1 n2 n3 n4 n5"),
    "a jump host of the same block": ("Host *\n ProxyJump n4\n", "n1 n2 n3 n4 n5"),
    "a second reading": (
        "Host n*\n HostName %h.far\nHost n4.far\n Port 9\nMatch final all\n User x\n",
        "n1 n2 n3 n4 n5",
    ),
    "a match": ("Host n*\n HostName %h.far\nMatch host n4.far\n Port 3\n", "n1 n2 n3 n4 n5"),
    "a program decides": ('Match exec "test %n = n4"\n Port 5\n', "n1 n2 n3 n4 n5"),
    "quotes": ('Host "n4" a\n Port 6\n', "n1 n2 n3 n4"),
    "an equals sign": ("Host=n4\n Port=6\n", "n1 n2 n3 n4"),
    "capitals": ("Host N*\n Port 4\nHost *\n User x\n", "n1 n2 n3 N4 n5"),
    "short addresses": ("Host *\n Port 4\n", "10.0.0.1 10.0.0.2 10.0.0.3 10.4 10.0.0.010"),
    "canonical names": ("CanonicalizeHostname yes\nCanonicalDomains invalid\nHost n4\n Port 2\n", "n1 n2 n3 n4"),
}


async def resolved(config: Path, *hosts: str) -> list[SshSettings | str]:
    resolver = Resolver(config)
    found = await asyncio.gather(*map(resolver.resolve, hosts), return_exceptions=True)
    await resolver.close()
    # The first host is asked about with -v.
    return [
        repr(one) if isinstance(one, BaseException) else replace(one, settings={**one.settings, "loglevel": ""})
        for one in found
    ]


@needs_ssh
@pytest.mark.parametrize(("text", "hosts"), CONFIGS.values(), ids=CONFIGS.keys())
async def test_every_host_has_the_settings_that_ssh_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, hosts: str
) -> None:
    config = tmp_path / "config"
    config.write_text(text)
    together = await resolved(config, *hosts.split())
    monkeypatch.setattr(HostPatterns, "read", lambda _: None)
    assert together == await resolved(config, *hosts.split())


@needs_ssh
@pytest.mark.parametrize(
    ("first_line", "asked"),
    [("Host n*", 4), ("Match all", 4), ("ControlPath /%r@%h:%p", 4), ("ControlPath /%C", 13), ("Match exec true", 13)],
)
async def test_ssh_is_asked_about_few_of_many_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_line: str, asked: int
) -> None:
    monkeypatch.setattr("fabtui.transport.ssh_config._PATIENCE", 60.0)
    config, more, runs, counting = (tmp_path / name for name in ("config", "more", "runs", "ssh"))
    more.write_text("Host *\n  Port 2200\n")
    config.write_text(f"{first_line}\n  HostName %h.cluster\nInclude {more}\n")
    resolver = Resolver(config)
    counting.write_text(f'#!/bin/sh\necho run >> {runs}\nexec {resolver.ssh} "$@"\n')
    counting.chmod(0o755)
    resolver.ssh = str(counting)
    names = [f"n{number}" for number in range(12)]
    found = await asyncio.gather(*map(resolver.resolve, names))
    await resolver.close()
    assert [(one.name, one.hostname, one.port) for one in found] == [(name, f"{name}.cluster", 2200) for name in names]
    # The first with the files' names, two that stand for all, and the defaults.
    assert runs.read_text().count("run") == asked


@needs_ssh
async def test_a_user_and_a_port_are_kept_apart(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host n*\n  User me\n  Port 5\n")
    resolver = Resolver(config)
    hosts = [f"n{number}" for number in range(4)]
    found = await asyncio.gather(*(resolver.resolve(host, *own) for own in ((), ("you", 6)) for host in hosts))
    await resolver.close()
    assert [(one.user, one.port) for one in found] == [("me", 5)] * 4 + [("you", 6)] * 4


def patterns_of(path: Path, text: bytes) -> HostPatterns | None:
    path.write_bytes(text)
    return HostPatterns.read(f"OpenSSH_9.2p1\ndebug1: Reading configuration data {path}\n")


@pytest.mark.parametrize(
    "line",
    [
        b"Match exec x",
        b"Match host n1",
        b"Match final",
        b"match = localnetwork 10.0.0.0/8",
        b'Host "a b"',
        b"Host a\\ b",
        b"Host a # b",
        b"Host n[12]",
        b"Host \xe4",
        b'"Host" a',
        b"=Host a",
        b"Host",
        b"Include /etc/%h",
        b"CanonicalizePermittedCNAMEs *:*",
    ],
)
def test_a_line_that_may_distinguish_hosts_otherwise_ends_it(tmp_path: Path, line: bytes) -> None:
    assert patterns_of(tmp_path / "config", line + b"\n") is None


def test_names_that_fit_the_same_patterns(tmp_path: Path) -> None:
    # As distributions and systemd write their own, too.
    lines = b"# Host q\nhost = n? !n3 *.x\r\n  Port 2\nMatch Final All\nHost r unix/* unix,* vsock%*\n"
    found = patterns_of(tmp_path / "config", lines)
    assert found is not None
    fits = [found.fitting(name) for name in ("n1", "n2", "n12", "q", "n1.x", "n3", "r")]
    assert fits[0] == fits[1]
    assert fits[2] == fits[3]
    assert len(set(fits)) == 5
    assert [found.fitting(name) for name in ("N1", "n1\n", "::1", "")] == [None] * 4


def test_without_the_names_of_readable_files_nothing_is_known(tmp_path: Path) -> None:
    assert HostPatterns.read("OpenSSH_9.2p1\n") == HostPatterns(frozenset(), ())
    for messages in ("", "debug1: Reading configuration data /a\n"):
        assert HostPatterns.read(messages) is None
    for path in (tmp_path, tmp_path / "missing"):
        assert HostPatterns.read(f"OpenSSH_9.2p1\ndebug1: Reading configuration data {path}\n") is None


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("x a.y\nport 1", "x bb.y\nport 1", "x c.y\nport 1"),
        ("x aa", "x aa", "x aa"),
        ("x a y", "x bb z", None),
        ("x aa", "x bba", None),
        ("x a-a", "x bb-bb", None),
        ("x -", "x -bb", None),
        ("x a", "x bb\ny", None),
    ],
)
def test_lines_that_differ_have_the_name_once(first: str, second: str, found: str | None) -> None:
    assert output_for("c", ("a", first), ("bb", second)) == found


def test_a_name_that_overlaps_itself_is_not_filled_in() -> None:
    assert output_for("c", ("aa", "x aaa"), ("aaaa", "x aaaaa")) is None


@pytest.mark.parametrize(
    ("hostname", "plain"), [("n1", True), ("10.0.0.1", True), ("10.1", False), ("0x7f.1", False), ("gate", False)]
)
def test_addresses_that_ssh_treats_in_a_way_of_its_own(hostname: str, plain: bool) -> None:
    assert is_plain_address(SshSettings("a", hostname, "me", jumps=(Jump("gate"),))) is plain
