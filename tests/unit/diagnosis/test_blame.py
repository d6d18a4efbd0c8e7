"""Components to blame: how many bad pairs it takes, which components are rivals, and what is left to others."""

import itertools
import math
import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from fabtui.diagnosis.blame import Blame, blamed, blocked_across, in_common
from fabtui.diagnosis.finding import Direction, Kind, Reach
from fabtui.model.endpoints import Endpoint, EndpointTable
from fabtui.model.pair_table import DEAD, OK, SLOW, PairTable
from fabtui.model.places import Places, relations

#: Returns the share of the usual value of a pair; 0 if it is dead, None if it was not tested.
Judge = Callable[[str, str], float | None]
NOISE = 0.05
NODES = "abcdefghijklmnop"


def results(
    nodes: str, per_node: int, judge: Judge, nic: str | None = "m{}", leaves: str = "", noise: float = NOISE
) -> list[Blame]:
    return [one for one in blamed(*made(nodes, per_node, judge, nic, leaves, noise)) if one is not None]


def made(
    nodes: str, per_node: int, judge: Judge, nic: str | None = "m{}", leaves: str = "", noise: float = NOISE
) -> tuple[PairTable, Places, list[Endpoint]]:
    """Return the results of a fabric; `leaves` has the leaf switch of each node."""
    ends = EndpointTable()
    for at, (node, index) in enumerate(itertools.product(nodes, range(per_node))):
        ends.add(Endpoint(at, node, index, nic=nic and nic.format(index), rail=index))
        if leaves:
            ends.leaves[at] = leaves[nodes.index(node)]
    pairs = list(itertools.permutations(ends.endpoints, 2))
    shares = [judge(str(a), str(b)) for a, b in pairs]
    known = [(a.number, b.number, share) for (a, b), share in zip(pairs, shares, strict=True) if share is not None]
    source, target = (np.array([one[side] for one in known]) for side in (0, 1))
    share = np.array([one[2] for one in known], dtype=float)
    places = Places.of(ends)
    limit = math.log(0.7)
    log = np.where(share > 0, np.log(np.where(share > 0, share, 1.0)), np.nan)
    verdict = np.where(share == 0, DEAD[0], np.where(log < limit, SLOW, OK))
    count = np.arange(len(known))
    table = PairTable(
        source,
        target,
        verdict,
        log,
        np.full(len(known), noise),
        np.full(len(known), limit),
        relations(places, source, target)[0],
        count,
        0 * count,
        share,
    )
    return table, places, ends.endpoints


def off(src: str, dst: str) -> bool:
    return src[0] != dst[0]


def subjects(found: list[Blame]) -> list[tuple[Kind, str, Direction]]:
    return [(*one.subject, one.direction) for one in found]


def test_a_gpu_that_fails_with_all_others() -> None:
    (found,) = results("abcd", 4, lambda s, d: 0.0 if "b:2" in (s, d) else 1.0)
    assert (found.subject, found.reach, found.direction) == ((Kind.GPU, "b:2"), Reach.ALL, Direction.BOTH)
    assert (found.dead, found.factor, found.tested, found.others, len(found.bad)) == (True, None, 30, 15, 30)
    assert found.confidence > 0.99


def test_a_slow_nic_and_its_factor() -> None:
    (found,) = results("abcd", 4, lambda s, d: 0.4 if "b:2" in (s, d) and off(s, d) else 1.0)
    assert (found.subject, found.reach) == ((Kind.NIC, "b m2"), Reach.OFF_NODE)
    assert (found.dead, found.tested, found.others, len(found.bad)) == (False, 24, 12, 24)
    assert found.factor == pytest.approx(0.4)


@pytest.mark.parametrize(("sends", "direction"), [(True, Direction.SENDS), (False, Direction.RECEIVES)])
def test_one_direction(sends: bool, direction: Direction) -> None:
    found = results("abcd", 2, lambda s, d: 0.3 if off(s, d) and (s if sends else d) == "b:1" else 1.0)
    assert subjects(found) == [(Kind.NIC, "b m1", direction)]
    assert (found[0].tested, found[0].others) == (6, 6)


