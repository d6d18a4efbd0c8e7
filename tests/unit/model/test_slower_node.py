"""One that is 1 % slower, and the one that brought wrong data."""

from __future__ import annotations

import itertools
import math
import random

from fabtui.model.slower_node import PairedTest, majority

NAMES = [f"n{at // 4:03d}:{at % 4}" for at in range(8)]


def swept(rng: random.Random, slow: float, sweeps: int = 60) -> tuple[PairedTest, int | None]:
    test, found = PairedTest(), None
    level = 5.0
    for sweep in range(1, sweeps + 1):
        level += rng.gauss(0, 0.01)
        values = {name: math.exp(level + rng.gauss(0, 0.003) - slow * (name == NAMES[3])) for name in NAMES}
        test.add(values)
        if found is None and test.slower():
            found = sweep
    return test, found


def test_a_node_that_is_one_per_cent_slower_is_found_and_no_other() -> None:
    rng = random.Random(51)
    for _ in range(20):
        test, found = swept(rng, 0.01)
        assert found is not None
        assert [one.name for one in test.slower()] == [NAMES[3]]
        assert 0.005 < test.slower()[0].share < 0.015
        healthy, none = swept(rng, 0.0)
        assert none is None
        assert healthy.settled


def test_too_few_peers_and_sweeps_decide_nothing() -> None:
    test = PairedTest()
    for _ in range(40):
        test.add({"a": 100.0, "b": 90.0, "c": 100.0})
    assert (test.sweeps, test.slower(), test.settled) == (0, [], False)


def test_the_rank_that_brought_wrong_data_is_named_twenty_of_twenty() -> None:
    """Rounds of disjoint pairs, each both ways; a bad rank corrupts what it sends, now and then only."""
    rng = random.Random(7)
    for run in range(20):
        bad = rng.choice(NAMES)
        tests = list(itertools.permutations(NAMES, 2))
        wrong = [(src, dst) for src, dst in tests if src == bad and (run % 2 == 0 or rng.random() < 0.6)]
        assert [one.name for one in majority(tests, wrong)] == [bad], wrong
    assert majority([("a", "b"), ("b", "a")], [("a", "b")]) == [("a", 1, 2), ("b", 1, 2)]
    assert majority([("a", "b")], []) == []
