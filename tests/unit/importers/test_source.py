"""Sources of texts: files, packed files, folders, pipes and standard input, none of them trusted."""

from __future__ import annotations

import gzip
import io
import os
import threading
from pathlib import Path

import pytest

from fabtui.errors import InputError
from fabtui.importers import sources as source
from fabtui.importers.sources import sources


def texts(*names: object) -> dict[str, str]:
    return {Path(found.name).name: found.text for found in sources([str(name) for name in names])}


def test_a_file_and_a_packed_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert texts(tmp_path / "a.txt", tmp_path / "b.gz") == {"a.txt": "hello\n", "b.gz": "one\ntwo\n"}


def test_a_packed_file_that_was_cut(tmp_path: Path) -> None:
    packed = gzip.compress(b"line\n" * 10_000)
    (tmp_path / "a.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "b.gz").write_bytes(packed[:30] + b"\xff" * 40 + packed[30:])
    cut, damaged = sources([str(tmp_path / "a.gz"), str(tmp_path / "b.gz")])
    assert cut.text.startswith("line\n")
    assert damaged.cut == "the packed file is damaged"


def test_no_more_than_the_most_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_BYTES", 1 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"0" * (64 << 20)))
    (tmp_path / "big").write_bytes(b"0" * (2 << 20))
    for found in sources([str(tmp_path / "bomb.gz"), str(tmp_path / "big")]):
        assert len(found.text) == 1 << 20
        assert found.cut == "only the first 1 MiB were read"


def test_text_of_other_encodings(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("PING \u00e4\n".encode("utf-16"))
    (tmp_path / "b").write_bytes(b"\xef\xbb\xbfname\n")
    (tmp_path / "c").write_bytes(b"caf\xe9 \x00\n")
    assert texts(tmp_path / "a", tmp_path / "b", tmp_path / "c") == {
        "a": "PING \u00e4\n",
        "b": "name\n",
        "c": "caf\ufffd \x00\n",
    }


def test_a_folder_gives_its_files(tmp_path: Path) -> None:
    for name in ("b.txt", "sub/a.txt", ".hidden", "sub/.git/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert texts(tmp_path) == {"b.txt": "b.txt", "a.txt": "sub/a.txt"}


def test_the_jobs_of_a_folder_are_one_text(tmp_path: Path) -> None:
    (tmp_path / "p2p-test-0-1-7.out").write_text("OK\n")
    (tmp_path / "p2p-test-0-1-7.err").write_text("bad\n")
    (tmp_path / "p2p-test-1-0-8.out").write_text("OK\n")
    (tmp_path / "notes.txt").write_text("x\n")
    found = {Path(one.name).name: one.text for one in sources([str(tmp_path)])}
    assert set(found) == {"notes.txt", tmp_path.name}
    assert found[tmp_path.name].count("==> p2p-test-") == 3
    (alone,) = sources([str(tmp_path / "p2p-test-0-1-7.out")])
    assert alone.text == "==> p2p-test-0-1-7.err <==\nbad\n\n==> p2p-test-0-1-7.out <==\nOK\n\n"


def test_a_pipe_of_the_shell(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("from a pipe\n",))
    writer.start()
    assert texts(tmp_path / "pipe") == {"pipe": "from a pipe\n"}
    writer.join()


def test_standard_input_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b"packed\n"))))
    assert texts("-") == {"-": "packed\n"}
    with pytest.raises(InputError, match="only once"):
        texts("-", "-")


@pytest.mark.parametrize("name", ["nothing", "a\x00b", "x" * 5000])
def test_what_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot read"):
        texts(tmp_path / name)


def test_an_empty_folder_and_a_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no file in it"):
        texts(tmp_path)
    monkeypatch.setattr(source, "MOST_FILES", 3)
    for number in range(5):
        (tmp_path / str(number)).write_text("")
    with pytest.raises(InputError, match="more than 3 files"):
        texts(tmp_path)


def test_only_the_name_of_a_file_counts(tmp_path: Path) -> None:
    """A folder that only looks like the jobs of a pair is read as it is."""
    (tmp_path / "p2p-test-0-x.out").write_text("hello\n")
    assert texts(tmp_path) == {"p2p-test-0-x.out": "hello\n"}
