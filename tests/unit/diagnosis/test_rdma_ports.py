"""Problems of ports are noted on the pairs concerned, and on no others."""

from collections.abc import Callable
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.links.rdma_ports import pair_notes, port_problems
from fabtui.diagnosis.preflight.checks import preflight
from fabtui.export.json import as_json
from fabtui.presentation.findings import evidence, title
from fabtui.report.summary import summary
from tests.conftest import ModelMaker

BELOW = {"lanes": 1, "lane_rate": 53.125, "rate": 50.0, "could_lanes": 4, "below": ["width"]}


@pytest.fixture
def maker(make_model: Callable[[], ModelMaker]) -> ModelMaker:
    """Four nodes of two GPUs, each with a NIC of its own."""
    made = make_model().start("abcd")
    ends: list[dict[str, Any]] = []
    for node in "abcd":
        ib = [{"ca": f"mlx5_{n}", "port": 1, "netdev": None, "state": "Active"} for n in (0, 1)]
        made.add("inventory", node=node, value={"ib": ib})
        made.add("node", node=node, state="ready", text="")
        ends += [{"number": len(ends) + n, "node": node, "index": n, "kind": "gpu", "nic": f"mlx5_{n}"} for n in (0, 1)]
    return made.add("endpoints", endpoints=ends)


def ibstat(node: str, state: str = "Active", physical: str = "LinkUp") -> dict[str, Any]:
    cas = []
    for n in (0, 1):
        port = {"port": 1, "state": "Active", "physical_state": "LinkUp", "link_layer": "InfiniBand", "rate": 200.0}
        port.update(guid=f"0x{node}{n}")
        if n:
            port.update(state=state, physical_state=physical)
        cas.append({"ca": f"mlx5_{n}", "type": "MT4123", "ports": [port]})
    return {"cas": cas}


def fabric(node: str, **values: Any) -> dict[str, Any]:
    start: dict[str, Any] = {"link": {"below": []}, "leaf": None, "errors": {}, "peer_errors": {}, "sm": {}}
    return {"ports": [{"ca": "mlx5_1", "port": 1, "guid": f"0x{node}1", "state": "Active", **start, **values}]}


def test_a_port_that_is_down_is_noted_on_its_pairs_alone(maker: ModelMaker) -> None:
    maker.add("look", node="b", probe="ibstat", value=ibstat("b", "Down", "Polling"))
    model = maker.model()
    text = "b mlx5_1/1: Down, physical state Polling: no signal from the other end (cable, module, switch port)"
    assert pair_notes(model, "a:0", "b:1") == [text]
    assert pair_notes(model, "b:1", "d:0") == [text]
    assert pair_notes(model, "a:0", "b:0") == []
    assert pair_notes(model, "b:0", "b:1") == [], "what stays on a node uses no cable"
    assert pair_notes(model, "a:0", "x:9") == []


def test_a_narrow_link_and_errors(maker: ModelMaker) -> None:
    leaf = {"guid": "0xL", "name": "leaf2", "port": 4}
    value = fabric("c", link=BELOW, leaf=leaf, peer_errors={"symbol_error": 1742}, peer_saturated=[])
    maker.add("look", node="c", probe="ibfabric", value=value)
    model = maker.model()
    assert [(one.severity, one.text) for one in port_problems(model, model.endpoints[5])] == [
        ("warn", "link below what both ends can do: width 1X of 4X, 50 Gb/s, to leaf2 port 4"),
        ("warn", "errors of the link: symbol_error 1742, at leaf2 port 4"),
    ]
    assert port_problems(model, model.endpoints[4]) == []


def walk(**values: Any) -> dict[str, Any]:
    start: dict[str, Any] = {"below": [], "errors": [], "leaves": {}, "complete": True}
    return {"ports": [], "fabric": {**start, **values}}


