"""Theoretical limits of pairs: the minimum along the path that was used, and none where a fact is missing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded, InventoryUpdate, Measured, ProbeResult, SessionStart
from fabtui.model.facts.link_limits import LinkLimits, limit_of
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.wording import limit_text

MIB = 1 << 20
Change = Callable[[dict[str, Any], dict[str, dict[str, Any]]], None]


def node_facts(
    gpus: int = 2, links: int = 18, word: str = "NV18", generation: int = 4
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Inventory and probe results of a node like those of an H200 with ports of 400 Gb/s."""
    names = [f"GPU{at}" for at in range(gpus)]
    inventory: dict[str, Any] = {
        "gpus": [
            {
                "index": at,
                "nvml_index": at,
                "name": "NVIDIA H200",
                "pcie": {"gen": 1, "gen_max": 5, "width": 16, "width_max": 16},
            }
            for at in range(gpus)
        ],
        "ib": [{"ca": f"mlx5_{at}", "port": 1, "state": "Active", "rate": 400.0} for at in range(gpus)],
        "nics": [{"name": "eth0", "speed_mbps": 25000, "addresses": [{"address": "10.9.0.1"}]}],
    }
    state = [{"link": n, "state": "active", "speed": 26.562} for n in range(links)]
    results: dict[str, dict[str, Any]] = {
        "nvlink": {"gpus": [{"index": at, "links": [dict(one) for one in state]} for at in range(gpus)]},
        "gpuload": {
            "gpus": [{"index": at, "busy": True, "pcie": {"generation": generation, "width": 16}} for at in range(gpus)]
        },
        "topology": {
            "matrix": {
                "rows": names,
                "columns": [*names, "NIC0"],
                "cells": [["X" if a == b else word for b in names] + ["PIX"] for a in names],
            }
        },
    }
    return inventory, results


def model_of(
    *,
    change: Change = lambda inventory, results: None,
    lab: str | None = None,
    kind: str = "gpu",
    options: Mapping[str, Any] | None = None,
    nodes: str = "ab",
    others: str = "",
    **facts: Any,
) -> Model:
    """Nodes with two GPUs each; ``change`` is applied to the facts of ``b``, and ``others`` have another GPU model."""
    model = Model()
    model.apply(SessionStart(nodes=list(nodes), time=1.0, lab=lab, options=dict(options or {})))
    ends = [
        Endpoint(2 * at + index, node, index, kind=kind, name=f"{node in others}", nic=f"mlx5_{index}", rail=index)
        for at, node in enumerate(nodes)
        for index in range(2)
    ]
    for node in nodes:
        inventory, results = node_facts(**facts)
        if node == "b":
            change(inventory, results)
        model.apply(InventoryUpdate(node=node, value=inventory, time=1.0))
        for probe, value in results.items():
            model.apply(ProbeResult(node=node, probe=probe, value=value, time=1.0))
    model.apply(EndpointsAdded(endpoints=ends, time=1.0))
    return model


def pair(transport: str | None, src: str = "a:0", dst: str = "b:0", value: float = 2.0, **more: Any) -> Measurement:
    known: dict[str, Any] = {"unit": "GB/s", "bytes": 256 * MIB, "time": 2.0, "transport": transport, **more}
    return Measurement(known.pop("layer", Layer.P2P), src, dst, Verdict.OK, value, **known)


def limit(model: Model, measurement: Measurement) -> tuple[float, str] | None:
    found = limit_of(model, measurement)
    return None if found is None else found[:2]


def test_nvlinks_of_a_switch_limit_p2p() -> None:
    model, measured = model_of(), pair("P2P/CUMEM", "a:0", "a:1", 360.0)
    assert limit(model, measured) == (478.116, "NVLink")
    assert limit_text(model, measured) == "75 % of the NVLink limit 478"


