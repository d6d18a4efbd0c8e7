"""The system graph that NCCL prints as it starts (``NCCL_DEBUG=INFO``): NICs, and the PCIe links in front of them."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

_ROOT = re.compile(r"=== System : max(?:Bw|Width) ")
#: A NIC is in the line of its PCIe link, and what it sends over in the lines that follow; NIC/5000 is the device
#: 0000:05:00.0, which newer versions write NIC/0-5000.
_NIC = re.compile(r" {0,400}\+ PCI\[(\d{1,6}\.\d)\] - (NIC/(?:[0-9A-Fa-f]{1,16}-)?([0-9A-Fa-f]{1,12}))", re.ASCII)
_NET = re.compile(r" {0,400}\+ NET\[(\d{1,6}\.\d)\] - (NET/[0-9A-Fa-f-]{1,33})", re.ASCII)
#: Maximum number of NICs that are kept.
_MOST = 1024


class Graph:
    """Follows the lines of the graphs of processes."""

    def __init__(self) -> None:
        #: ``{"host", "nic", "bus", "net", "rate", "pcie"}`` of each NIC, rates in GB/s as NCCL reckons with them.
        self.nics: List[Dict[str, Any]] = []
        self._last: Dict[Any, Tuple[float, str, str]] = {}

    def line(self, text: str, host: Optional[str], process: Any) -> bool:
        """Take the text of a line of NCCL in; return whether it is part of a graph."""
        if " - N" not in text and "=== S" not in text:
            return False
        nic, net = _NIC.match(text), _NET.match(text)
        if nic and len(self._last) < _MOST:
            self._last[process] = float(nic[1]), nic[2], bus_id(nic[3])
        if net and process in self._last and len(self.nics) < _MOST:
            pcie, name, bus = self._last[process]
            found = {"host": host, "nic": name, "bus": bus, "net": net[2], "rate": float(net[1]), "pcie": pcie}
            if found not in self.nics:
                self.nics.append(found)
        return bool(nic or net or _ROOT.match(text))


def bus_id(digits: str) -> str:
    """Return the PCI address that NCCL writes as a number in hexadecimal digits."""
    number = int(digits, 16)
    return "%04x:%02x:%02x.%x" % (number >> 20, number >> 12 & 0xFF, number >> 4 & 0xFF, number & 0xF)
