"""Copies between a GPU and memory of the host that is near it, by the copy engines; see `measure.host_link`."""

from __future__ import annotations

import ctypes
import time
from ctypes import c_void_p
from typing import Any, Tuple

from fabtui_node.ranks.measure import host_link, verify
from fabtui_node.ranks.nccl.communicator import RankGpu
from fabtui_node.ranks.nccl.ctypes_cuda import STREAM_NON_BLOCKING
from fabtui_node.ranks.nccl.gpu_product import GpuProduct


class GpuHostSteps(host_link.HostSteps):
    """Steps of one GPU; two buffers on each side, so that both ways run at once."""

    def __init__(self, gpu: RankGpu, size: int) -> None:
        self._gpu, self._device, self._size = gpu, gpu.device, size
        self.bus = gpu.device.bus_id
        self._source, self._data = gpu.source(size), gpu.data(size)
        self._second = self._device.driver.make(c_void_p, "cuStreamCreate", STREAM_NON_BLOCKING)
        with host_link.near(self.bus):
            self._out, self._back = (self._device.pinned(size) for _ in range(2))
        for at in range(0, size, verify.PERIOD):
            ctypes.memmove(ctypes.addressof(self._out) + at, verify.PATTERN, min(verify.PERIOD, size - at))

    def _begin(self, way: str, stream: Any, size: int) -> None:
        name, target, source = {
            "h2d": ("HtoD", self._data, ctypes.addressof(self._out)),
            "d2h": ("DtoH", ctypes.addressof(self._back), self._source),
            "own": ("DtoD", self._data, self._source),
        }[way]
        self._device.driver.call("cuMemcpy%sAsync_v2" % name, target, source, size, stream)

    def copy(self, way: str, size: int, count: int, end: float) -> float:
        device, began = self._device, time.perf_counter()
        first, last = device.events(2)
        device.record(first)
        for _ in range(count):
            self._begin("h2d" if way == "both" else way, device.stream, size)
            if way == "both":
                self._begin("d2h", self._second, size)
            elif size < self._size:
                device.wait(end)
        device.record(last)
        device.wait(end)
        while way == "both" and device.driver.busy(self._second):
            if time.monotonic() > end:
                raise TimeoutError("copies to the host did not end in time")
        # Events are exact where one stream has all of the work.
        return device.laps([first, last])[0] if way != "both" and size == self._size else time.perf_counter() - began

    def wrong(self, end: float) -> int:
        size = min(self._size, verify.SAMPLE)
        at = (self._size - size) // 2
        self._begin("h2d", self._device.stream, self._size)
        self._device.download(self._back, self._data + at, size)
        self._device.wait(end)
        got, sent = self._back[:size], self._out[at : at + size]
        return 0 if got == sent else sum(a != b for a, b in zip(got, sent))  # noqa: B905 - Python 3.8

    def product(self, seconds: float, end: float) -> Tuple[float, int]:
        device, kernel = self._device, GpuProduct(self._device, self._gpu.scratch.small)
        first, last = device.events(2)
        rate, began = 0.0, time.monotonic()
        # The first launch warms up; clocks rise within some milliseconds.
        while not rate or time.monotonic() - began < seconds:
            kernel.launch()
            device.record(first)
            kernel.launch()
            device.record(last)
            device.wait(end)
            rate = max(rate, kernel.operations / device.laps([first, last])[0])
        return rate, kernel.wrong(self._gpu.scratch.note, end)

    def close(self) -> None:
        for memory in (self._out, self._back):
            self._device.driver.call("cuMemFreeHost", ctypes.addressof(memory))
        self._device.driver.call("cuStreamDestroy_v2", self._second)
