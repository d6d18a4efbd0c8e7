from __future__ import annotations

from fabtui.presentation.wrapping import aligned, filled, padded


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    rows = [["node", "GB/s", "why"], ["n000", "360", "ok"], ["节点", "1.96", "slow"]]
    assert padded(rows, (0, 2))[1] == ["n000", " 360", "ok  "]
    assert aligned(rows, (0, 2)) == [
        "  node  GB/s  why",
        "  n000   360  ok",
        "  节点  1.96  slow",
    ]
    assert aligned(rows, (0, 2), gap=" | ", indent="")[1] == "n000 |  360 | ok"


def test_columns_without_a_value_are_found() -> None:
    assert filled([["a", "", "-"], ["", "", "b"]]) == [0, 2]
    assert filled([["a", "", "-"]], nothing=("",)) == [0, 2]