def test_links_of_nvlink5_have_their_own_speed() -> None:
    def nvlink5(inventory: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
        for gpu in results["nvlink"]["gpus"]:
            gpu["links"] = [{**link, "speed": 53.125} for link in gpu["links"]]

    assert limit(model_of(change=nvlink5), pair("P2P/CUMEM", "b:0", "b:1")) == (956.25, "NVLink")
    assert limit(model_of(change=nvlink5), pair("P2P/MNNVL", "a:0", "b:0")) == (478.116, "NVLink"), "the slower end"


def test_only_active_nvlinks_and_those_between_both_gpus_count() -> None:
    def inactive(inventory: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
        for link in results["nvlink"]["gpus"][1]["links"][:6]:
            link["state"] = "inactive"

    assert limit(model_of(change=inactive), pair("P2P/CUMEM", "b:0", "b:1")) == (318.744, "NVLink")
    # GPUs without a switch: 4 of 12 links lead to this peer.
    model = model_of(links=12, word="NV4")
    assert limit(model, pair("P2P/IPC", "a:0", "a:1")) == (106.248, "NVLink")
    assert limit(model, pair("P2P/MNNVL", "a:0", "b:1")) == (318.744, "NVLink")


def test_without_the_matrix_nvlinks_may_connect_other_gpus() -> None:
    def lose(inventory: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
        del results["topology"]

    found = limit_of(model_of(change=lose), pair("P2P/CUMEM", "b:0", "b:1"))
    assert found is not None
    assert (found.value, found.exact) == (478.116, False)


def test_pcie_limits_p2p_without_nvlinks_by_its_state_under_load() -> None:
    assert limit(model_of(word="SYS"), pair("P2P/IPC", "a:0", "a:1")) == (31.504, "PCIe")
    assert limit(model_of(links=0, word="PIX"), pair("P2P/direct pointer", "a:0", "a:1")) == (31.504, "PCIe")

    def idle(inventory: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
        results["gpuload"]["gpus"][0]["busy"] = False
        results["gpuload"]["gpus"][1]["busy"] = False
        inventory["gpus"][1]["pcie"]["width"] = 8

    assert limit(model_of(word="SYS", change=idle), pair("P2P/IPC", "b:0", "b:1")) == (31.504, "PCIe")
    assert limit(model_of(word="SYS", change=idle), pair("SHM/direct", "b:0", "b:1")) == (31.504, "PCIe")


@pytest.mark.parametrize(
    ("generation", "width", "expected"),
    [(1, 16, 4.0), (2, 16, 8.0), (3, 16, 15.76), (4, 16, 31.504), (5, 16, 63.008), (6, 16, 121.008), (4, 8, 15.752)],
)
def test_each_generation_of_pcie_has_its_rate(generation: int, width: int, expected: float) -> None:
    def slower(inventory: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
        results["gpuload"]["gpus"][0]["pcie"] = {"generation": generation, "width": width}
        results["gpuload"]["gpus"][1]["pcie"] = {"generation": 6, "width": 16}

    assert limit(model_of(change=slower), pair("SHM/direct", "b:0", "b:1")) == (expected, "PCIe")


def test_an_idle_gpu_has_the_best_generation_that_it_and_its_slot_allow() -> None:
    def idle(inventory: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
        results.pop("gpuload")

    # 16 lanes of PCIe 5, though it idles at PCIe 1.
    assert limit(model_of(change=idle), pair("SHM/direct", "b:0", "b:1")) == (63.008, "PCIe")


@pytest.mark.parametrize("link", [{"generation": 4}, {"width": 16}, {"generation": 9, "width": 16}, None])
def test_a_link_that_is_known_in_part_counts_as_listed(link: dict[str, int] | None) -> None:
    def vague(inventory: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
        for gpu in results["gpuload"]["gpus"]:
            gpu["pcie"] = link

    assert limit(model_of(change=vague), pair("SHM/direct", "b:0", "b:1")) == (63.008, "PCIe")


def test_a_value_above_the_limit_used_another_path() -> None:
    assert limit(model_of(), pair("NET/IB/mlx5_0", value=32.1)) == (31.504, "PCIe")
    assert limit(model_of(), pair("NET/IB/mlx5_0", value=32.2)) is None


def test_of_two_active_ports_of_a_nic_the_faster_one_limits() -> None:
    def two(inventory: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
        inventory["ib"] = [
            {"ca": "mlx5_0", "port": 1, "state": "Active", "rate": 100.0},
            {"ca": "mlx5_0", "port": 2, "state": "Active", "rate": 200.0},
            {"ca": "mlx5_0", "port": 3, "state": "Down", "rate": 400.0},
        ]

    assert limit(model_of(change=two), pair("NET/IB/mlx5_0")) == (25.0, "RDMA port")


def test_an_nvlink_of_unknown_state_or_speed_leaves_the_limit_unknown() -> None:
    for changed in ({"state": "unknown"}, {"speed": None}):

        def vague(
            inventory: dict[str, Any], results: dict[str, dict[str, Any]], changed: dict[str, Any] = changed
        ) -> None:
            results["nvlink"]["gpus"][1]["links"][3].update(changed)

        assert limit(model_of(change=vague), pair("P2P/CUMEM", "b:0", "b:1")) is None
        assert limit(model_of(change=vague), pair("P2P/MNNVL", "a:0", "b:1")) is None


def test_gpus_of_a_node_without_nvlinks_and_without_a_matrix_use_pcie() -> None:
    def lose(inventory: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
        del results["topology"]

    assert limit(model_of(links=0, change=lose), pair("P2P/IPC", "b:0", "b:1")) == (31.504, "PCIe")
    assert limit(model_of(links=0), pair("P2P/MNNVL", "a:0", "b:0")) is None


def test_the_slower_port_limits_rdma_and_pcie_gpudirect() -> None:
    def slower(inventory: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
        inventory["ib"][0]["rate"] = 200.0

    assert limit(model_of(change=slower), pair("NET/IB/mlx5_0")) == (25.0, "RDMA port")
    assert limit(model_of(), pair("NET/IB/mlx5_0")) == (31.504, "PCIe"), "through host memory"
    assert limit(model_of(), pair("NET/IB/mlx5_0/GDRDMA")) == (31.504, "PCIe")
    # A second port that is down does not count, nor one of another NIC.
    assert limit(model_of(change=slower), pair("NET/IB/mlx5_1", "a:1", "b:1")) == (31.504, "PCIe")


def test_interfaces_limit_sockets() -> None:
    def slower(inventory: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
        inventory["nics"][0].update(name="bond0", speed_mbps=10000)

    for name in ("NET/Socket/eth0", "NET/Socket/eth0 + P2P/IPC"):
        assert limit(model_of(), pair(name)) == (3.125, "interface")
    by_address = pair("NET/Socket/eth0", dst_addr="10.9.0.1", value=1.0)
    assert limit(model_of(change=slower), by_address) == (1.25, "interface")
    assert limit(model_of(change=slower), pair("NET/Socket/eth0", value=1.0)) is None
    # Nodes of a lab are one machine.
    assert limit(model_of(lab="2x2"), pair("NET/Socket/eth0")) is None


@pytest.mark.parametrize(
    ("measured", "lost"),
    [
        (pair("P2P/CUMEM", "b:0", "b:1"), "nvlink"),
        (pair("NET/IB/mlx5_0"), "ib"),
        (pair("NET/IB/mlx5_0/GDRDMA"), "gpus"),
        (pair("NET/Socket/eth0"), "nics"),
        (pair("SHM/direct", "b:0", "b:1"), "gpus"),
        (pair(None), ""),
        (pair("NET/OFI/0/GDRDMA"), ""),
        (pair("NET/AWS Libfabric/0"), ""),
        (pair("P2P/CUMEM", "a:0", "a:1", layer=Layer.WORLD), ""),
        (pair("NET/IB/0", "a:0", "a:1"), ""),
        (pair("NET/IB/mlx5_0", value=90.0), ""),
        (pair("TCP", "a:0", "x:9"), ""),
    ],
)
def test_there_is_no_limit_where_a_fact_is_missing(measured: Measurement, lost: str) -> None:
    def lose(inventory: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
        inventory.pop(lost, None)
        results.pop(lost, None)
        if lost == "gpus":
            results.pop("gpuload")

    assert limit(model_of(change=lose), measured) is None
    assert limit_text(model_of(change=lose), measured) == ""


def test_cpu_ranks_and_small_messages_have_no_share() -> None:
    assert limit(model_of(kind="cpu"), pair("NET/IB/mlx5_0")) is None
    small = pair("P2P/CUMEM", "a:0", "a:1", bytes=8 * MIB)
    assert limit(model_of(), small) == (478.116, "NVLink")
    assert limit_text(model_of(), small) == ""


HOSTILE: tuple[Any, ...] = (
    None,
    "\x1b[31m",
    -1,
    0,
    10**400,
    float("nan"),
    float("inf"),
    True,
    [],
    {},
    [[]],
    [{}],
    {"gpus": 7},
)


@pytest.mark.parametrize("value", HOSTILE, ids=str)
def test_hostile_facts_are_no_limit(value: Any) -> None:
    def poison(inventory: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
        inventory["ib"][0]["rate"] = inventory["nics"][0]["speed_mbps"] = value
        inventory["data_addresses"] = [{"nic": value}]
        inventory["gpus"][0]["pcie"] = {"gen_max": value, "width": value}
        results["nvlink"]["gpus"][0]["links"][3]["speed"] = value
        results["gpuload"]["gpus"][0]["pcie"] = {"generation": value, "width": value}
        results["topology"]["matrix"]["cells"][0] = value

    limits = LinkLimits(model_of(change=poison))
    for transport in ("NET/IB/0", "NET/IB/0/GDRDMA", "NET/Socket/eth0", "NET/Socket/\x1b[31m"):
        assert limits.of(pair(transport)) is None
    for transport in ("P2P/CUMEM", "SHM"):
        assert limits.of(pair(transport, "b:0", "b:1")) is None


def swept(model: Model, inside: tuple[float, str], between: tuple[float, str], size: int = 256 * MIB) -> Model:
    """A sweep over all pairs: value and transport within nodes, and between them."""
    for a, b in itertools.permutations(model.endpoints, 2):
        value, transport = inside if a.node == b.node else between
        row = pair(transport, str(a), str(b), value, bytes=size)
        model.apply(Measured(measurements=[row], time=2.0))
    return model


def several(inventory: dict[str, Any], *, rate: float = 100.0, per_gpu: int = 4, shared: bool = False) -> None:
    """Give each GPU several NICs that are equally near, of which two share a connector."""
    names = [[f"rdmap{at}s{one}" for one in range(per_gpu)] for at in range(len(inventory["gpus"]))]
    for gpu, near in zip(inventory["gpus"], names, strict=True):
        gpu["near_nics"] = near
    inventory["ib"] = [
        {"ca": name, "port": 1, "state": "Active", "rate": rate, **({"connector": f"c{at // 2}"} if shared else {})}
        for near in names
        for at, name in enumerate(near)
    ]


def both(model: Model, change: Callable[[dict[str, Any]], None]) -> Model:
    for record in list(model.nodes.values()):
        inventory = dict(record.inventory or {})
        change(inventory)
        model.apply(InventoryUpdate(node=record.name, value=inventory, time=1.0))
    return model


def test_a_plugin_that_uses_several_nics_of_a_gpu_has_their_sum_as_limit() -> None:
    model = both(model_of(generation=5), several)
    for name in ("NET/Libfabric/0/GDRDMA", "NET/AWS Libfabric/0", "NET/OFI/0/GDRDMA"):
        assert limit(model, pair(name)) == (50.0, "RDMA port")
    faster = both(model_of(generation=5), lambda inventory: several(inventory, rate=200.0))
    assert limit(faster, pair("NET/Libfabric/0/GDRDMA")) == (63.008, "PCIe")


def test_nics_that_nccl_uses_as_one_have_their_sum_as_limit() -> None:
    model = both(model_of(generation=5), lambda inventory: several(inventory, per_gpu=2))
    assert limit(model, pair("NET/IB/rdmap0s0+rdmap0s1/GDRDMA", value=20.0)) == (25.0, "RDMA port")
    assert limit(model, pair("NET/IB/rdmap0s0+gone/GDRDMA", value=20.0)) is None


def test_ports_behind_one_connector_share_its_rate() -> None:
    model = both(model_of(generation=5), lambda inventory: several(inventory, rate=200.0, per_gpu=2, shared=True))
    assert limit(model, pair("NET/IB/rdmap0s0+rdmap0s1", value=20.0)) == (25.0, "RDMA port")
    assert limit(model, pair("NET/Libfabric/0", value=20.0)) == (25.0, "RDMA port")
