"""Columns that are padded, and lines that are cut."""

import pytest

from fabtui.presentation.wording import plain
from fabtui.presentation.wrapping import Line, aligned, filled, in_clauses, padded, whole, wrapped

LOG: Line = [("22:04:21 ", "dim"), ("sweep ended: 2 of 12 pairs are bad: n0:1 > n1:0 failed; and 1 more", "")]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (75, "22:04:21 sweep ended: 2 of 12 pairs are bad: n0:1 > n1:0 failed; and 1 more"),
        (70, "22:04:21 sweep ended: 2 of 12 pairs are bad: n0:1 > n1:0 failed …"),
        (60, "22:04:21 sweep ended: 2 of 12 pairs are bad …"),
        (20, "22:04:21 sweep …"),
    ],
)
def test_a_line_ends_with_a_whole_clause(width: int, shown: str) -> None:
    assert plain(in_clauses(LOG, width, "…")) == shown
    assert len(shown) <= width


def test_a_line_without_its_continuation_is_left_out() -> None:
    text = ["a", "b", "    more of b", "    the rest of b", "c"]
    lines: list[Line] = [[(one, "")] for one in text]
    for height, left in ((5, 5), (4, 4), (3, 1), (2, 1), (1, 1), (9, 5)):
        assert [plain(line) for line in whole(lines, height)] == text[:left]


def test_a_number_stays_with_its_unit() -> None:
    line: Line = [("n1:1 > n1:0 wrong data, 1 byte of 256 MiB", "")]
    for width in (38, 40):
        assert [plain(one) for one in wrapped(line, width, 2)] == ["n1:1 > n1:0 wrong data, 1 byte of", "  256 MiB"]
    assert [plain(one) for one in wrapped([("256 MiB", "")], 4, 0)] == ["256", "MiB"]


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
