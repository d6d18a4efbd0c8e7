"""Targets of the mesh, and the measurements of their answers."""

from typing import Any

import pytest

from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.session.measure.one_way import judge
from fabtui.session.measure.ping_mesh import (
    MAX_PAIRS,
    Address,
    Target,
    addresses_of,
    header_bytes,
    key_of,
    read_row,
    read_whole,
    targets_between,
)


def one(address: str, rail: int | None = 0, mtu: int | None = 1500) -> Address:
    return Address(address, 6 if ":" in address else 4, rail, "eth0", mtu)


TARGET = Target("a", one("1.1.1.1"), "b", one("2.2.2.2"))


def inventory(*addresses: str, down: tuple[str, ...] = ()) -> dict[str, Any]:
    def listed(chosen: tuple[str, ...]) -> list[dict[str, Any]]:
        return [{"address": a, "nic": f"eth{a}", "rail": n, "family": 4} for n, a in enumerate(chosen)]

    nics = [
        {"name": f"eth{a}", "mtu": 9000, "addresses": [{"address": a, "prefix": 24, "family": 4}]}
        for a in (*addresses, *down)
    ]
    return {"data_addresses": listed(addresses), "down_addresses": listed(down), "nics": nics}


def test_targets_are_every_address_pair_of_a_family() -> None:
    addresses = {"a": [one("10.0.0.1"), one("fd00::1")], "b": [one("10.0.0.2"), one("10.1.0.2", 1)], "c": []}
    found, total = targets_between(["b", "c"], ["a"], addresses)
    assert total == len(found), "the IPv6 address has nobody to talk to"
    assert [(t.node, t.here.address, t.peer, t.there.address) for t in found] == [
        ("a", "10.0.0.1", "b", "10.0.0.2"),
        ("a", "10.0.0.1", "b", "10.1.0.2"),
        ("b", "10.0.0.2", "a", "10.0.0.1"),
        ("b", "10.1.0.2", "a", "10.0.0.1"),
    ]
    assert targets_between([], ["a", "b"], addresses) == ([], 0), "two nodes that were asked before"


def test_of_very_many_addresses_those_of_one_rail_are_all_asked() -> None:
    nodes = [f"n{n}" for n in range(40)]
    addresses = {node: [one(f"10.{r}.0.{n}", r) for r in range(4)] for n, node in enumerate(nodes)}
    found, total = targets_between(nodes, [], addresses)
    pairs = len(nodes) * (len(nodes) - 1)
    same = [t for t in found if t.here.rail == t.there.rail]
    assert total == pairs * 16 > MAX_PAIRS
    assert (len(same), len(found)) == (pairs * 4, pairs * 5)
    assert len({(t.here.rail, t.there.rail) for t in found}) > 8, "not always the same rails"


@pytest.mark.parametrize("count", [65, 128, 300])
def test_of_more_still_each_node_is_asked_for_some_of_the_others(count: int) -> None:
    nodes = [f"n{n}" for n in range(count)]
    addresses = {node: [one(f"10.{r}.{n // 250}.{n % 250}", r) for r in range(8)] for n, node in enumerate(nodes)}
    found, _ = targets_between(nodes, [], addresses)
    assert MAX_PAIRS / 2 < len(found) <= MAX_PAIRS * 1.1
    peers = {node: {t.peer for t in found if t.node == node} for node in nodes[:: count // 8]}
    assert len({len(each) for each in peers.values()}) == 1, "nobody is asked for more than the others"
    directions = {(t.node, t.peer) for t in found}
    assert all((b, a) in directions for a, b in directions)
    assert ("n0", "n1") in directions


def test_addresses_and_what_fills_their_mtu() -> None:
    (found,) = addresses_of({"a": inventory("10.0.0.1")})["a"]
    assert found == Address("10.0.0.1", 4, 0, "eth10.0.0.1", 9000, True)
    assert found.payload(one("10.0.0.2", mtu=1500)) == 1472
    assert found.payload(one("10.0.0.2", mtu=None)) is None
    assert one("fd00::1").payload(one("fd00::2")) == 1452
    assert 1472 + header_bytes("10.0.0.1") == 1452 + header_bytes("fd00::1") == 1500
    assert addresses_of({"a": None, "b": {"data_addresses": [{"address": 4}, 3, {"address": "10.0.0.9"}]}}) == {
        "a": [],
        "b": [Address("10.0.0.9")],
    }


def test_an_interface_that_is_down_counts_where_others_have_its_network_up() -> None:
    found = addresses_of(
        {"a": inventory("10.0.0.1", down=("10.1.0.1", "192.168.5.1")), "b": inventory("10.0.0.2", "10.1.0.2")}
    )
    assert [(a.address, a.up) for a in found["a"]] == [("10.0.0.1", True), ("10.1.0.1", False)]


@pytest.mark.parametrize(
    ("row", "verdict", "value"),
    [
        ({"sent": 3, "received": 3, "loss": 0.0, "rtt_avg": 0.1}, Verdict.OK, 0.1),
        ({"sent": 3, "received": 2, "loss": 33.3, "rtt_avg": 0.1}, Verdict.SLOW, 0.1),
        ({"sent": 3, "received": 0, "loss": 100.0}, Verdict.TIMEOUT, None),
        ({"sent": 3, "received": 0, "loss": 100.0, "error": "Destination Host Unreachable"}, Verdict.FAILED, None),
        ({"sent": None, "received": None, "error": "no ping on this node"}, Verdict.INCONCLUSIVE, None),
    ],
)
def test_small_and_large_echoes(row: dict[str, Any], verdict: Verdict, value: float | None) -> None:
    m = read_row(row, TARGET, 1)
    assert (m.layer, m.verdict, m.value, m.unit) == (Layer.PING, verdict, value, "ms")
    assert (m.src, m.dst, m.src_addr, m.dst_addr) == ("a", "b", "1.1.1.1", "2.2.2.2")
    assert (m.error is None) == (verdict is Verdict.OK)
    large = read_whole(row, TARGET, 1472, 1)
    assert (large.layer, large.verdict, large.value, large.unit) == (
        Layer.MTU,
        verdict,
        None if value is None else 1500.0,
        "B",
    )


@pytest.mark.parametrize("row", [None, 3, {}, {"id": 1, "src": "a", "dst": "b"}, {"id": "b", "src": "1.1.1.1"}])
def test_rows_of_nothing(row: Any) -> None:
    assert key_of(row) is None


@pytest.mark.parametrize(
    ("sent", "got", "error", "verdict", "word"),
    [
        ((5, 3), (5, 3), None, Verdict.OK, ""),
        ((5, 0), (5, 0), None, Verdict.OK, ""),
        ((5, 3), (0, 0), None, Verdict.TIMEOUT, "none of 8 datagrams"),
        ((5, 3), (5, 0), None, Verdict.TIMEOUT, "none of 3 datagrams of 8972 bytes"),
        ((5, 3), (4, 3), None, Verdict.SLOW, "1 of 8"),
        ((0, 0), (0, 0), "Network is unreachable", Verdict.FAILED, "Network is unreachable"),
        ((5, 0), (5, 0), "Message too long", Verdict.FAILED, "cannot be sent: Message too long"),
    ],
)
def test_datagrams(sent: tuple[int, int], got: tuple[int, int], error: str | None, verdict: Verdict, word: str) -> None:
    found = judge(dict(zip(("small", "big"), sent)), dict(zip(("small", "big"), got)), 8972, error)  # noqa: B905
    assert found[0] is verdict
    assert word in found[1]
