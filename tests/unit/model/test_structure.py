"""Structure of a fabric: halves of nodes and groups of nodes, from how much slower pairs are than the best ones."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from fabtui.model.endpoints import PAIR_CLASSES, Endpoint, EndpointTable, PairClass
from fabtui.model.pair_table import OK, PairTable, halves, node_groups
from fabtui.model.places import Places, relations

#: Returns the logarithm of the value of a pair over what is usual; None if it was not tested.
Judge = Callable[[Endpoint, Endpoint], float | None]


def made(nodes: str, per_node: int, judge: Judge, spread: float = 0.02) -> tuple[PairTable, EndpointTable]:
    ends = EndpointTable()
    for at, (node, index) in enumerate(itertools.product(nodes, range(per_node))):
        ends.add(Endpoint(at, node, index, name="H200", rail=index))
    pairs = list(itertools.permutations(ends.endpoints, 2))
    known = [(a.number, b.number, value) for a, b in pairs for value in [judge(a, b)] if value is not None]
    source, target = (np.array([one[side] for one in known], dtype=np.int64) for side in (0, 1))
    count = np.arange(len(known))
    share = np.array([one[2] for one in known], dtype=float)
    same, low = np.full(len(known), OK), np.full(len(known), -np.inf)
    kind = relations(Places.of(ends), source, target)[0]
    return PairTable(source, target, same, share, np.full(len(known), spread), low, kind, count, 0 * count, share), ends


def across(a: Endpoint, b: Endpoint, size: int = 4) -> bool:
    return a.node == b.node and (a.index < size // 2) != (b.index < size // 2)


def groups(nodes: str, judge: Judge, per_node: int = 2, spread: float = 0.02) -> list[str]:
    found: dict[str, dict[str, None]] = {}
    table, ends = made(nodes, per_node, judge, spread)
    for number, group in node_groups(table, ends).items():
        found.setdefault(group, {})[ends.endpoints[number].node] = None
    return sorted("".join(names) for names in found.values())


def between(a: Endpoint, b: Endpoint, first: str = "ab") -> bool:
    return (a.node in first) != (b.node in first)


@pytest.mark.parametrize(("drop", "count"), [(0.11, 8), (0.09, 0)])
def test_halves_of_nodes_are_a_tenth_slower_between_each_other(drop: float, count: int) -> None:
    found = halves(*made("ab", 4, lambda a, b: -drop if across(a, b) else 0.0))
    assert len(found) == count
    if count:
        assert found == {number: number % 4 // 2 for number in range(8)}


@pytest.mark.parametrize(("alike", "count"), [(7, 40), (6, 0)])
def test_seven_of_ten_nodes_must_show_halves(alike: int, count: int) -> None:
    nodes = "abcdefghij"
    found = halves(*made(nodes, 4, lambda a, b: -0.5 if across(a, b) and a.node in nodes[:alike] else 0.0))
    assert len(found) == count


def test_halves_are_evenly_slower() -> None:
    def judge(a: Endpoint, b: Endpoint) -> float:
        # One pair of GPUs, two of eight values, is far from the others: a fault, not a property.
        return -1.2 if {a.index, b.index} == {0, 2} else -0.4 if across(a, b) else 0.0

    assert halves(*made("ab", 4, judge)) == {}
    assert len(halves(*made("ab", 4, lambda a, b: -0.4 if across(a, b) else 0.0))) == 8


def test_nodes_of_three_or_of_an_odd_number_have_no_halves() -> None:
    for size in (2, 3, 5):
        assert halves(*made("ab", size, lambda a, b, n=size: -0.5 if across(a, b, n) else 0.0)) == {}  # type: ignore[misc]
    assert len(halves(*made("ab", 6, lambda a, b: -0.5 if across(a, b, 6) else 0.0))) == 12


def test_pairs_between_nodes_do_not_speak_for_halves() -> None:
    assert halves(*made("ab", 4, lambda a, b: -0.5 if (a.index < 2) != (b.index < 2) and a.node != b.node else 0)) == {}
    untested = made("ab", 4, lambda a, b: None if across(a, b) else 0.0)
    assert halves(*untested) == {}
    assert halves(*made("ab", 4, lambda a, b: None if a.node == b.node else 0.0)) == {}


@pytest.mark.parametrize(("drop", "found"), [(0.11, ["ab", "cd"]), (0.09, [])])
def test_groups_of_nodes_are_a_tenth_slower_between_each_other(drop: float, found: list[str]) -> None:
    assert groups("abcd", lambda a, b: -drop if between(a, b) else 0.0) == found


def test_groups_have_two_nodes_each() -> None:
    assert groups("abc", lambda a, b: -0.5 if between(a, b) else 0.0) == []
    assert groups("abcd", lambda a, b: -0.5 if between(a, b, "a") else 0.0) == [], "one bad node is not a group"
    assert groups("abcdef", lambda a, b: -0.5 if between(a, b) else 0.0) == ["ab", "cdef"]


def test_there_may_be_more_than_two_groups() -> None:
    assert groups("abcdef", lambda a, b: -0.5 if between(a, b) or between(a, b, "cd") else 0.0) == ["ab", "cd", "ef"]
    # Those of one group are slower than the others: that is not a design.
    assert groups("abcdef", lambda a, b: -0.9 if between(a, b) else -0.5 if between(a, b, "cd") else 0.0) == []


def test_the_slower_direction_counts() -> None:
    assert groups("abcd", lambda a, b: -0.5 if between(a, b) and a.node in "ab" else 0.0) == ["ab", "cd"]


def test_one_pair_of_nodes_of_many_may_differ_by_chance() -> None:
    def judge(odd: set[frozenset[str]], value: float) -> Judge:
        return lambda a, b: value if frozenset((a.node, b.node)) in odd else -0.5 if between(a, b, "abcde") else 0.0

    nodes, halved = "abcdefghij", ["abcde", "fghij"]
    # 1 of 25 pairs of nodes between the groups may be off by more than 0.12; of 20 within each, both ways, 1 may too.
    assert groups(nodes, judge({frozenset("af")}, -0.9)) == halved
    assert groups(nodes, judge({frozenset("af"), frozenset("bg")}, -0.9)) == []
    assert groups(nodes, judge({frozenset("af"), frozenset("bg")}, -0.6)) == halved, "within 0.12 of the others"
    assert groups(nodes, judge({frozenset("ab")}, -0.5)) == []


def test_untested_pairs_make_no_groups() -> None:
    assert groups("abcd", lambda a, b: None if between(a, b) else 0.0) == []
    assert groups("abcd", lambda a, b: None) == []
    assert groups("abcd", lambda a, b: None if a.node != b.node else 0.0) == []


def test_two_nodes_of_their_own_hardware_say_nothing_about_groups() -> None:
    """Compared with themselves alone, pairs between two nodes of another model look as usual across groups too."""

    def judge(a: Endpoint, b: Endpoint) -> float:
        return -0.5 if between(a, b, "abc") and {a.node, b.node} != {"b", "d"} else 0.0

    table, ends = made("abcdef", 2, judge)
    assert node_groups(table, ends) == {}
    ends.hardware = [int(end.node in "bd") for end in ends.endpoints]
    found = node_groups(table, ends)
    assert {found[end.number] for end in ends.endpoints if end.node in "abc"} == {"group of a"}
    assert {found[end.number] for end in ends.endpoints if end.node in "def"} == {"group of d"}


def test_noise_makes_no_groups() -> None:
    """Values of busy processors spread widely: the best sixth of four nodes is far above the usual value."""
    noise = np.random.default_rng(3)
    for _ in range(300):
        values = noise.normal(0.0, 0.35, 64).tolist()
        assert groups("abcd", lambda a, b, values=values: values[8 * a.number + b.number], spread=0.26) == []  # type: ignore[misc]


def test_classes_of_the_table_of_pairs_are_those_of_single_pairs() -> None:
    """Pairs of CPU ranks may be apart too."""
    for address in (None, "10.0.{}.{}"):
        ends = EndpointTable()
        for number, (node, rail) in enumerate(itertools.product("abcd", (0, 1))):
            name = address and address.format(rail, number + 1)
            ends.add(Endpoint(number, node, rail, kind="cpu", rail=rail, nic=f"eth{rail}", address=name))
        ends.leaves = {number: "ab" if number < 4 else "cd" for number in range(8)}
        source, target = (np.array(side) for side in zip(*itertools.permutations(range(8), 2), strict=True))
        kinds, apart = relations(Places.of(ends), source, target)
        for a, b, kind, away in zip(source, target, kinds, apart, strict=True):
            key = ends.key_between(ends.names[a], ends.names[b])
            assert (PAIR_CLASSES[kind], bool(away)) == key[:2], (ends.names[a], ends.names[b])


def test_sockets_of_cpu_ranks_do_not_cross_rails() -> None:
    ends = EndpointTable()
    for number, (node, rail) in enumerate(itertools.product("abc", (0, 1))):
        # As an address, 10.2 is below 10.10, and below 9 as a text only.
        address = f"10.{(2, 10)[rail]}.0.{number + 1}" if node != "c" else None
        ends.add(Endpoint(number, node, rail, kind="cpu", rail=rail, nic=f"eth{rail}", address=address))
    source, target = (np.array(side) for side in zip(*itertools.permutations(range(6), 2), strict=True))
    places = Places.of(ends)
    found = dict(zip(zip(source, target, strict=True), zip(*places.carriers(source, target), strict=True), strict=True))
    for (a, b), carried in found.items():
        here, there = ends.carriers(ends.endpoints[a], ends.endpoints[b])
        assert carried == (here.number, there.number)
    # The rail with the lower address carries the pair, at both ends.
    assert (found[0, 3], found[3, 0], found[1, 2]) == ((0, 2), (2, 0), (0, 2))
    assert (found[1, 3], found[0, 1]) == ((1, 3), (0, 1)), "one rail, and one node"
    assert found[0, 5] == (0, 5), "the address is not known"
    kinds = dict(zip(found, relations(places, source, target)[0], strict=True))
    assert (kinds[0, 3], kinds[0, 1], kinds[0, 5]) == (1, 0, 3)
    assert ends.class_between("a:0", "b:1") is PairClass.SAME_RAIL
    assert ends.class_between("a:0", "c:1") is PairClass.CROSS_RAIL
