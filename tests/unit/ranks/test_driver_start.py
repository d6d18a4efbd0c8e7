"""The CUDA driver of a rank host: it starts before everything else, and its buffers leave memory to the host."""

import ctypes
import importlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import rank_host
from fabtui_node.ranks.nccl import ctypes_cuda
from fabtui_node.ranks.nccl.ctypes_cuda import CudaDevice, CudaError, Driver, spare_host_memory


class Libraries:
    """The libraries of the driver; ``steps`` are calls and the import of the dispatcher."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.steps: list[tuple[str, str]] = []
        self.started = threading.Event()

    def __call__(self, name: str, **_: object) -> Any:
        if name not in self.names:
            raise OSError(f"{name}: cannot open shared object file")
        return SimpleNamespace(cuInit=self.start, nvmlInitWithFlags=lambda flags: flags)

    def start(self, flags: int) -> int:
        self.steps.append(("cuInit", os.environ["CUDA_DEVICE_ORDER"]))
        self.started.set()
        return flags

    def load(self, module: str) -> Any:
        if self.names:
            assert self.started.wait(10)
        return SimpleNamespace(main=lambda config: self.steps.append((module, config["engine"])))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that makes the libraries of a machine; they are found in a process that begins."""

    def made(*names: str) -> Libraries:
        libraries = Libraries(set(names))
        monkeypatch.setattr(ctypes, "CDLL", libraries)
        monkeypatch.setattr(importlib, "import_module", libraries.load)
        return libraries

    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ.pop("CUDA_DEVICE_ORDER", None)
    rank_host.driver_start.cache_clear()
    yield made
    rank_host.driver_start.cache_clear()


def test_the_driver_starts_once_in_its_environment_before_the_import(machine: Any) -> None:
    libraries = machine("libcuda.so.1", "libnvidia-ml.so.1")
    rank_host.main({"fd": 3, "engine": "nccl"})
    assert libraries.steps == [("cuInit", "PCI_BUS_ID"), ("fabtui_node.ranks.rank_dispatcher", "nccl")]
    start = rank_host.driver_start()
    assert start is rank_host.driver_start()
    assert 0 < start.wait() < 60
    assert os.environ["NCCL_DEBUG_FILE"] == f"/proc/self/fd/{start.log}"
    assert "NCCL_IB_TIMEOUT=17" in start.notes


@pytest.mark.parametrize("engine", ["nccl", "gloo"])
def test_a_rank_host_without_the_driver_serves_all_the_same(machine: Any, engine: str) -> None:
    libraries = machine()
    rank_host.main({"fd": 3, "engine": engine})
    assert libraries.steps == [("fabtui_node.ranks.rank_dispatcher", engine)]
    assert ("NCCL_DEBUG_FILE" in os.environ) == (engine == "nccl")


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
