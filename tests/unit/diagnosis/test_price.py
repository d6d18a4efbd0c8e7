"""Prices of findings: the cost model, its calibration, and their text in each writer."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fabtui.diagnosis.diagnosis import diagnose, search
from fabtui.diagnosis.finding import finished
from fabtui.diagnosis.pairs.tally import Survey
from fabtui.diagnosis.price import (
    Calibration,
    CostModel,
    PriceFact,
    double_tree,
    fabric_rates,
    iteration_share,
    traffic,
)
from fabtui.export.json import as_json
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded, Measured, NodeState, NodeUpdate, PhaseStart, PlanUpdate, SessionStart
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence
from fabtui.report.summary import summary
from fabtui_node.parsers.nccl.log_lines import parse_ring

GIB = 1 << 30
Rate = Callable[[Endpoint, Endpoint], float]


def fabric(rate: Rate, nodes: int = 6, gpus: int = 2, *, rails: bool = True) -> Model:
    """A fabric with these rates (GB/s) between its GPUs, each with a NIC of its own."""
    names = [f"n{at}" for at in range(nodes)]
    model = Model()
    model.apply(SessionStart(nodes=names, time=1.0, options={"probes": ["p2p", "all_reduce"]}))
    for name in names:
        model.apply(NodeUpdate(node=name, state=NodeState.READY, time=1.0))
    ends = [
        Endpoint(at, name, index, name="H100", nic=f"mlx5_{index if rails else 0}", rail=index if rails else 0)
        for at, (name, index) in enumerate(itertools.product(names, range(gpus)))
    ]
    model.apply(EndpointsAdded(endpoints=ends, time=1.0))
    model.apply(PlanUpdate(slow_below=0.7, time=1.0))
    rows = [
        Measurement(Layer.P2P, str(a), str(b), Verdict.OK, rate(a, b), "GB/s", 1 << 28, 2.0)
        for a, b in itertools.permutations(ends, 2)
    ]
    model.apply(Measured(measurements=rows, time=2.0))
    return model


def measured(model: Model, value: float, src: str = "all", dst: str = "all", kind: str = "busbw", **extra: Any) -> None:
    ends = [e for e in model.endpoints if src == "all" or e.node in (src, dst)]
    more = {"ranks": len(ends), "algorithm": "RING/SIMPLE"} | extra
    row = Measurement(Layer(kind), src, dst, Verdict.OK, value, "GB/s", GIB, 3.0, extra=more)
    model.apply(Measured(measurements=[row], time=3.0))


def ended(model: Model) -> Model:
    model.apply(PhaseStart(name="done", time=4.0))
    return model


def calibrated(model: Model, kind: str = "all_reduce") -> tuple[CostModel, Calibration]:
    rates = finished(fabric_rates(model))
    assert rates is not None
    costs = CostModel(model, rates)
    of = finished(costs.calibrated(kind))
    assert of is not None
    return costs, of


def slow_n2(a: Endpoint, b: Endpoint) -> float:
    if a.node == b.node:
        return 350.0
    return 20.0 if "n2" in (a.node, b.node) else 46.0


def one_slow_node() -> Model:
    model = fabric(slow_n2)
    measured(model, 38.0)
    for a, b in itertools.combinations(list(model.nodes), 2):
        measured(model, 38.0 if "n2" in (a, b) else 88.0, a, b)
    return ended(model)


def test_a_slow_node_has_a_price_that_all_writers_share() -> None:
    found = diagnose(one_slow_node())
    (one,) = [finding for finding in found.findings if "price" in finding.facts]
    price = one.facts["price"]
    assert isinstance(price, PriceFact)
    # Two NICs of 46 GB/s each; measured 38 of the 40 that the slow node could have.
    assert price.without is not None
    assert price.without.busbw == pytest.approx(92 * 38 / 40)
    assert price.fixed is not None
    assert price.fixed.busbw == pytest.approx(92 * 38 / 40, rel=0.01)
    assert (price.node, price.busbw, price.compared) == ("n2", 38.0, 15)
    lines = [line for line in evidence(one) if "all_reduce" in line]
    what = "all_reduce of 1 GiB over these 6 nodes: without n2: 38.0 -> 87.4 GB/s (+130 %)"
    assert lines[0].startswith(what)
    assert what in summary(found)
    written = as_json(found)
    (listed,) = [finding for finding in written["findings"] if "price" in finding["facts"]]
    assert listed["facts"]["price"]["without"]["busbw"] == price.without.busbw
    assert lines[0] in listed["evidence"]
    *_, shown = search(found.model, Survey(found.model).finish(), settled=True)
    assert shown is not None
    assert [each.facts["price"] for each in shown.listed if "price" in each.facts] == [price], "the screen has it"


def test_a_model_that_does_not_fit_gives_no_number() -> None:
    model = fabric(slow_n2)
    measured(model, 12.0)
    for a, b in itertools.combinations(list(model.nodes), 2):
        measured(model, 38.0 if "n2" in (a, b) else 88.0, a, b)
    found = diagnose(ended(model))
    (one,) = [finding for finding in found.findings if "price" in finding.facts]
    assert one.facts["price"].without is None
    (line,) = [line for line in evidence(one) if "price" in line]
    assert line.startswith("price unknown: for all_reduce of 1 GiB over these 6 nodes, the cost model is ")


def test_without_a_measured_collective_nothing_has_a_price() -> None:
    found = diagnose(ended(fabric(slow_n2)))
    assert found.findings
    assert all("price" not in one.facts for one in found.findings)


def test_an_unknown_pair_on_the_way_gives_no_number() -> None:
    model = one_slow_node()
    bad = Measurement(Layer.P2P, "n4:0", "n5:0", Verdict.FAILED, None, "GB/s", 1 << 28, 5.0, error="no")
    model.apply(Measured(measurements=[bad], time=5.0))
    rates = finished(fabric_rates(model))
    assert rates is not None
    costs = CostModel(model, rates)
    # n4 and n5 are neighbours in rank order, so that not even the measured ring has a model.
    assert finished(costs.calibrated("all_reduce")) is None


def test_an_algorithm_that_is_not_modelled_has_no_calibration() -> None:
    model = fabric(slow_n2)
    measured(model, 38.0, algorithm="NVLS/SIMPLE")
    rates = finished(fabric_rates(model))
    assert rates is not None
    costs = CostModel(model, rates)
    assert finished(costs.calibrated("all_reduce")) is None


def test_gpus_that_share_a_nic_share_its_rate() -> None:
    """An all to all sends from both GPUs of a node at once."""
    for rails, shared in ((True, 1), (False, 2)):
        model = fabric(lambda a, b: 350.0 if a.node == b.node else 40.0, 3, rails=rails)
        measured(model, 10.0, kind="alltoall")
        costs, of = calibrated(model, "alltoall")
        # A NIC sends 4 of 6 parts of each of its GPUs to other nodes.
        plain = costs.busbw(of._replace(factor=1.0), of.ranks)
        assert plain == pytest.approx(40.0 / shared * (5 / 6) / (4 / 6))


def test_rings_of_the_log_take_the_place_of_the_rail_order() -> None:
    """Only the order of the log keeps n0 and n1 apart, between which the bandwidth is low."""

    def rate(a: Endpoint, b: Endpoint) -> float:
        return 5.0 if {a.node, b.node} == {"n0", "n1"} else 40.0

    assert parse_ring("Channel 00/0 : 0[1] -> 1[2] via P2P/IPC") is None
    rings: list[Any] = [parse_ring("Channel 00/02 :    0   2   1   3")]
    model = fabric(rate, 4, 1)
    measured(model, 40.0, rings=rings)
    _, of = calibrated(model)
    assert of.factor == pytest.approx(1.0)
    for bad in ([[0, 2, 1]], [[0, 0, 1, 3]], [["0", "2", "1", "x"]], "rings", [[0, 2, 1, 9]]):
        model = fabric(rate, 4, 1)
        measured(model, 40.0, rings=bad)
        _, of = calibrated(model)
        assert of.rings == ()


def test_rates_in_both_directions_count_where_they_were_measured() -> None:
    model = fabric(lambda a, b: 40.0, 2, 1)
    model.options = {**model.options, "both": True}
    rows = [
        Measurement(Layer.P2P, *way, Verdict.OK, 40.0, "GB/s", 1 << 28, 3.0, extra={"both_ways": 30.0})
        for way in (("n0:0", "n1:0"), ("n1:0", "n0:0"))
    ]
    model.apply(Measured(measurements=rows, time=3.0))
    measured(model, 30.0, "n0", "n1")
    _, of = calibrated(model)
    assert of.factor == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("channels", "rate", "busbw", "error"),
    [(24, 303.2, 298.6, 0.015), (16, 303.6, 257.9, 0.151), (12, 302.7, 216.6, 0.284), (8, 162.0, 156.9, 0.031)],
)
def test_a_maximum_of_channels_that_misleads_p2p_is_admitted(
    channels: int, rate: float, busbw: float, error: float
) -> None:
    """Measured on two H200: NCCL rounds 12 channels of p2p up to 16, so that all_reduce has fewer than p2p."""
    model = fabric(lambda a, b: 2 * rate, 1, 2)
    model.options = {**model.options, "both": True}
    rows = [
        Measurement(Layer.P2P, *way, Verdict.OK, 2 * rate, "GB/s", 1 << 28, 3.0, extra={"both_ways": rate})
        for way in (("n0:0", "n0:1"), ("n0:1", "n0:0"))
    ]
    model.apply(Measured(measurements=rows, time=3.0))
    measured(model, busbw, "n0", "n0")
    costs, of = calibrated(model)
    assert of.error == pytest.approx(error, abs=0.001)
    assert of.fits is (channels != 12)
    expected = costs.busbw(of, of.ranks)
    assert expected == pytest.approx(busbw)


def test_a_ring_of_each_rail_goes_in_and_out_of_a_node_by_its_nic() -> None:
    ranks, node = np.arange(6), np.array([0, 0, 0, 1, 1, 1])
    hops = traffic("all_reduce", "ring", ranks, node, np.array([0, 0, 1, 2, 2, 3]))
    assert hops is not None
    first = {(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (3, 0)}
    second = {(2, 0), (0, 1), (5, 3), (3, 4), (2, 5), (5, 2)}
    assert sorted(zip(hops.source.tolist(), hops.target.tolist(), strict=True)) == sorted([*first, *second])
    assert hops.share == pytest.approx(2 * 5 / 6 / 2)


@pytest.mark.parametrize("count", range(1, 12))
def test_both_trees_reach_every_node(count: int) -> None:
    for parents in double_tree(count):
        assert parents.count(-1) == 1
        for at in range(count):
            seen = set()
            while at >= 0:
                assert at not in seen
                seen.add(at)
                at = parents[at]
    # A node that others hang on in one tree is a leaf of the other, so that the load is even.
    first, second = (set(parents) - {-1} for parents in double_tree(count))
    assert count < 3 or count % 2 or not first & second


def test_a_tree_sends_as_much_as_a_ring_at_most() -> None:
    node = np.arange(8)
    for algorithm in ("ring", "tree"):
        made = traffic("all_reduce", algorithm, node, node, node)
        assert made is not None
        assert np.bincount(made.source).max() * made.share <= 2.0


def test_a_collective_is_a_share_of_an_iteration_of_the_job() -> None:
    _, of = calibrated(one_slow_node())
    # 1 GiB x 22 / 12 at 38 GB/s takes 51.8 ms; an iteration 0.5 s.
    assert iteration_share(of, 120.0) == pytest.approx(0.1036, abs=1e-4)
    assert iteration_share(of, None) is None
