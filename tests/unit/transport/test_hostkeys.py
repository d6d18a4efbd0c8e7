import fcntl
import os
import stat
from pathlib import Path
from shlex import quote

import asyncssh
import pytest

from fabtui.transport.known_hosts import (
    HostKeys,
    append,
    entry,
    load_file,
    lookup_name,
    match,
    refusal,
)
from fabtui.transport.ssh_config import SshSettings, Strict, policy_for

OLD, NEW, RSA = (asyncssh.generate_private_key(kind) for kind in ("ssh-ed25519", "ssh-ed25519", "ecdsa-sha2-nistp256"))


def resolved(*files: Path, port: int = 22, alias: str | None = None, hashed: bool = False) -> SshSettings:
    return SshSettings(
        "n1",
        "Node.example",
        "me",
        port,
        user_known_hosts=tuple(str(file) for file in files),
        host_key_alias=alias,
        hash_known_hosts=hashed,
    )


def write(path: Path, *entries: tuple[str, asyncssh.SSHKey], raw: bytes = b"") -> Path:
    path.write_bytes(raw + b"".join(entry(name, key, False) for name, key in entries))
    return path


@pytest.mark.parametrize(
    ("option", "strict", "policy"),
    [
        ("config", "yes", "strict"),
        ("config", "ask", "strict"),
        ("config", "accept-new", "accept-new"),
        ("config", "no", "accept-new"),
        ("strict", "no", "strict"),
        ("accept-new", "yes", "accept-new"),
        ("off", "yes", "off"),
    ],
)
def test_policies(option: str, strict: Strict, policy: str) -> None:
    assert policy_for(option, SshSettings("n1", "n1", "me", strict=strict)) == policy  # type: ignore[arg-type]


def test_names() -> None:
    assert lookup_name(resolved()) == "node.example"
    assert lookup_name(resolved(port=2222)) == "[node.example]:2222"
    assert lookup_name(resolved(port=2222, alias="Alias")) == "alias"


def test_a_port_falls_back_to_the_name_without_one_but_proves_no_change(tmp_path: Path) -> None:
    files = [("f", load_file(str(write(tmp_path / "f", ("node.example", OLD)))))]
    present = [(path, file) for path, file in files if file is not None]
    known = match(present, "[node.example]:2222", "node.example")
    assert known.keys == []
    assert [key for key, _ in known.elsewhere] == [OLD.convert_to_public()]
    assert refusal(resolved(port=2222), known, NEW, False).kind == "unknown-host-key"
    assert match(present, "node.example", "node.example").keys != []


async def test_lines_that_are_none_are_passed_over_and_missing_files_too(tmp_path: Path) -> None:
    raw = b"# comment\n\nnonsense\n@odd node.example ssh-ed25519 AAAA\nnode.example ssh-ed25519 !!!\n\xff\xfe x y\n"
    file = write(tmp_path / "f", ("node.example", OLD), raw=raw)
    notices: list[str] = []
    keys = HostKeys(notices.append)
    known = await keys.known(resolved(tmp_path / "missing", file))
    assert [(key, path) for key, path in known.keys] == [(OLD.convert_to_public(), str(file))]
    assert notices == []
    await keys.known(resolved(tmp_path))
    assert len(notices) == 1
    assert str(tmp_path) in notices[0]
    keys.close()


@pytest.mark.parametrize("hashed", [False, True])
async def test_a_key_is_remembered_in_the_first_file(tmp_path: Path, hashed: bool) -> None:
    first, second = tmp_path / "new" / "known_hosts", write(tmp_path / "f")
    host = resolved(first, second, port=2222, hashed=hashed)
    keys = HostKeys(lambda text: None)
    await keys.remember(host, NEW.convert_to_public())
    await keys.remember(host, NEW.convert_to_public())
    assert (await keys.known(host)).trusted() == [NEW.convert_to_public()]
    lines = first.read_text().splitlines()
    assert len(lines) == 1
    assert ("node.example" not in lines[0]) == hashed
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    assert second.read_text() == ""
    again = HostKeys(lambda text: None)
    assert (await again.known(host)).trusted() == [NEW.convert_to_public()]
    for each in (keys, again):
        each.close()


