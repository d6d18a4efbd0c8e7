"""Sources of texts: files, packed files, folders, pipes and standard input, none of them trusted."""

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import threading
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fabtui.errors import InputError
from fabtui.importers import sources as packed_files
from fabtui.importers import sources as source
from fabtui.importers.sources import sources


def texts(*names: object) -> dict[str, str]:
    return {Path(found.name).name: found.text for found in sources([str(name) for name in names])}


def test_a_file_and_a_packed_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert texts(tmp_path / "a.txt", tmp_path / "b.gz") == {"a.txt": "hello\n", "b.gz": "one\ntwo\n"}


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return made.getvalue()


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "zip": lambda data: zipped({"log": data}),
    "zip, stored": lambda data: zipped({"log": data}, zipfile.ZIP_STORED),
    "zip, lzma": lambda data: zipped({"log": data}, zipfile.ZIP_LZMA),
    "gzip in zip": lambda data: zipped({"log.gz": gzip.compress(data)}),
}


@pytest.mark.parametrize("form", PACK)
def test_packed_files_by_their_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """The name does not matter; pipes and standard input are unpacked as well."""
    data = b"".join(b"%d mlx5_0 port 1\n" % line for line in range(20_000))
    packed = PACK[form](data)
    (tmp_path / "log.txt").write_bytes(packed)
    (found,) = sources([str(tmp_path / "log.txt")])
    assert (found.text, found.cut) == (data.decode(), None)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed)))
    (found,) = sources(["-"])
    assert found.text == data.decode()


@pytest.mark.parametrize("form", PACK.keys() - {"zip, stored"})
def test_no_packed_file_grows_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(packed_files, "MOST_BYTES", 1 << 20)
    (tmp_path / "bomb").write_bytes(PACK[form](b"0" * (4 << 20)))
    (found,) = sources([str(tmp_path / "bomb")])
    assert len(found.text) == 1 << 20
    assert found.cut == "only the first 1 MiB were read"


@pytest.mark.slow
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_of_an_archive_takes_no_more_memory_than_is_read_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: int
) -> None:
    """bzip2 and LZMA unpack all at once unless the unpacker is given a limit."""
    monkeypatch.setattr(packed_files, "MOST_BYTES", 1 << 20)
    (tmp_path / "bomb.zip").write_bytes(zipped({"log": bytes(48 << 20)}, method))
    tracemalloc.start()
    try:
        (found,) = sources([str(tmp_path / "bomb.zip")])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(found.text), found.cut) == (1 << 20, "only the first 1 MiB were read")
    assert peak < 16 << 20


def test_members_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs.zip").write_bytes(zipped({"logs/a.log": b"one\n", "logs/b.log": b"two\n", "c.zip": zipped({})}))
    found = [(Path(one.name).name, one.text, one.cut) for one in sources([str(tmp_path / "logs.zip")])]
    again = "a packed file in an archive: unpack it first"
    assert found == [("a.log", "one\n", None), ("b.log", "two\n", None), ("c.zip", "", again)]
    monkeypatch.setattr(packed_files, "MOST_BYTES", 1 << 20)
    (tmp_path / "bombs.zip").write_bytes(zipped({str(number): b"0" * (900 << 10) for number in range(9)}))
    assert sum(len(one.text) for one in sources([str(tmp_path / "bombs.zip")])) == 1 << 20


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"\x28\xb5\x2f\xfd\x04\x58\x00\x00",
            "compressed with zstd; fabtui reads gzip, xz, bzip2, zip and plain text: zstd -dc FILE | fabtui explain -",
        ),
        (b"\x04\x22\x4d\x18\x64\x40", "compressed with lz4; .*: lz4 -dc FILE"),
        (b"7z\xbc\xaf\x27\x1c\x00\x04", "compressed with 7-Zip; .*: 7z x -so FILE"),
        (zipped({"a": b"hello\n"})[:40], "a zip archive that cannot be read"),
    ],
)
def test_packed_files_that_cannot_be_read(tmp_path: Path, data: bytes, message: str) -> None:
    """One line names the format and the command; never binary text."""
    (tmp_path / "log").write_bytes(data)
    with pytest.raises(InputError, match=message):
        texts(tmp_path / "log")


@pytest.mark.parametrize("form", ["xz", "bzip2"])
def test_a_cut_or_damaged_stream(tmp_path: Path, form: str) -> None:
    data = PACK[form](os.urandom(100_000).hex().encode())
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    (tmp_path / "damaged").write_bytes(data[:2000] + b"\xff" * 400 + data[2400:])
    (tmp_path / "text").write_bytes(b"BZh is not a packed file\n")
    cut, damaged, text = sources([str(tmp_path / name) for name in ("cut", "damaged", "text")])
    assert (cut.cut, damaged.cut) == ("the packed file is cut off", "the packed file is damaged")
    assert text.text == "BZh is not a packed file\n"


def test_a_packed_file_that_was_cut(tmp_path: Path) -> None:
    packed = gzip.compress(b"line\n" * 10_000)
    (tmp_path / "a.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "b.gz").write_bytes(packed[:30] + b"\xff" * 40 + packed[30:])
    cut, damaged = sources([str(tmp_path / "a.gz"), str(tmp_path / "b.gz")])
    assert cut.text.startswith("line\n")
    assert damaged.cut == "the packed file is damaged"


def test_no_more_than_the_most_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_files, "MOST_BYTES", 1 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"0" * (64 << 20), 1))
    (tmp_path / "big").write_bytes(b"0" * (2 << 20))
    for found in sources([str(tmp_path / "bomb.gz"), str(tmp_path / "big")]):
        assert len(found.text) == 1 << 20
        assert found.cut == "only the first 1 MiB were read"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wide", "lines", "json"])
@pytest.mark.timeout(300)
def test_a_text_of_64_mib_takes_at_most_400_mib(tmp_path: Path, kind: str) -> None:
    warning = b"n0:12:34 [0] NCCL WARN Call to ibv_modify_qp failed with error Connection timed out\n"
    head, part, end = {
        "wide": (
            warning,
            b"n0:12:34 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n",
            "\U0001f600\n".encode(),
        ),
        "lines": (warning, b"ab\n", b""),
        "json": (b'{\n "software": "fabtui 0.2.0",\n "format": 3,\n "measurements": [\n', b'{"a":1},', b"{}]}\n"),
    }[kind]
    path = tmp_path / "text"
    path.write_bytes(head + part * (((64 << 20) - len(head + end)) // len(part)) + end)
    program = (
        # The most that getrusage names may be of the process that forked it.
        "import sys; from fabtui.cli.main import main; main(sys.argv[1:]);"
        "most = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'));"
        "print(int(most.split()[1]) >> 10)"
    )
    done = subprocess.run([sys.executable, "-c", program, "read", path], capture_output=True, text=True, check=True)
    assert int(done.stdout.splitlines()[-1]) <= 400, done.stdout[-300:]


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
    with pytest.raises(InputError, match="no files in it"):
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
