from typing import Any

import pytest

from fabtui.diagnosis.finding import finished
from fabtui.model.facts.catalogue import FACTS, facts_for
from fabtui.model.facts.compare import Compare, Fact, FactTable, differs, fact_table, shown
from fabtui.model.facts.node_view import ProbedNode, Value, counted, kinds_of, spread

from .cluster import GIB, clock, host, inventory, memlock, node


def table(*nodes: ProbedNode) -> FactTable:
    return finished(fact_table(nodes, facts_for(nodes)))


def odd_names(*nodes: ProbedNode) -> dict[str, set[str]]:
    return {odd.fact.name: set(odd.values) for odd in table(*nodes).odd}


def test_equal_nodes_have_nothing_odd() -> None:
    assert odd_names(*[node(f"n{i}") for i in range(4)]) == {}


def test_the_odd_one_is_named_with_what_the_others_have() -> None:
    nodes = [node("n0"), node("n1"), node("n2", host=memlock("n2", 65536)), node("n3")]
    (odd,) = table(*nodes).odd
    assert (odd.fact.name, odd.values, odd.usual, odd.agreeing) == ("memlock", {"n2": 65536}, -1, ("n0", "n1", "n3"))
    assert not odd.tie
    assert odd.kind == ""
    (odd,) = table(*nodes, node("desk", inventory("NVIDIA GeForce RTX 3090", 2, 0))).odd
    assert odd.kind == "8 x H200, 8 x InfiniBand device"


def test_the_next_step_of_a_fact_is_a_command_about_a_node() -> None:
    programs = {fact.next.split()[0] for fact in FACTS if fact.next}
    assert programs <= {"ssh", "scontrol"}, programs
    assert all("{node}" in fact.next for fact in FACTS if fact.next)


def test_what_is_not_known_is_not_odd() -> None:
    nodes = [node("n0"), node("n1"), ProbedNode("n2", inventory(host="n2"), {})]
    assert odd_names(*nodes) == {}


def test_without_a_majority_nobody_is_the_odd_one() -> None:
    one, other = node("n0"), node("n1", inventory(driver="550.54.15"))
    (odd,) = table(one, other).odd
    assert odd.tie
    assert odd.usual is None
    assert odd.values == {"n0": "570.86.15", "n1": "550.54.15"}


def mixed() -> list[ProbedNode]:
    """A cluster as they grow: A100 nodes, A10 nodes with other drivers and a slower network, desktops with 3090s."""
    nodes = [node(f"a{i}", inventory("NVIDIA A100-SXM4-80GB", driver="535.1", kernel="5.4")) for i in range(4)]
    for i in range(3):
        found = inventory("NVIDIA A10", 1, 0, driver="550.2", kernel="6.1", memory=128 * GIB, cpus=16, os="Debian 12")
        nodes.append(node(f"g{i}", found, host=host(f"g{i}", memory={"shm_size": 64 * GIB, "available": 100 * GIB})))
    found = inventory("NVIDIA GeForce RTX 3090", 2, 0, driver="560.3", kernel="6.8", memory=64 * GIB, cpus=8)
    nodes.append(node("desk", found, host=memlock("desk", 8 << 20)))
    return nodes


def test_a_heterogeneous_cluster_is_not_odd() -> None:
    assert odd_names(*mixed()) == {}


def test_within_a_heterogeneous_cluster_the_odd_one_is_found() -> None:
    nodes = mixed()
    nodes[5].inventory["driver"] = "550.3"  # type: ignore[index]
    assert odd_names(*nodes) == {"driver": {"g1"}}


def test_a_node_that_lost_a_gpu_or_a_card_is_still_of_its_kind() -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    assert odd_names(*nodes, node("n3", inventory(gpus=7))) == {"gpus": {"n3"}}
    assert odd_names(*nodes, node("n3", inventory(cards=7))) == {"rdma": {"n3"}}
    assert odd_names(*nodes[:1], node("n3", inventory(gpus=7))) == {"gpus": {"n0", "n3"}}


def test_two_sizes_of_nodes_are_two_kinds() -> None:
    nodes = [node(f"n{i}", inventory(gpus=8 if i < 3 else 4)) for i in range(5)]
    assert odd_names(*nodes) == {}
    assert [str(kind) for kind in dict.fromkeys(kinds_of(nodes).values())] == [
        "8 x H200, 8 x InfiniBand device",
        "4 x H200, 8 x InfiniBand device",
    ]


def test_nccl_is_compared_over_all_kinds() -> None:
    nodes = mixed()
    nodes[4].inventory["pythons"][0]["nccl_version"] = "2.18.3"
    assert odd_names(*nodes) == {"nccl": {"g0"}}


def test_clocks_are_compared_beyond_what_is_known_of_them() -> None:
    nodes = [node(f"n{i}", clock=clock(100.0 + i * 0.1)) for i in range(3)]
    assert odd_names(*nodes) == {}
    assert odd_names(*nodes, node("n3", clock=clock(104.0))) == {"clock": {"n3"}}
    assert odd_names(*nodes, node("n3", clock=clock(104.0, uncertainty=4.0))) == {}
    assert odd_names(nodes[0], node("n3", clock=clock(104.0))) == {"clock": {"n0", "n3"}}


