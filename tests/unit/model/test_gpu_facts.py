import copy
from typing import Any

import pytest

from fabtui.diagnosis.finding import finished
from fabtui.model.facts.catalogue import GPU_FACTS, facts_for
from fabtui.model.facts.compare import fact_table
from fabtui.model.facts.node_view import Value

from .cluster import node


def gpu(index: int, **more: Any) -> dict[str, Any]:
    return {
        "index": index,
        "vbios": "96.00.A5.00.1A",
        "ecc": {"on": True, "next": True},
        "ecc_errors": {"uncorrected": 0},
        "rows": {"uncorrectable": 0},
        "power_limit": 700.0,
        "clocks": {"sm_max": 1980},
        "persistence": True,
        "compute_mode": "default",
        "reasons": ["idle"],
        "fabric": {"state": "completed", "clique": 0, "cluster": None},
        **more,
    }


def gpus(**first: Any) -> dict[str, Any]:
    manager = {"installed": True, "active": True, "version": "580.1"}
    return {"gpus": [gpu(0, **first), *(gpu(at) for at in range(1, 8))], "fabric_manager": manager}


NAMES = [f"GPU{at}" for at in range(4)]
CELLS = [["X" if row == column else "NV18" for column in NAMES] for row in NAMES]
TOPOLOGY = {
    "matrix": {"columns": NAMES, "rows": NAMES, "cells": CELLS},
    "p2p": {"read": {"p2p": True, "bad": []}, "write": {"p2p": True, "bad": []}},
}
KERNEL = {"readable": "yes", "xids": {"79": 1, "94": 9}}


def found(name: str, **results: dict[str, Any]) -> Value:
    (fact,) = [fact for fact in GPU_FACTS if fact.name == name]
    return fact.find(node("n0", **results))


def test_a_healthy_node() -> None:
    results = {"gpus": gpus(), "topology": TOPOLOGY, "kernel": {"readable": "yes", "xids": {}}}
    values = {fact.name: found(fact.name, **results) for fact in GPU_FACTS}
    inventory = ["gpus", "gpu_memory", "gpu_pcie", "gpu_mig", "gpu_nics", "gpu_users", "nvlinks", "nvlink_speed"]
    assert {name: value for name, value in values.items() if name not in (*inventory, "driver", "cuda")} == {
        "vbios": "96.00.A5.00.1A",
        "pcie_load": None,
        "gpu_pairs": "6 x NV18",
        "p2p_read": "all pairs",
        "p2p_write": "all pairs",
        "ecc": "on",
        "ecc_errors": 0,
        "rows": 0,
        "power_limit": "700 W",
        "clock_max": "1980 MHz",
        "held_down": "nothing",
        "persistence": "on",
        "compute_mode": "default",
        "nvlink_fabric": "completed",
        "nvlink_clique": None,
        "imex_state": None,
        "imex_version": None,
        "imex_channels": None,
        "fabric_manager": "580.1",
        "xids": "none",
    }


def test_facts_of_probes_that_did_not_run_are_unknown() -> None:
    names = [fact.name for fact in GPU_FACTS][10:]
    assert {found(name) for name in names} == {None}


@pytest.mark.parametrize(
    ("name", "first", "value"),
    [
        ("vbios", {"vbios": "96.00.FF"}, "96.00.A5.00.1A, 96.00.FF on GPU 0"),
        ("ecc", {"ecc": {"on": False}}, "on, off on GPU 0"),
        ("ecc_errors", {"ecc_errors": {"uncorrected": 3}}, 3),
        ("power_limit", {"power_limit": 400.0}, "700 W, 400 W on GPU 0"),
        ("held_down", {"reasons": ["idle", "hw_slowdown", "sw_power_cap"]}, "hw_slowdown, sw_power_cap"),
        ("nvlink_fabric", {"fabric": {"state": "in progress"}}, "completed, in progress on GPU 0"),
        ("nvlink_clique", {"fabric": {"cluster": "abc", "clique": 7}}, "abc clique 7"),
    ],
)
def test_one_gpu_that_differs(name: str, first: dict[str, Any], value: Value) -> None:
    assert found(name, gpus=gpus(**first)) == value


def test_under_load_only_busy_gpus_count() -> None:
    sample = {
        "gpus": [
            {"index": 0, "busy": True, "pcie": {"generation": 5, "width": 16}},
            {"index": 1, "busy": True, "pcie": {"generation": 5, "width": 8}},
            {"index": 2, "busy": False, "pcie": {"generation": 1, "width": 16}},
        ]
    }
    assert found("pcie_load", gpuload=sample) == "gen5 x16, gen5 x8 on GPU 1"


def test_pairs_that_cannot() -> None:
    table = {"p2p": {"read": {"p2p": False, "bad": [["GPU0", "GPU1", "CNS"], ["GPU1", "GPU0", "CNS"], "x"]}}}
    assert found("p2p_read", topology=table) == "not: 2 x CNS"


def test_xids() -> None:
    assert found("xids", kernel=KERNEL) == "1 x 79, 9 x 94"
    assert found("xids", kernel={"readable": "not permitted", "xids": {}}) is None


def test_the_odd_node_is_named() -> None:
    less = copy.deepcopy(TOPOLOGY)
    less["matrix"]["cells"][0][1] = less["matrix"]["cells"][1][0] = "NV12"  # type: ignore[index]
    nodes = [node(f"n{at}", gpus=gpus(), topology=TOPOLOGY) for at in range(3)]
    nodes.append(node("n3", gpus=gpus(vbios="96.00.FF"), topology=less))
    odd = {odd.fact.name: odd.values for odd in finished(fact_table(nodes, facts_for(nodes))).odd}
    assert odd == {
        "vbios": {"n3": "96.00.A5.00.1A, 96.00.FF on GPU 0"},
        "gpu_pairs": {"n3": "5 x NV18, 1 x NV12"},
    }


def test_imex_of_a_tray() -> None:
    imex = {"state": "READY", "version": "580.105.08", "channels": {"count": 2, "writable": 1}}
    assert [found(f"imex_{name}", imex=imex) for name in ("state", "version", "channels")] == ["READY", "580.105.08", 1]
