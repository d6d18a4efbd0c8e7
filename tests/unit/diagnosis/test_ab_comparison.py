from collections.abc import Callable
from typing import Any

from fabtui.diagnosis.pairs.ab_comparison import compared
from fabtui.model.layers import Layer
from fabtui.report.collectives import comparison
from fabtui.report.text import text_lines

Maker = Callable[[], Any]
FIRST, SECOND = "NCCL_P2P_DISABLE=0", "NCCL_P2P_DISABLE=1"
SIZE = 256 << 20


def session(make_model: Maker) -> Any:
    """A node of three: 358 GB/s over P2P, 21 GB/s over SHM; an all_reduce of two sizes."""
    maker = make_model().start(["n0"]).endpoints({"n0": 3}).add("plan", arms=[FIRST, SECOND])
    names = [f"n0:{index}" for index in range(3)]
    for arm, value, transport in ((None, 358.0, "P2P/CUMEM"), (SECOND, 21.0, "SHM/direct")):
        more = {"arm": arm} if arm else {}
        for src in names:
            for dst in names:
                if src != dst:
                    maker.measured("p2p", src, dst, value=value, unit="GB/s", bytes=SIZE, transport=transport, **more)
        for size in (1 << 20, SIZE):
            maker.measured("busbw", "all", "all", value=value / 2, unit="GB/s", bytes=size, **more)
    return maker


def test_arms_stand_side_by_side_with_their_ratio(make_model: Maker) -> None:
    rows = compared(session(make_model).model())
    assert [(row.layer, row.what, row.bytes) for row in rows] == [
        (Layer.P2P, "same-node", SIZE),
        (Layer.BUSBW, "all", 1 << 20),
        (Layer.BUSBW, "all", SIZE),
    ]
    first, second = rows[0].arms
    assert (first.name, first.median, first.transports, first.failed) == (FIRST, 358.0, ["P2P/CUMEM"], 0)
    assert (second.name, second.median, second.transports) == (SECOND, 21.0, ["SHM/direct"])
    assert round(rows[0].ratio(second) or 0, 4) == round(21 / 358, 4)


def test_what_fails_in_an_arm_is_counted_there_and_is_no_value(make_model: Maker) -> None:
    maker = session(make_model)
    # It failed before there was a message, so that it has no size.
    maker.measured("p2p", "n0:0", "n0:1", "failed", error="x", unit="GB/s", arm=SECOND)
    (row,) = [row for row in compared(maker.model()) if row.layer is Layer.P2P]
    assert row.arms[0].failed == 0
    assert row.arms[1].failed == 1
    everything = session(make_model)
    everything.measured("busbw", "all", "all", "timeout", error="x", bytes=SIZE, arm=SECOND)
    last = compared(everything.model())[-1]
    assert (last.arms[1].median, last.ratio(last.arms[1])) == (None, None)


def test_without_a_comparison_there_is_none(make_model: Maker) -> None:
    model = make_model().start(["n0"]).endpoints({"n0": 2}).pairs(["n0:0", "n0:1"]).model()
    assert compared(model) == []
    assert not list(comparison(model))


def test_an_arm_that_was_never_reached(make_model: Maker) -> None:
    maker = make_model().start(["n0"]).endpoints({"n0": 2}).add("plan", arms=[FIRST, SECOND]).pairs(["n0:0", "n0:1"])
    assert text_lines(comparison(maker.model()))[-1].split() == [
        *("p2p", "same-node", "4", "MiB", "gloo/tcp", "2.00", "GB/s"),
        *("not", "tested", "-"),
    ]


def test_the_table_names_transports_and_ratios(make_model: Maker) -> None:
    assert text_lines(comparison(session(make_model).model())) == [
        f"A/B, medians; ratios to {FIRST}",
        f"                                  {FIRST}  {SECOND}",
        "  p2p         same-node  256 MiB  P2P/CUMEM 358 GB/s  SHM/direct 21.0 GB/s  0.06x",
        "  all_reduce  all          1 MiB  179 GB/s            10.5 GB/s             0.06x",
        "                         256 MiB  179 GB/s            10.5 GB/s             0.06x",
    ]
    hostile = session(make_model).add("plan", arms=["\x1b[2J", SECOND]).model()
    assert text_lines(comparison(hostile))[0].isprintable()
