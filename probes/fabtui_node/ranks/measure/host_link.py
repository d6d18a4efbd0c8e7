"""What one endpoint shows by itself: copies from and to the host, its own memory, and a product with a known result.

An engine gives the steps (`HostSteps`); sizes, repetitions and the report are the same for all.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from fabtui_node.ranks import base
from fabtui_node.ranks.base import TRANSFER, VERIFY, Failed, Task
from fabtui_node.system import pci, placement, sysfs

#: Time (s) of the timed copies of one kind, and of the product.
COPIES, PRODUCT = 0.08, 0.3
#: Number of small copies for the latency, and their size (bytes).
SMALL_COPIES, SMALL = 200, 8
MOST = 1000
#: Ways of copies: to the device, from it, both at once, and within its memory, where each byte is read and written.
WAYS = ("h2d", "d2h", "both", "own")


class HostSteps:
    """Steps of an engine; ``end`` is the monotonic time of a deadline."""

    #: PCI address, None without a device.
    bus: Optional[str] = None

    def copy(self, way: str, count: int, end: float) -> float:
        """Copy the whole buffer ``count`` times in a way of `WAYS`; return the seconds of all."""
        raise NotImplementedError

    def lag(self, way: str, count: int, end: float) -> float:
        """Return the seconds of one small copy (``h2d`` or ``d2h``)."""
        raise NotImplementedError

    def wrong(self, end: float) -> int:
        """Return the number of wrong bytes of a sample that went to the device and back."""
        raise NotImplementedError

    def product(self, seconds: float, end: float) -> Tuple[float, int]:
        """Multiply matrices for a time; return operations per second, and the number of wrong results."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


@contextlib.contextmanager
def near(bus: Optional[str], root: str = "/sys") -> Iterator[None]:
    """Run this thread on the processors near a device for a time: memory that it touches first is near, too."""
    cpus = placement.near_cpus(bus, root) if bus else []
    before = os.sched_getaffinity(0)
    chosen = set(cpus) & before
    try:
        if chosen:
            os.sched_setaffinity(0, chosen)
        yield
    finally:
        if chosen:
            os.sched_setaffinity(0, before)


def run(
    size: int, product: bool, steps: Callable[[], HostSteps], send: Callable[[Any], None], task: Task, rank: int
) -> None:
    """Measure an endpoint and report it; never raises because of a test."""
    failed: Optional[Failed] = None
    values: Dict[str, Any] = {"wrong": 0}
    own: Optional[HostSteps] = None
    try:
        own = steps()
        _measure(own, size, product, values, task.end)
        if values["wrong"]:
            failed = Failed(VERIFY, "%d values are wrong" % values["wrong"])
    except Exception as error:
        failed = Failed.from_error(TRANSFER, error)
    if own is not None:
        try:
            own.close()
        except Exception as error:
            failed = failed or Failed.from_error(TRANSFER, error)
    send({**base.verdict(failed), "op": "hosted", "id": task.id, "rank": rank, "bytes": size, **values})


def _measure(steps: HostSteps, size: int, product: bool, values: Dict[str, Any], end: float) -> None:
    for way in WAYS:
        each = steps.copy(way, 1, end)
        each = min(each, steps.copy(way, 1, end))
        count = base.repetitions(each, min(COPIES, base.remaining(end) / 8), MOST)
        moved = size * count * (2 if way in ("both", "own") else 1)
        values[way] = moved / max(steps.copy(way, count, end), 1e-9)
    path = sysfs.real("/sys/bus/pci/devices", steps.bus) if steps.bus else None
    # Right after copies: an idle link is slower.
    values["link"], values["link_most"] = pci.link_rate(path), pci.link_rate(path, "max")
    for way in ("h2d", "d2h"):
        values[way + "_lag"] = steps.lag(way, SMALL_COPIES, end)
    values["wrong"] += steps.wrong(end)
    if product:
        try:
            values["product"], wrong = steps.product(min(PRODUCT, base.remaining(end) / 4), end)
            values["wrong"] += wrong
        except Failed:
            raise
        except Exception as error:
            # Copies count without it, too.
            values["no_product"] = base.describe(error)
    values["time"] = time.time()
