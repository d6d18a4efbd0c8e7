"""Test of one endpoint alone: copies from and to the host, its own memory, and a product with a known result."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from fabtui_node.ranks import base
from fabtui_node.ranks.base import TRANSFER, VERIFY, Failed, Task
from fabtui_node.system import pci, placement, sysfs

#: Time (s) of the timed copies of one kind, and of the product; number and size (bytes) of small copies.
COPIES, PRODUCT = 0.08, 0.3
SMALL_COPIES, SMALL = 200, 8
#: Paths of copies, and how often each byte counts: to the device, from it, both at once, within its memory.
PATHS = {"h2d": 1, "d2h": 1, "both": 2, "own": 2}


class HostSteps:
    """Steps of an engine; ``end`` is the monotonic time of a deadline."""

    #: PCI address, None without a device.
    bus: Optional[str] = None

    def copy(self, way: str, size: int, count: int, end: float) -> float:
        """Copy ``size`` bytes ``count`` times by a path of `PATHS`, small ones one by one; return all seconds."""
        raise NotImplementedError

    def wrong(self, end: float) -> int:
        """Return the number of wrong bytes of a sample that went to the device and back."""
        raise NotImplementedError

    def product(self, seconds: float, end: float) -> Tuple[float, int]:
        """Multiply matrices for a time; return operations per second, and the number of wrong results."""
        raise NotImplementedError

    def close(self) -> None:
        """Free the buffers."""


@contextlib.contextmanager
def near(bus: Optional[str]) -> Iterator[None]:
    """Run this thread on the processors near a device for a time: memory that it touches first is near, too."""
    before = os.sched_getaffinity(0)
    chosen = before.intersection(placement.near_cpus(bus) if bus else ()) or before
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def run(size: int, steps: Callable[[], HostSteps], send: Callable[[Any], None], task: Task, rank: int) -> None:
    """Measure an endpoint and report it; never raises because of a test."""
    failed: Optional[Failed] = None
    values: Dict[str, Any] = {"wrong": 0}
    try:
        own = steps()
        try:
            _measure(own, size, values, task.end)
        finally:
            own.close()
        if values["wrong"]:
            failed = Failed(VERIFY, "%d values are wrong" % values["wrong"])
    except Exception as error:
        failed = Failed.from_error(TRANSFER, error)
    send({**base.verdict(failed), "op": "hosted", "id": task.id, "rank": rank, "bytes": size, **values})


def _measure(steps: HostSteps, size: int, values: Dict[str, Any], end: float) -> None:
    for way, times in PATHS.items():
        each = min(steps.copy(way, size, 1, end) for _ in range(2))
        count = base.repetitions(each, min(COPIES, base.remaining(end) / 8), 1000)
        values[way] = times * size * count / max(steps.copy(way, size, count, end), 1e-9)
    path = sysfs.real("/sys/bus/pci/devices", steps.bus) if steps.bus else None
    # Right after copies: an idle link is slower.
    values["link"], values["link_most"] = pci.link_rate(path), pci.link_rate(path, "max")
    for way in ("h2d", "d2h"):
        values[way + "_lag"] = steps.copy(way, SMALL, SMALL_COPIES, end) / SMALL_COPIES
    values["wrong"] += steps.wrong(end)
    try:
        values["product"], wrong = steps.product(min(PRODUCT, base.remaining(end) / 4), end)
        values["wrong"] += wrong
    except Exception as error:
        # Copies count without it, too.
        values["no_product"] = base.describe(error)
