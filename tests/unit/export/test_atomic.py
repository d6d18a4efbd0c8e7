import os
import stat
from pathlib import Path
from typing import BinaryIO

import pytest

from fabtui.atomic_write import check_writable, write_atomically
from fabtui.errors import InputError


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_new_file_is_readable_by_the_user_alone_and_an_old_one_keeps_its_mode(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "x"
    before = os.umask(umask)
    try:
        write_atomically(path, lambda file: file.write(b"new"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for mode in (0o400, 0o640, 0o644):
            path.chmod(mode)
            write_atomically(path, lambda file: file.write(b"newer"))
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(before)
    assert path.read_bytes() == b"newer"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give links away")
def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_bytes(b"precious")
    link.symlink_to(victim)
    os.lchown(link, 65534, -1)
    for path in (link, tmp_path / "mine"):
        if path != link:
            path.symlink_to(link)
        with pytest.raises(OSError, match="link of another user"):
            write_atomically(path, lambda file: file.write(b"new"))
        with pytest.raises(InputError, match="link of another user"):
            check_writable(path, "--csv")
    assert victim.read_bytes() == b"precious"
    assert len(list(tmp_path.iterdir())) == 3


def test_when_writing_fails_the_old_file_stays_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def write(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, write)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def write(file: BinaryIO) -> None:
        file.write(b"ne")
        file.flush()
        assert path.read_bytes() == b"old"
        file.write(b"w")

    write_atomically(path, write)
    assert path.read_bytes() == b"new"


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    check_writable(link, "--csv")
    write_atomically(link, lambda file: file.write(b"new"))
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.atomic_write.os.urandom", lambda count: b"\0" * count)
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f".x.{'00' * 6}.fabtui-tmp").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "x", lambda file: file.write(b"new"))
    assert victim.read_bytes() == b"precious"


def test_the_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "x", "--csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["nowhere/x", "x" * 300, "", "."])
def test_the_check_reports_what_cannot_be_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="--csv"):
        check_writable(tmp_path / name if name != "" else Path(), "--csv")
