"""Tables of bandwidths by number of GPUs, with and without RDMA."""

from collections.abc import Callable
from typing import Any

from fabtui.export.collectives_table import sweep_json
from fabtui.report.collectives import sweep_tables
from fabtui.report.text import text_lines

Maker = Callable[..., Any]


def swept(make_model: Maker, transports: tuple[str, str]) -> Any:
    maker = make_model().start(["n0", "n1"]).endpoints({"n0": 8, "n1": 8})
    maker.add("plan", arms=["NCCL_IB_DISABLE=0", "NCCL_IB_DISABLE=1"])
    for arm, transport, values in (
        (None, transports[0], {8: (207.8, 118.74), 16: (15.2875, 8.15)}),
        ("NCCL_IB_DISABLE=1", transports[1], {8: (207.0, 118.3), 16: (3.6375, 1.94)}),
    ):
        for ranks, (busbw, algbw) in values.items():
            where = "P2P/CUMEM" if ranks == 8 else transport
            extra = {"algbw": algbw, "ranks": ranks, "seconds": 0.1, "wrong": 0}
            fields = {"unit": "GB/s", "bytes": 1 << 30, "transport": where, "extra": extra, "arm": arm}
            maker.measured("busbw", f"first{ranks}", f"first{ranks}", value=busbw, **fields)
    return maker


def test_heads_name_the_transports_that_were_compared(make_model: Maker) -> None:
    model = swept(make_model, ("NET/IB", "NET/Socket")).measured(
        "busbw", "first32", "first32", "timeout", error="x", unit="GB/s", bytes=1 << 30
    )
    assert text_lines(sweep_tables(model.model())) == [
        "all_reduce at 1 GiB, by number of CPU ranks, GB/s",
        "  ranks  RDMA busbw  RDMA algbw  transport  TCP busbw  TCP algbw  transport",
        "      8         208         119  P2P/CUMEM        207        118  P2P/CUMEM",
        "     16        15.3        8.15  NET/IB          3.64       1.94  NET/Socket",
        "     32           -           -  timed out          -          -  not tested",
        "  RDMA: NCCL_IB_DISABLE=0",
        "  TCP: NCCL_IB_DISABLE=1",
        "",
        "all_reduce at 1 GiB, by number of CPU ranks, Gb/s",
        "  ranks  RDMA busbw  RDMA algbw  transport  TCP busbw  TCP algbw  transport",
        "      8        1662         950  P2P/CUMEM       1656        946  P2P/CUMEM",
        "     16         122        65.2  NET/IB          29.1       15.5  NET/Socket",
        "     32           -           -  timed out          -          -  not tested",
        "  RDMA: NCCL_IB_DISABLE=0",
        "  TCP: NCCL_IB_DISABLE=1",
    ]
    rows = sweep_json(model.model())
    assert [row["ranks"] for row in rows] == [8, 16, 32]
    assert [(arm["arm"], round(arm["busbw_gbit"], 1)) for arm in rows[1]["arms"]] == [
        ("NCCL_IB_DISABLE=0", 122.3),
        ("NCCL_IB_DISABLE=1", 29.1),
    ]
    assert rows[2]["arms"][1] == {"arm": "NCCL_IB_DISABLE=1", "verdict": None}


def test_arms_over_the_same_transport_are_no_comparison_of_transports(make_model: Maker) -> None:
    table, _ = sweep_tables(swept(make_model, ("NET/Socket", "NET/Socket")).model())
    assert table.notes == [
        "A: NCCL_IB_DISABLE=0, over TCP",
        "B: NCCL_IB_DISABLE=1, over TCP",
        "all use TCP, so this compares no transports",
    ]
    assert "A busbw" in table.rows[0]


def test_other_groups_make_no_table(make_model: Maker) -> None:
    maker = make_model().start(["n0"]).endpoints({"n0": 2})
    measured = maker.measured("busbw", "n0", "n0", value=1.0, unit="GB/s", bytes=1024)
    assert not list(sweep_tables(measured.model()))
