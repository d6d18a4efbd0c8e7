from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.model.endpoints import Endpoint
from fabtui.model.schedule import MODES, each_round, mode_for, pairs_for


def _ends(nodes: int, each: int) -> list[Endpoint]:
    return [Endpoint(n * each + i, f"n{n}", i) for n in range(nodes) for i in range(each)]


@given(st.integers(1, 6), st.integers(1, 5), st.sampled_from(MODES))
def test_pairs_are_distinct_and_every_endpoint_and_node_pair_is_touched(nodes: int, each: int, mode: str) -> None:
    ends = _ends(nodes, each)
    pairs = pairs_for(mode, ends)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    if len(ends) > 1:
        assert {end for pair in pairs for end in pair} == {e.number for e in ends}
    if mode == "quick":
        assert len(pairs) <= 2 * len(ends)
    if mode == "sampled":
        met = {frozenset((ends[a].node, ends[b].node)) for a, b in pairs if ends[a].node != ends[b].node}
        assert len(met) == nodes * (nodes - 1) // 2


def test_the_default_tests_all_pairs_until_there_are_too_many() -> None:
    assert mode_for("auto", 16) == "full"
    assert mode_for("auto", 128) == "sampled"
    assert mode_for("full", 1024) == "full"
    assert len(pairs_for("full", _ends(2, 8))) == 120
    assert len(pairs_for("sampled", _ends(16, 8))) == 16 * 28 + 120 * 8 * 2


def test_sampling_crosses_rails() -> None:
    ends = _ends(4, 4)
    crossed = {(ends[a].index, ends[b].index) for a, b in pairs_for("sampled", ends) if ends[a].node != ends[b].node}
    assert len({(b - a) % 4 for a, b in crossed}) >= 3


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="quick, sampled, full"):
        pairs_for("most", _ends(1, 2))


@pytest.mark.parametrize("mode", ["quick", "sampled"])
@pytest.mark.parametrize(("nodes", "each"), [(1, 2), (2, 1), (3, 3), (5, 4), (6, 5)])
def test_chosen_pairs_are_in_the_order_of_the_rounds(mode: str, nodes: int, each: int) -> None:
    # Numbers with gaps, as when some nodes have failed.
    ends = [replace(end, number=3 * end.number + 1) for end in _ends(nodes, each)]
    numbers = [end.number for end in ends]
    chosen = list(pairs_for(mode, ends))
    every = [(numbers[i], numbers[j]) for round_ in each_round(len(numbers)) for i, j in round_]
    assert chosen == [pair for pair in every if pair in set(chosen)]
