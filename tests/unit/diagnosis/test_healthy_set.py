"""The largest healthy set of nodes and endpoints, with planted bad pairs."""

import itertools
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding, Severity
from fabtui.diagnosis.healthy_set import HealthySet, healthy_set, independent
from fabtui.diagnosis.pairs.tally import Survey
from fabtui.model.events import (
    InventoryUpdate,
    Measured,
    NodeState,
    NodeUpdate,
    PlanUpdate,
)
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.healthy_text import as_json, drain_commands, host_lines, shares, slurm_options
from tests.conftest import session_of
from tests.unit.diagnosis.test_pair_rules import dead_if, fabric

EDGES = list[tuple[int, int]]


def of(model: Model) -> HealthySet:
    tally = Survey(model).finish()
    found = healthy_set(model, tally, diagnose(model).findings)
    assert found is not None
    check(found, set(tally.bad))
    return found


def check(found: HealthySet, bad: set[tuple[str, str]]) -> None:
    together = {str(end) for end in (*found.endpoints, *found.joining)}
    most = {str(end) for end in found.most}
    assert found.relayed or not any(ends <= together or ends <= most for ends in map(set, bad))


def largest(count: int, edges: EDGES, later: set[int] | None = None) -> tuple[list[int], bool]:
    a, b = (np.array([edge[side] for edge in edges], dtype=np.int64) for side in (0, 1))
    flags = np.array([at in (later or set()) for at in range(count)])
    chosen, exact = independent(np.ones(count, dtype=bool), a, b, flags)
    return np.flatnonzero(chosen).tolist(), exact


def test_without_a_bad_pair_all_nodes_are_healthy() -> None:
    found = of(fabric("abc", 2, dead_if(lambda s, d: False)))
    assert (found.nodes, found.left_out, found.joining, found.most) == (("a", "b", "c"), {}, (), ())
    assert [str(end) for end in found.endpoints] == ["a:0", "a:1", "b:0", "b:1", "c:0", "c:1"]
    assert slurm_options(found) == ["--nodelist=a,b,c"]
    assert drain_commands(found) == []


def test_a_bad_node_is_left_out_and_drained() -> None:
    found = of(fabric("abcd", 2, dead_if(lambda s, d: s[0] != d[0] and "b" in (s[0], d[0]))))
    assert found.nodes == ("a", "c", "d")
    assert found.exact
    assert slurm_options(found) == ["--nodelist=a,c,d", "--exclude=b"]
    assert drain_commands(found) == ["scontrol update NodeName=b State=DRAIN Reason='fabtui: b reaches no other node'"]
    assert host_lines(found.endpoints) == ["a slots=2", "c slots=2", "d slots=2"]


def test_of_two_nodes_without_a_path_one_stays_and_none_is_drained() -> None:
    found = of(fabric("abcd", 2, dead_if(lambda s, d: {s[0], d[0]} == {"b", "c"})))
    assert (found.nodes, list(found.left_out)) == (("a", "b", "d"), ["c"])
    assert drain_commands(found) == [], "no node is to blame"
    assert drain_commands(of(fabric("ab", 2, dead_if(lambda s, d: {s, d} == {"a:0", "b:0"})))) == []


def test_of_two_nodes_the_one_that_a_finding_blames_goes() -> None:
    model = fabric("ab", 2, dead_if(lambda s, d: s[0] != d[0] and "a:0" in (s, d)))
    found = of(model)
    assert found.nodes == ("b",)
    assert shares(found.joining) == [("a", 1, "CUDA_VISIBLE_DEVICES=1")]


def test_a_bad_gpu_leaves_the_others_of_its_node() -> None:
    found = of(fabric("abc", 4, dead_if(lambda s, d: "b:2" in (s, d))))
    assert found.nodes == ("a", "c")
    assert shares(found.joining) == [("b", 3, "CUDA_VISIBLE_DEVICES=0,1,3")]
    assert found.most == ()
    (cause,) = found.left_out.values()
    assert isinstance(cause, Finding)
    assert cause.rule.name == "endpoint-fails"


def test_a_slow_pair_within_a_node_counts() -> None:
    found = of(fabric("abc", 4, lambda s, d: 0.3 if {s, d} == {"b:0", "b:1"} else 1.0))
    assert found.nodes == ("a", "c")
    assert len(found.joining) == 3


