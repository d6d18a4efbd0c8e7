"""AMD's GPUs from the kernel's tree of compute devices, made up after its description."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.probes import inventory
from fabtui_node.probes.amd import kfd_inventory
from fabtui_node.system import interpreters, nccl_libraries

MI300X = (
    "cpu_cores_count 0\nsimd_count 1216\nmem_banks_count 1\nmax_waves_per_simd 8\ngfx_target_version 90402\n"
    "vendor_id 4098\ndevice_id 29857\nlocation_id {location}\ndomain 0\nunique_id {unique}\n"
)


def put(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two GPUs behind two processors, one of them used by a process."""
    nodes = tmp_path / "class/kfd/kfd/topology/nodes"
    for cpu in ("0", "1"):
        put(nodes / cpu, gpu_id="0\n", properties="cpu_cores_count 96\nsimd_count 0\nvendor_id 0\n")
    put(nodes / "2", gpu_id="51545\n", properties=MI300X.format(location=1280, unique=0x1234ABCD5678EF01))
    put(nodes / "10", gpu_id="2000\n", properties=MI300X.format(location=18176, unique=0xF743D583AC01FCFD))
    put(
        tmp_path / "bus/pci/devices/0000:05:00.0",
        product_name="AMD Instinct MI300X OAM\n",
        numa_node="0\n",
        mem_info_vram_total=f"{192 << 30}\n",
        mem_info_vram_used=f"{2 << 30}\n",
    )
    put(tmp_path / "bus/pci/devices/0000:47:00.0", numa_node="-1\n")
    put(tmp_path / f"class/kfd/kfd/proc/{os.getpid()}", vram_51545="1048576\n", vram_2000="0\n")
    put(tmp_path / "module/amdgpu", version="6.10.5\n")
    return tmp_path


def test_gpus_are_read_in_the_order_of_their_nodes(tree: Path) -> None:
    first, second = kfd_inventory.read({}, str(tree))
    assert (first["index"], first["name"], first["bus"]) == (0, "AMD Instinct MI300X OAM", "0000:05:00.0")
    assert (first["uuid"], first["numa"]) == ("AMD-1234abcd5678ef01", 0)
    assert (first["memory"], first["memory_used"]) == (192 << 30, 2 << 30)
    assert [(process["pid"], process["memory"]) for process in first["processes"]] == [(os.getpid(), 1 << 20)]
    assert (second["index"], second["name"], second["bus"]) == (1, "AMD GPU gfx942", "0000:47:00.0")
    assert (second["numa"], second["memory"], second["processes"]) == (None, None, [])
    assert kfd_inventory.driver(str(tree)) == "amdgpu 6.10.5"


@pytest.mark.parametrize(
    ("environ", "buses"),
    [
        ({"ROCR_VISIBLE_DEVICES": "1"}, ["0000:47:00.0"]),
        ({"HIP_VISIBLE_DEVICES": "1,0"}, ["0000:47:00.0", "0000:05:00.0"]),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, ["0000:47:00.0"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-F743D583AC01FCFD"}, ["0000:47:00.0"]),
        ({"HIP_VISIBLE_DEVICES": "0,7,1"}, ["0000:05:00.0"]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
        ({"HIP_VISIBLE_DEVICES": "all of them"}, []),
    ],
)
def test_hidden_gpus_are_left_out(tree: Path, environ: dict[str, str], buses: list[str]) -> None:
    found = kfd_inventory.read(environ, str(tree))
    assert [gpu["bus"] for gpu in found] == buses
    assert [gpu["index"] for gpu in found] == list(range(len(buses)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "simd_count 4\n",
        "simd_count 4\nvendor_id 4318\n",
        "simd_count x\nvendor_id 4098\n",
        "\0" * 100,
        "simd_count",
    ],
)
def test_what_is_no_gpu_of_amd_is_passed_over(tmp_path: Path, text: str) -> None:
    put(tmp_path / "class/kfd/kfd/topology/nodes/0", properties=text)
    assert kfd_inventory.read({}, str(tmp_path)) == []


def test_odd_places_and_versions(tmp_path: Path) -> None:
    odd = "simd_count 4\nvendor_id 4098\nlocation_id 99999999\ndomain 7\ngfx_target_version 90010\n"
    put(tmp_path / "class/kfd/kfd/topology/nodes/0", properties=odd)
    (gpu,) = kfd_inventory.read({}, str(tmp_path))
    assert (gpu["bus"], gpu["name"], gpu["uuid"], gpu["processes"]) == (None, "AMD GPU gfx90a", None, [])
    assert kfd_inventory.address(0x10000, 0x4701) == "10000:47:00.1"


def look(tree: Path, monkeypatch: pytest.MonkeyPatch, files: list[str]) -> dict[str, Any]:
    monkeypatch.setattr(nccl_libraries, "find", lambda environ, deadline: files)
    monkeypatch.setattr(interpreters, "discover", lambda named, environ, deadline: [])
    for name in kfd_inventory.VISIBLE:
        monkeypatch.delenv(name, raising=False)
    return inventory.run({}, None, 10.0, root=str(tree))


def test_an_inventory_has_them_where_rccl_is(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = look(tree, monkeypatch, ["/opt/rocm/lib/librccl.so.1", "/usr/lib64/libcudart.so.12"])
    assert [gpu["bus"] for gpu in value["gpus"]] == ["0000:05:00.0", "0000:47:00.0"]
    assert (value["driver"], value["nvml_error"]) == ("amdgpu 6.10.5", None)
    assert [library["path"] for library in value["nccl"]] == ["/opt/rocm/lib/librccl.so.1"]
    assert value["cuda_libs"] == ["/usr/lib64/libcudart.so.12"]


def test_without_rccl_they_are_part_of_a_laptop(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = look(tree, monkeypatch, ["/usr/lib64/libnccl.so.2"])
    assert value["gpus"] == []
    assert [library["path"] for library in value["nccl"]] == ["/usr/lib64/libnccl.so.2"]


def test_nccl_goes_before_rccl() -> None:
    assert nccl_libraries.collective(["/a/librccl.so.1", "/b/libnccl.so.2"]) == ["/b/libnccl.so.2"]
    assert nccl_libraries.collective(["/a/librccl.so.1", "/b/libcuda.so.1"]) == ["/a/librccl.so.1"]
    assert nccl_libraries.parse_ldconfig("\tlibrccl.so.1 (libc6,x86-64) => /opt/rocm/lib/librccl.so.1\n") == [
        "/opt/rocm/lib/librccl.so.1"
    ]
