"""Buffers of a GPU that uses the memory of its host are bounded by what the host can spare."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks.nccl import ctypes_cuda
from fabtui_node.ranks.nccl.ctypes_cuda import CudaDevice, CudaError, Driver, spare_host_memory

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "spare"),
    [
        ("MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    9437184 kB\n", 8 << 30),
        ("MemTotal:       16777216 kB\nMemAvailable:    102400 kB\n", 0),
        ("MemTotal:       16777216 kB\n", None),
        ("MemAvailable: a lot\n", None),
        ("", None),
    ],
)
def test_a_part_of_the_memory_is_left_to_the_system(tmp_path: Path, text: str, spare: int | None) -> None:
    (tmp_path / "meminfo").write_text(text)
    assert spare_host_memory(str(tmp_path / "meminfo")) == spare
    assert spare_host_memory(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    ("integrated", "spare", "fits"), [(True, 8 * MIB, False), (True, None, True), (False, 0, True)]
)
def test_a_buffer_that_the_host_cannot_spare_is_refused(
    fake_gpu: Path, monkeypatch: pytest.MonkeyPatch, integrated: bool, spare: int | None, fits: bool
) -> None:
    if integrated:
        monkeypatch.setenv("FAKE_INTEGRATED", "1")
    monkeypatch.setattr(ctypes_cuda, "spare_host_memory", lambda: spare)
    driver = Driver(str(fake_gpu / "libcuda.so.1"))
    assert driver.shares_host_memory(0) is integrated
    device = CudaDevice(driver, 0)
    device.free(device.allocate(4 * MIB))
    if fits:
        device.free(device.allocate(16 * MIB))
        return
    with pytest.raises(CudaError, match=r"8\.0 MiB of 1\.0 GiB are free, which are the host's, too") as refused:
        device.allocate(16 * MIB)
    assert refused.value.kind is ErrorKind.OUT_OF_MEMORY
