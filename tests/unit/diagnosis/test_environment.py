"""Variables that refer to what a node does not have."""

from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.preflight.checks import NoSocketInterface
from fabtui.diagnosis.preflight.environment import VariableRefersToNothing
from fabtui.diagnosis.preflight.node_context import NodeContext
from fabtui.model.facts.node_view import ProbedNode
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from fabtui_node.probes.inventory import env_paths
from tests.unit.model.cluster import inventory


def found(value: dict[str, Any], *more: ProbedNode) -> list[Finding]:
    nodes = [ProbedNode("n0", value, {}), *more]
    return list(VariableRefersToNothing().check(NodeContext(Model(), nodes)))


def titles(variable: str, value: str, **more: Any) -> list[tuple[str, str]]:
    one = inventory(env={variable: value}, pci_gpus=["x"] * 8, **more)
    return [(str(finding.severity), title(finding)) for finding in found(one)]


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("NCCL_IB_HCA", "mlx5_0,mlx5_7:1", []),
        ("NCCL_IB_HCA", "mlx5", []),
        ("NCCL_IB_HCA", "^mlx5_9", []),
        ("NCCL_IB_HCA", "=mlx5", [("bad", "no RDMA device mlx5: NCCL falls back to TCP")]),
        ("NCCL_IB_HCA", "mlx5_bond_0", [("bad", "no RDMA device mlx5_bond_0: NCCL falls back to TCP")]),
        ("NCCL_IB_HCA", "mlx5_0,mlx5_8,mlx5_0:2", [("warn", "no RDMA device mlx5_8, mlx5_0:2, and it is ignored")]),
        ("UCX_NET_DEVICES", "mlx5_0:1,eth0", []),
        ("UCX_NET_DEVICES", "mlx5_0", []),
        ("UCX_NET_DEVICES", "mlx5_0:2,1", [("bad", "no device mlx5_0:2, 1: UCX finds no network")]),
        ("UCX_NET_DEVICES", "all", []),
        ("UCX_NET_DEVICES", "mlx5_*", []),
        ("UCX_NET_DEVICES", "ib0", [("bad", "no device ib0: UCX finds no network")]),
        ("GLOO_SOCKET_IFNAME", "eth0", []),
        ("GLOO_SOCKET_IFNAME", "bond0", [("bad", "no interface bond0: Gloo does not start")]),
        ("SLURM_JOB_GPUS", "0-3,7", []),
        ("SLURM_JOB_GPUS", "6,8", [("bad", "Slurm gave the job GPU 8, and there are 8 GPUs on PCI")]),
    ],
)
def test_devices(variable: str, value: str, expected: list[tuple[str, str]]) -> None:
    assert titles(variable, value) == [(severity, f"{variable}: {text}") for severity, text in expected]


@pytest.mark.parametrize("variable", ["NCCL_IB_HCA", "UCX_NET_DEVICES"])
def test_a_device_may_have_any_name(variable: str) -> None:
    devices = [{"ca": "mlx5_0: all is ok: run", "port": 1}]
    assert titles(variable, "mlx5_0: all is ok: run:1" if variable[0] == "U" else "mlx5_0", ib=devices) == []


@pytest.mark.parametrize(
    ("value", "gpus", "text"),
    [
        ("0,1", 2, None),
        ("", 0, None),
        ("-1", 0, None),
        (",".join(f"GPU-{n}8c0e0de-0000-1111-2222-333344445555" for n in range(8)), 8, None),
        ("0,9", 1, "it names 2 GPUs, programs see 1 of them"),
        ("9", 0, "it names 1 GPU, programs see none of them"),
    ],
)
def test_visible_gpus(value: str, gpus: int, text: str | None) -> None:
    one = inventory(gpus=gpus, env={"CUDA_VISIBLE_DEVICES": value})
    assert [title(finding) for finding in found(one)] == ([f"CUDA_VISIBLE_DEVICES: {text}"] if text else [])


@pytest.mark.parametrize("value", ["mlx5_9", "x", "9"])
def test_what_is_unknown_is_no_fault(value: str) -> None:
    names = ("NCCL_IB_HCA", "UCX_NET_DEVICES", "GLOO_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS")
    unknown = {"gpus": None, "ib": None, "nics": None, "pci_gpus": None, "driver": None}
    assert found({"env": dict.fromkeys(names, value), **unknown, "env_paths": {"NCCL_TOPO_FILE": 3}}) == []
    assert found({"env": [value], "env_paths": [value]}) == []


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "topo.xml").write_text("")
    environ = {
        "NCCL_TOPO_FILE": f"{tmp_path}/topo.xml",
        "NCCL_GRAPH_FILE": f"{tmp_path}/none.xml",
        "NCCL_NET_PLUGIN": "ofi",
        "NCCL_DEBUG_FILE": f"{tmp_path}/nccl.%h.%p",
        "NCCL_TOPO_DUMP_FILE": f"{tmp_path}/none/dump.xml",
        "NCCL_GRAPH_DUMP_FILE": f"{tmp_path}/%h/dump.xml",
    }
    paths = env_paths(environ)
    assert {name: one["state"] for name, one in paths.items()} == {
        "NCCL_TOPO_FILE": "there",
        "NCCL_GRAPH_FILE": "missing",
        "NCCL_DEBUG_FILE": "there",
        "NCCL_TOPO_DUMP_FILE": "missing",
        "NCCL_GRAPH_DUMP_FILE": "unknown",
    }
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert env_paths(environ)["NCCL_DEBUG_FILE"]["state"] == "not writable"
    texts = [title(finding) for finding in found(inventory(env=environ, env_paths=paths))]
    assert texts == [
        f"NCCL_GRAPH_FILE: {tmp_path}/none.xml does not exist",
        f"NCCL_TOPO_DUMP_FILE: {tmp_path}/none does not exist",
    ]


def test_equal_problems_of_several_nodes_are_one_finding() -> None:
    env = {"NCCL_IB_HCA": "mlx4_0"}
    (one,) = found(inventory(env=env), ProbedNode("n1", inventory(env=env), {}))
    assert (one.nodes, one.next) == (("n0", "n1"), ("ssh n0 env | grep NCCL_IB_HCA",))
    assert evidence(one) == ("NCCL_IB_HCA=mlx4_0",)


def test_a_single_node_without_the_interface() -> None:
    nics = [{"name": "eth0", "state": "up", "addresses": [{"address": "192.0.2.1"}]}]
    for setting, expected in (("eth", 0), ("ib", 1)):
        node = ProbedNode("n0", inventory(nics=nics, env={"NCCL_SOCKET_IFNAME": setting}), {})
        assert len(list(NoSocketInterface().check(NodeContext(Model(), [node])))) == expected
