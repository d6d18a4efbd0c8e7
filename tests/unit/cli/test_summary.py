from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fabtui.cli.matrix import matrix
from fabtui.cli.summary import summary

Maker = Callable[[], Any]
NAMES = ["n0:0", "n0:1", "n1:0", "n1:1"]


def whole(make_model: Maker) -> Any:
    maker = make_model().start(["n0", "n1"]).endpoints({"n0": 2, "n1": 2}).pairs(NAMES)
    for src, dst in (("n0", "n1"), ("n1", "n0")):
        maker.measured("ping", src, dst, value=0.05, unit="ms", src_addr="10.0.0.1", dst_addr="10.0.0.2")
    for size in (1 << 16, 1 << 20):
        maker.measured("busbw", "all", "all", value=1.5, unit="GB/s", bytes=size)
    maker.measured("busbw", "n0", "n1", value=1.7, unit="GB/s", bytes=1 << 20)
    return maker.add("phase", name="done")


def test_a_good_session_reads_well(make_model: Maker) -> None:
    text = summary(whole(make_model).model())
    assert "2 nodes, 4 x CPU rank" in text
    assert "p2p, GB/s at 4 MiB; a row sends, a column receives" in text
    assert "ping: 2 of 2 address pairs answer, round trip 0.050 ms (median)" in text
    assert text.split("\n\n")[5].splitlines() == [
        "all_reduce",
        "  group  ranks    size  time us  algbw GB/s  busbw GB/s  wrong",
        "  all        -  64 KiB        -           -        1.50      -",
        "                 1 MiB        -           -        1.50      -",
        "  n0+n1      -   1 MiB        -           -        1.70      -",
    ]
    assert "same-node 2.00 GB/s" in text
    assert "not ok" not in text
    assert "not tested" not in text
    assert text.endswith("measured: 17 ok\n")


def test_the_grid_shows_each_pair_where_it_is(make_model: Maker) -> None:
    maker = whole(make_model)
    maker.measured("p2p", "n0:1", "n1:0", "failed", error="connect: refused", made=True, unit="GB/s")
    maker.measured("p2p", "n1:1", "n0:0", "timeout", error="no answer within 10 s", unit="GB/s")
    maker.measured("p2p", "n1:0", "n1:1", "ok", value=1.9, unit="GB/s", bytes=4 << 20)
    lines = matrix(maker.model(), ".")
    assert lines == [
        "       n0        n1",
        "          0    1    0    1",
        "  n0:0    . 2.00 2.00 2.00",
        "  n0:1 2.00    .    x 2.00",
        "  n1:0 2.00 2.00    . 1.90",
        "  n1:1    T 2.00 2.00    .",
        "  x failed   T timed out",
    ]


def test_a_slow_value_keeps_its_digits_in_line(make_model: Maker) -> None:
    names = [f"n0:{index}" for index in range(4)]
    maker = make_model().start(["n0"]).endpoints({"n0": 4}).pairs(names, value=100.0)
    maker.measured("p2p", "n0:1", "n0:2", value=20.0, unit="GB/s", bytes=4 << 20)
    lines = matrix(maker.model(), ".")
    assert lines == [
        "       n0",
        "          0     1     2     3",
        "  n0:0    .   100   100   100",
        "  n0:1  100     .  20.0!  100",
        "  n0:2  100   100     .   100",
        "  n0:3  100   100   100     .",
        "  ! slow",
    ]


def test_bad_pairs_are_listed_with_their_error(make_model: Maker) -> None:
    maker = whole(make_model)
    maker.measured("p2p", "n0:1", "n1:0", "failed", error="connect: refused", made=True, unit="GB/s")
    maker.measured("latency", "n0:1", "n1:0", "failed", error="connect: refused", unit="us")
    text = summary(maker.model(), plain=True)
    assert "not ok: 1\n  n0:1 > n1:0  p2p failed; cross-rail; connect: refused; made by the lab\n" in text


def test_what_could_not_be_tested_is_told_with_the_reason(make_model: Maker) -> None:
    maker = make_model().start(["n0", "n1"]).endpoints({"n0": 2, "n1": 0}).pairs(["n0:0", "n0:1"])
    maker.add("plan", layer="p2p", untested=[["n0:0", "n1:-", "n1 is down"], ["n1:-", "n0:0", "n1 is down"]])
    text = summary(maker.model())
    assert "not tested\n  n1: refused\n  2 pairs: n1 is down\n" in text
    assert "  n1  failed     refused" in text


def test_an_empty_session_is_told_as_such(make_model: Maker) -> None:
    text = summary(make_model().start(["n0"]).model())
    assert "no endpoints" in text
    assert "nothing was measured" in text
    assert "measured: nothing" in text


def test_a_large_grid_is_left_to_the_csv(make_model: Maker) -> None:
    names = [f"n0:{index}" for index in range(33)]
    maker = make_model().start(["n0"]).endpoints({"n0": 33}).measured("p2p", names[0], names[1], "failed", error="x")
    text = summary(maker.model())
    assert "33 x 33 cells, too many to print" in text
    assert max(map(len, text.splitlines())) < 120


def test_long_lists_are_cut_and_counted(make_model: Maker) -> None:
    names = [f"n0:{index}" for index in range(20)]
    maker = make_model().start(["n0"]).endpoints({"n0": 20})
    for dst in names[1:]:
        for src in names[:5]:
            if src != dst:
                maker.measured("p2p", src, dst, "timeout", error="no answer", unit="GB/s")
    text = summary(maker.model())
    assert "not ok: 91\n" in text
    assert "and 31 more rows" in text


@pytest.mark.parametrize("plain", [False, True])
def test_hostile_text_does_not_reach_the_terminal(make_model: Maker, plain: bool) -> None:
    evil = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202egnp\nsecond line"
    maker = whole(make_model)
    maker.measured("p2p", "n0:0", "n0:1", "failed", error=evil, unit="GB/s")
    maker.measured("ping", "n0", "n1", "failed", error=evil, src_addr=evil, dst_addr=evil)
    maker.add("node", node="n1", state="lost", text=evil, hint=evil)
    maker.add("look", node="n0", probe="ibstat", error=evil)
    maker.add("plan", layer="p2p", untested=[["n0:0", "n1:0", evil]])
    maker.add("start", version=evil, nodes=[], lab=evil, faults=[evil], options={})
    text = summary(maker.model(), plain=plain)
    assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}
    assert "\nsecond line" not in text
    assert not plain or text.isascii()
