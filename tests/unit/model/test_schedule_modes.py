from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.model.endpoints import Endpoint
from fabtui.model.schedule import MODES, Dispatcher, PairSet, cover, each_round, mode_for, pairs_for, suspect_pairs


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
    assert mode_for("auto", 128) == "full"
    assert mode_for("auto", 129) == "adaptive"
    assert mode_for("full", 1024) == "full"
    assert len(pairs_for("full", _ends(2, 8))) == 120
    assert len(pairs_for("sampled", _ends(16, 8))) == 16 * 28 + 120 * 8 * 2


def test_an_adaptive_sweep_has_rings_and_permutations_over_rails_and_leaves() -> None:
    ends = _ends(16, 8)
    leaves = {end.number: f"leaf {end.number // 8 % 4}" for end in ends}
    pairs = list(pairs_for("adaptive", ends, leaves=leaves))
    assert set(pairs_for("quick", ends)) <= {*pairs, *((b, a) for a, b in pairs)}
    assert len(pairs) <= 4 * len(ends)
    between = [(a, b) for a, b in pairs if ends[a].node != ends[b].node]
    for kind in (
        {end for a, b in between if ends[a].index == ends[b].index and leaves[a] != leaves[b] for end in (a, b)},
        {end for a, b in between if ends[a].index != ends[b].index for end in (a, b)},
    ):
        assert kind == set(range(len(ends))), "each endpoint crosses leaves, and rails"
    phases, used = 1, set[int]()
    for a, b in pairs:
        if used & {a, b}:
            phases, used = phases + 1, set()
        used |= {a, b}
    assert phases <= 12, "phases of disjoint pairs"


def test_suspects_meet_each_other_and_healthy_endpoints() -> None:
    ends = _ends(16, 8)
    tested = PairSet(pairs_for("adaptive", ends))
    bad = [pair for pair in tested if 40 in pair or 41 in pair]
    more = suspect_pairs(bad, ends, tested)
    assert cover(bad) in ([40, 41], [41, 40])
    assert not set(more) & set(tested)
    assert all({40, 41} & {a, b} for a, b in more)
    assert 2 <= len(more) <= 9
    many = [(n, n + 128) for n in range(100)]
    assert not suspect_pairs(many, _ends(64, 8), PairSet(many)), "more than that have a common cause"


def test_sampling_crosses_rails() -> None:
    ends = _ends(4, 4)
    crossed = {(ends[a].index, ends[b].index) for a, b in pairs_for("sampled", ends) if ends[a].node != ends[b].node}
    assert len({(b - a) % 4 for a, b in crossed}) >= 3


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="quick, adaptive, sampled, full"):
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


def _racks(racks: int, trays: int) -> tuple[list[Endpoint], dict[int, str]]:
    ends = _ends(racks * trays, 4)
    return ends, {end.number: f"rack {end.number // (4 * trays)}" for end in ends}


def test_a_quick_sweep_of_a_rack_is_two_permutations_of_its_gpus() -> None:
    ends, domains = _racks(1, 18)
    pairs = pairs_for("quick", ends, domains)
    assert len(pairs) == 2 * 72
    assert all(ends[a].node != ends[b].node for a, b in pairs), "each crosses the switches of the rack"
    met = {end.number: {other for pair in pairs if end.number in pair for other in pair} for end in ends}
    assert {len(others) - 1 for others in met.values()} == {4}, "each GPU has four partners"
    assert any(ends[a].index != ends[b].index for a, b in pairs)


def test_a_quick_sweep_of_racks_tests_each_nic_between_them() -> None:
    ends, domains = _racks(3, 4)
    pairs = pairs_for("quick", ends, domains)
    between = [pair for pair in pairs if domains[pair[0]] != domains[pair[1]]]
    assert {end for pair in between for end in pair} == {end.number for end in ends}
    assert all(ends[a].index == ends[b].index for a, b in between), "along the rails"
    assert len(pairs) <= 3 * len(ends)


def test_nodes_without_a_domain_are_tested_as_before_beside_a_rack() -> None:
    ends, domains = _racks(1, 4)
    more = [replace(end, number=end.number + 16, node=f"x{end.node}") for end in _ends(2, 4)]
    pairs = pairs_for("quick", [*ends, *more], domains)
    assert {(16, 17), (17, 18), (18, 19), (16, 19)} <= set(pairs), "a ring within the node"
    assert any(a < 16 <= b for a, b in pairs), "and a ring over all nodes"


@given(st.integers(2, 5), st.integers(1, 4))
def test_pairs_within_a_domain_need_no_nic(nodes: int, each: int) -> None:
    ends = _ends(nodes, each)
    pairs = [(a.number, b.number) for a in ends for b in ends if a.number < b.number and a.node != b.node]
    shared = ["mlx5_0"] * len(ends)
    apart = Dispatcher(pairs, shared, [end.node for end in ends])
    together = Dispatcher(pairs, shared, [end.node for end in ends], domains=dict.fromkeys(range(len(ends)), "rack"))
    assert len(apart.take()) == nodes // 2
    assert len(together.take()) >= nodes // 2 * each
