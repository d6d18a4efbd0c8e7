"""Orders of nodes against all orders of small cases."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from fabtui.diagnosis.rank_order import best_order, rank_order


def changes(kinds: Sequence[str], order: Sequence[int], ring: bool) -> int:
    found = [kinds[at] for at in order]
    return sum(one != other for one, other in zip(found, found[1:] + found[: int(ring)], strict=False))


@pytest.mark.parametrize("ring", [True, False])
@pytest.mark.parametrize("models", ["A", "AB", "ABC"])
def test_small_cases_are_within_two_percent_of_the_best_of_all_orders(ring: bool, models: str) -> None:
    rng = np.random.default_rng(len(models) + 10 * ring)
    for _ in range(25):
        count = int(rng.integers(3, 7))
        hops = rng.uniform(1, 10, (count, count))
        hops = np.minimum(hops, hops.T)
        kinds = [models[at] for at in rng.integers(0, len(models), count)]

        def slowest(order: Sequence[int], hops: np.ndarray = hops) -> float:
            return float(min(hops[a, b] for a, b in zip(order, [*order[1:], *order[: int(ring)]], strict=False)))

        every = list(itertools.permutations(range(count)))
        fewest = min(changes(kinds, order, ring) for order in every)
        best = max(slowest(list(order)) for order in every if changes(kinds, order, ring) == fewest)
        found = best_order(hops, kinds, ring=ring).tolist()
        assert sorted(found) == list(range(count))
        assert changes(kinds, found, ring) == fewest
        assert changes(kinds, found, False) == len(set(kinds)) - 1, "a kind is not split at the ends of the list"
        assert slowest(found) >= best / 1.02


@pytest.mark.parametrize("ring", [True, False])
def test_a_planted_order_of_128_nodes_is_found(ring: bool) -> None:
    rng = np.random.default_rng(7)
    planted = rng.permutation(128)
    hops = np.full((128, 128), 4.1)
    for at, to in zip(planted, np.roll(planted, -1), strict=True):
        hops[at, to] = hops[to, at] = 9.8
    # Half of the other hops are fast as well: planted alone is a puzzle, not a fabric.
    fast = np.triu(rng.random((128, 128)) < 0.5, 1)
    hops[fast | fast.T] = 9.8
    names = [f"n{at:03}" for at in range(128)]
    found = rank_order(names, hops, ["A"] * 128, ring=ring)
    assert sorted(found.nodes) == names
    assert found.before is not None
    assert found.after is not None
    assert (found.before.value, found.after.value, found.unknown) == (4.1, 9.8, 0)


def test_a_pipeline_need_not_close_where_a_ring_has_to() -> None:
    hops = np.full((4, 4), 1.0)
    for at in range(3):
        hops[at, at + 1] = hops[at + 1, at] = 5.0
    ring, path = (rank_order("abcd", hops, "AAAA", ring=ring) for ring in (True, False))
    assert ring.after is ring.before
    assert ring.after is not None
    assert ring.after.value == 1.0
    assert path.nodes == list("abcd")
    assert path.after is not None
    assert path.after.value == 5.0


def test_kinds_of_gpus_follow_each_other_even_at_a_price() -> None:
    hops = np.full((4, 4), 9.0)
    hops[0, 2] = hops[2, 0] = 3.0
    found = rank_order("abcd", hops, ["A10", "A100", "A10", "A100"])
    assert found.nodes in (list("acbd"), list("acdb"), list("cabd"), list("cadb"))
    assert found.before is not None
    assert found.after is not None
    assert (found.before.value, found.after.value) == (9.0, 3.0)


def test_unknown_neighbours_are_counted_and_failed_ones_avoided() -> None:
    hops = np.full((5, 5), np.nan)
    found = rank_order("abcde", hops, "AAAAA")
    assert (found.nodes, found.before, found.after, found.unknown) == (list("abcde"), None, None, 5)
    hops = np.full((5, 5), 8.0)
    hops[0, 1] = hops[1, 0] = 0.0
    hops[2, 3] = hops[3, 2] = np.nan
    found = rank_order("abcde", hops, "AAAAA", ring=False)
    assert found.before == ("a", "b", 0.0)
    assert found.after is not None
    assert found.after.value == 8.0
    assert found.unknown <= 1