def test_a_bad_rail_costs_one_gpu_per_node() -> None:
    found = of(fabric("abcd", 4, dead_if(lambda s, d: s[0] != d[0] and "3" in (s[2], d[2]))))
    assert len(found.nodes) == 1
    assert shares(found.most) == [("a,b,c,d", 3, "CUDA_VISIBLE_DEVICES=0,1,2")]


def test_if_all_pairs_are_bad_nothing_is_healthy() -> None:
    model = fabric("abc", 2, dead_if(lambda s, d: True))
    found = of(model)
    assert (found.nodes, found.endpoints, found.joining, found.most) == ((), (), (), ())
    assert list(found.left_out) == ["a", "b", "c"]
    assert drain_commands(found) == []
    assert as_json(found) is not None


def test_nothing_tested_is_no_healthy_set() -> None:
    model = Model()
    assert healthy_set(model, Survey(model).finish(), []) is None


def test_pairs_across_rails_that_nccl_relays_do_not_count() -> None:
    across = dead_if(lambda s, d: s[0] != d[0] and s[2] != d[2])
    found = of(fabric("abc", 4, across))
    assert (found.nodes, found.relayed) == (("a", "b", "c"), 72)
    assert len(of(fabric("abc", 4, across, world=Verdict.FAILED)).nodes) == 1
    assert len(of(fabric("abc", 4, across, world=None)).nodes) == 1


@pytest.mark.parametrize("shared", ["address", "mac"])
def test_nodes_of_which_one_works_by_chance_have_no_place(shared: str) -> None:
    """Packets for ``b`` and ``d`` reach ``b`` now, so that only ``d`` has bad pairs; later they may reach ``d``."""
    model = fabric("abcd", 2, dead_if(lambda s, d: s[0] != d[0] and "d:0" in (s, d)))
    for at, node in enumerate("abcd"):
        own, number = f"10.0.0.{at + 1}", at
        if node == "d" and shared == "address":
            own = "10.0.0.2"
        elif node == "d":
            number = 1
        entry = {"address": own, "nic": "eth0", "rail": 0, "family": 4}
        nic = {"name": "eth0", "mac": f"02:00:00:00:00:0{number}", "addresses": [{"address": own, "prefix": 24}]}
        model.apply(InventoryUpdate(node=node, value={"data_addresses": [entry], "nics": [nic]}, time=1.0))
    ends = [
        replace(end, address="10.0.0.2") if str(end) == "d:0" and shared == "address" else end
        for end in model.endpoints
    ]
    model.table.endpoints[:] = ends
    found = of(model)
    assert found.nodes == ("a", "c")
    assert [str(end) for end in found.joining] == ["b:1", "d:1"]
    causes = [cause.rule.name for cause in found.left_out.values() if isinstance(cause, Finding)]
    assert (list(found.left_out), causes) == (["b", "d"], [f"duplicate-{shared}"] * 2)
    assert drain_commands(found) == []


def test_lost_nodes_and_endpoints_in_use_are_left_out_with_the_reason() -> None:
    model = fabric("abc", 2, lambda s, d: Verdict.SKIPPED if "c:1" in (s, d) else 1.0)
    model.apply(NodeUpdate(node="b", state=NodeState.LOST, text="no heartbeat", time=3.0))
    model.apply(PlanUpdate(untested=[("a:0", "c:1", "c:1 is in use by train (pid 7)")], time=3.0))
    found = of(model)
    assert found.nodes == ("a",)
    assert found.left_out["c"] == "c:1 is in use by train (pid 7)"
    lost = found.left_out["b"]
    assert isinstance(lost, Finding)
    assert lost.rule.name == "node-lost"
    assert [str(end) for end in found.joining] == ["c:0"]
    assert drain_commands(found) == ["scontrol update NodeName=b State=DRAIN Reason='fabtui: b lost'"]