@pytest.mark.parametrize(("others", "kind"), [(0.75, Kind.NIC), (0.1, Kind.GPU)])
def test_pairs_that_are_a_little_slow_do_not_widen_what_is_very_slow(others: float, kind: Kind) -> None:
    """A GPU whose pairs with other nodes are 50 times slower may be a little slow within the node."""

    def share(src: str, dst: str) -> float:
        return 1.0 if dst != "b:1" else 0.02 if off(src, dst) else others

    (found,) = results("abcd", 8, share, noise=0.3)
    assert (found.subject.kind, found.direction) == (kind, Direction.RECEIVES)


def test_bad_pairs_without_a_pattern_blame_nothing() -> None:
    chosen = {("a:0", "b:1"), ("c:1", "d:0"), ("b:0", "d:1"), ("d:0", "a:1")}
    assert results("abcd", 2, lambda s, d: 0.0 if (s, d) in chosen else 1.0) == []
    assert results("abcd", 2, lambda s, d: 0.3 if (s, d) in chosen else 1.0) == []


def test_both_directions_of_one_pair_are_a_pair_and_no_component() -> None:
    assert results("abcd", 4, lambda s, d: 0.0 if {s, d} == {"a:0", "b:0"} else 1.0) == []
    assert results("ab", 1, lambda s, d: 0.0) == []


@pytest.mark.parametrize(("nodes", "blames"), [(13, 1), (16, 0)])
def test_fifteen_of_a_hundred_pairs_have_to_be_slow(nodes: int, blames: int) -> None:
    """Noise lifts most pairs above the limit: 4 slow ones of 24 are enough, 4 of 30 are not."""
    slow = {("a:0", "b:0"), ("c:0", "a:0"), ("a:0", "d:0"), ("e:0", "a:0")}
    found = results(NODES[:nodes], 1, lambda s, d: (0.69 if (s, d) in slow else 0.72) if "a:0" in (s, d) else 1.0)
    assert len(found) == blames


@pytest.mark.parametrize(("nodes", "blames"), [(6, 1), (10, 0)])
def test_of_many_components_one_needs_more_evidence(nodes: int, blames: int) -> None:
    """Two dead pairs of three save 8 bits; one of ten nodes costs too many of them, one of six does not."""
    tested = {("a:0", "b:0"): 0.0, ("a:0", "c:0"): 0.0, ("a:0", "d:0"): 1.0}

    def judge(src: str, dst: str) -> float | None:
        return tested.get((src, dst)) if "a:0" in (src, dst) else 1.0

    assert len(results(NODES[:nodes], 1, judge)) == blames


def test_a_rail_a_leaf_and_the_cut_between_leaves() -> None:
    (rail,) = results("abcd", 4, lambda s, d: 0.0 if off(s, d) and "3" in (s[2], d[2]) else 1.0)
    assert (rail.subject, rail.tested) == ((Kind.RAIL, "3"), 84)
    (inside,) = results("abcd", 4, lambda s, d: 0.4 if off(s, d) and s[2] == d[2] == "3" else 1.0)
    assert (inside.subject, inside.reach, inside.tested) == ((Kind.RAIL, "3"), Reach.INSIDE, 12)
    (leaf,) = results("abcdef", 2, lambda s, d: 0.0 if off(s, d) and {s[0], d[0]} & set("cd") else 1.0, leaves="112233")
    assert (leaf.subject, leaf.tested) == ((Kind.LEAF, "c,d"), 72)
    (cut,) = results("abcd", 2, lambda s, d: 0.0 if (s[0] in "ab") != (d[0] in "ab") else 1.0, leaves="1122")
    assert (cut.subject, cut.direction) == ((Kind.LEAF_CUT, "a,b - c,d"), Direction.BOTH)


def test_groups_that_do_not_reach_each_other_stand_for_unknown_leaves() -> None:
    (cut,) = results("abcd", 2, lambda s, d: 0.0 if (s[0] in "ab") != (d[0] in "ab") else 1.0)
    assert cut.subject == (Kind.LEAF_CUT, "a,b - c,d")
    (node,) = results("abcd", 2, lambda s, d: 0.0 if off(s, d) and "a" in (s[0], d[0]) else 1.0)
    assert node.subject == (Kind.NODE, "a"), "a group of one node is that node"


