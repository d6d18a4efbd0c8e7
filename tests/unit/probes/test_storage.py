"""Probe ``storage``: which files are read, how much of them, and how the result reports the way."""

import errno
import mmap
import os
import time
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.probes import storage

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /scratch rw - lustre 10.0.0.1@o2ib:/scratch rw
31 22 0:41 / /scratch/my\\040data rw - nfs4 server:/export rw
broken line
"""


def run(path: Path, **more: Any) -> dict[str, Any]:
    args = {"path": str(path), "bytes": 1 << 30, "seconds": 5.0, **more}
    return storage.run(args, lambda value: None, 20.0)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_file_is_read_once_from_any_place_on(tmp_path: Path, share: float) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(2 * storage.BLOCK + 12345))
    before = path.stat()
    value = run(path, share=share)
    assert value["bytes"] >= before.st_size
    assert value["bytes"] < before.st_size + storage.BLOCK
    assert value["file_bytes"] == before.st_size
    assert value["mb_s"] > 0
    assert value["how"] in ("O_DIRECT", "page cache: no O_DIRECT here")
    after = path.stat()
    assert (after.st_mtime_ns, after.st_atime_ns, after.st_ctime_ns) == (
        before.st_mtime_ns,
        before.st_atime_ns,
        before.st_ctime_ns,
    )


def test_bytes_and_time_are_limits(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * storage.BLOCK))
    assert run(path, bytes=storage.BLOCK)["bytes"] == storage.BLOCK
    fd = os.open(path, os.O_RDONLY)
    with mmap.mmap(-1, storage.BLOCK) as buffer:
        assert storage.read(fd, buffer, 3 * storage.BLOCK, 0, 1 << 30, time.monotonic() - 1) == 0
        # The file is shorter than it was.
        assert storage.read(fd, buffer, 9 * storage.BLOCK, 0, 1 << 40, time.monotonic() + 60) == 3 * storage.BLOCK
    os.close(fd)


def test_without_direct_reads_the_result_reports_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1000))
    real = os.open

    def refuse(path: Any, flags: int, *more: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", refuse)
    value = run(path)
    assert (value["how"], value["bytes"]) == ("page cache: no O_DIRECT here", 1000)
    (note,) = storage.judge(value)
    assert note["verdict"] == "note"
    assert "caches on the way may hold" in note["text"]
    assert storage.judge({**value, "file_bytes": 1 << 40}) == []


def test_nothing_but_regular_files_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo, link, empty = tmp_path / "fifo", tmp_path / "link", tmp_path / "empty"
    os.mkfifo(fifo)
    link.symlink_to("/dev/null")
    empty.touch()
    with pytest.raises(ValueError, match="is empty"):
        run(empty)
    monkeypatch.setattr(os, "open", lambda *args: pytest.fail("opened"))
    for path, what in ((fifo, "a FIFO"), (link, "a character device")):
        with pytest.raises(ValueError, match=f"is {what}; only regular files are read"):
            run(path)
    with pytest.raises(FileNotFoundError):
        run(tmp_path / "missing")


def test_the_file_system_is_that_of_the_longest_mount_point() -> None:
    assert storage.filesystem_of("/scratch/a", MOUNTS) == "lustre 10.0.0.1@o2ib:/scratch"
    assert storage.filesystem_of("/scratch/my data/a", MOUNTS) == "nfs4 server:/export"
    assert storage.filesystem_of("/scratchy", MOUNTS) == "ext4 /dev/sda1"
    assert storage.filesystem_of("/a", "") is None


def test_small_files_of_a_folder_are_read_and_nothing_is_written(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number % 4}").mkdir(exist_ok=True)
        (tmp_path / f"{number % 4}" / f"{number}.bin").write_bytes(b"x" * 4096)
    (tmp_path / "link").symlink_to("/dev/zero")
    before = sorted(path.as_posix() for path in tmp_path.rglob("*"))
    value = storage.run({"path": str(tmp_path), "bytes": 1 << 30, "seconds": 0.2, "share": 0.5}, None, 5.0)
    assert value["files"] == 40
    assert value["ops_s"] > 10
    assert value["bytes"] % 4096 == 0
    assert value["how"] == "small files at random"
    assert sorted(path.as_posix() for path in tmp_path.rglob("*")) == before
    with pytest.raises(ValueError, match="has 10 small files; 16 are needed"):
        storage.run({"path": str(tmp_path / "1"), "bytes": 1 << 30, "seconds": 0.2}, None, 5.0)
