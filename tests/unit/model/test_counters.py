from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.model.counter_log import (
    CounterLog,
    CounterMeaning,
    counts_of,
    deltas,
    flatten,
    is_congested,
    is_error,
    meaning_of_counter,
)
from fabtui.model.events import CounterDeltas, Measured, PairsStarted, PhaseStart
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from tests.conftest import session_of


def value(**counts: int) -> dict[str, Any]:
    return {"hca": {"mlx5_0/1": counts}, "net": {}, "nvlink": {}, "time": 1.0}


def moved(name: str, count: int, errors: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {"net": {"eth0": {name: count}}}
    return {**found, "errors": [["net", "eth0", name]]} if errors else found


def test_only_what_moved_and_data_in_bytes() -> None:
    found = deltas(
        value(port_xmit_data=1000, port_xmit_packets=7, symbol_error=3, link_downed=2),
        value(port_xmit_data=1250, port_xmit_packets=9, symbol_error=5, link_downed=2),
    )
    assert found == {
        "hca": {"mlx5_0/1": {"port_xmit_data": 1000, "port_xmit_packets": 2, "symbol_error": 2}},
        "errors": [["hca", "mlx5_0/1", "symbol_error"]],
    }


def test_nothing_moved_is_nothing() -> None:
    assert deltas(value(symbol_error=3), value(symbol_error=3)) == {}


def test_a_counter_that_was_reset_or_wrapped_has_no_difference() -> None:
    found = deltas(value(symbol_error=900, port_rcv_data=5), value(symbol_error=4, port_rcv_data=2**63))
    assert found == {"reset": [["hca", "mlx5_0/1", "port_rcv_data"], ["hca", "mlx5_0/1", "symbol_error"]]}


def test_a_counter_at_its_limit_is_reported() -> None:
    found = deltas(value(symbol_error=65000, link_downed=3), value(symbol_error=65535, link_downed=4))
    assert found["hca"] == {"mlx5_0/1": {"symbol_error": 535, "link_downed": 1}}
    assert found["full"] == [["hca", "mlx5_0/1", "symbol_error"]]
    log = CounterLog()
    log.take("a", 0.0, 2.0, found)
    log.take("a", 2.0, 4.0, moved("rx_bytes", 1))
    assert log.between("a", 1.0, 3.0)["full"] == [["hca", "mlx5_0/1", "symbol_error"]]
    assert "full" not in log.between("a", 2.5, 3.0)


def test_what_is_in_one_value_only_is_unknown() -> None:
    assert deltas(value(symbol_error=3), value(link_downed=9)) == {}


def test_nvlinks_and_interfaces() -> None:
    before = {
        "net": {"eth0": {"rx_bytes": 1, "rx_dropped": 0}},
        "nvlink": {"0": {"3": {"crc": 0}, "all": {"tx_bytes": 0}}},
    }
    after = {
        "net": {"eth0": {"rx_bytes": 9, "rx_dropped": 2}},
        "nvlink": {"0": {"3": {"crc": 1}, "all": {"tx_bytes": 64}}},
    }
    assert deltas(before, after) == {
        "net": {"eth0": {"rx_bytes": 8, "rx_dropped": 2}},
        "nvlink": {"0": {"3": {"crc": 1}, "all": {"tx_bytes": 64}}},
        "errors": [["net", "eth0", "rx_dropped"], ["nvlink", "0", "3", "crc"]],
    }


@pytest.mark.parametrize(
    "name",
    [
        *("symbol_error", "link_downed", "local_ack_timeout_err", "packet_seq_err", "out_of_sequence"),
        *("rnr_nak_retry_err", "roce_adp_retrans", "rx_icrc_encapsulated", "link_error_recovery"),
        *("port_rcv_errors", "excessive_buffer_overrun_errors", "port_xmit_discards", "crc", "VL15_dropped"),
        *("replay", "recovery", "rx_errors", "tx_dropped", "rx_crc_errors", "rx_missed_errors"),
        *("local_link_integrity_errors", "port_rcv_constraint_errors", "carrier_changes", "implied_nak_seq_err"),
        *("retrans_timeout_events", "ip4InDiscards", "tcpRetransSegs"),
    ],
)
def test_error_counters(name: str) -> None:
    assert is_error(name)


@pytest.mark.parametrize(
    "name",
    [
        *("port_xmit_data", "port_rcv_packets", "unicast_rcv_packets", "rx_bytes", "tx_bytes", "rx_write_requests"),
        *("np_cnp_sent", "port_xmit_wait", "rp_cnp_handled", "np_ecn_marked_roce_packets", "req_cqe_flush_error"),
        *("resp_cqe_error", "rdma_read_resp_bytes", "cache_transferred"),
    ],
)
def test_counters_of_traffic_and_of_what_every_test_does(name: str) -> None:
    assert not is_error(name)


HOSTILE: list[Any] = [
    {"gpus": []},
    {"hca": 7, "net": [], "nvlink": None},
    {"hca": {"mlx5_0/1": 3}},
    {"hca": {"mlx5_0/1": {"x": -1, "y": "2", "z": True, "w": 1.5, "v": None}}},
    {"hca": {"\x1b[31m": {"x": 1}, "a" * 65: {"x": 1}, "ok": {"x y": 1}}},
    {"nvlink": {"0": {"crc": 1}}},
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_is_not_a_count_is_passed_over(hostile: Any) -> None:
    assert flatten(hostile) == {}
    assert deltas(hostile, hostile) == {}


def test_a_flood_of_counters_is_cut() -> None:
    assert len(flatten({"net": {"eth0": {f"c{n}": 1 for n in range(50_000)}}})) == 20_000


COUNTS = st.dictionaries(st.sampled_from(["port_xmit_data", "symbol_error", "x"]), st.integers(0, 1 << 40))


@given(COUNTS, COUNTS)
def test_deltas_are_never_negative_and_never_zero(before: dict[str, int], after: dict[str, int]) -> None:
    found = deltas(value(**before), value(**after))
    assert all(count > 0 for count in flatten(found).values())
    down = [name for name in before if name in after and after[name] < before[name]]
    assert [path[-1] for path in found.get("reset", [])] == sorted(down)


def test_intervals_that_overlap_are_merged() -> None:
    log = CounterLog()
    log.take("a", 0.0, 2.0, moved("rx_bytes", 1))
    log.take("a", 2.0, 4.0, moved("rx_dropped", 2, errors=True))
    log.take("a", 4.0, 6.0, {**moved("rx_dropped", 3, errors=True), "reset": [["net", "eth0", "rx_bytes"]]})
    assert log.between("a", 0.5, 1.0) == moved("rx_bytes", 1)
    assert log.between("a", 2.0, 4.0) == moved("rx_dropped", 2, errors=True), "those that only touch are not in it"
    assert log.between("a", 1.0, 5.0) == {
        "net": {"eth0": {"rx_bytes": 1, "rx_dropped": 5}},
        "errors": [["net", "eth0", "rx_dropped"]],
        "reset": [["net", "eth0", "rx_bytes"]],
    }
    assert log.between("a", 2.0, 2.0) == moved("rx_bytes", 1), "a moment is in the interval that ends with it"
    assert log.between("a", 6.5, 9.0) == {}
    assert log.between("b", 0.0, 9.0) == {}


def test_the_oldest_intervals_go() -> None:
    log = CounterLog(most=3)
    for at in range(10):
        log.take("a", float(at), at + 1.0, moved("rx_bytes", 1))
        log.take("a", float(at), at + 1.0, moved(f"c{at}", 1))
    assert log.between("a", 0.0, 100.0)["net"]["eth0"] == {"rx_bytes": 1, "c8": 1, "c9": 1}


def test_a_hostile_recording_is_kept_within_bounds() -> None:
    log = CounterLog()
    log.take("a", 0.0, 1.0, {"net": {"eth0": {"x": 1 << 70, "y": 1}}, "errors": [7, ["net"], ["net", 1, 2], "net"]})
    log.take("a", 0.0, 1.0, {"still": 7})
    log.take("a", 0.0, 1.0, {"still": [3, "\x1b", "mlx5_0/1"]})
    assert log.between("a", 0.0, 1.0) == {"net": {"eth0": {"y": 1}}}


def _model() -> Model:
    return session_of("abc", time=0.0)


def _counted(model: Model, node: str, since: float, until: float, count: int) -> None:
    moved_by = moved("rx_bytes", count)
    model.apply(CounterDeltas(node=node, since=since, until=until, deltas=moved_by, time=until))


def _measured(model: Model, layer: Layer, time: float, verdict: Verdict = Verdict.OK) -> Measurement:
    measurement = Measurement(layer, "a:0", "b:0", verdict, 1.0, "GB/s", 4, time)
    model.apply(Measured(measurements=[measurement], time=time))
    return measurement


def test_a_measurement_has_the_counters_of_its_two_nodes_at_its_time() -> None:
    model = _model()
    for at, node in enumerate("abc"):
        _counted(model, node, 10.0, 12.0, at + 1)
        _counted(model, node, 12.0, 14.0, 100)
    measurement = _measured(model, Layer.P2P, 11.5)
    assert model.counters.of(measurement) == {"a": moved("rx_bytes", 1), "b": moved("rx_bytes", 2)}
    assert model.counters.between("c", 11.0, 13.0) == moved("rx_bytes", 103)
    assert model.counters.of(Measurement(Layer.PING, "a", "b", Verdict.OK, time=11.5)) == {}
    assert model.counters.of(Measurement(Layer.P2P, "a:0", "b:0", Verdict.OK, time=99.0)) == {}


def test_a_test_that_took_long_has_all_its_intervals() -> None:
    model = _model()
    model.apply(PairsStarted(pairs=[("a:0", "b:0")], time=10.5))
    for at in (8.0, 10.0, 12.0, 14.0):
        _counted(model, "a", at, at + 2.0, int(at))
    measurement = _measured(model, Layer.P2P, 13.0, Verdict.TIMEOUT)
    assert model.counters.of(measurement) == {"a": moved("rx_bytes", 22)}
    model.apply(PairsStarted(pairs=[("a:0", "b:0")], time=20.0))
    _measured(model, Layer.P2P, 20.1)
    assert model.counters.of(measurement) == {"a": moved("rx_bytes", 22)}, "a later test of the pair changes nothing"


def test_a_transfer_of_the_world_layer_has_the_counters_of_the_whole_phase() -> None:
    model = _model()
    _counted(model, "a", 4.0, 6.0, 1)
    model.apply(PhaseStart(name="world", total=2, time=6.5))
    _counted(model, "a", 6.0, 8.0, 10)
    _counted(model, "a", 8.0, 10.0, 100)
    measurement = _measured(model, Layer.WORLD, 9.0)
    model.apply(PhaseStart(name="world", total=2, time=30.0))
    assert model.counters.of(measurement) == {"a": moved("rx_bytes", 110)}


MEANINGS: dict[CounterMeaning | None, str] = {
    CounterMeaning.CONGESTION: """np_cnp_sent rp_cnp_handled np_ecn_marked_roce_packets rx_prio3_pause tx_prio3_pause
        rx_cnp_pkts rx_ecn_marked_pkts rx_pfc_ena_frames_pri5 rx_rdma_cnp_pkts rx_rdma_ecn_pkts cnpHandled RxECNMrkd
        rx_priority_3_xoff.nic""",
    CounterMeaning.LOSS: """rx_prio3_discards rx_prio3_cong_discard rx_discards_phy packet_seq_err out_of_sequence
        oos_drop_count to_retransmits rx_drops retrans_pkts unresponsive_remote_events impaired_remote_conn_events""",
    CounterMeaning.ERROR: "symbol_error rx_crc_errors rdma_read_wr_err",
    None: "rx_prio3_pause_duration rx_prio3_bytes port_xmit_wait req_cqe_error",
}


@pytest.mark.parametrize(
    ("name", "meaning"), [(name, one) for one, names in MEANINGS.items() for name in names.split()]
)
def test_what_a_counter_means(name: str, meaning: CounterMeaning | None) -> None:
    assert meaning_of_counter(name) is meaning


def test_congestion_is_no_error_and_a_few_notifications_are_usual() -> None:
    few = deltas(value(np_cnp_sent=1, symbol_error=0), value(np_cnp_sent=4, symbol_error=2))
    many = deltas(value(np_cnp_sent=1), value(np_cnp_sent=400))
    assert few["errors"] == [["hca", "mlx5_0/1", "symbol_error"]]
    assert counts_of(CounterMeaning.CONGESTION, few) == {("hca", "mlx5_0/1", "np_cnp_sent"): 3}
    assert not is_congested({"a": few})
    assert is_congested({"a": few, "b": many})
