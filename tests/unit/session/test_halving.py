"""The search by halves: what it names, that groups are disjoint, and that noise does not lead it astray."""

import random
from collections import deque
from collections.abc import Callable

import pytest

from fabtui.session.measure.halving import Culprit, Halving, Trial, Undecided

Bad = Callable[[set[int]], bool]


def _searched(count: int, bad: Bad, noise: float = 0.0, seed: int = 0) -> tuple[Halving, list[list[Trial]]]:
    chance, halving, rounds = random.Random(seed), Halving(count, seed), list[list[Trial]]()
    steps = halving.search()
    try:
        trials = next(steps)
        while True:
            rounds.append(trials)
            trials = steps.send([bad(set(trial.units)) is not (chance.random() < noise) for trial in trials])
    except StopIteration:
        return halving, rounds


def _has(*culprits: set[int]) -> Bad:
    return lambda group: any(culprit <= group for culprit in culprits)


CASES: dict[str, tuple[int, Bad, list[Culprit]]] = {
    "healthy": (64, _has(), []),
    "one": (64, _has({13}), [Culprit((13,))]),
    "the last of an odd number": (37, _has({36}), [Culprit((36,))]),
    "two": (64, _has({3}, {50}), [Culprit((3,)), Culprit((50,))]),
    "three side by side": (64, _has({8}, {9}, {10}), [Culprit((8,)), Culprit((9,)), Culprit((10,))]),
    "a pair across the halves": (64, _has({13, 41}), [Culprit((13, 41))]),
    "a pair within a half": (64, _has({13, 14}), [Culprit((13, 14))]),
    "one and a pair": (64, _has({5}, {20, 60}), [Culprit((5,)), Culprit((20, 60))]),
    "all together": (64, lambda group: len(group) > 32, [Culprit(tuple(range(64)), whole=True)]),
    "as few as can be halved": (4, _has({2}), [Culprit((2,))]),
    "half of which are bad": (4, _has({0}, {2}), [Culprit((0, 1)), Culprit((2, 3))]),
}


@pytest.mark.parametrize("name", CASES)
def test_it_names_what_makes_groups_bad(name: str) -> None:
    count, bad, expected = CASES[name]
    halving, rounds = _searched(count, bad)
    assert sorted(halving.culprits) == expected
    assert not halving.rest_bad
    for trials in rounds:
        units = [unit for trial in trials for unit in trial.units]
        assert len(units) == len(set(units)), "side by side on disjoint links"


def test_more_than_three_are_not_all_named_but_reported() -> None:
    halving, _ = _searched(64, _has({1}, {20}, {40}, {60}))
    assert len(halving.culprits) == 3
    assert halving.rest_bad


def test_fill_ins_keep_the_number_of_nodes() -> None:
    _, rounds = _searched(64, _has({13}))
    assert {len(trial.units) for trials in rounds[1:-2] for trial in trials} <= {31, 32}
    assert all(13 not in trial.fill for trials in rounds for trial in trials)


def test_noise_is_met_by_repetition() -> None:
    answers = [_searched(64, _has({seed % 64}), 0.05, seed)[0] for seed in range(40)]
    right = sum(one.culprits == [Culprit((seed % 64,))] for seed, one in enumerate(answers))
    assert right >= 38
    assert sorted(one.rounds for one in answers)[37] <= 2 * 6 + 8
    assert not any(_searched(64, _has(), 0.05, seed)[0].culprits for seed in range(20))


def test_tests_without_results_end_the_search() -> None:
    steps = Halving(16).search()
    next(steps)
    with pytest.raises(Undecided):
        deque(steps.send([None]) for _ in range(1000))
