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
        pattern = verify.PATTERN[: verify.PERIOD]
        for at in range(0, size, verify.PERIOD):
            length = min(verify.PERIOD, size - at)
            ctypes.memmove(ctypes.addressof(self._out) + at, pattern, length)

    def _begin(self, way: str, stream: Any, size: int) -> None:
        call, own = self._device.driver.call, ctypes.addressof
        if way == "h2d":
            call("cuMemcpyHtoDAsync_v2", self._data, own(self._out), size, stream)
        elif way == "d2h":
            call("cuMemcpyDtoHAsync_v2", own(self._back), self._source, size, stream)
        else:
            call("cuMemcpyDtoDAsync_v2", self._data, self._source, size, stream)

    def _idle(self, stream: Any, end: float) -> None:
        turns = 0
        while self._device.driver.busy(stream):
            turns += 1
            if turns > 256:
                time.sleep(0.0001)
            if time.monotonic() > end:
                raise TimeoutError("copies did not end in time")

    def copy(self, way: str, count: int, end: float) -> float:
        device = self._device
        if way != "both":
            first, last = device.events(2)
            device.record(first)
            for _ in range(count):
                self._begin(way, device.stream, self._size)
            device.record(last)
            device.wait(end)
            return device.laps([first, last])[0]
        began = time.perf_counter()
        for _ in range(count):
            self._begin("h2d", device.stream, self._size)
            self._begin("d2h", self._second, self._size)
        device.wait(end)
        self._idle(self._second, end)
        return time.perf_counter() - began

    def lag(self, way: str, count: int, end: float) -> float:
        began = time.perf_counter()
        for _ in range(count):
            self._begin(way, self._device.stream, host_link.SMALL)
            self._device.wait(end)
        return (time.perf_counter() - began) / count

    def wrong(self, end: float) -> int:
        size = min(self._size, verify.SAMPLE)
        self._begin("h2d", self._device.stream, self._size)
        at = (self._size - size) // 2
        self._device.download(self._back, self._data + at, size)
        self._device.wait(end)
        got, sent = self._back[:size], self._out[at : at + size]
        return 0 if got == sent else sum(a != b for a, b in zip(got, sent))  # noqa: B905 - Python 3.8

    def product(self, seconds: float, end: float) -> Tuple[float, int]:
        device = self._device
        kernel = GpuProduct(device, self._gpu.scratch.small)
        try:
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
        finally:
            kernel.close()

    def close(self) -> None:
        for memory in (self._out, self._back):
            self._device.driver.call("cuMemFreeHost", ctypes.addressof(memory))
        self._device.driver.call("cuStreamDestroy_v2", self._second)
