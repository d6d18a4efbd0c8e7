"""Measurements from unvalidated node messages."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.model.endpoints import Endpoint
from fabtui.model.layers import Layer, busbw_factor
from fabtui.model.measurement import Verdict
from fabtui.session.endpoint_admission import admit, engine_for
from fabtui.session.measure.group_tests import EVERY_NODE_PAIR, Group, first_groups, groups_of
from fabtui.session.measure.p2p_result import Side, direction, read_struct
from fabtui_node.protocol import CONSEQUENCES, ErrorKind
from tests.wire.message_types import FROM_RANKS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def _both(src: dict[str, Any], dst: dict[str, Any]) -> list[Any]:
    return direction("a:0", "b:0", Side.read(src), Side.read(dst), time=1.0, how="gloo", attempts=1, asked=None)


@pytest.mark.parametrize("wrong", [-1, 2**16, 2_000_000_000, 2**40, True, "1"])
def test_an_impossible_rail_or_index_of_a_node_is_none(wrong: Any) -> None:
    """Arrays are made from both: a node must not choose their size."""
    address = {"address": "10.0.0.1", "rail": wrong, "nic": "mlx5_0"}
    inventory = {"gpus": [{"index": 0, "nic": "mlx5_0"}, {"index": wrong}], "data_addresses": [address, address]}
    inventory |= {"pythons": [{"path": "/p", "torch": "2"}]}
    assert [(end.index, end.rail) for end in admit("n0", inventory, 0, "nccl", None, None).endpoints] == [(0, None)]
    assert [end.rail for end in admit("n0", inventory, 0, "gloo", 2, None).endpoints] == [None, None]


def test_a_good_direction_gives_bandwidth_and_latency() -> None:
    p2p, latency = _both({"ok": True, "latency": 2e-6, "transport": "NET/IB/0"}, {"ok": True, "rate": 46e9, "bytes": 8})
    assert (p2p.verdict, p2p.value, p2p.unit, p2p.transport) == (Verdict.OK, 46.0, "GB/s", "NET/IB/0")
    assert (latency.layer, latency.value, latency.unit) == (Layer.LATENCY, 2.0, "us")


def test_the_side_that_knows_more_gives_the_error() -> None:
    (p2p,) = _both(
        {"ok": False, "timeout": False, "phase": "connect", "error": "connection refused"},
        {"ok": False, "timeout": True, "phase": "connect", "error": "no answer within 5.0 s"},
    )
    assert (p2p.verdict, p2p.error, p2p.value) == (Verdict.FAILED, "connect: connection refused", None)
    (p2p,) = _both({"ok": True}, {"ok": False, "timeout": True, "phase": "transfer", "error": "no data in 5.0 s"})
    assert (p2p.verdict, p2p.error) == (Verdict.TIMEOUT, "transfer: no data in 5.0 s")


@pytest.mark.parametrize("kind", CONSEQUENCES)
def test_a_timeout_explains_more_than_an_error_that_follows_from_the_peer(kind: ErrorKind) -> None:
    waited = {"ok": False, "timeout": True, "phase": "connect", "error": "a:0 did not come within 5.0 s"}
    (p2p,) = _both({"ok": False, "error": "x", "error_kind": kind.value}, waited)
    assert (p2p.verdict, p2p.error) == (Verdict.TIMEOUT, "connect: a:0 did not come within 5.0 s")
    assert p2p.extra == {"error_kind": "timeout"}


def test_why_a_rank_host_went_is_reported_with_what_its_peer_saw() -> None:
    gone = Side(False, False, "the rank host of a ended with signal 9", ErrorKind.KILLED, gone=True)
    saw = Side.read({"ok": False, "phase": "transfer", "error": "connection closed by peer", "made": True})
    (p2p,) = direction("a:0", "b:0", gone, saw, time=1.0, how="gloo", attempts=1, asked=None)
    assert p2p.error == "transfer: connection closed by peer; the rank host of a ended with signal 9"
    (p2p,) = direction(
        "a:0", "b:0", gone, Side.read({"ok": True, "rate": 1e9}), time=1.0, how="gloo", attempts=1, asked=None
    )
    assert p2p.error == "the rank host of a ended with signal 9"


def test_a_loss_that_ended_both_sides_is_reported_once() -> None:
    one, other = (
        Side(False, False, "a was lost: the connection was lost", ErrorKind.NODE_LOST, gone=True) for _ in range(2)
    )
    (p2p,) = direction("a:0", "a:1", one, other, time=1.0, how="gloo", attempts=1, asked=None)
    assert p2p.error == "a was lost: the connection was lost"


def test_a_pass_without_a_rate_is_inconclusive_never_zero() -> None:
    for rate in (None, 0, float("nan"), float("inf"), -1, "fast", True):
        (p2p,) = _both({"ok": True}, {"ok": True, "rate": rate})
        assert (p2p.verdict, p2p.value) == (Verdict.INCONCLUSIVE, None)


@given(st.dictionaries(st.sampled_from(["ok", "timeout", "error", "rate", "latency", "raw", "bytes", "phase"]), JSON))
def test_any_report_makes_a_measurement_without_control_characters(report: dict[str, Any]) -> None:
    for found in _both(report, report):
        assert "\x1b" not in (found.error or "") + (found.raw or "")


@pytest.mark.parametrize("report", [{"\ud800": 1}, {"ok": "\ud800"}, {"kind": "\ud800"}])
def test_half_of_a_surrogate_pair_in_a_report_counts_as_absent(report: dict[str, Any]) -> None:
    assert read_struct({**report, "error": "refused"}, Side).error == "refused"


def test_what_is_read_of_a_report_is_what_ranks_send() -> None:
    read = {field.encode_name for field in msgspec.structs.fields(Side)} - {"gone"}
    assert read <= set(FROM_RANKS["side"])
    message = {"ok": True, "gone": True, "rate": 1e9, "error": ["x"], "times": {"min": "fast"}}
    assert (Side.read(message).gone, Side.read(message).rate, Side.read(message).times) == (False, 1e9, None)


@given(JSON)
def test_any_inventory_admits_something(inventory: Any) -> None:
    value = {
        "gpus": [{"index": 0, "name": inventory, "nic": inventory, "processes": inventory}, inventory],
        "nics": inventory,
        "data_addresses": inventory,
        "pythons": inventory,
        "nccl": inventory,
        "endpoints": inventory,
    }
    for engine in ("nccl", "gloo"):
        assert admit("n0", value, 3, engine, None, None).endpoints[0].number == 3


def test_admission_of_gpus_and_of_nodes_without() -> None:
    gpus = {
        "gpus": [{"index": i, "uuid": f"GPU-{i}", "name": "NVIDIA H200", "nic": f"mlx5_{i}"} for i in range(2)],
        "data_addresses": [{"address": f"10.{i}.0.60", "nic": f"mlx5_{i}", "rail": i, "family": 4} for i in range(2)],
        "pythons": [{"path": "/p", "nccl": "/p/libnccl.so.2"}],
    }
    none: dict[str, Any] = {"gpus": [], "nvml_error": "no driver", "pythons": []}
    assert engine_for({"n0": none, "n1": gpus}) == ("nccl", "")
    assert engine_for({"n0": none}) == ("gloo", "")
    # What one node claims does not leave the others untested.
    one = {"n0": none, "n1": gpus, "n2": none}
    note = "n1 alone reports GPUs: CPU ranks test all nodes; --engine nccl tests its GPUs"
    assert engine_for(one) == ("gloo", note)
    assert engine_for({**one, "n2": gpus}) == ("nccl", "")
    admitted = admit("n0", gpus, 0, "nccl", None, None)
    assert [(e.rail, e.address, e.nic) for e in admitted.endpoints] == [
        (0, "10.0.0.60", "mlx5_0"),
        (1, "10.1.0.60", "mlx5_1"),
    ]
    assert admitted.library == "/p/libnccl.so.2"
    absent = admit("n1", none, 2, "nccl", None, None)
    assert (absent.endpoints[0].kind, str(absent.endpoints[0])) == ("none", "n1:-")
    assert "no driver" in absent.note
    assert "no Python with torch" in admit("n1", none, 2, "gloo", None, None).note


@pytest.mark.parametrize(
    ("nics", "rails"), [("0011", [0, 0, 1, 1]), ("0101", [0, 1, 0, 1]), ("0123", [None] * 4), ("0000", [0] * 4)]
)
def test_gpus_that_share_nics_without_addresses_share_rails(nics: str, rails: list[int | None]) -> None:
    inventory = {
        "gpus": [{"index": at, "nic": f"mlx5_{nic}"} for at, nic in enumerate(nics)],
        "nics": [{"name": f"ib{nic}", "rdma": f"mlx5_{nic}"} for nic in sorted(set(nics))],
        "data_addresses": [{"address": "192.168.7.1", "nic": "eno1", "rail": 0, "family": 4}],
    }
    assert [end.rail for end in admit("n0", inventory, 0, "nccl", None, None).endpoints] == rails


def test_a_nic_that_carries_no_test_traffic_is_not_shared_and_makes_no_rail() -> None:
    inventory = {
        "gpus": [{"index": i, "nic": "eth0"} for i in range(2)],
        "nics": [{"name": "eth0", "rdma": None}],
        "data_addresses": [{"address": "127.0.60.10", "nic": "lo", "rail": 0, "family": 4}],
    }
    ends = admit("n0", inventory, 0, "nccl", None, None).endpoints
    assert [(e.nic, e.rail, e.address) for e in ends] == [(None, None, "127.0.60.10")] * 2
    inventory["nics"] = [{"name": "ib0", "rdma": "mlx5_0"}]
    inventory["gpus"] = [{"index": 0, "nic": "mlx5_0"}]
    (end,) = admit("n0", inventory, 0, "nccl", None, None).endpoints
    assert (end.nic, end.rail) == ("mlx5_0", None), "RDMA without an address is shared all the same"


def test_cpu_ranks() -> None:
    inventory = {"pythons": [{"path": "/a"}, {"path": "/b", "torch": "2.13.0"}], "endpoints": 3}
    admitted = admit("n0", inventory, 0, "gloo", None, None)
    assert (len(admitted.endpoints), admitted.argv) == (3, ["/b"])
    assert len(admit("n0", inventory, 0, "gloo", 2, None).endpoints) == 2


@pytest.mark.parametrize(
    ("up", "down", "expected"),
    [
        ((0, 1), (), [("eth0", 0), ("eth1", 1), ("eth0", 0)]),
        ((1, 2), (0,), [("eth1", 1), ("eth1", 1), ("eth2", 2)]),
        ((0,), (), [(None, None)] * 3),
        ((), (), [(None, None)] * 3),
    ],
    ids=["in turn", "a rail down", "one rail", "no address"],
)
def test_cpu_ranks_take_the_data_rails_in_turn(up: Any, down: Any, expected: Any) -> None:
    def listed(rails: Any) -> list[dict[str, Any]]:
        return [{"address": f"10.{rail}.0.1", "nic": f"eth{rail}", "rail": rail, "family": 4} for rail in rails]

    inventory = {
        "pythons": [{"path": "/b", "torch": "2.13.0"}],
        "data_addresses": listed(up),
        "down_addresses": listed(down),
    }
    ends = admit("n0", inventory, 0, "gloo", 3, None).endpoints
    assert [(end.nic, end.rail) for end in ends] == expected
    assert [bool(end.address) for end in ends] == [bool(up)] * 3


def test_groups_and_busbw() -> None:
    ends = [Endpoint(i, f"n{i // 2}", i % 2) for i in range(4)]
    groups = groups_of(ends, ["n0", "n1"])
    assert [(g.src, g.dst, g.ranks) for g in groups] == [
        ("n0", "n0", (0, 1)),
        ("n1", "n1", (2, 3)),
        ("n0", "n1", (0, 1, 2, 3)),
    ], "all ranks of two nodes are one group, not two"
    three = [Endpoint(i, f"n{i}", 0) for i in range(3)]
    assert groups_of(three, ["n0", "n1", "n2"])[-1] == Group("all", "all", (0, 1, 2))
    assert groups_of(ends[:1], ["n0"]) == []
    assert [g.src for g in groups_of(ends[:2], ["n0"])] == ["n0"], "all ranks of one node are one group, not two"
    assert busbw_factor("all_reduce", 8) == pytest.approx(1.75)
    assert [busbw_factor(kind, 8) for kind in ("all_gather", "alltoall", "reduce_scatter")] == [0.875] * 3
    assert busbw_factor("broadcast", 8) == busbw_factor("sendrecv", 8) == 1.0


def test_rails_of_three_nodes_are_groups() -> None:
    ends = [Endpoint(i, f"n{i // 2}", i % 2) for i in range(6)]
    groups = {g.src: g.ranks for g in groups_of(ends, ["n0", "n1", "n2"]) if g.src.startswith("rail")}
    assert groups == {"rail0": (0, 2, 4), "rail1": (1, 3, 5)}


def test_groups_of_the_first_ranks_go_node_after_node() -> None:
    # n1 joined first, so that the numbers of its ranks are lower.
    ends = [Endpoint(i, f"n{1 - i // 2}", i % 2) for i in range(4)]
    assert first_groups(ends, ["n0", "n1"], (2, 3, 8)) == [
        Group("first2", "first2", (2, 3)),
        Group("first3", "first3", (2, 3, 0)),
    ]


def test_of_many_nodes_each_has_a_few_partners() -> None:
    count = EVERY_NODE_PAIR + 6
    nodes = [f"n{at}" for at in range(count)]
    groups = [g for g in groups_of([Endpoint(at, node, 0) for at, node in enumerate(nodes)], nodes) if g.src != g.dst]
    assert len(groups) == count + count // 2
    assert ("n0", "n1") in {g[:2] for g in groups}
    assert ("n0", f"n{count // 2}") in {g[:2] for g in groups}
    assert {node for g in groups for node in g[:2]} == set(nodes)


def test_a_frozen_source_is_reported_rather_than_that_the_other_side_was_cancelled() -> None:
    frozen = Side(False, True, "the rank host of a is frozen: no answer for 3 s", ErrorKind.FROZEN, gone=True)
    off = {
        "ok": False,
        "phase": "transfer",
        "error": "no data came: cancelled: a peer is gone (made by the lab: stop)",
        "error_kind": "cancelled",
    }
    saw = Side.read({**off, "made": True})
    (p2p,) = direction("a:0", "b:0", frozen, saw, time=1.0, how="nccl", attempts=1, asked=None)
    assert (p2p.verdict, p2p.made) == (Verdict.TIMEOUT, True)
    assert p2p.error == "the rank host of a is frozen: no answer for 3 s"


def test_a_frozen_source_is_reported_rather_than_the_error_of_the_other_side() -> None:
    frozen = Side(False, True, "the rank host of a is frozen: no answer for 3 s", ErrorKind.FROZEN, gone=True)
    saw = Side.read({"ok": False, "phase": "transfer", "error": "connection reset by peer", "made": True})
    (p2p,) = direction("a:0", "b:0", frozen, saw, time=1.0, how="gloo", attempts=1, asked=None)
    assert (p2p.verdict, p2p.made) == (Verdict.TIMEOUT, True)
    assert p2p.error == "the rank host of a is frozen: no answer for 3 s"
