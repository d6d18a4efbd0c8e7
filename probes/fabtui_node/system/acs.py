"""PCI Access Control Services: bridges that send what one device says to another up to the root and back.

With ACS on, a GPU does not reach another GPU or a NIC below the same switch directly: transfers are slow, hang or, with
an IOMMU, fail. The state is in the extended part of the configuration space, which only root may read.
"""

from __future__ import annotations

import os
import struct
from typing import Any, Dict, Iterable, List, Optional, Set

from fabtui_node.system import pci, sysfs

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


def parse_config(data: bytes) -> Optional[List[str]]:
    """Return the ACS flags that are set, from a configuration space; None where there is no such capability.

    Raises:
        ValueError: The extended part is not there: whoever reads is not allowed to.
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


def above(paths: Iterable[Optional[str]]) -> Set[str]:
    """Return the PCI addresses of all bridges between the root and devices, from the real paths of their folders."""
    return {bridge for path in paths for bridge in pci.chain(path)[1:-1]}


def read(devices: Iterable[Optional[str]], root: str = "/sys") -> Dict[str, Any]:
    """Look at the bridges above devices.

    Args:
        devices: Real paths of the devices' sysfs folders.
        root: Where sysfs is.

    Returns:
        ``{"state", "bridges", "read", "on"}``: ``none`` (no bridge above them has ACS), ``off``, ``on`` (some bridge
        redirects) or ``unknown`` (not allowed to look); how many bridges there are and how many could be read; those
        that redirect, ``[{"bus", "flags"}]``.
    """
    bridges = sorted(above(devices))[:_MOST_BRIDGES]
    read_ones, capable = 0, 0
    on: List[Dict[str, Any]] = []
    for bus in bridges:
        try:
            with open(os.path.join(root, "bus/pci/devices", bus, "config"), "rb") as file:
                flags = parse_config(file.read(_WHOLE))
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


def device_paths(buses: Iterable[Optional[str]], root: str = "/sys") -> List[Optional[str]]:
    """Return the real paths of the sysfs folders of PCI addresses."""
    return [sysfs.real(root, "bus/pci/devices", bus) for bus in buses if bus]
