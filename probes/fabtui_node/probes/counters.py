"""Probe ``counters``: counters of RDMA ports, network interfaces and NVLinks, read in one go."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from fabtui_node.probes.network import interfaces as nics
from fabtui_node.probes.nvidia.nvlink_counters import NvlinkCounts
from fabtui_node.probes.rdma import port_counters
from fabtui_node.registry import ProbeSpec
from fabtui_node.system import rdma_devices, sysfs
from fabtui_node.system.ethtool import Ethtool

_MAX_DEVICES = _MAX_NICS = 64
_MAX_COUNTERS = 256
_LARGEST = 1 << 64

_STATISTICS = [way + kind for kind in ("bytes", "errors", "dropped") for way in ("rx_", "tx_")]
_STATISTICS += ["rx_crc_errors", "rx_missed_errors"]
# A setting among the counters of NVIDIA's adapters, and gauges of Broadcom's.
_NOT_COUNTED = ("lifespan", "active_", "watermark_")

Counts = Dict[str, Dict[str, int]]

_KEPT: Dict[str, Counters] = {}


class CounterReading(threading.Thread):
    """One reading of one source."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(name="counters", daemon=True)
        self._function = function
        self._value: Any = None
        self.given_up = False

    def run(self) -> None:
        """Read; what fails in a way that nobody foresaw is absent, as is all that cannot be read."""
        with contextlib.suppress(Exception):
            self._value = self._function()

    def value(self, until: float) -> Any:
        """Return what was read, None if that is not there by ``until`` (monotonic seconds)."""
        self.join(max(until - time.monotonic(), 0.0))
        self.given_up = self.is_alive()
        return None if self.given_up else self._value