def test_small_graphs_are_solved_exactly() -> None:
    rng = random.Random(7)
    for _ in range(150):
        count = rng.randint(1, 9)
        edges = [pair for pair in itertools.combinations(range(count), 2) if rng.random() < rng.choice((0.2, 0.5))]
        later = {at for at in range(count) if rng.random() < 0.3}
        subsets = (set(one) for size in range(count + 1) for one in itertools.combinations(range(count), size))
        free = [one for one in subsets if not any(one.issuperset(edge) for edge in edges)]
        best = max((len(one), -len(one & later)) for one in free)
        chosen, exact = largest(count, edges, later)
        assert exact
        assert (len(chosen), -len(set(chosen) & later)) == best
        assert set(chosen) in free


def test_of_very_many_items_those_with_most_bad_pairs_are_left_out() -> None:
    # 2,100 stars of three items: the middle of each is bad with both others.
    edges = [(3 * star, 3 * star + leaf) for star in range(2100) for leaf in (1, 2)]
    chosen, exact = largest(6300, edges)
    assert (len(chosen), exact) == (4096, False)
    assert not any(item % 3 == 0 for item in chosen)


def test_the_search_is_bounded_and_beyond_its_limit_greedy() -> None:
    rings = [(5 * at + one, 5 * at + (one + 1) % 5) for at in range(12) for one in range(5)]
    began = time.process_time()
    chosen, _ = largest(64, rings)
    assert len(chosen) == 24 + 4
    rng = random.Random(3)
    edges = [pair for pair in itertools.combinations(range(60), 2) if rng.random() < 0.1]
    assert len(largest(60, edges)[0]) > 15
    star = [(0, at) for at in range(1, 100)]
    assert largest(100, star) == (list(range(1, 100)), False)
    assert largest(6000, [(at, at + 1) for at in range(0, 5999, 2)])[0]
    assert time.process_time() - began < 10


def uneven(nodes: str, seed: int) -> tuple[HealthySet, dict[frozenset[str], float]]:
    """A fabric whose links between nodes differ, though none is slow, and the values of the links."""
    rng = random.Random(seed)
    links = {frozenset(pair): 45.0 * rng.uniform(0.8, 1.0) for pair in itertools.combinations(nodes, 2)}

    def judge(src: str, dst: str) -> float:
        # The best of several pairs counts.
        share = links.get(frozenset((src[0], dst[0])), 45.0) / 45.0
        return share if src[2] == dst[2] == "0" else share * 0.97

    return of(fabric(nodes, 2, judge)), links


@pytest.mark.parametrize("seed", range(4))
def test_the_rank_order_keeps_slow_links_out_of_the_ring(seed: int) -> None:
    found, links = uneven("abcdefgh", seed)

    def slowest(order: Iterable[str]) -> float:
        nodes = list(order)
        return min(links[frozenset(pair)] for pair in zip(nodes, [*nodes[1:], nodes[0]], strict=True))

    assert sorted(found.nodes) == list("abcdefgh")
    assert found.nodes[0] == "a"
    assert found.ring is not None
    assert found.ring.before.value == pytest.approx(slowest("abcdefgh"))
    assert found.ring.after.value == pytest.approx(slowest(found.nodes))
    assert found.ring.after.value > 1.02 * found.ring.before.value
    assert links[frozenset(found.ring.after[:2])] == pytest.approx(found.ring.after.value)
    assert [str(end) for end in found.endpoints] == [f"{node}:{at}" for node in found.nodes for at in (0, 1)]


def test_the_given_order_stays_where_no_other_is_better() -> None:
    found = of(fabric("abcdef", 2, dead_if(lambda s, d: False)))
    assert found.nodes == tuple("abcdef")
    assert found.ring is not None
    assert found.ring.before == found.ring.after
    assert uneven("abc", 1)[0].ring is None, "rings of three nodes are all the same"


def ring_of(judge: Callable[[str, str], Verdict | float], nodes: str = "abcd", **more: Any) -> HealthySet:
    return of(fabric(nodes, 1, judge, **more))


def test_a_hop_is_as_fast_as_its_slower_direction() -> None:
    found = ring_of(lambda s, d: 0.8 if (s[0], d[0]) == ("c", "b") else 1.0)
    assert found.ring is not None
    assert found.ring.before[:2] == ("b", "c")
    assert found.ring.before.value == pytest.approx(36)
    assert found.ring.after.value == pytest.approx(45)
    assert {"b", "c"} not in [{one, other} for one, other in itertools.pairwise((*found.nodes, found.nodes[0]))]


