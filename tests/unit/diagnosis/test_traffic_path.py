"""Carriers of bytes, from counters of faked sysfs trees and from what the library reports."""

import time
from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.pairs.traffic_path import Way, carrier, carriers, in_steps
from fabtui.export.json import as_json
from fabtui.model.counter_log import deltas
from fabtui.model.events import CounterDeltas, InventoryUpdate, Measured
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.report.document import Shown
from fabtui.report.summary import summary
from fabtui_node.probes.counters import Counters
from tests.conftest import session_of

MIB = 1 << 20
NCCL_IB = "NET/IB/0/GDRDMA"


class Node:
    def __init__(self, root: Path, name: str, layer: str = "InfiniBand", driver: str = "mlx5_0") -> None:
        self.root, self.name = root / name, name
        self.layer, self.driver = layer, driver
        self.before: dict[str, Any] = {}

    def write(self, counts: dict[str, int]) -> None:
        for path, count in counts.items():
            file = self.root / "class" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{count}\n")

    def hca(self, sent: int, received: int, name: str = "mlx5_0") -> None:
        folder = f"infiniband/{name}/ports/1/counters"
        self.write({f"{folder}/port_xmit_data": sent // 4, f"{folder}/port_rcv_data": received // 4})

    def net(self, sent: int, received: int, name: str = "eth0") -> None:
        folder = f"net/{name}/statistics"
        self.write({f"{folder}/tx_bytes": sent, f"{folder}/rx_bytes": received})

    def moved(self) -> dict[str, Any]:
        value = Counters(str(self.root)).read(["eth0", "ib0"], time.monotonic() + 300)
        before, self.before = self.before, value
        return deltas(before, value)

    @property
    def inventory(self) -> dict[str, Any]:
        netdev = "ib0" if self.layer == "InfiniBand" else "eth0"
        port = {"ca": self.driver, "port": 1, "state": "Active", "link_layer": self.layer, "netdev": netdev}
        return {"ib": [port] if self.driver else []}


class Fabric:
    """A session of two nodes in which ``a:0`` sent 1 MiB messages to ``b:0``."""

    def __init__(self, root: Path, **about: Any) -> None:
        self.nodes = [Node(root, name, **about) for name in "ab"]
        self.model = session_of("ab", time=0.0)
        for node in self.nodes:
            self.model.apply(InventoryUpdate(node=node.name, value=node.inventory, time=0.0))
            if node.driver == "mlx5_0":
                node.hca(1000, 1000)
            else:
                node.write({f"infiniband/{node.driver or 'none'}/ports/1/state": 4})
            node.net(1000, 1000)
            node.net(1000, 1000, "ib0")
            node.moved()

    def measured(self, transport: str | None = None, layer: Layer = Layer.P2P, **fields: Any) -> Measurement:
        for node in self.nodes:
            if found := node.moved():
                self.model.apply(CounterDeltas(node=node.name, since=10.0, until=12.0, deltas=found, time=12.0))
        given: dict[str, Any] = {"verdict": Verdict.OK, "value": 1.0, "unit": "GB/s", "bytes": MIB, **fields}
        one = Measurement(layer, "a:0", "b:0", time=11.5, transport=transport, **given)
        self.model.apply(Measured(measurements=[one], time=12.0))
        return one

    def text(self, one: Measurement) -> str:
        found = carrier(self.model, one)
        assert found is not None
        return found.text


@pytest.mark.parametrize("link_layer", ["InfiniBand", "Ethernet"])
def test_rdma(tmp_path: Path, link_layer: str) -> None:
    """RoCE shows in the port's counters as well, and not in those of the interface."""
    fabric = Fabric(tmp_path, layer=link_layer)
    a, b = fabric.nodes
    a.hca(50 * MIB, 2000)
    b.hca(2000, 50 * MIB)
    for node in fabric.nodes:
        node.net(20_000, 20_000)
    one = fabric.measured(NCCL_IB)
    assert fabric.text(one) == "RDMA (HCA counters of both nodes; NCCL: NET/IB/0/GDRDMA)"
    sentence = "RDMA was used for 1 of 1 pairs between nodes (HCA counters of both sides); 0 over TCP."
    assert carriers(fabric.model).sentence == sentence


def test_tcp_although_the_adapters_are_active(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)
    a, b = fabric.nodes
    a.net(50 * MIB, 2000)
    b.net(2000, 50 * MIB)
    one = fabric.measured("NET/Socket/1")
    assert fabric.text(one) == "TCP (interface counters of both nodes; NCCL: NET/Socket/1)"
    assert carriers(fabric.model).sentence == (
        "TCP was used for 1 of 1 pairs between nodes (interface counters of both sides);"
        " although 2 of 2 nodes have active RDMA ports (mlx5_0)."
    )


def test_ipoib_is_tcp_although_the_ports_count_it(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)
    a, b = fabric.nodes
    a.hca(51 * MIB, 2000)
    b.hca(2000, 51 * MIB)
    a.net(50 * MIB, 2000, "ib0")
    b.net(2000, 50 * MIB, "ib0")
    assert fabric.text(fabric.measured()) == "TCP (interface counters of both nodes)"


def test_the_counters_and_the_library_disagree(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)
    a, b = fabric.nodes
    a.net(50 * MIB, 2000)
    b.net(2000, 50 * MIB)
    one = fabric.measured(NCCL_IB)
    assert fabric.text(one).endswith("of both nodes), but NCCL: NET/IB/0/GDRDMA: they disagree")
    assert "counters and the library disagree about 1;" in carriers(fabric.model).sentence


def test_other_traffic_leaves_it_open(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)
    for node in fabric.nodes:
        node.hca(50 * MIB, 50 * MIB)
        node.net(50 * MIB, 50 * MIB)
    one = fabric.measured()
    assert fabric.text(one) == "unknown: RDMA ports and interfaces of both nodes moved enough for it at that time"
    assert carriers(fabric.model).sentence == (
        "What carried 1 of 1 pairs between nodes is unknown; counters do not show all: "
        "RDMA ports and interfaces of both nodes moved enough for it at that time."
    )


def test_traffic_of_one_node_alone_is_not_the_pair(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)
    a, b = fabric.nodes
    a.hca(50 * MIB, 50 * MIB)
    b.net(2000, 2000)
    one = fabric.measured(NCCL_IB)
    assert fabric.text(one) == (
        "RDMA (NCCL: NET/IB/0/GDRDMA); neither RDMA ports nor interfaces of both nodes counted as much as it moved"
    )
    assert carriers(fabric.model).sentence.startswith(
        "The library reports RDMA for 1 of 1 pairs between nodes; counters"
    )


def test_without_counters(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)
    fabric.nodes[0].net(50 * MIB, 50 * MIB)
    assert fabric.text(fabric.measured()) == "unknown: no counters of b while it ran"


def test_a_counter_that_was_reset(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)
    for node in fabric.nodes:
        node.hca(4, 4)
        node.net(50 * MIB, 50 * MIB)
    assert fabric.text(fabric.measured()) == "unknown: a counter of a,b was reset or is at its limit"


def test_soft_roce_counts_at_the_interface(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path, layer="Ethernet", driver="rxe0")
    for node in fabric.nodes:
        node.net(50 * MIB, 50 * MIB)
    assert fabric.text(fabric.measured()) == "unknown: no counters of data: rxe0/1 of a, rxe0/1 of b"


def test_nodes_without_rdma(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path, driver="")
    for node in fabric.nodes:
        node.net(50 * MIB, 50 * MIB)
    one = fabric.measured("TCP", Layer.WORLD)
    assert fabric.text(one) == "TCP (interface counters of both nodes; gloo uses TCP only)"
    assert carriers(fabric.model).sentence.endswith("no node has an active RDMA port.")
    assert fabric.text(fabric.measured(bytes=None)) == "unknown: the size of its messages is unknown"


def test_pairs_without_a_carrier(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)
    assert carriers(fabric.model).sentence == ""
    assert carrier(fabric.model, fabric.measured(verdict=Verdict.TIMEOUT, value=None)) is None
    assert carrier(fabric.model, Measurement(Layer.P2P, "a:0", "a:1", Verdict.OK, 1.0, "GB/s")) is None
    assert carrier(fabric.model, Measurement(Layer.PING, "a", "b", Verdict.OK, 1.0, "ms")) is None


def test_summary_and_json(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)
    a, b = fabric.nodes
    a.hca(50 * MIB, 2000)
    b.hca(2000, 50 * MIB)
    fabric.measured(NCCL_IB)
    sentence = "RDMA was used for 1 of 1 pairs between nodes (HCA counters of both sides); 0 over TCP."
    pair = "  RDMA (HCA counters of both nodes; NCCL: NET/IB/0/GDRDMA)\n    a:0 > b:0\n"
    assert f"\n{sentence}\n" in summary(diagnose(fabric.model))
    assert pair not in summary(diagnose(fabric.model))
    assert list(in_steps(fabric.model)) == [carriers(fabric.model)]
    assert f"\n{sentence}\n{pair}" in summary(diagnose(fabric.model), shown=Shown(None))
    found = diagnose(fabric.model)
    value = as_json(found)
    assert value["carriers"] == found.carriers.sentence == sentence
    (measured,) = value["measurements"]
    assert (measured["carrier"]["counted"], measured["carrier"]["reported"]) == (Way.RDMA, Way.RDMA)
