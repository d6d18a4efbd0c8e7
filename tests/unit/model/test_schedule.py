from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.model.schedule import Dispatcher, PairArray, PairSet, each_round


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 8, 16])
def test_rounds_hold_every_pair_once_and_are_disjoint(count: int) -> None:
    rounds = list(each_round(count))
    pairs = [pair for round_ in rounds for pair in round_]
    assert sorted(pairs) == sorted(combinations(range(count), 2))
    for round_ in rounds:
        ends = [end for pair in round_ for end in pair]
        assert len(ends) == len(set(ends))
    if count > 1:
        assert len(rounds) == (count - 1 if count % 2 == 0 else count)


def _drain(dispatcher: Dispatcher) -> list[list[tuple[int, int]]]:
    steps = []
    while dispatcher.waiting or dispatcher.running:
        started = dispatcher.take()
        assert started, "nothing runs and nothing can start"
        steps.append(started)
        for pair in started:
            dispatcher.done(*pair)
    return steps


@given(st.integers(2, 12), st.integers(1, 4), st.integers(1, 4))
def test_no_two_running_pairs_share_an_endpoint_or_a_nic(count: int, nodes: int, nics: int) -> None:
    node = [f"n{i * nodes // count}" for i in range(count)]
    nic = [f"mlx5_{i % nics}" for i in range(count)]
    order = [pair for round_ in each_round(count) for pair in round_]
    done = []
    for started in _drain(Dispatcher(order, nic, node)):
        ends = [end for pair in started for end in pair]
        assert len(ends) == len(set(ends))
        used = [(node[end], nic[end]) for a, b in started if node[a] != node[b] for end in {a, b}]
        assert len(used) == len(set(used))
        done += started
    assert sorted(done) == sorted(order)


def test_a_pair_that_hangs_holds_its_own_endpoints_only() -> None:
    dispatcher = Dispatcher([(0, 1), (2, 3), (0, 2), (1, 3), (2, 4), (3, 4)], [None] * 5, ["n"] * 5)
    assert dispatcher.take() == [(0, 1), (2, 3)]
    dispatcher.done(2, 3)
    assert dispatcher.take() == [(2, 4)], "0 and 1 are held, 2 and 4 are not"
    dispatcher.done(2, 4)
    assert dispatcher.take() == [(3, 4)]


def test_width_one_runs_one_pair_at_a_time() -> None:
    dispatcher = Dispatcher([(0, 1), (2, 3)], [None] * 4, ["n"] * 4, width=1)
    assert dispatcher.take() == [(0, 1)]
    assert dispatcher.take() == []
    dispatcher.done(0, 1)
    assert dispatcher.take() == [(2, 3)]


def test_dropping_an_endpoint_takes_its_waiting_pairs_out() -> None:
    dispatcher = Dispatcher([(0, 1), (0, 2), (1, 2)], [None] * 3, ["n"] * 3)
    assert dispatcher.drop(0) == [(0, 1), (0, 2)]
    assert dispatcher.take({1}) == []
    assert dispatcher.take() == [(1, 2)]


def test_pairs_that_do_not_fit_wait_and_the_others_do_not_wait_for_them() -> None:
    dispatcher = Dispatcher([(0, 1), (2, 3)], [None] * 4, ["n"] * 4)
    assert dispatcher.take(fits=lambda a, b: a != 0) == [(2, 3)]
    assert dispatcher.is_full
    assert [*dispatcher.pairs] == [(0, 1)]
    assert dispatcher.take() == [(0, 1)]
    assert not dispatcher.is_full


PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).filter(lambda pair: pair[0] != pair[1]))


@given(PAIRS)
def test_a_set_of_pairs_is_one(pairs: list[tuple[int, int]]) -> None:
    found = PairSet(pairs)
    wanted = {(min(pair), max(pair)) for pair in pairs}
    assert set(found) == wanted
    assert (len(found), len(list(found))) == (len(wanted), len(wanted))
    for a, b in combinations(range(42), 2):
        assert ((a, b) in found) == ((b, a) in found) == ((a, b) in wanted)
    assert (3, 3) not in found


@given(PAIRS, st.slices(12))
def test_an_array_of_pairs_is_one(pairs: list[tuple[int, int]], part: slice) -> None:
    found = PairArray(pairs)
    assert list(found) == pairs
    assert list(found[part]) == pairs[part]
    assert len(found) == len(pairs)
    assert [found[at] for at in range(-len(pairs), 0)] == pairs