def test_memory_need_not_be_equal_to_the_byte() -> None:
    nodes = [node(f"n{i}", inventory(memory=1000 * GIB + i)) for i in range(3)]
    assert odd_names(*nodes) == {}
    assert odd_names(*nodes, node("n3", inventory(memory=936 * GIB))) == {"memory": {"n3"}}


def test_one_card_that_differs_within_a_node_is_named() -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    nodes[1].inventory["ib"][3]["rate"] = 200.0
    (odd,) = table(*nodes).odd
    assert odd.values == {"n1": "400 Gb/s, 200 Gb/s on mlx5_3"}


def test_a_nvlink_that_is_down_shows() -> None:
    def links(down: int) -> dict[str, Any]:
        active = [{"link": i, "state": "inactive" if i < down else "active", "speed": 26.5} for i in range(18)]
        return {"gpus": [{"index": 0, "links": active}, {"index": 1, "links": active}]}

    nodes = [node(f"n{i}", nvlink=links(1 if i == 2 else 0)) for i in range(3)]
    assert odd_names(*nodes) == {"nvlinks": {"n2"}}


@pytest.mark.parametrize(
    "rubbish", [None, [], "x", 3, {"a": 1}, [None], ["x"], [{}], [{"name": 7}], float("nan"), True]
)
def test_whatever_a_node_sends_is_no_crash(rubbish: Any) -> None:
    found = dict.fromkeys(inventory(), rubbish)
    results = {
        name: dict.fromkeys(host("x"), rubbish) for name in ("host", "clock", "firewall", "nvlink", "ibstat", "rdma")
    }
    results["nvlink"]["gpus"] = results["ibstat"]["cas"] = rubbish
    results["clock"]["offset"] = rubbish
    nodes = [ProbedNode("n0", found, results), node("n1"), ProbedNode("n2", {}, {})]
    assert table(*nodes).nodes == ["n0", "n1", "n2"]


def test_texts_of_nodes_are_cleaned() -> None:
    assert counted(["a\x1b[31mb", "a\u202eb"]) == "1 x a[31mb, 1 x ab"
    assert spread([("x", "1\n2"), ("y", "1 2")]) == "1 2"


def test_the_facts_have_names_of_their_own() -> None:
    assert len({fact.name for fact in FACTS}) == len(FACTS)
    assert all(fact.verdict in ("bad", "warn", "note") for fact in FACTS)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "B", "-"),
        (-1, "B", "unlimited"),
        (65536, "B", "64 KiB"),
        (1000 * GIB, "B", "1000 GiB"),
        (0, "B", "0 B"),
        (0.0021, "s", "2.1 ms"),
        (3.25, "s", "3.25 s"),
        (90_000.0, "s", "25.0 h"),
        (True, "", "yes"),
        (12, "Gb/s", "12 Gb/s"),
        (0.5, "", "0.5"),
        ("x", "B", "x"),
    ],
)
def test_values_are_shown_with_their_unit(value: Value, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def test_what_changed_is_beyond_what_a_fact_allows_for() -> None:
    near = Fact("a", "a", lambda n: None, Compare.NEAR, share=0.1)
    assert not differs(near, 100, 105)
    assert differs(near, 100, 150)
    assert differs(Fact("a", "a", lambda n: None), "x", "y")
    assert not differs(Fact("a", "a", lambda n: None), None, "y")
    assert not differs(Fact("a", "a", lambda n: None, Compare.NONE), 1, 2)


def test_a_node_whose_ibstat_failed_is_of_the_same_kind() -> None:
    nodes = []
    for name in ("n0", "n1", "n2"):
        found = inventory(host=name)
        for port in found["ib"]:
            port["type"] = "MT4129"
        seen: dict[str, Any] = {"error": "gone"} if name == "n1" else {"cas": [{"ca": "mlx5_0", "type": "MT4129"}]}
        nodes.append(node(name, found, ibstat=seen))
    assert odd_names(*nodes) == {}
    assert [str(kind) for kind in kinds_of(nodes).values()] == ["8 x H200, 8 x MT4129"] * 3


def test_another_network_than_the_others_is_a_note() -> None:
    def wired(name: str, address: str) -> ProbedNode:
        nics = [{"name": "eth0", "state": "up", "addresses": [{"address": address, "prefix": 24, "family": 4}]}]
        return node(name, inventory(host=name, nics=nics))

    nodes = [wired("n0", "10.1.0.1"), wired("n1", "10.1.0.2"), wired("n2", "10.9.0.3")]
    (odd,) = table(*nodes).odd
    assert (odd.fact.name, odd.fact.verdict, odd.usual, odd.values) == (
        "nccl_network",
        "note",
        "10.1.0.0/24",
        {"n2": "10.9.0.0/24"},
    )
    assert odd_names(*nodes[:2], wired("n2", "rubbish")) == {}
