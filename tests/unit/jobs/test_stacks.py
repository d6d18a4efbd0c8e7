"""Stacks of ranks: equal ones together, the fewest first."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fabtui.diagnosis.job.who_is_behind import RankStack, grouped, rank_stacks, stack_tree


def rank(number: int, site: str = "", **more: Any) -> dict[str, Any]:
    frames = [{"name": "all_reduce", "site": site}, {"name": "<module>", "site": "train.py:9"}] if site else []
    return {
        "rank": number,
        "pid": 100 + number,
        "state": "S",
        "wait": "futex_do_wait",
        "cpu": 0.0,
        "frames": frames,
        **more,
    }


def ranks_in(stacks: list[RankStack]) -> list[list[int]]:
    return [[one.place.rank for one in group] for group in grouped(stacks)]


def lines(stacks: list[RankStack]) -> list[str]:
    return [line for branch in stack_tree(stacks) for line in branch.lines()]


def test_the_lone_one_comes_first() -> None:
    first = rank_stacks("n060", {"ranks": [rank(number, "c10d.py:3252", cpu=number / 4) for number in range(4)]})
    second = rank_stacks(
        "n061", {"ranks": [rank(4, "loader.py:8", state="D", wait="nfs_wait"), rank(5, "c10d.py:3252")]}
    )
    assert ranks_in([*first, *second]) == [[4], [0, 1, 2, 3, 5]]
    assert lines([*first, *second]) == [
        "6:[0-5] <module> (train.py:9)",
        "  1:[4] all_reduce (loader.py:8) > waiting for the driver or a file system in nfs_wait",
        "  5:[0-3,5] all_reduce (c10d.py:3252) > running; sleeping in futex_do_wait",
    ]


def test_stopped_ranks_are_apart() -> None:
    ranks = [rank(0, "a.py:1"), rank(1, "a.py:1"), rank(2, "a.py:1", state="T")]
    assert ranks_in(rank_stacks("n060", {"ranks": ranks})) == [[2], [0, 1]]


def test_what_the_kernel_shows() -> None:
    ranks = [rank(0, problem="no tool"), rank(1, cpu=0.98, wait=None), rank(2, cpu=0.9, wait=None)]
    assert lines(rank_stacks("n060", {"ranks": ranks})) == ["1:[0] sleeping in futex_do_wait", "2:[1-2] running"]


odd = (
    st.none()
    | st.integers()
    | st.text(max_size=5)
    | st.lists(st.none() | st.dictionaries(st.text(max_size=5), st.text()))
)
rows = st.dictionaries(st.sampled_from(["rank", "pid", "state", "wait", "cpu", "frames", "problem"]), odd)


@given(value=st.dictionaries(st.just("ranks"), odd | st.lists(rows | odd)))
def test_any_value(value: dict[str, Any]) -> None:
    assert all(lines(rank_stacks("n060", value)))
