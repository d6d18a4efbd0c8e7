from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

import pytest

from fabtui.errors import InputError
from fabtui.export.atomic_write import check_writable, write_atomically


def test_a_file_is_written_with_the_permissions_of_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "x"
    before = os.umask(0o027)
    try:
        write_atomically(path, lambda file: file.write(b"new"))
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


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
    monkeypatch.setattr("fabtui.export.atomic_write.os.urandom", lambda count: b"\0" * count)
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
