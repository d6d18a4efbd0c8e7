from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from fabtui.model.schedule import PairArray, PairSet

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
