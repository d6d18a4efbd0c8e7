"""Theoretical limits of pairs: the minimum along the path that was used, and none where a fact is missing."""

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
#: Value that removes a fact.
GONE = object()
#: New values of facts by their path, such as ``gpuload.gpus.0.busy``; ``*`` is each of a list.
Change = dict[str, Any]


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


def put(facts: Any, path: list[str], value: Any) -> None:
    name, *rest = path
    if name == "*":
        for one in facts:
            put(one, rest, value)
    elif rest:
        put(facts[int(name) if isinstance(facts, list) else name], rest, value)
    elif value is GONE:
        facts.pop(name, None)
    else:
        facts[int(name) if isinstance(facts, list) else name] = value


def model_of(
    *,
    change: Change | None = None,
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
        for path, value in (change or {}).items() if node == "b" else ():
            put({**results, "inventory": inventory} if "." in path else results, path.split("."), value)
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


LINKS = "nvlink.gpus.*.links.*"
LOAD = "gpuload.gpus"
SLOW_PORT = {"inventory.ib.0.rate": 200.0}
#: Both GPUs are idle, and the inventory saw fewer lanes at the second.
IDLE = {f"{LOAD}.*.busy": False, "inventory.gpus.1.pcie.width": 8}
BOND = {"inventory.nics.0.name": "bond0", "inventory.nics.0.speed_mbps": 10000}
PORTS = [("Active", 100.0), ("Active", 200.0), ("Down", 400.0)]
TWO_PORTS = [{"ca": "mlx5_0", "port": at, "state": state, "rate": rate} for at, (state, rate) in enumerate(PORTS, 1)]


@pytest.mark.parametrize(
    ("facts", "measured", "expected"),
    [
        # NVLinks: their own speed, of the slower end; only active ones; without a switch those between both GPUs.
        ({"change": {f"{LINKS}.speed": 53.125}}, pair("P2P/CUMEM", "b:0", "b:1"), (956.25, "NVLink")),
        ({"change": {f"{LINKS}.speed": 53.125}}, pair("P2P/MNNVL", "a:0", "b:0"), (478.116, "NVLink")),
        (
            {"change": {f"nvlink.gpus.1.links.{at}.state": "inactive" for at in range(6)}},
            pair("P2P/CUMEM", "b:0", "b:1"),
            (318.744, "NVLink"),
        ),
        ({"links": 12, "word": "NV4"}, pair("P2P/IPC", "a:0", "a:1"), (106.248, "NVLink")),
        ({"links": 12, "word": "NV4"}, pair("P2P/MNNVL", "a:0", "b:1"), (318.744, "NVLink")),
        *(
            ({"change": {f"nvlink.gpus.1.links.3.{name}": value}}, pair(via, src, "b:1"), None)
            for name, value in (("state", "unknown"), ("speed", None))
            for via, src in (("P2P/CUMEM", "b:0"), ("P2P/MNNVL", "a:0"))
        ),
        # PCIe without NVLinks, by its state under load.
        ({"word": "SYS"}, pair("P2P/IPC", "a:0", "a:1"), (31.504, "PCIe")),
        ({"links": 0, "word": "PIX"}, pair("P2P/direct pointer", "a:0", "a:1"), (31.504, "PCIe")),
        ({"word": "SYS", "change": IDLE}, pair("P2P/IPC", "b:0", "b:1"), (31.504, "PCIe")),
        ({"word": "SYS", "change": IDLE}, pair("SHM/direct", "b:0", "b:1"), (31.504, "PCIe")),
        ({"links": 0, "change": {"topology": GONE}}, pair("P2P/IPC", "b:0", "b:1"), (31.504, "PCIe")),
        ({"links": 0}, pair("P2P/MNNVL", "a:0", "b:0"), None),
        # An idle GPU has the best that it and its slot allow: 16 lanes of PCIe 5, though it idles at PCIe 1.
        ({"change": {"gpuload": GONE}}, pair("SHM/direct", "b:0", "b:1"), (63.008, "PCIe")),
        *(
            ({"change": {f"{LOAD}.*.pcie": link}}, pair("SHM/direct", "b:0", "b:1"), (63.008, "PCIe"))
            for link in ({"generation": 4}, {"width": 16}, {"generation": 9, "width": 16}, None)
        ),
        # A value above the limit used another path.
        ({}, pair("NET/IB/mlx5_0", value=32.1), (31.504, "PCIe")),
        ({}, pair("NET/IB/mlx5_0", value=32.2), None),
        # RDMA: the slower end, the faster one of active ports of a NIC, PCIe with GPUDirect and through host memory.
        ({"change": {"inventory.ib": TWO_PORTS}}, pair("NET/IB/mlx5_0"), (25.0, "RDMA port")),
        ({"change": SLOW_PORT}, pair("NET/IB/mlx5_0"), (25.0, "RDMA port")),
        ({"change": SLOW_PORT}, pair("NET/IB/mlx5_1", "a:1", "b:1"), (31.504, "PCIe")),
        ({}, pair("NET/IB/mlx5_0/GDRDMA"), (31.504, "PCIe")),
        # Sockets: the interface; nodes of a lab are one machine.
        ({}, pair("NET/Socket/eth0"), (3.125, "interface")),
        ({}, pair("NET/Socket/eth0 + P2P/IPC"), (3.125, "interface")),
        ({"change": BOND}, pair("NET/Socket/eth0", dst_addr="10.9.0.1", value=1.0), (1.25, "interface")),
        ({"change": BOND}, pair("NET/Socket/eth0", value=1.0), None),
        ({"lab": "2x2"}, pair("NET/Socket/eth0"), None),
    ],
)
def test_the_slowest_part_of_a_path_limits_it(
    facts: dict[str, Any], measured: Measurement, expected: tuple[float, str] | None
) -> None:
    assert limit(model_of(**facts), measured) == expected


def test_without_the_matrix_nvlinks_may_connect_other_gpus() -> None:
    found = limit_of(model_of(change={"topology": GONE}), pair("P2P/CUMEM", "b:0", "b:1"))
    assert found is not None
    assert (found.value, found.exact) == (478.116, False)


@pytest.mark.parametrize(
    ("generation", "width", "expected"),
    [(1, 16, 4.0), (2, 16, 8.0), (3, 16, 15.76), (4, 16, 31.504), (5, 16, 63.008), (6, 16, 121.008), (4, 8, 15.752)],
)
def test_each_generation_of_pcie_has_its_rate(generation: int, width: int, expected: float) -> None:
    links = [{"generation": generation, "width": width}, {"generation": 6, "width": 16}]
    slower = {f"{LOAD}.{at}.pcie": link for at, link in enumerate(links)}
    assert limit(model_of(change=slower), pair("SHM/direct", "b:0", "b:1")) == (expected, "PCIe")


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
    without = {f"inventory.{lost}": GONE, lost: GONE, **({"gpuload": GONE} if lost == "gpus" else {})}
    assert limit(model_of(change=without), measured) is None
    assert limit_text(model_of(change=without), measured) == ""


def test_cpu_ranks_and_small_messages_have_no_share() -> None:
    assert limit(model_of(kind="cpu"), pair("NET/IB/mlx5_0")) is None
    small = pair("P2P/CUMEM", "a:0", "a:1", bytes=8 * MIB)
    assert limit(model_of(), small) == (478.116, "NVLink")
    assert limit_text(model_of(), small) == ""


HOSTILE: list[Any] = [
    *(None, "\x1b[31m", -1, 0, 10**400, float("nan"), float("inf"), True, [], {}, [[]], [{}], {"gpus": 7}),
]


@pytest.mark.parametrize("value", HOSTILE, ids=str)
def test_hostile_facts_are_no_limit(value: Any) -> None:
    places = ("inventory.ib.0.rate", "inventory.nics.0.speed_mbps", "nvlink.gpus.0.links.3.speed")
    poison = dict.fromkeys((*places, "topology.matrix.cells.0"), value)
    poison["inventory.data_addresses"] = [{"nic": value}]
    poison["inventory.gpus.0.pcie"] = {"gen_max": value, "width": value}
    poison[f"{LOAD}.0.pcie"] = {"generation": value, "width": value}
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
