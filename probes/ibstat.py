"""InfiniBand and RoCE ports: ``ibstat`` where the node has it and it finds something, sysfs otherwise."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_probes import commands, rdma, sysfs

_RAW_LIMIT = 64 * 1024
_MAX_ERRORS = 20

_CA = re.compile(r"CA '([^']{1,64})'")
_PORT = re.compile(r"Port ([0-9]{1,4}):", re.ASCII)
_FIELD = re.compile(r"([A-Za-z][A-Za-z ]{1,40}?):\s*(.*)")
_ERROR = re.compile(r"ibpanic:|ibwarn:|fatal error|failed|can't|cannot|no such|permission denied", re.IGNORECASE)

_CA_FIELDS = {
    "CA type": "type",
    "Firmware version": "firmware",
    "Hardware version": "hardware",
    "Node GUID": "node_guid",
    "System image GUID": "system_guid",
}
_PORT_FIELDS = {
    "State": "state",
    "Physical state": "physical_state",
    "Rate": "rate",
    "Base lid": "lid",
    "SM lid": "sm_lid",
    "Capability mask": "capability_mask",
    "Port GUID": "guid",
    "Link layer": "link_layer",
}


def parse_ibstat(text: str) -> Dict[str, Any]:
    """Return ``{"cas": [...], "errors": [...]}`` from what ``ibstat`` printed.

    What the text does not say is None, or ``unknown`` for states and the link layer: a cut text never reads as a rate
    of 0. Lines in which the tool complains are in ``errors``; devices printed before them are kept.
    """
    cas: List[Dict[str, Any]] = []
    errors: List[str] = []
    port: Optional[Dict[str, Any]] = None
    for line in text.splitlines():
        line = line.strip()
        named = _CA.fullmatch(line)
        numbered = _PORT.fullmatch(line)
        if named:
            cas.append(_new_ca(named.group(1)))
            port = None
        elif numbered and cas:
            port = _new_port(int(numbered.group(1)))
            cas[-1]["ports"].append(port)
        elif not _take(line, cas, port) and _ERROR.search(line) and len(errors) < _MAX_ERRORS:
            errors.append(line[:500])
    return {"cas": cas, "errors": errors}


def _new_ca(name: str) -> Dict[str, Any]:
    ca: Dict[str, Any] = dict.fromkeys(_CA_FIELDS.values())
    ca.update(ca=name, ports=[])
    return ca


def _new_port(number: int) -> Dict[str, Any]:
    port: Dict[str, Any] = dict.fromkeys(_PORT_FIELDS.values())
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
    if label in _CA_FIELDS and port is None:
        cas[-1][_CA_FIELDS[label]] = _said(value)
        return True
    if label not in _PORT_FIELDS or port is None:
        return False
    name = _PORT_FIELDS[label]
    if name in ("lid", "sm_lid"):
        port[name] = sysfs.to_integer(value)
    elif name == "rate":
        number = re.match(r"[0-9]{1,7}(?:\.[0-9]{1,6})?(?=\s|$)", value, re.ASCII)
        port[name] = float(number.group()) if number else None
    elif _said(value) is not None:
        port[name] = value[:100]
    return True


def _said(value: str) -> Optional[str]:
    # People who share such output blank GUIDs with dots; sysfs has empty files.
    return value[:100] if value.strip(".") else None


def from_sysfs(root: str = "/sys") -> List[Dict[str, Any]]:
    """Return the devices in the form of ``parse_ibstat``, read from sysfs."""
    cas = []
    for device in rdma.devices(root):
        ca = {key: device[key] for key in ("ca", *_CA_FIELDS.values())}
        ca["ports"] = [{key: port[key] for key in ("port", *_PORT_FIELDS.values())} for port in device["ports"]]
        cas.append(ca)
    return cas


def run(args: Dict[str, Any], emit: Any, deadline: float, root: str = "/sys") -> Dict[str, Any]:
    """Look at the ports.

    Returns:
        ``{"source": "ibstat"|"sysfs"|"none", "cas": [{"ca", "type", "firmware", "hardware", "node_guid",
        "system_guid", "ports": [{"port", "state", "physical_state", "rate" (Gb/s, as printed), "lid", "sm_lid",
        "link_layer", "guid", "capability_mask"}]}], "raw": str, "error": str or None}``. ``none`` with no error means
        that the node has no such device.
    """
    result = commands.run(["ibstat"], min(deadline * 0.8, 10.0))
    raw = "" if result.missing else (result.stdout + "\n" + result.stderr).strip()
    parsed = parse_ibstat(raw)
    error = "; ".join(parsed["errors"]) or (None if result.missing else result.why())
    raw = raw[:_RAW_LIMIT]
    if parsed["cas"]:
        return {"source": "ibstat", "cas": parsed["cas"], "raw": raw, "error": error}
    cas = from_sysfs(root)
    if cas:
        return {"source": "sysfs", "cas": cas, "raw": raw, "error": error}
    return {"source": "none", "cas": [], "raw": raw, "error": error}
