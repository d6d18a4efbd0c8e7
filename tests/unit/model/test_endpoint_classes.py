"""Classes of pairs: by relation, leaf switch, NUMA half and hardware."""

import itertools

import numpy as np
import pytest

from fabtui.model.endpoints import PAIR_CLASSES, ClassKey, Endpoint, EndpointTable, PairClass
from fabtui.model.places import Places, relations


def table(models: dict[str, str], rails: int = 2) -> EndpointTable:
    found = EndpointTable()
    for node, model in models.items():
        for index in range(rails):
            found.add(Endpoint(len(found.endpoints), node, index, name=model, rail=index))
    return found


def test_the_relation_of_two_endpoints_and_of_what_is_none() -> None:
    ends = table({"a": "H200", "b": "H200"})
    assert ends.class_between("a:0", "a:1") is PairClass.SAME_NODE
    assert ends.class_between("a:0", "b:0") is PairClass.SAME_RAIL
    assert ends.class_between("a:0", "b:1") is PairClass.CROSS_RAIL
    assert ends.key_between("a", "b") == ClassKey(PairClass.NODE_PAIR)
    assert ends.key_between("all", "all") == ClassKey(PairClass.ALL)
    assert ends.key_between("a", "a") == ClassKey(PairClass.ONE_NODE)
    assert ends.key_between("rail 0", "rail 0") == ClassKey(PairClass.ONE_NODE, apart=True)
    assert ends.key_between("a:0", "x:0") == ClassKey(PairClass.NODE_PAIR)


def test_groups_of_ranks_are_compared_with_those_of_the_same_hardware_and_leaf_switches() -> None:
    ends = table({"a": "H200", "b": "H200", "c": "A100"})
    ends.leaves = {0: "L1", 1: "L1", 2: "L2", 3: "L2", 4: "L1", 5: "L1"}
    assert ends.key_between("b", "b") == ClassKey(PairClass.ONE_NODE) != ends.key_between("c", "c")
    assert ends.key_between("a", "b") == ClassKey(PairClass.NODE_PAIR, apart=True)
    assert ends.key_between("a", "c") == ClassKey(PairClass.NODE_PAIR, hardware=(0, 1)) == ends.key_between("c", "a")
    assert ends.key_between("rail 0", "rail 0") == ClassKey(PairClass.ONE_NODE, apart=True)
    assert ends.key_between("first4", "first4") != ends.key_between("first8", "first8")


def test_where_rails_are_unknown_the_index_stands_for_the_rail() -> None:
    ends = EndpointTable()
    for node in "ab":
        for index in range(2):
            ends.add(Endpoint(len(ends.endpoints), node, index, rail=1 if (node, index) == ("b", 0) else None))
    assert ends.class_between("a:0", "b:0") is PairClass.CROSS_RAIL
    assert ends.class_between("a:1", "b:0") is PairClass.SAME_RAIL
    assert Places.of(ends).rail.tolist() == [0, 1, 1, 1]


def test_leaf_switches_part_pairs_of_nodes_and_halves_those_within() -> None:
    ends = table({"a": "H200", "b": "H200", "c": "H200"})
    ends.leaves = {0: "L1", 1: "L1", 2: "L2", 3: "L1"}
    ends.halves = {0: 0, 1: 1, 2: 0, 3: 0}
    assert ends.key_between("a:0", "b:0") == ClassKey(PairClass.CROSS_LEAF, apart=True)
    assert ends.key_between("a:1", "b:1") == ClassKey(PairClass.SAME_RAIL)
    assert ends.key_between("a:0", "b:1") == ClassKey(PairClass.CROSS_RAIL)
    assert ends.key_between("a:1", "b:0") == ClassKey(PairClass.CROSS_RAIL, apart=True)
    assert ends.key_between("a:0", "c:0") == ClassKey(PairClass.SAME_RAIL), "the leaf of c is unknown"
    assert ends.key_between("a:0", "a:1") == ClassKey(PairClass.SAME_NODE, apart=True)
    assert ends.key_between("b:0", "b:1") == ClassKey(PairClass.SAME_NODE)
    assert ends.key_between("c:0", "c:1") == ClassKey(PairClass.SAME_NODE)