def test_groups_that_do_not_reach_each_other_on_one_rail() -> None:
    def cut(src: str, dst: str, rails: str) -> bool:
        return src[2] == dst[2] and src[2] in rails and (src[0] in "ab") != (dst[0] in "ab")

    (one,) = results("abcd", 2, lambda s, d: 0.0 if cut(s, d, "0") else 1.0)
    assert (one.subject, one.tested) == ((Kind.LEAF_CUT, "a,b - c,d on rail 0"), 8)
    two = results("abcd", 3, lambda s, d: 0.0 if cut(s, d, "02") else 1.0)
    assert {found.subject.name for found in two} == {"a,b - c,d on rail 0", "a,b - c,d on rail 2"}
    (three,) = results(
        "abcdef", 1, lambda s, d: 0.0 if (s[0] in "ab", s[0] in "cd") != (d[0] in "ab", d[0] in "cd") else 1
    )
    assert three.subject.kind is not Kind.RAIL


def test_the_path_between_two_nodes_in_both_directions_and_in_one() -> None:
    assert subjects(results("abcd", 2, lambda s, d: 0.0 if {s[0], d[0]} == {"b", "d"} else 1.0)) == [
        (Kind.NODE_PAIR, "b - d", Direction.BOTH)
    ]
    assert subjects(results("abcd", 2, lambda s, d: 0.3 if (s[0], d[0]) == ("d", "b") else 1.0)) == [
        (Kind.NODE_PAIR, "d > b", Direction.SENDS)
    ]


def test_two_rails_all_rails_all_nodes_and_all_pairs() -> None:
    (two,) = results("abc", 4, lambda s, d: 0.0 if off(s, d) and {s[2], d[2]} == {"1", "3"} else 1.0)
    assert (two.subject, two.tested) == ((Kind.RAIL_PAIR, "1 - 3"), 12)
    (across,) = results("abc", 4, lambda s, d: 0.0 if off(s, d) and s[2] != d[2] else 1.0)
    assert (across.subject, across.tested) == ((Kind.CROSS_RAIL, "all rails"), 72)
    (between,) = results("abc", 4, lambda s, d: 0.0 if off(s, d) else 1.0)
    assert between.subject == (Kind.CROSS_NODE, "all nodes")
    (everything,) = results("abc", 4, lambda s, d: 0.0)
    assert (everything.subject, everything.tested) == ((Kind.FABRIC, "all pairs"), 132)


def test_the_halves_of_a_node() -> None:
    (found,) = results("ab", 4, lambda s, d: 0.4 if s[0] == d[0] == "b" and (s[2] in "01") != (d[2] in "01") else 1.0)
    assert (found.subject, found.reach, found.tested) == ((Kind.HALVES, "b"), Reach.INSIDE, 8)


def test_two_causes_come_by_what_they_explain_and_each_pair_once() -> None:
    def judge(src: str, dst: str) -> float:
        if "a:0" in (src, dst):
            return 0.0
        return 0.4 if off(src, dst) and "c:1" in (src, dst) else 1.0

    found = results("abcd", 4, judge)
    assert subjects(found) == [(Kind.GPU, "a:0", Direction.BOTH), (Kind.NIC, "c m1", Direction.BOTH)]
    assert [one.dead for one in found] == [True, False]
    assert len(found[1].bad) == 22, "pairs with the dead GPU are explained"


def test_a_slow_pair_of_two_slow_nics_speaks_for_both() -> None:
    slow = {"a:0": 0.5, "c:1": 0.4}

    def judge(src: str, dst: str) -> float:
        return slow.get(src, 1.0) * slow.get(dst, 1.0) if off(src, dst) else 1.0

    found = {one.subject.name: one for one in results("abcd", 4, judge)}
    assert {name: round(one.factor or 0, 2) for name, one in found.items()} == {"a m0": 0.5, "c m1": 0.4}
    assert len({at for one in found.values() for at in one.bad}) == sum(len(one.bad) for one in found.values()) == 46


def test_pairs_that_are_settled_blame_nobody() -> None:
    table, places, ends = made("abcd", 4, lambda s, d: 0.0 if "b:2" in (s, d) else 1.0)
    dead = np.flatnonzero(np.isin(table.verdict, DEAD)).tolist()
    assert [one for one in blamed(table, places, ends, dead) if one is not None] == []
    (found,) = [one for one in blamed(table, places, ends, dead[:5]) if one is not None]
    assert (found.tested, len(found.bad)) == (25, 25)


