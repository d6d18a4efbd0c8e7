"""The driver of a rank host starts before everything else is imported."""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fabtui_node.ranks import rank_host


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
        """Be cuInit."""
        self.steps.append(("cuInit", os.environ["CUDA_DEVICE_ORDER"]))
        self.started.set()
        return flags

    def load(self, module: str) -> Any:
        """Be the import of a module that serves."""
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
