import json
from typing import Any

import pytest

from fabtui.model.endpoints import Endpoint, PairClass, pair_class
from fabtui.model.events import (
    EndpointsAdded,
    InventoryUpdate,
    Measured,
    NodeState,
    NodeUpdate,
    PairsStarted,
    ProbeResult,
    SessionStart,
    event_from_json,
)
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.records import listed
from fabtui.model.session_model import Model


def _model(nodes: int = 2, each: int = 4) -> Model:
    names = [f"n{i:03d}" for i in range(nodes)]
    model = Model()
    model.apply(SessionStart(nodes=names, time=100.0, seq=0))
    endpoints = [Endpoint(n * each + i, name, i, kind="cpu") for n, name in enumerate(names) for i in range(each)]
    model.apply(EndpointsAdded(endpoints=endpoints))
    return model


def _measured(*measurements: Measurement) -> Measured:
    return Measured(measurements=measurements)


def _p2p(src: str, dst: str, value: float | None, verdict: Verdict = Verdict.OK, **more: Any) -> Measurement:
    return Measurement(Layer.P2P, src, dst, verdict, value, "GB/s", 4, **more)


def test_class_of_a_pair() -> None:
    a = Endpoint(0, "n0", 0, rail=1)
    assert pair_class(a, Endpoint(1, "n0", 1)) is PairClass.SAME_NODE
    assert pair_class(a, Endpoint(2, "n1", 5, rail=1)) is PairClass.SAME_RAIL
    assert pair_class(a, Endpoint(3, "n1", 0, rail=0)) is PairClass.CROSS_RAIL
    assert pair_class(Endpoint(0, "n0", 2), Endpoint(1, "n1", 2)) is PairClass.SAME_RAIL


def test_a_value_far_below_its_class_is_slow_and_others_are_not() -> None:
    model = _model()
    ends = [str(e) for e in model.endpoints if e.node == "n000"]
    rows = [_p2p(a, b, 350.0) for a in ends for b in ends if a != b]
    model.apply(_measured(*rows[1:], _p2p("n000:0", "n000:1", 200.0), _p2p("n000:0", "n001:1", 12.0)))
    assert model.cell(Layer.P2P, 0, 1).verdict is Verdict.SLOW
    assert model.cell(Layer.P2P, 1, 0).verdict is Verdict.OK
    # Alone in its class, the other value has nothing to be compared with.
    assert model.cell(Layer.P2P, 0, 5).verdict is Verdict.OK
    assert model.median(Layer.P2P, PairClass.SAME_NODE) == 350.0


def test_a_newer_attempt_replaces_the_value_in_its_class() -> None:
    model = _model(1, 3)
    model.apply(_measured(_p2p("n000:0", "n000:1", 10.0), _p2p("n000:1", "n000:0", 20.0)))
    assert model.median(Layer.P2P, PairClass.SAME_NODE) == 15.0
    model.apply(_measured(_p2p("n000:0", "n000:1", 40.0, attempts=2)))
    assert model.median(Layer.P2P, PairClass.SAME_NODE) == 30.0
    model.apply(_measured(_p2p("n000:0", "n000:1", None, Verdict.TIMEOUT, attempts=3)))
    assert model.median(Layer.P2P, PairClass.SAME_NODE) == 20.0
    assert [m.attempts for m in model.history(Layer.P2P, "n000:0", "n000:1")] == [1, 2, 3]


def test_a_timeout_has_no_value() -> None:
    model = _model()
    model.apply(_measured(_p2p("n000:0", "n001:0", None, Verdict.TIMEOUT, error="timed out after 5.0 s")))
    cell = model.cell(Layer.P2P, 0, 4)
    assert (cell.verdict, cell.value) == (Verdict.TIMEOUT, None)
    assert model.cell(Layer.HEALTH, 0, 4).verdict is Verdict.TIMEOUT
    assert model.cell(Layer.P2P, 4, 0).verdict is Verdict.UNTESTED


def test_running_pairs_are_marked_until_they_are_measured() -> None:
    model = _model()
    model.apply(PairsStarted(pairs=[("n000:0", "n001:0"), ("n001:0", "n000:0")]))
    assert model.cell(Layer.P2P, 0, 4).running
    model.apply(_measured(_p2p("n000:0", "n001:0", 1.0)))
    assert not model.cell(Layer.P2P, 0, 4).running
    assert model.cell(Layer.P2P, 4, 0).running
    model.apply(NodeUpdate(node="n001", state=NodeState.LOST, text="gone"))
    assert not model.cell(Layer.P2P, 4, 0).running


def test_the_ping_of_a_cell_is_the_worst_of_the_two_nodes_addresses() -> None:
    model = _model()

    def ping(src_addr: str, value: float | None, verdict: Verdict) -> Measurement:
        return Measurement(Layer.PING, "n000", "n001", verdict, value, "ms", src_addr=src_addr, dst_addr="10.0.0.9")

    model.apply(_measured(ping("10.0.0.1", 0.1, Verdict.OK), ping("10.0.0.2", None, Verdict.TIMEOUT)))
    assert model.cell(Layer.PING, 0, 4).verdict is Verdict.TIMEOUT
    assert len(model.addresses.latest(Layer.PING, "n000", "n001")) == 2
    assert model.cell(Layer.PING, 4, 0).verdict is Verdict.UNTESTED


def test_busbw_of_a_cell_is_that_of_the_largest_message_between_its_nodes() -> None:
    model = _model()

    def busbw(size: int, value: float) -> Measurement:
        return Measurement(Layer.BUSBW, "n000", "n001", Verdict.OK, value, "GB/s", size)

    model.apply(_measured(busbw(1 << 20, 40.0), busbw(1 << 16, 4.0)))
    assert model.cell(Layer.BUSBW, 0, 5).value == 40.0
    assert model.cell(Layer.BUSBW, 5, 0).value == 40.0
    assert len(list(model.measurements())) == 2


def test_events_of_unknown_kinds_are_ignored_and_broken_ones_are_refused() -> None:
    model = _model()
    model.apply(event_from_json({"kind": "from-the-future"}))
    with pytest.raises(ValueError, match="missing"):
        event_from_json({"kind": "node"})
    with pytest.raises(ValueError, match="not a measurement"):
        event_from_json({"kind": "measured", "measurements": [{"layer": "p2p"}]})
    with pytest.raises(ValueError, match="number 3"):
        model.apply(EndpointsAdded(endpoints=[Endpoint(3, "n000", 9)]))


def test_a_measurement_survives_json() -> None:
    m = _p2p("a:0", "b:0", 1.5, transport="P2P/CUMEM", made=True, extra={"loss": 1})
    assert Measurement.from_json(m.to_json()) == m


def test_nodes_hold_equal_texts_once() -> None:
    model = Model()
    for node in ("n060", "n061"):
        model.apply(InventoryUpdate(node=node, value=json.loads(f'{{"gpus": [{{"name": "A GPU", "at": "{node}"}}]}}')))
        model.apply(ProbeResult(node=node, probe="host", value=json.loads('{"deep": [[["of a kernel"]]], "n": 7}')))
    first, second = (model.nodes[node] for node in ("n060", "n061"))
    (mine,), (other,) = (listed(record, "gpus") for record in (first, second))
    assert mine["name"] is other["name"]
    assert (mine["at"], other["at"]) == ("n060", "n061")
    assert first.probe_results["host"]["deep"][0][0][0] is second.probe_results["host"]["deep"][0][0][0]
