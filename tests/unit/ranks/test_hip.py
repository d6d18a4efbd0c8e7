"""AMD's GPUs: the same engine over HIP and RCCL, with both of them played; nobody has tried it on real ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtui_node.ranks.nccl import ctypes_cuda
from fabtui_node.ranks.nccl.ctypes_cuda import SIGNATURES
from fabtui_node.ranks.nccl.ctypes_nccl import candidates
from tests.wire.rank_controller import Controller


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as controller:
        yield controller


@pytest.mark.slow
def test_a_pair_a_world_and_a_collective_over_hip_and_rccl(controller: Controller, fake_amd_gpu: Path) -> None:
    # No library is named: where there is no libcuda, HIP and RCCL are looked for.
    controller.spawn("n0", env={"LD_LIBRARY_PATH": str(fake_amd_gpu)})
    controller.init("n0", [0, 1, 2], 3, "127.0.60.23", engine="nccl")
    controller.until(lambda: bool(controller.of("ready") or controller.of("failed")), 30)
    (ready,) = controller.of("ready")
    assert ready["version"] == "RCCL 2.28.9, HIP 6.4"
    assert all(rank["ok"] for rank in ready["ranks"]), ready
    controller.pair(1, 0, 1)
    controller.world(2, [0, 1, 2], [[(0, 1)], [(1, 2)], [(2, 0)]])
    controller.collective(3, "all_reduce", [0, 1, 2], [4096, 1 << 20])
    for number, ranks in ((1, 2), (2, 3), (3, 3)):
        controller.until(lambda n=number, r=ranks: len(controller.of("free", id=n)) == r, 30)  # type: ignore[misc]
    assert [m["ok"] for m in controller.of("side", id=1)] == [True] * 4
    assert all(m["ok"] for m in controller.of("worlded", id=2))
    assert all(m["ok"] and m["wrong"] == 0 for m in controller.of("reduced", id=3))


def test_too_large_a_message_is_refused_in_hips_words(controller: Controller, fake_amd_gpu: Path) -> None:
    controller.spawn("n0", env={"LD_LIBRARY_PATH": str(fake_amd_gpu)})
    controller.init("n0", [0, 1], 2, "127.0.60.24", engine="nccl")
    controller.until(lambda: bool(controller.of("ready")), 30)
    controller.pair(1, 0, 1, bytes=2 << 30)
    controller.until(lambda: len(controller.of("free", id=1)) == 2, 30)
    assert all("2.0 GiB of GPU memory are needed" in m["error"] for m in controller.of("side", id=1))


def test_without_any_driver_nvidias_is_what_is_missed(controller: Controller, tmp_path: Path) -> None:
    controller.spawn("n0", env={"LD_LIBRARY_PATH": str(tmp_path)})
    controller.init("n0", [0, 1], 2, "127.0.60.25", engine="nccl")
    controller.until(lambda: bool(controller.of("failed")), 30)
    assert "libcuda.so.1" in controller.of("failed")[0]["error"]


def test_every_call_has_a_name_in_hip() -> None:
    names = {ctypes_cuda.named(name) for name in SIGNATURES}
    assert {"hipInit", "hipMemcpyHtoDAsync", "hipMemGetInfo", "hipMemsetD8Async", "hipGetDeviceCount"} <= names
    assert not any("_v2" in name or name.startswith("cu") for name in names)


def test_paths_of_rccl() -> None:
    assert candidates(None, amd=True)[-2:] == ["librccl.so.1", "/opt/rocm/lib/librccl.so.1"]
    assert candidates("/x/librccl.so", amd=True) == ["/x/librccl.so"]
    assert not any("rccl" in path for path in candidates(None))
