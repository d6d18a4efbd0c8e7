"""Distances on the PCI tree, and Access Control Services (ACS), from sysfs.

ACS lets bridges redirect device-to-device traffic to the root complex. With it on, a GPU does not reach another GPU or
a NIC below the same switch directly: transfers are slow, hang or, with an IOMMU, fail. The state is in the extended
configuration space, which only root may read.
"""

from __future__ import annotations

import itertools
import os
import re
import struct
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from fabtui_node.system import sysfs

# Nearest first, in the words of ``nvidia-smi topo``.
DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")

_ADDRESS = re.compile("[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]", re.ASCII | re.IGNORECASE)
_ROOT = re.compile("pci[0-9a-f]{4,8}:[0-9a-f]{2}", re.ASCII | re.IGNORECASE)


#: Share of a PCIe link's bits that are data: up to 5 GT/s, and from 8 GT/s on.
_CODE = (8.0 / 10.0, 128.0 / 130.0)

_CAPABILITY = 0x000D
_FIRST = 0x100
_WHOLE = 4096
_MOST_HOPS = 96
_MOST_BRIDGES = 1024
_MOST_NAMED = 64

#: The bits of the control register, in lspci's words.
FLAGS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
#: Those that make what goes from device to device take the long way.
REDIRECTING = ("ReqRedir", "CmpltRedir", "EgressCtrl")


def link_rate(path: Optional[str], which: str = "current") -> Optional[float]:
    """Return the Gb/s that the PCIe link of a device passes now or at most (``max``), given its real path."""
    speed = re.match(r"([0-9]{1,3}(?:\.[0-9])?) GT/s", sysfs.text(path or "", which + "_link_speed") or "", re.ASCII)
    width = sysfs.integer(path or "", which + "_link_width")
    if speed is None or not width or not 0 < width <= 32:
        return None
    each = float(speed.group(1))
    return round(each * width * _CODE[each > 5.0], 2)


def serial(*folder: str) -> Optional[str]:
    """Return the serial number in the vital product data of a device, which the kernel shows to root alone."""
    # A keyword, the length of its value in a byte, and the value.
    match = re.search(r"SN([\x01-\x40])([ -~]+)", sysfs.text(*folder, "vpd", limit=1024) or "")
    return (match.group(2)[: ord(match.group(1))].strip() or None) if match is not None else None


class PciDevice(NamedTuple):
    """A device on the PCI tree."""

    path: Optional[str]  #: Real path of its sysfs folder, None if unknown.
    numa: Optional[int] = None  #: Its NUMA node, None if unknown.
    #: If two NICs are equally near, the one with the higher rank is preferred (active before down, fast before slow).
    rank: Tuple[float, ...] = ()


def chain(path: Optional[str]) -> List[str]:
    """Return the PCI part of a real path: the host bridge, each bridge, the device; empty if it has none."""
    parts = (path or "").split("/")
    start = next((index for index, part in enumerate(parts) if _ROOT.fullmatch(part)), len(parts))
    return parts[start : start + 1] + list(itertools.takewhile(_ADDRESS.fullmatch, parts[start + 1 :]))


def address(path: Optional[str]) -> Optional[str]:
    """Return the PCI address in a real path; a virtio device has the address of the card below it."""
    devices = chain(path)
    return devices[-1] if len(devices) > 1 else None


def _shared(first: List[str], second: List[str]) -> int:
    pairs = zip(first, second)  # noqa: B905 - Python 3.8 knows no strict=
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


def distance(one: PciDevice, other: PciDevice) -> Optional[str]:
    """Return how near two devices are.

    ``PIX``: at most one bridge (a switch) between them; ``PXB``: several; ``PHB``: the host bridge; ``NODE``: the NUMA
    node; ``SYS``: farther. None if either path is unknown.
    """
    first, second = chain(one.path), chain(other.path)
    if not first or not second:
        return None
    common = _shared(first, second)
    if common == 0:
        return "NODE" if one.numa is not None and one.numa == other.numa else "SYS"
    if common == 1:
        return "PHB"
    # Below the last common bridge, each way down is the switch's port and then the device.
    return "PIX" if len(first) - common <= 2 and len(second) - common <= 2 else "PXB"