def test_rivals_explain_the_same_pairs_about_as_well() -> None:
    """Without pairs within the node, a GPU and its NIC look alike."""
    (found,) = results("abcd", 2, lambda s, d: None if not off(s, d) else 0.3 if "b:1" in (s, d) else 1.0)
    both = {found.subject, *found.rivals}
    assert {(Kind.GPU, "b:1"), (Kind.NIC, "b m1")} <= both
    # With equal evidence, the GPU is 0.2 bits likelier.
    assert found.confidence == pytest.approx(1 / (1 + 2**-0.2))
    (sure,) = results("abcd", 2, lambda s, d: 0.3 if "b:1" in (s, d) and off(s, d) else 1.0)
    assert sure.confidence > 0.9


def test_what_explains_other_pairs_is_no_rival() -> None:
    found = results("abcd", 4, lambda s, d: 0.0 if "a:0" in (s, d) or "c:1" in (s, d) else 1.0)
    assert {one.subject.name for one in found} == {"a:0", "c:1"}
    assert [{rival.name for rival in one.rivals} & {"a:0", "c:1"} for one in found] == [set(), set()]


def test_a_slow_cut_between_known_leaf_switches() -> None:
    def cut(src: str, dst: str) -> float:
        return 0.4 if (src[0] in "ab") != (dst[0] in "ab") else 1.0

    (found,) = results("abcd", 2, cut, leaves="1122")
    assert (found.subject, found.direction) == ((Kind.LEAF_CUT, "a,b - c,d"), Direction.BOTH)
    assert {one.kind for one in found.rivals}.isdisjoint({Kind.LEAF}), "with two leaf switches, the cut is both"
    assert not results("abcd", 2, cut) or results("abcd", 2, cut)[0].subject.kind is not Kind.LEAF_CUT
    one_way = results("abcdef", 2, lambda s, d: 0.4 if s[0] in "ab" and d[0] in "cd" else 1.0, leaves="112233")
    assert subjects(one_way) == [(Kind.LEAF_CUT, "a,b > c,d", Direction.SENDS)]


def test_a_gpu_that_fails_within_its_node_alone() -> None:
    (found,) = results("ab", 4, lambda s, d: 0.0 if s[0] == d[0] and "b:2" in (s, d) else 1.0)
    assert (found.subject, found.reach, found.tested, found.others) == ((Kind.GPU, "b:2"), Reach.INSIDE, 6, 3)
    (node,) = results("abc", 4, lambda s, d: 0.0 if s[0] == d[0] == "b" else 1.0)
    assert (node.subject, node.reach, node.tested, node.others) == ((Kind.NODE, "b"), Reach.INSIDE, 12, 3)
    (whole,) = results("abc", 4, lambda s, d: 0.4 if "b" in (s[0], d[0]) else 1.0)
    assert (whole.subject, whole.reach, whole.tested) == ((Kind.NODE, "b"), Reach.ALL, 76)


@pytest.mark.parametrize(("nic", "name"), [("m{}", "b m1"), (None, "b rail 1")])
def test_endpoints_share_a_nic(nic: str | None, name: str) -> None:
    (found,) = results("abcd", 2, lambda s, d: 0.3 if off(s, d) and "b:1" in (s, d) else 1.0, nic)
    assert found.subject == (Kind.NIC, name)
    (shared,) = results("abcd", 4, lambda s, d: 0.3 if off(s, d) and "b" in (s[0], d[0]) else 1.0, "m0")
    assert {shared.subject, *shared.rivals} >= {(Kind.NODE, "b"), (Kind.NIC, "b m0")}


