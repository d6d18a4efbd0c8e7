"""Pickles of plain values are read, and no code in a pickle is ever run."""

import asyncio
import base64
import json
import os
import pickle
import signal
import zlib
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.diagnosis.job import plain_pickle
from fabtui.diagnosis.job.plain_pickle import NotPlain, is_pickle, json_of, read_plain
from fabtui.importers.sources import sources
from fabtui.session.running_job import inquiry
from fabtui.session.running_job.inquiry import Reply, taken_from

from ..probes.places import SAMPLES

DUMPS = sorted((SAMPLES / "ras").glob("*.pickle"))

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats(allow_nan=False) | st.text(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(value=plain, protocol=st.sampled_from([2, 3, 4, 5]))
def test_plain_values(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    assert is_pickle(data)
    assert read_plain(data) == value


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.name)
def test_recorded_dumps(path: Path) -> None:
    # Our own files: what pickle makes of them is the reference.
    assert read_plain(path.read_bytes()) == pickle.loads(path.read_bytes())


class Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {quote(str(self.path))}",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_is_run(protocol: int, tmp_path: Path) -> None:
    data = pickle.dumps({"version": "2.10", "entries": [Runs(tmp_path / "ran")]}, protocol)
    with pytest.raises(NotPlain, match=r"more than plain values \(opcode \w*GLOBAL at byte \d+\); it is not run"):
        read_plain(data)
    assert list(tmp_path.iterdir()) == []
    # The same bytes, loaded by pickle, do run: the test is able to fail.
    pickle.loads(data)
    assert [path.name for path in tmp_path.iterdir()] == ["ran"]


@pytest.mark.parametrize("value", [{1}, b"x", bytearray(b"x"), 1j, print, Path, range(3), frozenset()])
def test_other_values_are_refused(value: object) -> None:
    for protocol in (2, 3, 4, 5):
        with pytest.raises(NotPlain):
            read_plain(pickle.dumps(value, protocol))


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    itself: list[Any] = []
    itself.append(itself)
    for value in (itself, nested(40)):
        with pytest.raises(NotPlain, match="nested more than 32 deep"):
            read_plain(pickle.dumps(value))
    doubled: Any = ["x"]
    for _ in range(25):
        doubled = [doubled, doubled]
    monkeypatch.setattr(plain_pickle, "MOST_VALUES", 10_000)
    with pytest.raises(NotPlain, match="more than 10000 values"):
        read_plain(pickle.dumps(doubled))


#: A tuple that contains itself twice, and this sixty times over, as a key: 2^60 hashes, which no signal interrupts.
HASHED_FOR_EVER = b"\x80\x02}K\x01\x85" + b"q\x00h\x00\x86" * 60 + b"K\x01s."
DEEP = b"\x80\x02" + b"]" * 99 + b"a" * 98 + b"."


def test_keys_are_refused_before_they_are_hashed() -> None:
    with pytest.raises(NotPlain, match="damaged"):
        read_plain(HASHED_FOR_EVER)
    for key in (1.5, None):
        with pytest.raises(NotPlain):
            read_plain(pickle.dumps({key: 1}))
    # A table with integers that have one hash takes quadratic time.
    alike = [number * ((1 << 61) - 1) for number in range(1, 1002)]
    assert read_plain(pickle.dumps(dict.fromkeys(alike[:1000], 1))) == dict.fromkeys(alike[:1000], 1)
    with pytest.raises(NotPlain, match="more than 1000 keys"):
        read_plain(pickle.dumps(dict.fromkeys(alike, 1)))


def test_values_are_counted_while_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_pickle, "MOST_STEPS", 1000)
    reader = plain_pickle._Reader(b"\x80\x02(" + b"}" * 5000 + b"l.")
    with pytest.raises(NotPlain, match="more than 1000 steps"):
        reader.value()
    assert len(reader._stack) < 1001
    monkeypatch.undo()
    text = b"X" + (1 << 20).to_bytes(4, "little") + b"x" * (1 << 20) + b"q\x00"
    with pytest.raises(NotPlain, match="more than 128 MiB of text"):
        read_plain(b"\x80\x02](" + text + b"h\x00" * 200 + b"e.")


def test_a_child_process_reads_files(tmp_path: Path) -> None:
    file = tmp_path / "job_0"
    file.write_bytes(raw := DUMPS[0].read_bytes())
    [source] = sources([str(file)])
    assert json.loads(source.text) == json.loads(json.dumps(pickle.loads(raw)))
    file.write_bytes(HASHED_FOR_EVER)
    [source] = sources([str(file)])
    assert (source.text, source.cut) == ("", "the pickle is damaged before byte 309")
    # What the limit of CPU time does.
    with pytest.raises(NotPlain, match="not read within 20 s of CPU time"):
        json_of(b"", -signal.SIGXCPU)


async def test_the_event_loop_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiry, "READER", ("sleep", "60"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await inquiry._json_of_pickle(DUMPS[0].read_bytes())


async def test_dumps_of_a_lying_node() -> None:
    def part(rank: int, data: bytes) -> dict[str, Any]:
        return {"rank": rank, "text": base64.b64encode(zlib.compress(data)).decode("ascii")}

    parts = [part(rank, data) for rank, data in enumerate([HASHED_FOR_EVER, DEEP, DUMPS[0].read_bytes()])]
    parts += [{"rank": 3, "text": "\u00e9"}, {"rank": 4, "text": "=A"}]
    rows = [{"rank": rank, "pid": 10 + rank} for rank in range(5)]
    taken = await taken_from([Reply("n1", {"ranks": rows}, parts)])
    assert list(taken.dumps) == [2]
    assert [problem.split(":")[0] for problem in taken.problems] == [f"rank {rank} on n1" for rank in (0, 1, 3, 4)]
    assert "nested more than 32 deep" in taken.problems[1]


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02",
        b"\x80\x02.",
        b"\x80\x02}]s.",
        b"\x80\x02h\x05.",
        b"\x80\x02X\xff\xff\xff\xff.",
        b"\x80\x04\x8d" + b"\xff" * 8,
        b"\x80\x02N(u.",
        b"\x80\x02e.",
        b"\x80\x02\x8a\xff" + b"\x01" * 255 + b".",
        b"\x80\x02r\xff\xff\xff\xff.",
        b"\x80\x02]}]s.",
        b"\x80\x02\x82\x01.",
    ],
)
def test_damaged_pickles(data: bytes) -> None:
    with pytest.raises(NotPlain):
        read_plain(data)


def test_text_is_no_pickle() -> None:
    assert not is_pickle(b"")
    assert not is_pickle(b"\x80\x02")
    assert not is_pickle("\u20ac".encode())
    assert not is_pickle(b"(dp0\n.")
