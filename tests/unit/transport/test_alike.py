import asyncio
import shutil
from pathlib import Path

import pytest

from fabtui.transport.ssh_config.host_groups import Patterns, files_read, named, read_patterns
from fabtui.transport.ssh_config.resolve import ConfigBroken, Resolved, Resolver

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")

HOSTS = ["n1", "n2", "n3", "n10", "n11", "n12", "a", "aa", "ab", "gate", "n1.far", "n2.far", "n3.far", "10.0.0.1", "N4"]

#: Configurations that tell hosts apart in every way there is, and what reading them once has to give all the same.
CONFIGS = {
    "nothing": "",
    "one block": "Host *\n  Port 2200\n  User me\n",
    "blocks by pattern": "Host n? !n3\n  Port 1\nHost n1*\n  User one\nHost *.far\n  HostName 10.9.9.9\n",
    "a name written out": "Host n2\n  HostName 10.0.0.2\n  Port 7\nHost n*\n  User me\n",
    "a pattern in capitals": "Host N*\n  Port 4\n",
    "host names by token": "Host n*\n  HostName %h.cluster\nHost a*\n  HostName a%h\nHost *.far\n  HostName %h-%%-%h\n",
    "tokens elsewhere": "Host n*\n  ControlPath /run/cm-%r@%h:%p\n  IdentityFile ~/.ssh/%n\n  ProxyCommand nc %h %p\n",
    "by where the name leads": "Host n*\n  HostName %h.far\nHost *.far\n  Port 9\nMatch final host *2.far\n  User x\n",
    "match": "Match host n1*,!n12\n  Port 3\nMatch originalhost=a*\n  User x\nMatch originalhost ab\n  User y\n",
    "match a user": "Host n1*\n  User u\nMatch user u host n*\n  Port 8\n",
    "a program decides": 'Match exec "case %n in *2) true;; *) false;; esac"\n  Port 5\n',
    "quotes": 'Host "n1" a\n  Port 6\n',
    "a comment behind": "Host n1 # n2\n  Port 6\n",
    "an equals sign": "Host=n1*\n  Port=6\n",
    "no space": "Host n*\nPort 6\nHost n12\nUser late\n",
    "canonical names": "CanonicalizeHostname yes\nCanonicalDomains invalid\nHost n1\n  Port 2\n",
}


async def resolved_together(config: Path, hosts: list[str]) -> list[Resolved]:
    resolver = Resolver(config)
    try:
        return list(await asyncio.gather(*(resolver.resolve(host) for host in hosts)))
    finally:
        await resolver.close()


def counting(folder: Path, resolver: Resolver) -> Path:
    """Have ssh counted: a line for each run."""
    count = folder / "count"
    count.touch()
    wrapper = folder / "ssh"
    wrapper.write_text(f'#!/bin/sh\necho run >> {count}\nexec {resolver.ssh} "$@"\n')
    wrapper.chmod(0o755)
    resolver.ssh = str(wrapper)
    return count


@needs_ssh
@pytest.mark.parametrize("text", CONFIGS.values(), ids=CONFIGS.keys())
async def test_what_is_answered_for_many_is_what_ssh_says_of_each(tmp_path: Path, text: str) -> None:
    config = tmp_path / "config"
    config.write_text(text)
    try:
        alone = [(await resolved_together(config, [host]))[0] for host in HOSTS]
    except ConfigBroken as error:
        pytest.skip(f"this ssh does not take it: {error}")
    assert await resolved_together(config, HOSTS) == alone
    assert (await resolved_together(config, HOSTS[::-1]))[::-1] == alone