@pytest.mark.parametrize("domains", [{}, {2: "x", 3: "y", 4: "x", 5: "x"}])
def test_the_columns_of_a_table_are_the_classes_of_its_pairs(domains: dict[int, str]) -> None:
    ends = table({"a": "H200", "b": "H200", "c": "H100"})
    ends.leaves = {0: "L1", 1: "L1", 2: "L2", 3: "L1"}
    ends.halves = {0: 0, 1: 1, 2: 0, 3: 0}
    ends.domains = domains
    kinds = PAIR_CLASSES
    places = Places.of(ends)
    source, target = np.array(list(itertools.permutations(range(6), 2))).T
    for a, b, kind, apart in zip(source, target, *relations(places, source, target), strict=True):
        key = ends.key_between(ends.names[a], ends.names[b])
        assert (kinds[kind], bool(apart)) == (key.kind, key.apart)
        assert key.hardware == tuple(sorted((places.hardware[a], places.hardware[b])))


def test_an_nvlink_domain_parts_pairs_of_nodes_whatever_their_rails_and_leaf_switches() -> None:
    ends = table({"a": "GB200", "b": "GB200", "c": "GB200"})
    ends.leaves = {0: "L1", 2: "L2", 4: "L1"}
    ends.domains = {0: "x", 1: "x", 2: "x", 3: "x", 4: "y"}
    assert ends.key_between("a:0", "b:0") == ends.key_between("a:0", "b:1") == ClassKey(PairClass.SAME_DOMAIN)
    assert ends.key_between("a:0", "a:1") == ClassKey(PairClass.SAME_NODE)
    assert ends.key_between("a:0", "c:0") == ClassKey(PairClass.SAME_RAIL)
    assert ends.key_between("b:0", "c:0") == ClassKey(PairClass.CROSS_LEAF, apart=True)
    assert ends.key_between("a", "b") == ClassKey(PairClass.NODE_PAIR, together=True)
    assert ends.key_between("b", "c") == ClassKey(PairClass.NODE_PAIR, apart=True)
    assert ends.relation(0, 3) is PairClass.SAME_DOMAIN


def hardware(rates: dict[str, float], models: dict[str, str] | None = None) -> list[list[str]]:
    ends = table(models or dict.fromkeys("abcdef"[: len(rates)], "H200"), 1)
    ends.set_rates(rates)
    found: dict[int, list[str]] = {}
    for end, number in zip(ends.endpoints, ends.hardware, strict=True):
        found.setdefault(number, []).append(end.node)
    return sorted(found.values())


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({"a": 400.0, "b": 400.0, "c": 400.0}, [["a", "b", "c"]]),
        ({"a": 400.0, "b": 400.0, "c": 200.0}, [["a", "b", "c"]]),
        ({"a": 400.0, "b": 400.0, "c": 200.0, "d": 200.0}, [["a", "b"], ["c", "d"]]),
        ({"a": 400.0, "b": 400.0, "c": 200.0, "d": 200.0, "e": 100.0}, [["a", "b", "e"], ["c", "d"]]),
        ({"a": 400.0, "b": 200.0}, [["a", "b"]]),
    ],
)
def test_nodes_of_another_rate_are_a_class_if_there_are_several(
    rates: dict[str, float], expected: list[list[str]]
) -> None:
    assert hardware(rates) == expected


def test_gpu_models_are_classes_of_their_own() -> None:
    assert hardware({}, {"a": "H200", "b": "H100", "c": "H200"}) == [["a", "c"], ["b"]]
    rates = {"a": 400.0, "b": 200.0, "c": 400.0, "d": 200.0}
    assert hardware(rates, dict(zip("abcd", ("H200", "H100", "H200", "H100"), strict=True))) == [["a", "c"], ["b", "d"]]


def test_rates_that_change_nothing() -> None:
    ends = table({"a": "H200", "b": "H200"})
    assert ends.set_rates({"a": 400.0, "b": 400.0})
    assert not ends.set_rates({"a": 400.0, "b": 400.0})


def test_endpoints_come_in_order() -> None:
    ends = table({"a": "H200"})
    with pytest.raises(ValueError, match="has number 3, not 2"):
        ends.add(Endpoint(3, "b", 0))
    assert [str(end) for end in ends.of_node("a")] == ["a:0", "a:1"]
    assert ends.of_node("x") == []


def test_results_of_two_nodes_fill_the_cells_of_both_directions() -> None:
    ends = table({"a": "H200", "b": "H200"}, 1)
    assert list(ends.cells_of("a:0", "b:0")) == [(0, 1)]
    assert list(ends.cells_of("a", "b")) == [(0, 1), (1, 0)]
    assert list(ends.cells_of("a", "all")) == []