def nearest(gpus: Dict[str, PciDevice], nics: Dict[str, PciDevice]) -> Dict[str, List[str]]:
    """Return the nearest NICs of each GPU, several where they are equally near; none where nothing is known.

    The deepest common ancestor wins, then the distance, then the NIC's rank.
    """
    choices: Dict[str, List[str]] = {}
    for name, gpu in gpus.items():
        scores = {}
        for nic in sorted(nics, key=sysfs.natural):
            far = distance(gpu, nics[nic])
            if far is not None:
                depth = _shared(chain(gpu.path), chain(nics[nic].path))
                scores[nic] = (-DISTANCES.index(far), depth, nics[nic].rank)
        best = max(scores.values()) if scores else None
        choices[name] = [nic for nic, score in scores.items() if score == best]
    return choices


def closest(gpus: Dict[str, PciDevice], nics: Dict[str, PciDevice]) -> Dict[str, Tuple[Optional[str], Optional[str]]]:
    """Return (nearest NIC, distance) for each GPU, (None, None) where nothing is known.

    Of several that are equally near, as two of each behind one switch, the first GPU gets the first NIC and so on.
    """
    choices = nearest(gpus, nics)
    result: Dict[str, Tuple[Optional[str], Optional[str]]] = {}
    served: Dict[Tuple[str, ...], int] = {}
    for name in sorted(gpus, key=sysfs.natural):
        group = tuple(choices[name])
        if not group:
            result[name] = (None, None)
            continue
        turn = served.get(group, 0)
        served[group] = turn + 1
        nic = group[turn % len(group)]
        result[name] = (nic, distance(gpus[name], nics[nic]))
    return result


def parse_acs(data: bytes) -> Optional[List[str]]:
    """Return the ACS flags that are set, from a configuration space; None where there is no such capability.

    Raises ValueError if the extended part is missing: reading it needs root.
    """
    if len(data) < _FIRST + 4:
        raise ValueError("only the first %d bytes can be read" % len(data))
    at = _FIRST
    for _ in range(_MOST_HOPS):
        if at < _FIRST or at + 8 > len(data):
            return None
        header = struct.unpack_from("<I", data, at)[0]
        if header in (0, 0xFFFFFFFF):
            return None
        if header & 0xFFFF == _CAPABILITY:
            control = struct.unpack_from("<H", data, at + 6)[0]
            return [name for bit, name in enumerate(FLAGS) if control & (1 << bit)]
        at = header >> 20 & 0xFFC
    return None


def read_acs(buses: Iterable[str], root: str = "/sys") -> Dict[str, Any]:
    """Read ACS of the bridges between the root and devices, by the PCI addresses of these.

    Returns:
        ``{"state", "bridges", "read", "on"}``: ``none`` (no bridge above them has ACS), ``off``, ``on`` (some bridge
        redirects) or ``unknown`` (not permitted); how many bridges there are and how many could be read; those
        that redirect, ``[{"bus", "flags"}]``.
    """
    paths = [sysfs.real(root, "bus/pci/devices", bus) for bus in buses]
    bridges = sorted({bridge for path in paths for bridge in chain(path)[1:-1]})[:_MOST_BRIDGES]
    read_ones, capable = 0, 0
    on: List[Dict[str, Any]] = []
    for bus in bridges:
        try:
            with open(os.path.join(root, "bus/pci/devices", bus, "config"), "rb") as file:
                flags = parse_acs(file.read(_WHOLE))
        except (OSError, ValueError):
            continue
        read_ones += 1
        if flags is None:
            continue
        capable += 1
        if any(flag in REDIRECTING for flag in flags):
            on.append({"bus": bus, "flags": flags})
    if on:
        state = "on"
    elif read_ones < len(bridges):
        state = "unknown"
    else:
        state = "off" if capable else "none"
    return {"state": state, "bridges": len(bridges), "read": read_ones, "on": on[:_MOST_NAMED]}