class CounterSource:
    """Something to read that may hang, for example an adapter whose firmware is dead.

    While a reading hangs there is no other one, and nobody waits for it again.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._latest: Optional[CounterReading] = None

    def begin(self) -> Optional[CounterReading]:
        """Begin to read, or join a reading that is under way; None while one hangs."""
        with self._lock:
            latest = self._latest
            if latest is not None and latest.is_alive():
                return None if latest.given_up else latest
            self._latest = CounterReading(self._function)
            self._latest.start()
            return self._latest


class DriverCounters:
    """Reads some of the counters that ``ethtool -S`` prints of an interface; their names are asked for once.

    Args:
        name: The interface.
        wanted: Returns True for the names to read.
    """

    def __init__(self, name: str, wanted: Callable[[str], bool]) -> None:
        self._name = name
        self._wanted = wanted
        self._known: Tuple[int, List[Tuple[int, str]]] = (0, [])

    def read(self) -> Dict[str, int]:
        """Return the counters by name; none if the driver has none. Blocks while the driver does."""
        with Ethtool(self._name) as driver:
            number = driver.count()
            if self._known[0] != number:
                # The number changes with that of the queues, and with it the places of all counters.
                names = enumerate(driver.names())
                self._known = number, [(place, name) for place, name in names if self._wanted(name)]
            values = driver.values(number) if self._known[1] else ()
            return {name: values[place] for place, name in self._known[1] if place < len(values)}


def _counts(folder: str, names: List[str]) -> Dict[str, int]:
    values = {name: sysfs.integer(folder, name) for name in names}
    return {name: value for name, value in values.items() if value is not None and 0 <= value < _LARGEST}


def port_counts(device: str) -> Counts:
    """Return ``{"mlx5_0/1": {name: count}}`` of the ports of a device, given its folder in sysfs."""
    ports: Counts = {}
    for port in sysfs.names(device, "ports"):
        if not port.isdecimal() or len(port) > 4:
            continue
        counts: Dict[str, int] = {}
        for folder in ("counters", "hw_counters"):
            names = sysfs.names(device, "ports", port, folder)[:_MAX_COUNTERS]
            counted = [name for name in names if not name.startswith(_NOT_COUNTED)]
            counts.update(_counts(os.path.join(device, "ports", port, folder), counted))
        if counts:
            ports["%s/%s" % (os.path.basename(device), port)] = counts
    return ports


def interface_counts(names: List[str], root: str = "/sys") -> Counts:
    """Return ``{"eth0": {name: count}}`` of interfaces and of those below them (such as the ports of a bond)."""
    folder = os.path.join(root, "class/net")
    interfaces: Counts = {}
    waiting = [name for name in names if name and "/" not in name and name not in (".", "..")]
    while waiting and len(interfaces) < _MAX_NICS:
        name = waiting.pop(0)
        if name in interfaces or not os.path.isdir(os.path.join(folder, name)):
            continue
        interfaces[name] = _counts(os.path.join(folder, name, "statistics"), _STATISTICS)
        interfaces[name].update(_counts(os.path.join(folder, name), ["carrier_changes"]))
        waiting += _below(name, root)
    return {name: counts for name, counts in interfaces.items() if counts}


def _below(name: str, root: str) -> List[str]:
    entries = sysfs.names(root, "class/net", name)
    return [entry[len("lower_") :] for entry in entries if entry.startswith("lower_")]


def data_interfaces(root: str = "/sys") -> List[str]:
    interfaces, devices = nics.read_all(root)
    entries = nics.data_addresses(interfaces, devices, os.environ.get("FABTUI_LAB_ADDRESS"))
    return list(dict.fromkeys(entry["nic"] for entry in entries))


class Counters:
    """All that is read on a node. It outlives a run: NVML stays open, and what hangs is remembered."""

    def __init__(self, root: str = "/sys") -> None:
        self._root = root
        self._folder = os.path.join(root, "class/infiniband")
        self._devices: Dict[str, CounterSource] = {}
        self._nvlink = CounterSource(NvlinkCounts(os.environ.get("CUDA_VISIBLE_DEVICES")).read)
        self._names: Optional[List[str]] = None
        #: Drivers of the interfaces of RoCE ports; None before these are known.
        self._drivers: Optional[Dict[str, CounterSource]] = None

    def read(self, names: Optional[List[str]], until: float) -> Dict[str, Any]:
        """Read everything; what is not there by ``until`` (monotonic seconds) is left out."""
        # An adapter's counters are asked from its firmware one by one, so that many adapters are read side by side.
        readings = []
        for name in sysfs.names(self._folder)[:_MAX_DEVICES]:
            read_ports = functools.partial(port_counts, os.path.join(self._folder, name))
            readings.append(self._devices.setdefault(name, CounterSource(read_ports)).begin())
        links = self._nvlink.begin()
        drivers = {name: source.begin() for name, source in self._of_drivers().items()}
        if names is None:
            if self._names is None:
                self._names = data_interfaces(self._root)
            names = self._names
        net = interface_counts(names, self._root)
        hca: Counts = {}
        for reading in readings:
            hca.update((reading.value(until) if reading is not None else None) or {})
        for name, reading in drivers.items():
            if counts := reading.value(until) if reading is not None else None:
                net.setdefault(name, {}).update(counts)
        return {"hca": hca, "net": net, "nvlink": (links.value(until) if links is not None else None) or {}}

    def _of_drivers(self) -> Dict[str, CounterSource]:
        """Return what to read of the drivers below RoCE ports: nothing on InfiniBand, and without RDMA."""
        if self._drivers is None:
            names = rdma_devices.roce_interfaces(self._root)
            names += [below for name in names for below in _below(name, self._root)]
            listed = list(dict.fromkeys(names))[:_MAX_NICS]
            self._drivers = {name: CounterSource(DriverCounters(name, port_counters.of_driver).read) for name in listed}
        return self._drivers


def run(args: Dict[str, Any], emit: Any, deadline: float, root: str = "/sys") -> Dict[str, Any]:
    """Read the counters. What cannot be read, or not in time, is absent.

    ``nics``: the interfaces to read; without it, those that have an address which data may use.

    ``{"hca": {"mlx5_0/1": {name: count}}, "net": {"eth0": {name: count}}, "nvlink": {GPU: {link: {name: count}}},
    "time": epoch seconds}``. Counts of ``hca`` and ``net`` are as the kernel has them; interfaces of RoCE ports have
    counters of congestion that only their driver knows. NVLink: ``replay``,
    ``recovery``, ``crc`` and the like of each link, and of the link ``all`` the traffic of all links in bytes
    (``tx_bytes``, ``rx_bytes``).
    """
    named = args.get("nics")
    names = [name for name in named if isinstance(name, str)][:_MAX_NICS] if isinstance(named, list) else None
    now = time.time()
    value = _KEPT.setdefault(root, Counters(root)).read(names, time.monotonic() + deadline * 0.8)
    value["time"] = round(now, 6)
    return value


PROBE = ProbeSpec(
    name="counters",
    title="counters of RDMA ports, network interfaces and NVLinks",
    phase="sample",
    passive=True,
    needs="/sys/class/infiniband and /sys/class/net; the NVIDIA driver's NVML for NVLinks",
    gives="per port, interface and link: traffic and errors counted so far",
    run=run,
)