@needs_ssh
async def test_nodes_of_one_block_are_not_asked_about_one_by_one(tmp_path: Path) -> None:
    config, more = tmp_path / "config", tmp_path / "more"
    more.write_text("Host *\n  Port 2200\n")
    config.write_text(f"Host n*\n  HostName %h.cluster\nInclude {more}\n")
    resolver = Resolver(config)
    count = counting(tmp_path, resolver)
    found = await asyncio.gather(*(resolver.resolve(f"n{number}") for number in range(300)))
    await resolver.close()
    assert [one.hostname for one in found] == [f"n{number}.cluster" for number in range(300)]
    assert {one.port for one in found} == {2200}
    assert {one.settings["hostname"] for one in found} == {one.hostname for one in found}
    # Two of them, and the defaults.
    assert count.read_text().count("run") == 3


@needs_ssh
async def test_where_a_program_decides_ssh_is_asked_about_each(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Match exec true\n  Port 2200\n")
    resolver = Resolver(config)
    count = counting(tmp_path, resolver)
    await asyncio.gather(*(resolver.resolve(f"n{number}") for number in range(5)))
    await resolver.close()
    assert count.read_text().count("run") == 6


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
async def test_a_broken_configuration_is_told_to_everybody(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  Frobnicate yes\n")
    resolver = Resolver(config)
    found = await asyncio.gather(*(resolver.resolve(f"n{number}") for number in range(4)), return_exceptions=True)
    await resolver.close()
    assert [type(error) for error in found] == [ConfigBroken] * 4
    assert all("line 2" in str(error) and "debug1" not in str(error) for error in found)


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


def test_files_that_ssh_read() -> None:
    said = (
        "OpenSSH_9.2p1\ndebug1: Reading configuration data /a b\ndebug1: /a b line 3: Applying options for *\n"
        "debug1: Reading configuration data /c\ndebug1: Reading configuration data /a b\n"
    )
    assert files_read(said) == [Path("/a b"), Path("/c")]
    assert files_read("OpenSSH_9.2p1\n") == []
    assert files_read("debug1: Reading configuration data /a\n") is None
    assert files_read("") is None


def test_files_that_cannot_be_read_tell_nothing(tmp_path: Path) -> None:
    assert read_patterns([]) == Patterns()
    assert read_patterns([tmp_path / "missing"]) is None
    latin = tmp_path / "latin"
    latin.write_bytes(b"Host \xe4\n")
    assert read_patterns([latin]) is None


@pytest.mark.parametrize(
    "line",
    [
        "Match exec x",
        "Match localnetwork 10.0.0.0/8",
        "Match host",
        'Match host "a b"',
        "Match\tfrobnicate",
        "Host a\\ b",
        '"Host" a',
        "Include /etc/%h",
        "CanonicalizeHostname always",
    ],
)
def test_lines_that_are_not_understood_end_it(tmp_path: Path, line: str) -> None:
    config = tmp_path / "config"
    config.write_text(f"{line}\n  Port 2\n")
    assert read_patterns([config]) is None


def test_patterns_are_those_of_ssh(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host n? !n[12] *.x\n  Port 2\n# Host q*\nMatch host Q*,r\n")
    patterns = read_patterns([config])
    assert patterns is not None
    assert patterns.written == {"n[12]", "r"}
    fits = {name: patterns.fitting(name) for name in ("n1", "n2", "n12", "n1.x", "q7", "r", "n1\n", "N1", "")}
    assert fits["n1"] == fits["n2"]
    assert len({fits["n1"], fits["n12"], fits["n1.x"], fits["q7"]}) == 4
    assert fits["r"] is fits["n1\n"] is fits["N1"] is fits[""] is None


def test_a_name_within_its_host_name_must_be_there_once() -> None:
    def hostname(before: str, name: str) -> str | None:
        found = named(Resolved("aa", before, "me"), name)
        return found.hostname if found is not None else None

    assert hostname("aa", "b") == "b"
    assert hostname("x-aa.y", "b") == "x-b.y"
    assert hostname("10.0.0.1", "b") == "10.0.0.1"
    assert hostname("aaa", "b") is None
    assert hostname("aa.aa", "b") is None
