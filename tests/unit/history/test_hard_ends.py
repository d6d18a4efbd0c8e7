"""Writers of a history that are killed, that write at once, or that run out of disk: the file stays whole."""

import asyncio
import contextlib
import itertools
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.history.file import HistoryWriter
from fabtui.importers.session import replayed
from fabtui.paths import shipped_recordings_folder
from fabtui.session.conclusions import Conclusions
from tests.past import SESSIONS, entry, open_history

pytestmark = pytest.mark.slow

#: Adds sessions one by one, and prints the number of each that is in the file.
_WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from fabtui.history.file import HistoryWriter
from tests.past import SESSIONS, entry, open_history
writer, first, most = HistoryWriter(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
for number in range(first, first + most):
    writer.add([replace(entry(number % 30), key=str(number))], patience=60)
    print(number, flush=True)
"""


def start_writer(path: Path, first: int, most: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", _WRITER, str(path), str(first), str(most)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def keys(path: Path) -> set[int]:
    with contextlib.closing(sqlite3.connect(path)) as base:
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert base.execute("PRAGMA foreign_key_check").fetchall() == []
        return {int(key) for (key,) in base.execute("SELECT key FROM session")}


def test_a_writer_that_is_killed_leaves_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "history" / "site.sqlite"
    for first, wait in ((0, 3), (100_000, 40)):
        writer = start_writer(path, first, 100_000)
        assert writer.stdout is not None
        written = {int(writer.stdout.readline()) for _ in range(wait)}
        writer.kill()
        writer.communicate(timeout=30)
        assert written <= keys(path)


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "history" / "site.sqlite"
    writers = [start_writer(path, first, 15) for first in (0, 100)]
    assert [(writer.communicate(timeout=60)[1], writer.returncode) for writer in writers] == [("", 0)] * 2
    assert keys(path) == {*range(15), *range(100, 115)}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    words = ["mount", "-t", "tmpfs", "-o", "size=400k,mode=700", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small disk, and not in every container")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill(path: Path) -> None:
    for number in itertools.count():
        HistoryWriter(path).add([replace(entry(number % SESSIONS), key=str(number))])


def test_a_full_disk_disturbs_no_session(small_disk: Path) -> None:
    path = small_disk / "history" / "site.sqlite"
    with pytest.raises(InputError, match=r"is not written: (its disk|database or disk) is full"):
        fill(path)
    known = keys(path)
    ballast = small_disk / "ballast"
    with contextlib.suppress(OSError):
        ballast.write_bytes(bytes(400 << 10))
    model, _ = replayed(shipped_recordings_folder() / "h200x4-lab-2x2.jsonl.gz")
    found, conclusions = diagnose(model), Conclusions(model, path)
    assert "is not written: its disk is full" in asyncio.run(conclusions.remember(found, None))
    ballast.unlink()
    assert keys(path) == known
    with open_history(path) as past:
        assert past.count() == len(known)
