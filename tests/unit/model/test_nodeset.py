from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.hostlist import expand
from fabtui.nodeset import count, fold


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["n060"], "n060"),
        (["n060", "n061", "n062", "n070"], "n[060-062,070]"),
        (["n8", "n9", "n10"], "n[8-10]"),
        (["n098", "n099", "n100"], "n[098-100]"),
        (["gpu-1.rack", "gpu-2.rack", "login"], "gpu-[1-2].rack,login"),
        (["r1n01", "r1n02", "r2n01"], "r1n[01-02],r2n01"),
        (["n1", "n01"], "n1,n01"),
        (["a", "a"], "a"),
        ([], ""),
    ],
)
def test_names_are_folded(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@given(st.lists(st.from_regex(r"[a-c]{1,2}[0-9]{1,4}(\.x)?", fullmatch=True), min_size=1, max_size=30, unique=True))
def test_a_folded_set_stands_for_the_same_nodes(names: list[str]) -> None:
    assert sorted(expand(fold(names), "test")) == sorted(names)


def test_counts_have_their_noun() -> None:
    assert (count(1, "node"), count(2, "node"), count(2, "entry", "entries")) == ("1 node", "2 nodes", "2 entries")
