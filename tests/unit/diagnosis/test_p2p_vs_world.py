from collections.abc import Callable
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.pairs import p2p_vs_world
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title

Maker = Callable[[], Any]
NAMES = ["n0:0", "n0:1", "n1:0", "n1:1"]
ACROSS = [("n0:0", "n1:1"), ("n0:1", "n1:0"), ("n1:1", "n0:0"), ("n1:0", "n0:1")]


def gpus(make_model: Maker, world: bool = True) -> Any:
    maker = make_model().start(["n0", "n1"])
    ends = [
        {"number": 2 * node + index, "node": f"n{node}", "index": index, "kind": "gpu", "name": "GPU"}
        for node in range(2)
        for index in range(2)
    ]
    maker.add("endpoints", endpoints=ends).pairs(NAMES)
    for src in NAMES if world else ():
        for dst in NAMES:
            if src != dst:
                maker.measured("world", src, dst, value=2.0, unit="GB/s", bytes=4 << 20)
    return maker


def test_where_the_layers_agree_there_is_no_comparison(make_model: Maker) -> None:
    maker = gpus(make_model)
    assert p2p_vs_world.relayed(maker.model()) == p2p_vs_world.differing(maker.model()) == []
    for layer in ("p2p", "world"):
        maker.measured(layer, "n0:0", "n1:0", "failed", error="x")
    model = maker.model()
    assert p2p_vs_world.relayed(model) == p2p_vs_world.differing(model) == []
    assert p2p_vs_world.comparison_text(model, "n0:0", "n1:0") is None
    assert p2p_vs_world.comparison_text(model, "n0:1", "n1:0") is None


@pytest.mark.parametrize("verdict", ["failed", "timeout"])
def test_a_pair_that_fails_alone_and_passes_inside_is_relayed(make_model: Maker, verdict: str) -> None:
    model = gpus(make_model).measured("p2p", "n1:0", "n0:1", verdict, error="x").model()
    assert p2p_vs_world.relayed(model) == p2p_vs_world.differing(model) == [("n1:0", "n0:1")]
    assert p2p_vs_world.comparison_text(model, "n1:0", "n0:1") == p2p_vs_world.RELAYED
    assert p2p_vs_world.comparison_text(model, "n0:1", "n1:0") is None


def test_what_passed_before_its_node_went_is_not_relayed(make_model: Maker) -> None:
    maker = gpus(make_model).measured("p2p", "n0:0", "n0:1", "failed", error="a real fault")
    maker.add("node", node="n1", state="lost", text="Connection lost", time=maker.START + 1000)
    lost = {"layer": "p2p", "src": "n1:0", "dst": "n0:1", "verdict": "failed", "error": "n1 was lost"}
    model = maker.add("measured", measurements=[{**lost, "time": maker.START + 1001}]).model()
    assert p2p_vs_world.relayed(model) == [("n0:0", "n0:1")]
    assert p2p_vs_world.comparison_text(model, "n1:0", "n0:1") is None
    assert p2p_vs_world.comparison_text(model, "n0:0", "n0:1") == p2p_vs_world.RELAYED
    (gone,) = [one for one in diagnose(model).findings if title(one) == "n1 lost"]
    assert evidence(gone) == ("Connection lost",), "jobs cannot run over a node that is gone"


def test_relayed_pairs_are_in_the_order_of_the_grid(make_model: Maker) -> None:
    maker = gpus(make_model)
    for src, dst in sorted(ACROSS, reverse=True):
        maker.measured("p2p", src, dst, "failed", error="x")
    assert p2p_vs_world.relayed(maker.model()) == sorted(ACROSS)