def test_pairs_of_nodes_without_a_way_across_rails() -> None:
    def blocked(judge: Judge, nodes: str = "abc") -> list[tuple[int, int]]:
        table, places, _ = made(nodes, 2, judge)
        found: list[list[tuple[int, int]]] = []

        def walk() -> Iterator[None]:
            found.append((yield from blocked_across(table, places)))

        assert all(step is None for step in walk())
        return found[0]

    def across(src: str, dst: str) -> bool:
        return off(src, dst) and src[2] != dst[2]

    assert blocked(lambda s, d: 0.0 if across(s, d) and s[0] == "b" else 1.0) == [(1, 0), (1, 2)]
    assert blocked(lambda s, d: 0.0 if across(s, d) else 1.0) == [], "it is a property of the fabric"
    assert blocked(lambda s, d: 0.0 if across(s, d) and (s, d[0]) == ("b:0", "a") else 1.0) == [], "one still passes"
    assert blocked(lambda s, d: 0.0 if off(s, d) and s[0] == "b" else 1.0) == [], "nothing passes at all"
    single = {("b:0", "a:1")}
    assert blocked(lambda s, d: 0.0 if (s, d) in single else None if s[0] == "b" and across(s, d) else 1.0) == []


def busy_cores(share: Callable[[str, str], float], noise: float = 0.5) -> list[Blame]:
    """Return the components to blame for CPU ranks on two rails of four nodes, whose values spread far."""
    ends = EndpointTable()
    for number, (node, rail) in enumerate(itertools.product("abcd", (0, 1))):
        address = f"10.{rail + 1}.0.{number + 1}"
        ends.add(Endpoint(number, node, rail, kind="cpu", nic=f"eth{rail}", rail=rail, address=address))
    pairs = list(itertools.permutations(ends.endpoints, 2))
    source, target = (np.array([pair[side].number for pair in pairs]) for side in (0, 1))
    log = np.log(np.array([share(str(a), str(b)) for a, b in pairs]))
    places, count = Places.of(ends), np.arange(len(pairs))
    # Values of busy cores spread far: single pairs hardly separate a NIC from its node.
    spread, limit = (np.full(len(pairs), value) for value in (noise, math.log(0.2)))
    kind = relations(places, source, target)[0]
    table = PairTable(source, target, np.where(log < limit, SLOW, OK), log, spread, limit, kind, count, 0 * count, log)
    return [one for one in blamed(table, places, ends.endpoints) if one is not None]


def test_a_nic_of_cpu_ranks_is_blamed_for_the_pairs_that_its_rail_carries() -> None:
    def share(src: str, dst: str) -> float:
        # What comes to b over rail 0: of pairs across rails, all.
        return 0.02 if off(src, dst) and dst[0] == "b" and "0" in (src[-1], dst[-1]) else 1.0

    found = busy_cores(share)
    assert subjects(found) == [(Kind.NIC, "b eth0", Direction.RECEIVES)]
    assert len(found[0].bad) == 9


@pytest.mark.parametrize(
    ("slow", "direction"),
    [
        (("b:1>a:1",), Direction.RECEIVES),
        (("b:1>a:1", "b:1>c:1"), Direction.BOTH),
    ],
)
def test_a_slow_pair_the_other_way_does_not_hide_that_one_direction_is_slow(
    slow: tuple[str, ...], direction: Direction
) -> None:
    def share(src: str, dst: str) -> float:
        if off(src, dst) and dst == "b:1" and src[-1] == "1":
            return 0.03
        return 0.18 if f"{src}>{dst}" in slow else 0.9

    (found,) = busy_cores(share)
    assert (found.subject, found.direction) == ((Kind.NIC, "b eth1"), direction)


@pytest.mark.parametrize("noise", [0.7, 1.0, 1.24, 1.5])
def test_a_slow_nic_is_found_however_widely_the_values_of_others_spread(noise: float) -> None:
    chance = random.Random(7)

    def share(src: str, dst: str) -> float:
        # What is slow once is well when it is tested alone; 400 Mbit/s are 14 % of what is usual under load.
        well = max(0.21, math.exp(chance.gauss(0, noise)))
        return 0.14 if off(src, dst) and dst == "b:1" and src[-1] == "1" else well

    (found,) = busy_cores(share, noise)
    assert (found.subject, found.direction, len(found.bad)) == ((Kind.NIC, "b eth1"), Direction.RECEIVES, 3)


def same(*given: str) -> Judge:
    back = {way[::-1] for way in given} - set(given)
    known = dict.fromkeys(given, 0.0) | dict.fromkeys(back)
    return lambda s, d: known.get(s[0] + d[0], 1.0) if off(s, d) else None


