"""States of nodes: kept once, compared by majority, and what a node may not send."""

import base64
import json
import zlib
from typing import Any

import pytest

from fabtui.diagnosis.finding import finished
from fabtui.model.facts.compare import Compare, Fact, Odd, contrasted, fact_table
from fabtui.model.facts.node_view import ProbedNode
from fabtui.model.facts.states import ABSENT, PROBE, Facts, States, packed, unpacked


def sent(facts: Any) -> dict[str, str]:
    return {"state": base64.b64encode(zlib.compress(json.dumps(facts).encode())).decode()}


def states(**nodes: Facts) -> States:
    (name, base), *_ = nodes.items()
    kept = {node: packed(facts, name, base if node != name else {}) for node, facts in nodes.items()}
    return States([ProbedNode(node, {}, {PROBE: result}) for node, result in kept.items()], kept)


def test_a_node_keeps_its_differences() -> None:
    base = {"a": "1", "b": "2", "mac 10.0.0.1": "x"}
    assert packed(base, "n0", {}) == {"facts": base}
    assert packed({"a": "1", "c": "3", "mac 10.0.0.2": "y"}, "n0", base) == {
        "like": "n0",
        "differs": {"c": "3", "mac 10.0.0.2": "y"},
        "absent": ["b"],
    }


def test_values_are_those_that_each_node_sent() -> None:
    every = {"n0": {"a": "1", "b": "2"}, "n1": {"a": "1", "b": "3"}, "n2": {"a": "1", "c": "4"}}
    kept = states(**every)
    assert kept.differing(16) == ["b", "c"]
    for node, facts in every.items():
        assert {key: kept.value(node, key) for key in "abc"} == {key: facts.get(key, ABSENT) for key in "abc"}
    assert kept.value("n9", "a") is None


def test_states_that_refer_to_different_nodes_are_compared() -> None:
    """A session that was resumed reads a first node again."""
    old, new = {"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}
    results = {
        "n0": packed(old, "", {}),
        "n1": packed({"a": "1"}, "n0", old),
        "n2": packed(new, "", {}),
        "n3": packed({"a": "9", "c": "4"}, "n2", new),
    }
    kept = States([ProbedNode(node, {}, {PROBE: result}) for node, result in results.items()], results)
    assert kept.differing(16) == ["a", "b", "c"]
    values = [[kept.value(node, key) for key in "abc"] for node in results]
    assert values == [["1", "2", ABSENT], ["1", ABSENT, ABSENT], ["1", "3", "4"], ["9", ABSENT, "4"]]


def test_an_entry_of_a_neighbour_is_compared_with_the_address_of_its_owner() -> None:
    own = {f"n{at}": {f"mac 10.0.0.{at}": f"m{at}"} for at in range(4)}
    own["n0"]["lladdr 10.0.0.2"] = "m3"
    own["n1"]["lladdr 10.0.0.3"] = "m3"
    kept = states(**own)
    assert kept.differing(16) == ["lladdr 10.0.0.2"]
    assert [kept.value(node, "lladdr 10.0.0.2") for node in own] == ["m3", "m2", "m2", "m2"]


@pytest.mark.parametrize(
    "value",
    [{}, {"state": 7}, {"state": "!"}, {"state": base64.b64encode(b"x").decode()}, sent([1]), sent("x" * (5 << 20))],
    ids=["nothing", "number", "text", "bytes", "list", "bomb"],
)
def test_what_is_no_state_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpacked(value)


def test_texts_of_a_node_are_cleaned() -> None:
    assert unpacked(sent({"a\x1b[2J": "b\nc\u202e" + "x" * 999})).popitem()[1].startswith("b cx")


def compared(*values: str | None, share: float = 0.0) -> Odd | None:
    """Return the odd one of nodes n0, n1 ... with some values."""
    fact = Fact("key", "key", lambda node: node.inventory["value"], Compare.ODD, share=share)
    nodes = [ProbedNode(f"n{at}", {"value": value}, {}) for at, value in enumerate(values)]
    odd = finished(fact_table(nodes, [fact])).odd
    return odd[0] if odd else None


@pytest.mark.parametrize(
    ("values", "odd"),
    [
        ("aaab", {"n3": "b"}),
        ("aab", {"n2": "b"}),
        ("ab", None),
        ("aaaaabc", {"n5": "b", "n6": "c"}),
        ("aaaaaabcd", None),
        ("abcd", None),
        ("aabbc", None),
    ],
)
def test_the_odd_one_out(values: str, odd: dict[str, str] | None) -> None:
    found = compared(*values)
    assert (None if found is None else found.values) == odd


def test_halves_of_a_fleet_are_a_tie_of_two_groups() -> None:
    found = compared(*"aabb")
    assert found is not None
    assert found.tie
    assert found.group == ("n2", "n3")


def test_numbers_that_are_nearly_equal_are_alike() -> None:
    assert compared("4096 100000", "4096 100100", "4096 99900", "4096 100000") is None
    found = compared("4096 100000", "4096 100100", "4096 50000", "4096 100000")
    assert found is not None
    assert found.values == {"n2": "4096 50000"}
    assert compared("1", "1", "2", "1") is not None, "small numbers are exact"
    assert compared("900", "1000", "500", "950", share=0.9) is None
    assert compared("900", "1000", "5", "950", share=0.9) is not None
    assert compared("a", None, "a", "a") is None, "unknown is not a difference"


def test_lists_are_shown_by_what_differs() -> None:
    size = Fact("key", "key", lambda node: None, Compare.ODD, "B")
    assert contrasted(size, "4096 8192 8192", "4096 131072 6291456") == ("8 KiB 8 KiB", "128 KiB 6 MiB")
    flags = Fact("key", "key", lambda node: None, Compare.ODD)
    assert contrasted(flags, "fpu vme avx sse mmx", "fpu vme sse mmx avx avx512") == ("without", "avx512")
    assert contrasted(flags, "x" * 99, ABSENT) == ("x" * 57 + "...", ABSENT)
