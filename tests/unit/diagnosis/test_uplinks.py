"""One of several uplinks between two groups of nodes is slow: all slow pairs cross one cut, and others there pass."""

import random
from collections.abc import Callable

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding, Kind
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from tests.unit.diagnosis.test_pair_rules import fabric

LEFT, NODES = "abc", "abcdef"


def model_of(slow: Callable[[str, str], bool], nodes: str = NODES) -> Model:
    chance = random.Random(3)
    return fabric(nodes, 4, lambda s, d: (0.45 if slow(s, d) else 1.0) * chance.uniform(0.98, 1.02))


def crosses(src: str, dst: str) -> bool:
    return (src[0] in LEFT) is not (dst[0] in LEFT)


def found(model: Model) -> list[Finding]:
    return [one for one in diagnose(model).findings if one.cells]


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_part_of_the_pairs_across_is_slow_in_both_directions(share: float) -> None:
    chance = random.Random(1)
    model = model_of(lambda s, d: crosses(s, d) and chance.random() < share)
    (one,) = found(model)
    assert one.subject == (Kind.LEAF_CUT, "a,b,c - d,e,f")
    assert title(one) == "slow between a,b,c and d,e,f"
    assert any("one of several uplinks or paths" in line for line in evidence(one))


@pytest.mark.parametrize(
    "slow",
    [
        pytest.param(lambda s, d: "d:1" in (s, d), id="an endpoint"),
        pytest.param(lambda s, d: s[0] != d[0] and "d" in (s[0], d[0]) and s[-1] == d[-1], id="a part of a node"),
        pytest.param(lambda s, d: s[0] != d[0] and s[-1] == d[-1] == "2", id="a rail"),
        pytest.param(lambda s, d: {s[0], d[0]} == {"a", "d"}, id="two nodes"),
        pytest.param(lambda s, d: crosses(s, d) and s[0] in LEFT, id="all of one direction"),
    ],
)
def test_what_a_component_explains_is_no_cut_in_part(slow: Callable[[str, str], bool]) -> None:
    assert not any("one of several uplinks" in line for one in found(model_of(slow)) for line in evidence(one))


def test_slow_pairs_at_random_are_no_cut() -> None:
    chance = random.Random(2)
    model = model_of(lambda s, d: s[0] != d[0] and chance.random() < 0.2)
    assert not any(one.subject.kind is Kind.LEAF_CUT for one in found(model))
