"""Ranks far from their GPU and their NIC: each planted placement is named, with the line that mends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.job.running_job_rules import RankFarFromGpu
from fabtui.model.events import JobEvidence
from fabtui.model.session_model import Model
from fabtui_node.probes.job.activity import Ranks
from fabtui_node.system import placement
from fabtui_node.system.placement import Placement

#: PCI addresses of the GPUs: two NUMA nodes of 8 processors, four GPUs and two NICs each.
GPUS = {at: f"0000:{at:02x}:00.0" for at in range(8)}


@pytest.fixture
def root(tmp_path: Path) -> str:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    for at, bus in GPUS.items():
        write(f"bus/pci/devices/{bus}/numa_node", str(at // 4))
        write(f"bus/pci/devices/{bus}/local_cpulist", "0-7" if at < 4 else "8-15")
    for at in range(4):
        write(f"class/infiniband/mlx5_{at}/device/numa_node", str(at // 2))
    return str(tmp_path)


CPUS = (set(range(8)), set(range(8, 16)))


@pytest.mark.parametrize(
    ("gpu", "placed", "words"),
    [
        (0, Placement(CPUS[1], {0, 1}), "its CPUs are not those near GPU 0 (NUMA node 0)"),
        (3, Placement({8}, {0, 1}), "numactl --cpunodebind=0 --membind=0"),
        (4, Placement(CPUS[0], {0, 1}), "its CPUs are not those near GPU 4 (NUMA node 1)"),
        (7, Placement({0, 1}, {1}), "numactl --cpunodebind=1 --membind=1, or srun --cpu-bind=ldoms"),
        (1, Placement(CPUS[0], {1}), "no memory of NUMA node 0"),
        (5, Placement(CPUS[1], {0}), "no memory of NUMA node 1"),
        (2, Placement(CPUS[0], {0}, "mlx5_2,mlx5_3"), "export NCCL_IB_HCA=mlx5_0,mlx5_1"),
        (6, Placement(CPUS[1], {1}, "=mlx5_0:1"), "NCCL_IB_HCA names mlx5_0, far from GPU 6"),
        (4, Placement(CPUS[1], {1}, "=mlx5_0,mlx5_1"), "near it is mlx5_2, mlx5_3"),
        (7, Placement({3}, {0}, "mlx5_3"), "its CPUs are not those near GPU 7"),
    ],
)
def test_each_planted_placement_is_named(gpu: int, placed: Placement, words: str, root: str) -> None:
    assert words in str(placement.problem(placed, gpu, GPUS[gpu], root))


def test_good_and_unknown_placements_are_not(root: str) -> None:
    for gpu, bus in GPUS.items():
        node = gpu // 4
        for hca in ("", "mlx5", "^mlx5_0", f"mlx5_{2 * node}", "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"):
            for cpus in (CPUS[node], CPUS[0] | CPUS[1], {node * 8}, set()):
                assert placement.problem(Placement(cpus, {0, 1}, hca), gpu, bus, root) is None
    assert placement.problem(Placement({0}, {0}), 0, "0000:99:00.0", root) is None


def test_a_rank_of_a_job_that_is_far_is_a_finding() -> None:
    text = "its CPUs are not those near GPU 4 (NUMA node 1): start it with numactl --cpunodebind=1"
    ranks: list[Any] = [
        {"rank": at, "pid": 100 + at, "gpus": [at], "local_rank": at, "state": "R", "far": text if at == 4 else None}
        for at in range(8)
    ]
    model = Model()
    model.apply(JobEvidence(node="n060", source="activity", value={"ranks": ranks, "clock": 1.0}, time=1.0))
    (found,) = RankFarFromGpu().check(model)
    assert found.nodes == ("n060",)
    assert found.facts["first"] == f"rank 4 on n060:4: {text}"
    assert Ranks("", "/nonexistent").read({}) == []
