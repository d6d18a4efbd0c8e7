"""Probe ``growth``: how much every counter of a node grew since the probe last ran."""

from __future__ import annotations

import functools
import re
import threading
import time
from typing import Any, Dict, Set

from fabtui_node.probes.counters import Counters, CounterSource, DriverCounters
from fabtui_node.registry import ProbeSpec
from fabtui_node.system import kernel_counters

_MOST = 8192
#: Number of a queue or a channel in the name of a driver's counter: ``rx3_bytes``, ``tx_queue_0_drops``.
_QUEUE = re.compile(r"(?<![a-z])\d+|\d+(?=_)")


class Growth:
    """All counters of a node as last read. What falls is a gauge, and is left out from then on."""

    def __init__(self, root: str, proc: str) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._ports = Counters(root)
        self._kernel = CounterSource(functools.partial(kernel_counters.read, root, proc))
        self._drivers: Dict[str, CounterSource] = {}
        self._latest: Dict[str, int] = {}
        self._gauges: Set[str] = set()
        self._time = 0.0

    def read(self, until: float) -> Dict[str, Any]:
        """Return what grew since the last reading; what is not there by ``until`` (monotonic seconds) is left out."""
        with self._lock:
            now, counts = time.monotonic(), self._read(until)
            moved = {name: count - self._latest.get(name, count) for name, count in counts.items()}
            fell = {name for name, change in moved.items() if change < 0} - self._gauges
            self._gauges |= fell
            self._latest.update(counts)
            seconds, self._time = now - (self._time or now), now
            grew = {name: change for name, change in moved.items() if change > 0 and name not in self._gauges}
            return {
                "grew": dict(list(grew.items())[:_MOST]),
                "fell": sorted(fell)[:_MOST],
                "seconds": round(seconds, 3),
            }

    def _read(self, until: float) -> Dict[str, int]:
        for name in kernel_counters.interfaces(self._root):
            if name not in self._drivers:
                self._drivers[name] = CounterSource(DriverCounters(name, bool).read)
        begun = {name: source.begin() for name, source in [*self._drivers.items(), ("", self._kernel)]}
        ports = self._ports.read([], until)
        counts: Dict[str, int] = {}
        parts = dict(ports["hca"])
        parts.update(
            ("nvlink%s/%s" % (gpu, link), of) for gpu, links in ports["nvlink"].items() for link, of in links.items()
        )
        for interface, reading in begun.items():
            value: Dict[str, int] = (reading.value(until) if reading is not None else None) or {}
            for name, count in value.items():
                whole = "%s:ethtool.%s" % (interface, _QUEUE.sub("N", name)) if interface else name
                counts[whole] = counts.get(whole, 0) + count
        counts.update(("%s:%s" % (port, name), count) for port, of in parts.items() for name, count in of.items())
        return counts


_KEPT: Dict[str, Growth] = {}


def run(args: Dict[str, Any], emit: Any, deadline: float, root: str = "/sys", proc: str = "/proc") -> Dict[str, Any]:
    """Read all counters, and compare them with the last reading.

    ``{"grew": {name: int}, "fell": [name], "seconds": float}``: since the last reading of this process; nothing in the
    first one. Names are those of `kernel_counters`; RDMA ports (``mlx5_0/1:symbol_error``), NVLinks (GPU and link:
    ``nvlink0/3:crc``) and the drivers of interfaces (``eth1:ethtool.rx_queue_N_drops``) are added to them.
    """
    return _KEPT.setdefault(root, Growth(root, proc)).read(time.monotonic() + deadline * 0.8)


PROBE = ProbeSpec(
    name="growth",
    title="growth of all counters: kernel, interfaces and drivers, RDMA ports, NVLinks, PCIe, control groups",
    phase="sample",
    passive=True,
    needs="/proc and /sys; the NVIDIA driver's NVML for NVLinks",
    gives="per counter: how much it grew since the last reading",
    run=run,
)