async def test_a_key_that_cannot_be_written_is_reported_and_known_for_now(tmp_path: Path) -> None:
    notices: list[str] = []
    keys = HostKeys(notices.append)
    host = resolved(write(tmp_path / "f") / "below")
    await keys.remember(host, NEW.convert_to_public())
    assert "is not written" in notices[-1]
    assert (await keys.known(host)).trusted() == [NEW.convert_to_public()]
    notices.clear()
    null = resolved(Path(os.devnull), alias="other")
    await keys.remember(null, NEW.convert_to_public())
    assert notices == []
    keys.close()


def test_append_begins_a_line_and_waits_for_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_text("without an end")
    append(path, b"line\n")
    assert path.read_text() == "without an end\nline\n"
    monkeypatch.setattr("fabtui.transport.known_hosts._LOCK_PATIENCE", 0.1)
    with path.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError):
            append(path, b"more\n")
    assert path.read_text() == "without an end\nline\n"


async def test_refusals_have_different_words(tmp_path: Path) -> None:
    file = write(tmp_path / "f", ("node.example", OLD), ("node.example", RSA))
    keys = HostKeys(lambda text: None)
    known = await keys.known(resolved(file))
    changed = refusal(resolved(file), known, NEW, False)
    assert changed.kind == "changed-host-key"
    assert NEW.get_fingerprint() in changed.text
    assert OLD.get_fingerprint() in changed.text
    assert changed.hint is not None
    assert f"ssh-keygen -R node.example -f {quote(str(file))}" in changed.hint
    stranger = resolved(tmp_path / "g")
    unknown = refusal(stranger, await keys.known(stranger), NEW, False)
    assert unknown.kind == "unknown-host-key"
    assert NEW.get_fingerprint() in unknown.text
    assert unknown.hint is not None
    assert "ssh-keyscan Node.example" in unknown.hint
    assert refusal(stranger, known, NEW, True).kind == "revoked-host-key"
    keys.close()


async def test_a_file_that_is_mended_is_read_again(tmp_path: Path) -> None:
    file = write(tmp_path / "f", ("node.example", OLD))
    keys = HostKeys(lambda text: None)
    host = resolved(file)
    assert (await keys.known(host)).trusted() == [OLD.convert_to_public()]
    write(file, ("node.example", NEW), ("other", OLD))
    assert (await keys.known(host)).trusted() == [NEW.convert_to_public()]
    file.unlink()
    assert (await keys.known(host)).trusted() == []
    keys.close()


async def test_what_we_append_ourselves_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "f", ("node.example", OLD))
    keys = HostKeys(lambda text: None)
    await keys.known(resolved(file))
    reads: list[str] = []
    monkeypatch.setattr("fabtui.transport.known_hosts.load_file", lambda path: reads.append(path))
    first, second = resolved(file, port=2), resolved(file, port=3)
    await keys.remember(first, NEW.convert_to_public())
    await keys.remember(second, RSA.convert_to_public())
    assert reads == []
    assert (await keys.known(first)).keys[0][0] == NEW.convert_to_public()
    assert (await keys.known(second)).keys[0][0] == RSA.convert_to_public()
    assert len(file.read_text().splitlines()) == 3
    keys.close()


async def test_many_hashed_names(tmp_path: Path) -> None:
    file = tmp_path / "f"
    key = OLD.convert_to_public()
    lines = [entry(f"h{number}", key, True) for number in range(2000)]
    file.write_bytes(b"".join([*lines, entry("node.example", key, True)]))
    keys = HostKeys(lambda text: None)
    assert (await keys.known(resolved(file))).trusted() == [key]
    keys.close()
