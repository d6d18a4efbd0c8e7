from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from fabtui_node.runtime.streams import CUT, LONGEST_LINE, TAIL, LineLimit, LogPipe


@pytest.fixture
def ends() -> Iterator[tuple[LogPipe, int]]:
    listen, write = os.pipe()
    pipe = LogPipe(listen)
    yield pipe, write
    pipe.close()


def test_lines_come_whole(ends: tuple[LogPipe, int]) -> None:
    pipe, write = ends
    os.write(write, b"one\ntw")
    pipe.read()
    assert pipe.lines() == ["one"]
    os.write(write, b"o\r\nthree")
    pipe.read()
    assert pipe.lines() == ["two"]
    assert pipe.lines(rest=True) == ["three"]
    assert pipe.read() == 0
    assert pipe.open
    os.close(write)
    pipe.read()
    assert not pipe.open


def test_long_lines_are_cut_and_the_next_is_whole(ends: tuple[LogPipe, int]) -> None:
    pipe, write = ends
    for _ in range(5):
        os.write(write, b"x" * 10000)
        pipe.read()
        assert pipe.lines() == []
    os.write(write, b"\nnext\n")
    pipe.read()
    cut, following = pipe.lines()
    assert following == "next"
    assert len(cut) == LONGEST_LINE
    assert cut.endswith(CUT)
    os.close(write)


def test_tail_is_the_end_of_what_was_printed(ends: tuple[LogPipe, int]) -> None:
    pipe, write = ends
    os.write(write, b"a" * 5000 + b"\xff the end")
    while pipe.read():
        pass
    assert pipe.tail().endswith("a\\xff the end")
    assert len(pipe.tail()) == TAIL
    os.close(write)


def test_limit_admits_so_many_a_second_and_counts_the_rest() -> None:
    limit = LineLimit(3)
    assert limit.note(10.0) is None
    assert [limit.admit() for _ in range(5)] == [True, True, True, False, False]
    assert limit.note(10.9) is None
    note = limit.note(11.0)
    assert note is not None
    assert "2 more lines" in note
    assert limit.admit()
    assert limit.note(12.5) is None
