"""``ibstat``: the InfiniBand and RoCE ports of a node, with ``-l``, ``-p`` or one port alone as well."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values as ibwords

_CA = re.compile(r"(CA|Switch|Router|iWARP RNIC|\?\?\?):? '([^']{1,64})'")
_PORT = re.compile(r"Port ([0-9]{1,4}):", re.ASCII)
_FIELD = re.compile(r"([A-Za-z][A-Za-z ]{1,40}?):\s*(.*)")
_RATE = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,6})?(?=\s|$)", re.ASCII)
_GUID_LINE = re.compile(r"0x[0-9a-fA-F]{16}")
_NAME_LINE = re.compile(r"[A-Za-z][\w.-]{0,63}", re.ASCII)

CA_FIELDS = {
    "CA type": "type",
    "Firmware version": "firmware",
    "Hardware version": "hardware",
    "Node GUID": "node_guid",
    "System image GUID": "system_guid",
}
PORT_FIELDS = {
    "State": "state",
    "Physical state": "physical_state",
    "Rate": "rate",
    "Base lid": "lid",
    "SM lid": "sm_lid",
    "Capability mask": "capability_mask",
    "Port GUID": "guid",
    "Link layer": "link_layer",
}


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``ibstat``."""
    if re.search(r"^(CA|Switch|Router|iWARP RNIC):? '[^'\n]+'", text, re.MULTILINE):
        return 0.95
    if re.search(r"^[ \t]*(Physical state|Base lid|SM lid): ", text, re.MULTILINE):
        return 0.6
    return 0.3 if "main: " in text and "IB device" in text else 0.0


def parse(text: str) -> Reading:
    """Return the devices and ports that ``ibstat`` printed.

    ``{"cas": [{"ca", "type", "firmware", "hardware", "node_guid", "system_guid", "ports": [{"port", "state",
    "physical_state", "rate", "lid", "sm_lid", "capability_mask", "guid", "link_layer"}]}]}``; ``names`` and
    ``port_guids`` where it listed those alone. Missing values are None, or ``unknown`` for states and the
    link layer: a cut text never reads as a rate of 0.
    """
    cas: List[Dict[str, Any]] = []
    plain: List[str] = []
    notes = Notes()
    port: Optional[Dict[str, Any]] = None
    for line in ibwords.lines(text):
        line = line.strip()
        named = _CA.fullmatch(line)
        numbered = _PORT.fullmatch(line)
        if named:
            cas.append(_new_ca(named.group(2)))
            port = None
        elif numbered and cas:
            port = _new_port(int(numbered.group(1)))
            cas[-1]["ports"].append(port)
        elif not _take(line, cas, port):
            if ibwords.complaint(line):
                notes.warn(line)
            elif not cas and (_GUID_LINE.fullmatch(line) or _NAME_LINE.fullmatch(line)):
                plain.append(line)
            elif line.strip("."):
                notes.puzzled(line)
    values: Dict[str, Any] = {"cas": cas}
    if plain:
        values["port_guids"] = [word for word in plain if word.startswith("0x")]
        values["names"] = [word for word in plain if not word.startswith("0x")]
    return notes.reading(values)


def _new_ca(name: str) -> Dict[str, Any]:
    ca: Dict[str, Any] = dict.fromkeys(CA_FIELDS.values())
    ca.update(ca=name, ports=[])
    return ca


def _new_port(number: int) -> Dict[str, Any]:
    port: Dict[str, Any] = dict.fromkeys(PORT_FIELDS.values())
    port.update(port=number, state="unknown", physical_state="unknown", link_layer="unknown")
    return port


def _take(line: str, cas: List[Dict[str, Any]], port: Optional[Dict[str, Any]]) -> bool:
    """Put a line's value where it belongs; return False if the line is not a field of ours."""
    found = _FIELD.fullmatch(line)
    if not found or not cas:
        return False
    label, value = found.group(1), found.group(2).strip()
    if label in ("Number of ports", "LMC"):
        return True
    if port is None:
        label = "CA type" if label in ("Switch type", "Router type", "iWARP RNIC type") else label
        if label in CA_FIELDS:
            cas[-1][CA_FIELDS[label]] = _value(value)
        return label in CA_FIELDS
    if label == "Effective speed":
        port["effective_rate"] = ibwords.decimal(value)
        return True
    if label not in PORT_FIELDS:
        return False
    name = PORT_FIELDS[label]
    if name in ("lid", "sm_lid"):
        port[name] = ibwords.integer(value)
    elif name == "rate":
        number = _RATE.match(value)
        port[name] = float(number.group()) if number else None
    elif _value(value) is not None and value != "???":
        port[name] = value[:100]
    return True


def _value(value: str) -> Optional[str]:
    # People who share such output blank GUIDs with dots; sysfs has empty files.
    return value[:100] if value.strip(".") else None


FORMATS = [
    Format(
        "ibstat",
        "ibstat: state, rate and LIDs of InfiniBand and RoCE ports",
        ("ibstat",),
        {"rate": "Gb/s", "effective_rate": "Gb/s"},
        likely,
        parse,
    )
]
