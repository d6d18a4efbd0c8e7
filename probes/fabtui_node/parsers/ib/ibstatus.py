"""``ibstatus``: the InfiniBand and RoCE ports of a node, as sysfs has them."""

from __future__ import annotations

import re
from typing import Any, Dict, List

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values
from fabtui_node.system import rdma_devices

_PORT = re.compile(r"Infiniband device '([^']{1,64})' port ([0-9]{1,4}) status:", re.ASCII)
_FIELD = re.compile(r"\s*(default gid|base lid|sm lid|state|phys state|rate|link_layer):\s*(.*)")
_LINK = re.compile(r"\((1|2|4|8|12)X(?: ([A-Z]{3}[0-9]{0,2}))?\)")


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``ibstatus``."""
    if "Infiniband device '" in text and re.search(r"' port \d+ status:", text):
        return 0.97
    return 0.5 if re.search(r"^Fatal error: +(No devices|device ')", text, re.MULTILINE) else 0.0


def parse(text: str) -> Reading:
    """Return the ports; None, or ``unknown`` for words, where the tool could not read the value or the text is cut.

    ``{"ports": [{"ca", "port", "gid", "lid", "sm_lid", "state", "physical_state", "rate" (Gb/s), "lanes", "speed",
    "link_layer"}]}``.
    """
    ports: List[Dict[str, Any]] = []
    notes = Notes()
    for line in values.lines(text):
        named = _PORT.match(line.strip())
        field = _FIELD.fullmatch(line)
        if named:
            ports.append(_new(named.group(1), int(named.group(2))))
        elif field and ports:
            _take(ports[-1], field.group(1), field.group(2).strip())
        elif values.complaint(line):
            notes.warn(line)
        else:
            notes.puzzled(line)
    return notes.reading({"ports": ports})


def _new(ca: str, number: int) -> Dict[str, Any]:
    port: Dict[str, Any] = dict.fromkeys(("gid", "lid", "sm_lid", "rate", "lanes", "speed"))
    port.update(ca=ca, port=number, state="unknown", physical_state="unknown", link_layer="unknown")
    return port


def _take(port: Dict[str, Any], label: str, value: str) -> None:
    if not value or value == "unknown":
        return
    if label == "state":
        port["state"] = rdma_devices.parse_state(value)[:100]
    elif label == "phys state":
        port["physical_state"] = rdma_devices.parse_physical_state(value)[:100]
    elif label == "rate":
        port["rate"] = rdma_devices.parse_rate(value)
        link = _LINK.search(value)
        if link:
            port["lanes"], port["speed"] = int(link.group(1)), link.group(2)
    elif label in ("base lid", "sm lid"):
        port["lid" if label == "base lid" else "sm_lid"] = values.integer(value)
    else:
        port["gid" if label == "default gid" else "link_layer"] = value[:100]


FORMATS = [
    Format(
        "ibstatus", "ibstatus: state, rate and LIDs of InfiniBand and RoCE ports", (), {"rate": "Gb/s"}, likely, parse
    )
]
