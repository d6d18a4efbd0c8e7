"""All that the kernel counts on a node, as flat names and numbers; that of a device has its name in front.

``TcpInCsumErrors`` (names of ``nstat``), ``softnet:dropped``, ``eth1:rx_dropped``, ``eth1:qdisc.tbf.drops``,
``0000:3b:00.0:aer.correctable.BadTLP``, ``cgroup:cpu.nr_throttled``, ``pressure:cpu.some_us``. Counts of CPUs, queues
and control groups above each other are summed.
"""

from __future__ import annotations

import contextlib
import re
import struct
from typing import Dict, Iterator, List, Tuple

from fabtui_node.system import cgroups, netlink, sysfs

Numbers = Iterator[Tuple[str, int]]
_LARGEST = 1 << 63
_MOST_INTERFACES, _MOST_DEVICES = 64, 512
_SOFTNET = ("processed", "dropped", "time_squeeze", "", "", "", "", "", "cpu_collision", "received_rps", "flow_limit")
#: Attributes of links and of queues: IFLA_IFNAME, TCA_KIND, TCA_STATS2, and TCA_STATS_QUEUE in that.
_NAME, _KIND, _STATS, _OF_QUEUE = 3, 1, 7, 3
_GROUPS = ("cpu.stat", "memory.events", "memory.oom_control", "memory.failcnt", "pids.events")
#: Counters of control groups about their limits; the others count what a group uses.
_OF_LIMITS = re.compile(r"nr_throttled|throttled_(usec|time)|oom\w*|max|high")


def read(sys: str = "/sys", proc: str = "/proc") -> Dict[str, int]:
    """Return all counters that can be read, by name."""
    counts: Dict[str, int] = {}
    for source in (_protocols, _tables, _interfaces, _queues, _devices, _groups):
        # What cannot be read, or reads like nothing known, costs the rest of one source.
        with contextlib.suppress(OSError, ValueError, LookupError, struct.error):
            for name, count in source(sys, proc):
                if 0 <= count < _LARGEST:
                    counts[name] = counts.get(name, 0) + count
    return counts


def interfaces(sys: str = "/sys") -> List[str]:
    return [name for name in sysfs.names(sys, "class/net") if name != "lo"][:_MOST_INTERFACES]


def _lines(*path: str) -> List[List[str]]:
    return [line.split() for line in (sysfs.text(*path, limit=1 << 20) or "").splitlines()]


def _protocols(sys: str, proc: str) -> Numbers:
    for lines in (_lines(proc, "net/snmp"), _lines(proc, "net/netstat")):
        for names, values in zip(lines[::2], lines[1::2]):  # noqa: B905 - Python 3.8 knows no strict=
            for name, value in zip(names[1:], values[1:]):  # noqa: B905
                yield names[0].rstrip(":") + name, int(value)
    for words in _lines(proc, "net/snmp6"):
        yield words[0], int(words[1])
    for kind, *words in _lines(proc, "net/sockstat"):
        for name, value in zip(words[::2], words[1::2]):  # noqa: B905
            yield "sockstat:%s.%s" % (kind.rstrip(":"), name), int(value)


def _tables(sys: str, proc: str) -> Numbers:
    tables = {name: _lines(proc, "net/stat", name) for name in sysfs.names(proc, "net/stat")}
    tables["softnet"] = [list(_SOFTNET), *_lines(proc, "net/softnet_stat")]
    for table, lines in tables.items():
        for line in lines[1:]:
            for name, value in zip(lines[0], line):  # noqa: B905
                if name:
                    yield "%s:%s" % (table, name), int(value, 16)
    for part in ("cpu", "io", "memory"):
        for kind, total in re.findall(r"(?m)^(\w+) .*total=([0-9]{1,18})", sysfs.text(proc, "pressure", part) or ""):
            yield "pressure:%s.%s_us" % (part, kind), int(total)
    for name, count in cgroups.parse_numbers(sysfs.text(proc, "vmstat")).items():
        if name == "oom_kill":
            yield "vmstat:oom_kill", count


def _interfaces(sys: str, proc: str) -> Numbers:
    for interface in interfaces(sys):
        for name in [*sysfs.names(sys, "class/net", interface, "statistics"), "carrier_changes"]:
            count = sysfs.integer(sys, "class/net", interface, "" if name == "carrier_changes" else "statistics", name)
            yield "%s:%s" % (interface, name), -1 if count is None else count


def _queues(sys: str, proc: str) -> Numbers:
    names = {header[4:8]: values[_NAME].rstrip(b"\0").decode() for header, values in netlink.dump(netlink.LINKS)}
    for header, values in netlink.dump(netlink.QUEUES):
        counts = netlink.attributes(values.get(_STATS, b"")).get(_OF_QUEUE, b"")
        if len(counts) >= 20 and names.get(header[4:8], "lo") != "lo":
            queue = "%s:qdisc.%s." % (names[header[4:8]], values[_KIND].rstrip(b"\0").decode())
            for name, count in zip(("drops", "requeues", "overlimits"), struct.unpack_from("=8x3I", counts)):  # noqa: B905
                yield queue + name, count


def _devices(sys: str, proc: str) -> Numbers:
    """Yield what PCI devices count of Advanced Error Reporting, but for the sums of the kernel."""
    for device in sysfs.names(sys, "bus/pci/devices")[:_MOST_DEVICES]:
        for kind in ("correctable", "nonfatal", "fatal"):
            for name, value in _lines(sys, "bus/pci/devices", device, "aer_dev_" + kind):
                if not name.startswith("TOTAL"):
                    yield "%s:aer.%s.%s" % (device, kind, name), int(value)


def _groups(sys: str, proc: str) -> Numbers:
    for controller, _, folder in cgroups.folders(sys, proc):
        for file in _GROUPS:
            of = file.partition(".")[0]
            text = (sysfs.text(folder, file) or "") if controller in (of, "v2") else ""
            if text.isdecimal():
                yield "cgroup:" + file, int(text)
            for name, count in cgroups.parse_numbers(text).items():
                if _OF_LIMITS.fullmatch(name):
                    yield "cgroup:%s.%s" % (of, name), count
