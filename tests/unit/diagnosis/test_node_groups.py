"""Groups of nodes between which traffic fails: nothing fails within a group, and nearly all between them."""

import itertools
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from fabtui.diagnosis.node_groups import NodeGroups, groups_of


def node_groups(nodes: str, passes: Iterable[tuple[str, str]], fails: Iterable[tuple[str, str]]) -> NodeGroups | None:
    """Return the groups of nodes between which some ordered pairs fail, and others pass."""
    flags = [np.zeros((len(nodes), len(nodes)), dtype=bool) for _ in range(2)]
    for each, pairs in zip(flags, (passes, fails), strict=True):
        for a, b in pairs:
            each[nodes.index(a), nodes.index(b)] = True
    return groups_of(nodes, *flags)


def found(
    nodes: str, fails: Callable[[str, str], object], tested: Callable[[str, str], object] = lambda *_: True
) -> NodeGroups | None:
    pairs = [pair for pair in itertools.permutations(nodes, 2) if tested(*pair)]
    bad = [pair for pair in pairs if fails(*pair)]
    return node_groups(nodes, [pair for pair in pairs if pair not in bad], bad)


def names(result: NodeGroups | None) -> str:
    return "-".join("".join(group) for group in result.groups) if result else ""


def leaf(*groups: str) -> Callable[[str, str], bool]:
    of = {node: group for group in groups for node in group}
    return lambda a, b: of[a] != of[b]


@pytest.mark.parametrize("groups", [("ab", "cd"), ("ad", "bc"), ("ab", "cdefgh"), ("abc", "de"), ("ab", "cd", "ef")])
def test_groups_that_fail_with_each_other(groups: tuple[str, ...]) -> None:
    result = found("".join(sorted("".join(groups))), leaf(*groups))
    assert names(result) == "-".join(sorted(groups))
    assert result is not None
    assert not result.one_way
    assert next(at for at, group in enumerate(result.groups) if groups[0][0] in group) == 0
    assert {*groups[0][:2]} <= {*result.groups[0]}


def test_a_leaf_that_reaches_both_others_belongs_to_no_group() -> None:
    assert names(found("abcdef", lambda a, b: {a in "ab", b in "ab"} == {True, False} and not {a, b} & set("ef"))) == (
        "ab-cd"
    )


def test_one_direction() -> None:
    result = found("abcd", lambda a, b: a in "cd" and b in "ab")
    assert (names(result), result and result.one_way) == ("cd-ab", True)
    untested = found("abcd", lambda a, b: a in "ab" and b in "cd", lambda a, b: not (a in "cd" and b in "ab"))
    assert (names(untested), untested and untested.one_way) == ("ab-cd", False)


def test_most_pairs_are_enough() -> None:
    assert names(found("abcdef", lambda a, b: leaf("abc", "def")(a, b) and {a, b} != {"a", "f"})) == "abc-def"
    assert names(found("abcdef", lambda a, b: leaf("abc", "def")(a, b) and not ({"a", "f"} & {a, b}))) == "bc-de"
    assert found("abcd", lambda a, b: {a, b} in ({"a", "c"}, {"a", "d"}, {"b", "c"})) is None


def test_another_fault_within_a_group_hides_no_groups() -> None:
    assert names(found("abcdefgh", lambda a, b: leaf("abcd", "efgh")(a, b) or {a, b} == {"a", "b"})) == "abcd-efgh"


@pytest.mark.parametrize(
    "fails",
    [
        lambda a, b: False,
        lambda a, b: True,
        lambda a, b: "a" in (a, b),
        lambda a, b: {a, b} == {"a", "c"},
        lambda a, b: {a, b} in ({"a", "c"}, {"b", "d"}),
        lambda a, b: leaf("ab", "cd")(a, b) or {a, b} == {"a", "b"},
    ],
    ids=["none", "all", "a node", "a pair", "two pairs", "one within a group"],
)
def test_other_patterns_are_no_groups(fails: Callable[[str, str], object]) -> None:
    assert found("abcd", fails) is None


def test_groups_within_which_nothing_was_tested_are_no_evidence() -> None:
    assert found("abcd", lambda a, b: True, leaf("ab", "cd")) is None
    assert found("abcd", lambda a, b: False, lambda a, b: not leaf("ab", "cd")(a, b)) is None


def test_single_pairs_all_over_the_fabric_are_no_cut() -> None:
    fails = {("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")}
    pairs = set(itertools.permutations("abcdefgh", 2))
    assert node_groups("abcdefgh", pairs - fails, fails) is None