def test_what_another_node_met_on_its_walk(maker: ModelMaker) -> None:
    maker.add("look", node="b", probe="ibstat", value=ibstat("b"))
    leaves = {"0xb1": {"guid": "0xL", "name": "leaf1", "port": 2}}
    link = {"type": "CA", "guid": "0xb1", "name": "b mlx5_1", "port": 1, "peer": {"guid": "0xL", "port": 2}, **BELOW}
    errors = [
        {"node": "leaf1", "guid": "0xL", "port": 2, "errors": {"port_rcv_errors": 99}, "saturated": []},
        {"node": "leaf1", "guid": "0xL", "port": 3, "errors": {"port_rcv_errors": 99}, "saturated": []},
        {"node": "b", "guid": "0xb1", "port": 1, "errors": {"symbol_error": 3}, "saturated": []},
    ]
    maker.add("look", node="a", probe="ibfabric", value=walk(below=[link], errors=errors, leaves=leaves))
    assert pair_notes(maker.model(), "a:0", "b:1") == [
        "b mlx5_1/1: link below what both ends can do: width 1X of 4X, 50 Gb/s",
        "b mlx5_1/1: errors of the link: port_rcv_errors 99, at leaf1 port 2",
    ]
    # Once the node itself has asked, it knows better.
    maker.add("look", node="b", probe="ibfabric", value=fabric("b"))
    assert pair_notes(maker.model(), "a:0", "b:1") == []


def test_a_slow_cable_between_leaves(maker: ModelMaker) -> None:
    for node, leaf in (("a", "L1"), ("b", "L1"), ("c", "L2")):
        reported = {"guid": leaf, "name": leaf, "port": 1}
        maker.add("look", node=node, probe="ibfabric", value=fabric(node, leaf=reported))
    cable = {
        "type": "switch",
        "guid": "L2",
        "name": "leaf2",
        "port": 16,
        "peer": {"guid": "S", "name": "spine", "port": 4},
    }
    maker.add("look", node="d", probe="ibfabric", value=walk(below=[{**cable, **BELOW, "lanes": 2}]))
    model = maker.model()
    (note,) = pair_notes(model, "a:1", "c:1")
    assert note.startswith("a cable between the leaves, leaf2 port 16 to spine port 4: link below")
    assert pair_notes(model, "a:1", "b:1") == []
    assert pair_notes(model, "a:0", "c:0") == [], "the leaves of these are not known"


def test_it_is_reported_everywhere(maker: ModelMaker) -> None:
    maker.add("look", node="b", probe="ibstat", value=ibstat("b", "Down", "Polling"))
    names = [f"{node}:{n}" for node in "abcd" for n in (0, 1)]
    for src in names:
        for dst in names:
            if src != dst:
                dead = "b:1" in (src, dst) and src[0] != dst[0]
                maker.measured("p2p", src, dst, "failed" if dead else "ok", value=None if dead else 40.0, unit="GB/s")
    model = maker.model()
    assert "b RDMA port mlx5_1/1: Down, physical state Polling" in summary(diagnose(model))
    reported = {(m["src"], m["dst"]): m.get("notes") for m in as_json(diagnose(model))["measurements"]}
    assert {pair for pair, notes in reported.items() if notes} == {
        pair for pair in reported if "b:1" in pair and pair[0][0] != pair[1][0]
    }
    causes = diagnose(model).findings
    alone = next(cause for cause in causes if title(cause).startswith("b:1 reaches no other node"))
    assert any("Polling" in line for line in evidence(alone))
    assert "ssh b ibstat mlx5_1" in alone.next
    assert not any(cause.rule.id == "FT103" for cause in causes), "the port explains the endpoint"


def test_the_rules_behind_doors_with_and_without_endpoints_name_each_other(maker: ModelMaker) -> None:
    maker.add("look", node="b", probe="ibstat", value=ibstat("b", "Down", "Polling"))
    model = maker.model()
    (port,) = [one for one in diagnose(model).findings if one.rule.id == "FT103"]
    (judged,) = [one for one in preflight(model).findings if one.rule.id == "FT301"]
    assert title(port).endswith(judged.facts["text"])
    assert "FT301" in port.rule.description
    assert "FT103" in judged.rule.description


@pytest.mark.parametrize(("state", "inactive"), [("Active", 0), (None, 0), ("Down", 1), ("Init", 1), ("Polling", 1)])
def test_a_port_beside_endpoints_that_the_inventory_shows_inactive(
    maker: ModelMaker, state: str | None, inactive: int
) -> None:
    ports = [{"ca": "mlx5_1", "port": 1, "state": state, "phys_state": "Polling"}, {"ca": "mlx5_7", "state": "Down"}]
    maker.add("inventory", node="b", value={"ib": ports})
    found = [one for one in diagnose(maker.model()).findings if one.rule.name == "rdma-port-inactive"]
    assert [title(one) for one in found] == ["b mlx5_1 port 1 is not active"] * inactive
    assert [one.next for one in found] == [("ssh b ibstat mlx5_1",)] * inactive
