"""Pickles of plain values are read, and no code in a pickle is ever run."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.diagnosis.running_job import plain_pickle
from fabtui.diagnosis.running_job.flight_recorder import flight_dump
from fabtui.diagnosis.running_job.plain_pickle import NotPlain, is_pickle, read_plain

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
    """A value whose pickle runs a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


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


@pytest.mark.fuzz
def test_mutations_of_dumps() -> None:
    """A damaged dump is refused, or is a value that the reader of dumps takes as it is."""
    chance = random.Random(7)
    raw = (SAMPLES / "ras/live-fr_1.pickle").read_bytes()
    refused = 0
    for _ in range(200):
        # The names are at the beginning; later entries repeat them.
        data = bytearray(raw)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(2, 1500)] = chance.randrange(256)
        try:
            flight_dump(read_plain(bytes(data)))
        except NotPlain:
            refused += 1
    assert 20 < refused < 200


def test_text_is_no_pickle() -> None:
    assert not is_pickle(b"")
    assert not is_pickle(b"\x80\x02")
    assert not is_pickle("\u20ac".encode())
    assert not is_pickle(b"(dp0\n.")