def test_no_relay_is_claimed_where_there_is_none(make_model: Maker) -> None:
    made = gpus(make_model).measured("p2p", "n0:0", "n1:1", "timeout", error="x", made=True).model()
    assert p2p_vs_world.relayed(made) == [("n0:0", "n1:1")]
    assert p2p_vs_world.comparison_text(made, "n0:0", "n1:1") == p2p_vs_world.PASSES_IN_WORLD
    slow = gpus(make_model).measured("p2p", "n0:0", "n1:1", value=0.1, bytes=4 << 20).model()
    assert p2p_vs_world.comparison_text(slow, "n0:0", "n1:1") == p2p_vs_world.SLOW_ALONE
    cpu = make_model().start(["n0"]).endpoints({"n0": 2}).measured("p2p", "n0:0", "n0:1", "failed", error="x")
    cpu.measured("world", "n0:0", "n0:1", value=1.0)
    assert p2p_vs_world.comparison_text(cpu.model(), "n0:0", "n0:1") == p2p_vs_world.PASSES_IN_WORLD


def test_a_pair_that_fails_inside_only_is_no_relay(make_model: Maker) -> None:
    model = gpus(make_model).measured("world", "n0:0", "n1:1", "timeout", error="x").model()
    assert p2p_vs_world.relayed(model) == []
    assert p2p_vs_world.differing(model) == [("n0:0", "n1:1")]
    assert p2p_vs_world.comparison_text(model, "n0:0", "n1:1") == p2p_vs_world.FAILS_IN_WORLD


def test_what_was_not_tested_in_both_is_not_compared(make_model: Maker) -> None:
    model = gpus(make_model, world=False).measured("p2p", "n0:0", "n1:1", "failed", error="x").model()
    assert p2p_vs_world.relayed(model) == p2p_vs_world.differing(model) == []
    assert p2p_vs_world.comparison_text(model, "n0:0", "n1:1") is None


def test_a_pair_that_passed_again_is_not_relayed(make_model: Maker) -> None:
    maker = gpus(make_model).measured("p2p", "n0:0", "n1:1", "failed", error="x", bytes=4 << 20)
    maker.measured("p2p", "n0:0", "n1:1", value=2.0, bytes=4 << 20, attempts=2)
    assert p2p_vs_world.relayed(maker.model()) == []


def isolated(make_model: Maker, world: bool = True) -> Any:
    maker = gpus(make_model, world)
    for src, dst in ACROSS:
        maker.measured("p2p", src, dst, "timeout", error="no answer")
    return maker


def isolation(model: Model) -> Finding | None:
    return next((one for one in diagnose(model).findings if "within" in one.facts), None)


def test_rails_without_a_path_to_each_other(make_model: Maker) -> None:
    found = isolation(isolated(make_model).model())
    assert found is not None
    assert (found.facts["within"], found.facts["across"]) == (4, 4)
    assert evidence(found) == (
        "all 4 pairs across rails fail, all 4 pairs within a rail pass",
        "4 of 4 pairs pass in the world communicator: collective jobs can run",
    )
    alone = isolation(isolated(make_model, world=False).model())
    assert alone is not None
    assert not any("world" in line for line in evidence(alone))
    part = isolation(isolated(make_model).measured("world", *ACROSS[0], "failed", error="x").model())
    assert part is not None
    assert "3 of 4 pairs pass in the world communicator" in evidence(part)


def test_other_faults_are_no_isolated_rails(make_model: Maker) -> None:
    assert isolation(gpus(make_model).model()) is None
    one_passes = isolated(make_model).measured("p2p", *ACROSS[0], value=2.0)
    assert isolation(one_passes.model()) is None
    one_rail_is_bad = isolated(make_model).measured("p2p", "n0:0", "n1:0", "failed", error="x")
    assert isolation(one_rail_is_bad.model()) is None
    vague = isolated(make_model).measured("p2p", *ACROSS[0], "inconclusive", error="x")
    assert isolation(vague.model()) is None


def test_a_dead_endpoint_is_no_isolated_rail(make_model: Maker) -> None:
    maker = make_model().start(["n0", "n1"]).endpoints({"n0": 2, "n1": 1}).pairs(["n0:0", "n1:0"])
    for src, dst in (("n0:1", "n1:0"), ("n1:0", "n0:1")):
        maker.measured("p2p", src, dst, "failed", error="x")
    assert isolation(maker.model()) is None