def dead_only(where: Callable[[str, str], bool]) -> Judge:
    return lambda s, d: 0.0 if where(s, d) else None


@pytest.mark.parametrize(
    ("nodes", "per_node", "judge", "leaves", "bits"),
    [
        ("a", 4, dead_only(lambda s, d: True), "", {"fabric: all pairs": 1, "node: a": 2.5}),
        (
            *("ab", 4, dead_only(lambda s, d: s[0] == d[0] == "b" and (s[2] in "01") != (d[2] in "01")), ""),
            {"fabric: all pairs": 1, "node: b": 2.5, "halves: b": 3},
        ),
        (
            *("ab", 3, dead_only(lambda s, d: off(s, d) and s[2] != d[2]), ""),
            {"fabric: all pairs": 1, "cross-rail: all rails": 1.5, "pair: a - b": 1.5, "node: a": 3, "node: b": 3},
        ),
        (
            *("abcd", 2, dead_only(lambda s, d: s[0] + d[0] == "bd"), ""),
            {"fabric: all pairs": 1, "cross-node: all nodes": 1.5, "node: b": 3, "node: d": 3, "pair: b - d": 3},
        ),
        # One of six pairs of nodes, one of eleven directions, which costs more.
        ("abcd", 2, same("bd"), "", {"pair: b - d": 3 + math.log2(6), "pair: b > d": 4.5 + math.log2(11)}),
        ("abc", 2, same("ab", "ba", "ac", "ca"), "123", {"node: a": 2, "leaf: a": 2.5}),
        ("abcd", 2, same("bd", "db"), "1234", {"cut: b - d": 2, "pair: b - d": 3}),
    ],
)
def test_of_what_explains_the_same_the_likelier_kind_is_blamed(
    nodes: str, per_node: int, judge: Judge, leaves: str, bits: dict[str, float]
) -> None:
    """A name costs bits, by its kind and by how many of it there are; each bit more halves the probability."""
    (found,) = results(nodes, per_node, judge, leaves=leaves)
    names = sorted(one.partition(": ")[2] for one in bits)
    assert sorted(one.name for one in (found.subject, *found.rivals)) == names
    first, *more = sorted(bits.values())
    assert found.confidence == pytest.approx(1 / (1 + sum(2 ** (first - one) for one in more)))


def test_of_about_equal_causes_the_one_of_which_a_larger_share_fails_comes_first() -> None:
    """All of one endpoint and half of the other: the node saves as many bits, and its name costs fewer."""
    half = {("a:1", "b:0"), ("b:1", "a:1"), ("c:0", "a:1"), ("a:1", "c:1")}

    def judge(src: str, dst: str) -> float | None:
        return (0.0 if "a:0" in (src, dst) or (src, dst) in half else 1.0) if off(src, dst) else None

    assert results("abc", 2, judge)[0].subject == (Kind.GPU, "a:0")


def test_a_node_that_all_dead_pairs_have_is_named_although_others_of_it_pass() -> None:
    lost = {("d:0", "a:0"), ("d:0", "a:1"), ("d:1", "a:0"), ("d:1", "a:1"), ("d:0", "b:0"), ("d:1", "c:1")}

    def shared(more: tuple[str, str] | None = None) -> Blame | None:
        bad = lost | ({more} if more else set())
        table, places, ends = made("abcd", 2, lambda s, d: 0.0 if {(s, d), (d, s)} & bad else 1.0)
        blames = [one for one in blamed(table, places, ends) if one is not None]
        return in_common(table, places, blames, np.ones(len(table), dtype=bool))

    found = shared()
    assert found is not None
    assert (found.subject, found.partly, found.dead, len(found.bad)) == ((Kind.NODE, "d"), True, True, 12)
    assert found.rivals[0] == (Kind.NODE_PAIR, "a - d")
    assert shared(("a:0", "b:1")) is None, "another pair is dead without it"
    table, places, ends = made("abcd", 2, lambda s, d: 0.0 if "d" in s + d and off(s, d) else 1.0)
    blames = [one for one in blamed(table, places, ends) if one is not None]
    assert in_common(table, places, blames, np.ones(len(table), dtype=bool)) is None, "one component has them all"
