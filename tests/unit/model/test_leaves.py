"""Leaves: known from probe results alone; pairs of different ones are a separate class."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.model.endpoints import PairClass
from fabtui.model.facts.leaf_switches import Port, leaf_names, leaf_of, ports_of, walked_leaves
from fabtui.model.layers import Layer
from tests.conftest import ModelMaker


def inventory(number: int, netdev: str | None = "eth0") -> dict[str, Any]:
    return {
        "ib": [{"ca": "mlx5_0", "port": 1, "netdev": netdev}],
        "nics": [{"name": "eth0", "rdma": "mlx5_0", "addresses": [{"address": f"10.0.0.{number}"}]}],
    }


def own(leaf: str | None, guid: str = "0x1") -> dict[str, Any]:
    listed = None if leaf is None else {"guid": leaf, "name": leaf, "port": 1}
    return {"ports": [{"ca": "mlx5_0", "port": 1, "guid": guid, "leaf": listed}], "fabric": None}


@pytest.fixture
def maker(make_model: Callable[[], ModelMaker]) -> ModelMaker:
    names = ["a", "b", "c", "d"]
    made = make_model().start(names)
    for number, name in enumerate(names):
        made.add("inventory", node=name, value=inventory(number))
    ends = [
        {"number": n, "node": name, "index": 0, "kind": "cpu", "name": "CPU rank", "address": f"10.0.0.{n}"}
        for n, name in enumerate(names)
    ]
    return made.add("endpoints", endpoints=ends)


def look(maker: ModelMaker, leaves: Mapping[str, str | None]) -> None:
    for name, leaf in leaves.items():
        maker.add("look", node=name, probe="ibfabric", value=own(leaf))


LEAVES = {"a": "L1", "b": "L1", "c": "L2", "d": "L2"}


def test_pairs_of_different_leaves_are_of_another_class(maker: ModelMaker) -> None:
    look(maker, LEAVES)
    model = maker.model()
    assert model.table.leaves == {0: "L1", 1: "L1", 2: "L2", 3: "L2"}
    assert model.table.class_between("a:0", "b:0") is PairClass.SAME_RAIL
    assert model.table.class_between("a:0", "c:0") is PairClass.CROSS_LEAF


def heard(*ports: tuple[str, str], switch: bool | None = True) -> dict[str, Any]:
    named = [{"interface": nic, "chassis": leaf, "system": f"name of {leaf}", "switch": switch} for nic, leaf in ports]
    return {"source": "lldpctl", "neighbours": named}


def test_switches_that_announce_themselves_are_leaves(maker: ModelMaker) -> None:
    for name, leaf in LEAVES.items():
        maker.add("look", node=name, probe="lldp", value=heard(("eth0", leaf), ("mgmt0", "other")))
    model = maker.model()
    assert model.table.class_between("a:0", "b:0") is PairClass.SAME_RAIL
    assert model.table.class_between("a:0", "c:0") is PairClass.CROSS_LEAF
    assert leaf_names(model.nodes.values()) == {leaf: f"name of {leaf}" for leaf in ("L1", "L2", "other")}
    # What a walk over a fabric finds comes first.
    look(maker, dict.fromkeys(LEAVES, "L9"))
    assert maker.model().table.class_between("a:0", "c:0") is PairClass.SAME_RAIL


@pytest.mark.parametrize(
    "value", [heard(("eth0", "L1"), ("eth0", "L2")), heard(("eth0", "L1"), switch=False), heard(("eth7", "L1")), {}]
)
def test_what_announces_itself_and_is_no_leaf_of_the_interface(maker: ModelMaker, value: dict[str, Any]) -> None:
    maker.add("look", node="a", probe="lldp", value=value)
    assert maker.model().table.leaves == {}


def test_ports_of_a_bond_have_the_leaf_of_their_endpoint(maker: ModelMaker) -> None:
    nics = [
        {"name": "bond0", "addresses": [{"address": "10.0.0.0"}]},
        *({"name": name, "master": "bond0", "addresses": []} for name in ("eth4", "eth5")),
    ]
    maker.add("inventory", node="a", value={"nics": nics})
    maker.add("look", node="a", probe="lldp", value=heard(("eth4", "L1"), ("eth5", "L1")))
    assert maker.model().table.leaves == {0: "L1"}
    maker.add("look", node="a", probe="lldp", value=heard(("eth4", "L1"), ("eth5", "L2")))
    assert maker.model().table.leaves == {}, "two switches, as one"


def test_two_adapters_on_one_cable_have_no_leaf(maker: ModelMaker) -> None:
    for name, other in (("a", "0xb"), ("b", "0xa")):
        value = own(other)
        value["ports"][0]["leaf"]["type"] = "channel adapter"
        maker.add("look", node=name, probe="ibfabric", value=value)
    model = maker.model()
    assert model.table.leaves == {}
    assert model.table.class_between("a:0", "b:0") is PairClass.SAME_RAIL


def test_where_a_leaf_is_not_known_nothing_changes(maker: ModelMaker) -> None:
    look(maker, {"a": "L1", "c": None})
    model = maker.model()
    assert model.table.class_between("a:0", "c:0") is PairClass.SAME_RAIL


@pytest.mark.parametrize("early", [True, False])
def test_values_are_judged_within_their_class_whenever_it_is_known(maker: ModelMaker, early: bool) -> None:
    if early:
        look(maker, LEAVES)
    names = ["a:0", "b:0", "c:0", "d:0"]
    for src in names:
        for dst in names:
            if src != dst:
                near = LEAVES[src[0]] == LEAVES[dst[0]]
                maker.measured("p2p", src, dst, value=40.0 if near else 10.0, unit="GB/s", bytes=1 << 20)
    if not early:
        look(maker, LEAVES)
    model = maker.model()
    assert model.median(Layer.P2P, PairClass.SAME_RAIL) == 40.0
    assert model.median(Layer.P2P, PairClass.CROSS_LEAF) == 10.0


def test_values_that_come_while_classes_change(maker: ModelMaker) -> None:
    maker.measured("p2p", "a:0", "c:0", value=10.0, unit="GB/s", bytes=1)
    look(maker, {"a": "L1"})
    maker.measured("p2p", "a:0", "c:0", value=20.0, unit="GB/s", bytes=1)
    look(maker, {"c": "L2"})
    maker.measured("p2p", "a:0", "c:0", value=30.0, unit="GB/s", bytes=1)
    model = maker.model()
    assert model.median(Layer.P2P, PairClass.CROSS_LEAF) == 30.0
    assert model.median(Layer.P2P, PairClass.SAME_RAIL) is None


def test_one_node_walks_for_those_that_may_not(maker: ModelMaker) -> None:
    for name in ("b", "c"):
        cas = [{"ca": "mlx5_0", "ports": [{"port": 1, "guid": f"0x{name}"}]}]
        maker.add("look", node=name, probe="ibstat", value={"cas": cas})
    walk = {**own("L1"), "fabric": {"leaves": {"0xb": {"guid": "L1"}, "0xc": {"guid": "L2"}, "0xz": "no", "0xy": {}}}}
    maker.add("look", node="a", probe="ibfabric", value=walk)
    model = maker.model()
    assert model.table.leaves == {0: "L1", 1: "L1", 2: "L2"}
    assert walked_leaves(model.nodes.values()) == {"0xb": "L1", "0xc": "L2"}


def test_two_leaves_of_one_endpoint_are_none(maker: ModelMaker) -> None:
    model = maker.model()
    record = model.nodes["a"]
    record.inventory = {"ib": [{"ca": "x", "port": 1, "netdev": "eth0"}, {"ca": "x", "port": 2, "netdev": "eth0"}]}
    record.inventory["nics"] = inventory(0)["nics"]
    record.probe_results["ibfabric"] = {
        "ports": [{"ca": "x", "port": n, "leaf": {"guid": f"L{n}"}} for n in (1, 2)],
    }
    assert ports_of(model.endpoints[0], record) == [Port("x", 1), Port("x", 2)]
    assert leaf_of(model.endpoints[0], record, {}) is None


def test_ports_of_a_gpu_are_those_of_its_nic(maker: ModelMaker) -> None:
    model = maker.model()
    record = model.nodes["a"]
    assert ports_of(replace(model.endpoints[0], nic="mlx5_0", address=None), record) == [Port("mlx5_0", 1)]
    assert ports_of(replace(model.endpoints[0], nic="mlx5_9"), record) == []
    assert ports_of(model.endpoints[0], None) == []


def test_pairs_across_leaves_are_pairs_within_a_rail(make_model: Callable[[], ModelMaker]) -> None:
    """A fabric is rail-isolated where what is within a rail passes, on any leaf, and what crosses rails fails."""
    maker = make_model().start(["a", "b"])
    ends: list[dict[str, Any]] = []
    for node in "ab":
        maker.add("inventory", node=node, value={"ib": [{"ca": f"m{n}", "port": 1} for n in (0, 1)]})
        ends += [{"number": len(ends) + n, "node": node, "index": n, "nic": f"m{n}"} for n in (0, 1)]
    maker.add("endpoints", endpoints=ends)
    for node in "ab":
        ports = [{"ca": f"m{n}", "port": 1, "leaf": {"guid": f"L{node}{n}"}} for n in (0, 1)]
        maker.add("look", node=node, probe="ibfabric", value={"ports": ports})
    for src, dst in (("a", "b"), ("b", "a")):
        for n in (0, 1):
            maker.measured("p2p", f"{src}:{n}", f"{dst}:{n}", value=40.0, unit="GB/s", bytes=1)
            maker.measured("p2p", f"{src}:{n}", f"{dst}:{1 - n}", "failed", error="unreachable")
    model = maker.model()
    assert model.table.class_between("a:0", "b:0") is PairClass.CROSS_LEAF
    (isolation,) = [one for one in diagnose(model).findings if one.rule.name == "rail-isolated"]
    assert (isolation.facts["within"], isolation.facts["across"]) == (4, 4)