def test_hops_are_known_from_world_where_there_is_no_p2p() -> None:
    model = session_of("abcd")
    rows = [
        Measurement(Layer.WORLD, f"{s}:0", f"{d}:0", Verdict.OK, 40.0 if {s, d} == {"c", "d"} else 45.0, "GB/s")
        for s, d in itertools.permutations("abcd", 2)
    ]
    model.apply(Measured(measurements=rows, time=2.0))
    found = of(model)
    assert found.ring is not None
    assert (found.ring.before, found.ring.after.value) == (("c", "d", 40.0), 45.0)


def test_hops_of_untested_pairs_are_neither_sought_nor_avoided() -> None:
    found = ring_of(lambda s, d: Verdict.SKIPPED if {s[0], d[0]} == {"a", "b"} else 1.0)
    assert found.nodes == tuple("abcd")
    assert found.ring is not None
    assert found.ring.before == found.ring.after
    assert found.ring.before.value == 45.0


def test_pairs_that_were_not_tested_are_counted() -> None:
    model = session_of("abc")
    rows = [Measurement(Layer.P2P, f"{s}:0", f"{d}:0", Verdict.OK, 45.0, "GB/s") for s, d in ("ab", "ba", "bc")]
    model.apply(Measured(measurements=rows, time=2.0))
    found = of(model)
    assert (found.nodes, found.untested) == (("a", "b", "c"), 3)


@pytest.mark.parametrize(("dead", "drained"), [(["b:0"], ()), (["b:0", "b:1"], ("b",))])
def test_one_pair_of_two_nodes_is_no_proof_against_either(dead: list[str], drained: tuple[str, ...]) -> None:
    model = fabric("abcd", 2, dead_if(lambda s, d: s == "a:0" and d in dead))
    tally = Survey(model).finish()
    blamed = [diagnose(model).findings[0].replace(nodes=("b",), cells=frozenset(tally.bad))]
    found = healthy_set(model, tally, blamed)
    assert found is not None
    assert (found.nodes, found.drain) == (("a", "c", "d"), drained)
    warned = healthy_set(model, tally, [one.replace(severity=Severity.WARN) for one in blamed])
    assert warned is not None
    assert warned.drain == ()
    assert list(warned.left_out.values()) == ["some of its pairs are bad"]


def test_a_node_that_was_not_tested_is_left_out_with_its_note() -> None:
    model = fabric("abc", 2, lambda s, d: Verdict.SKIPPED if "c" in (s[0], d[0]) else 1.0)
    assert of(model).left_out == {"c": "c:[0-1] was not tested"}
    model.nodes["c"].note = "no GPU is free"
    assert of(model).left_out == {"c": "no GPU is free"}
    model.apply(PlanUpdate(untested=[("a:0", "c:1", "c:1: busy"), ("a:0", "c:0", "no time")], time=3.0))
    assert of(model).left_out == {"c": "c:1: busy"}


def test_the_cause_of_a_bad_node_is_the_finding_about_it_alone() -> None:
    model = fabric("abcd", 2, dead_if(lambda s, d: "b" in (s[0], d[0]) and s[0] != d[0]))
    tally = Survey(model).finish()
    (about,) = diagnose(model).findings
    several = about.replace(nodes=("a", "b"))
    found = healthy_set(model, tally, [several, about])
    assert found is not None
    assert found.left_out == {"b": about}
    found = healthy_set(model, tally, [several])
    assert found is not None
    assert found.left_out == {"b": several}
    found = healthy_set(model, tally, [several.replace(cells=frozenset())])
    assert found is not None
    assert found.left_out == {"b": "some of its pairs are bad"}


def test_hops_of_a_node_that_is_left_out_do_not_count() -> None:
    def judge(src: str, dst: str) -> Verdict | float:
        return Verdict.FAILED if {src[0], dst[0]} == {"a", "e"} else 0.8 if {src[0], dst[0]} == {"c", "d"} else 1.0

    found = ring_of(judge, "abcde")
    assert list(found.left_out) == ["e"]
    assert found.ring is not None
    assert found.ring.before[:2] == ("c", "d")
    assert found.ring.before.value == pytest.approx(36.0)
