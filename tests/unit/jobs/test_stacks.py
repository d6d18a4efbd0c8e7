"""Stacks of ranks: equal ones together, the fewest first."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fabtui.diagnosis.job.who_is_behind import grouped, rank_stacks


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


def test_the_lone_one_comes_first() -> None:
    first = rank_stacks("n060", {"ranks": [rank(number, "c10d.py:3252", cpu=number / 4) for number in range(4)]})
    second = rank_stacks(
        "n061", {"ranks": [rank(4, "loader.py:8", state="D", wait="nfs_wait"), rank(5, "c10d.py:3252")]}
    )
    assert [group.sentence() for group in grouped([*first, *second])] == [
        "rank 4 on n061: waiting for the driver or a file system in nfs_wait, in all_reduce (loader.py:8) <-"
        " <module> (train.py:9)",
        "ranks 0-3 on n060 and 5 on n061: sleeping in futex_do_wait, in all_reduce (c10d.py:3252) <- <module>"
        " (train.py:9)",
    ]


def test_stopped_ranks_are_apart() -> None:
    found = grouped(
        rank_stacks("n060", {"ranks": [rank(0, "a.py:1"), rank(1, "a.py:1"), rank(2, "a.py:1", state="T")]})
    )
    assert found[0].sentence().startswith("rank 2 on n060: stopped (kill -CONT resumes it), in all_reduce")


def test_what_the_kernel_shows() -> None:
    ranks = [rank(0, problem="no tool"), rank(1, cpu=0.98, wait=None), rank(2, cpu=0.9, wait=None)]
    found = grouped(rank_stacks("n060", {"ranks": ranks}))
    assert [group.sentence() for group in found] == [
        "rank 0 on n060: sleeping in futex_do_wait",
        "ranks 1-2 on n060: running",
    ]


odd = (
    st.none()
    | st.integers()
    | st.text(max_size=5)
    | st.lists(st.none() | st.dictionaries(st.text(max_size=5), st.text()))
)
rows = st.dictionaries(st.sampled_from(["rank", "pid", "state", "wait", "cpu", "frames", "problem"]), odd)


@given(value=st.dictionaries(st.just("ranks"), odd | st.lists(rows | odd)))
def test_any_value(value: dict[str, Any]) -> None:
    for group in grouped(rank_stacks("n060", value)):
        assert group.sentence()
