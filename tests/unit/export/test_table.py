import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabtui.export.collectives_table import CollectiveRow, table_rows, write_table
from fabtui.model.measurement import Verdict

Maker = Callable[[], Any]
ARM = "NCCL_ALGO=Tree"
HEAD = "kind,group,ranks,bytes,time_us,time_min_us,algbw,algbw_max,busbw,wrong,algorithm,transport,arm,verdict,error"


def session(make_model: Maker) -> Any:
    maker = make_model().start(["n10", "n9"]).endpoints({"n10": 2, "n9": 2}).add("plan", arms=["NCCL_ALGO=Ring", ARM])
    extra = {"algbw": 100.0, "ranks": 4, "seconds": 1e-5, "fastest": 8e-6, "wrong": 0, "algorithm": "RING/SIMPLE"}
    for src, dst in (("rail10", "rail10"), ("rail9", "rail9"), ("n10", "n9"), ("n9", "n9"), ("all", "all")):
        maker.measured("busbw", src, dst, value=150.0, unit="GB/s", bytes=1 << 20, transport="NET/IB/0", extra=extra)
    maker.measured("busbw", "all", "all", "failed", error="2 elements are wrong", bytes=2 << 20, unit="GB/s")
    maker.measured("alltoall", "all", "all", value=75.0, unit="GB/s", bytes=8, extra=extra)
    maker.measured("busbw", "all", "all", value=15.0, unit="GB/s", bytes=1 << 20, extra=extra, arm=ARM)
    return maker.pairs(["n10:0", "n9:0"])


def test_rows_are_ordered_and_hold_what_is_known(make_model: Maker) -> None:
    rows = table_rows(session(make_model).model())
    assert [(row.kind, row.group, row.bytes, row.arm) for row in rows] == [
        ("all_reduce", "all", 1 << 20, None),
        ("all_reduce", "all", 2 << 20, None),
        ("all_reduce", "n9", 1 << 20, None),
        ("all_reduce", "rail9", 1 << 20, None),
        ("all_reduce", "rail10", 1 << 20, None),
        ("all_reduce", "n10+n9", 1 << 20, None),
        ("alltoall", "all", 8, None),
        ("all_reduce", "all", 1 << 20, ARM),
    ]
    numbers = {name: round(getattr(rows[0], name), 6) for name in ("time_us", "time_min_us", "algbw_max")}
    good = rows[0]._replace(**numbers)
    assert good == CollectiveRow(
        *(
            "all_reduce",
            "all",
            4,
            1 << 20,
            10.0,
            8.0,
            100.0,
            125.0,
            150.0,
            0,
            "RING/SIMPLE",
            "NET/IB/0",
            None,
            Verdict.OK,
            None,
        )
    )
    failed = rows[1]
    assert (failed.busbw, failed.time_us, failed.algbw, failed.wrong) == (None, None, None, None)
    assert failed.ranks == 4, "as in the other sizes of the group"
    assert (failed.verdict, failed.error) == (Verdict.WRONG, "2 elements are wrong")


def test_the_file_is_whole(make_model: Maker, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    assert write_table(session(make_model).model(), path) == 8
    assert path.read_text().splitlines()[0] == HEAD
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert (rows[0]["busbw"], rows[0]["wrong"], rows[0]["verdict"]) == ("150.0", "0", "ok")
    assert (rows[1]["busbw"], rows[1]["wrong"], rows[1]["error"]) == ("", "", "2 elements are wrong")
    assert rows[7]["arm"] == ARM
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]


def test_without_collectives_there_is_a_head_alone(make_model: Maker, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    assert write_table(make_model().start(["a"]).endpoints({"a": 2}).pairs(["a:0", "a:1"]).model(), path) == 0
    assert path.read_text() == HEAD + "\n"


@pytest.mark.parametrize("text", ["=HYPERLINK(0)", "\x1b[2J=1", "a\nb", "-1"])
def test_hostile_text_runs_nowhere(make_model: Maker, tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    maker = make_model().start(["a"]).endpoints({"a": 2})
    extra = {"algorithm": text, "ranks": "many", "seconds": "x", "wrong": True, "algbw": None}
    maker.measured("busbw", "all", "all", "failed", error=text, transport=text, bytes=8, extra=extra)
    assert write_table(maker.model(), path) == 1
    assert "\x1b" not in path.read_text()
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert all(row[name][0] not in "=+-@\t\r" and "\n" not in row[name] for name in ("algorithm", "transport", "error"))
    assert row["ranks"] == row["time_us"] == row["wrong"] == row["algbw"] == row["algbw_max"] == ""


def test_a_folder_that_is_gone_leaves_nothing_behind(make_model: Maker, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write_table(session(make_model).model(), tmp_path / "gone" / "t.csv")
