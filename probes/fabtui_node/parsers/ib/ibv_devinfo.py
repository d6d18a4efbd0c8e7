"""``ibv_devinfo``, short, with ``-v`` and with ``-l``: devices and ports as verbs programs see them."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values

_DEVICE = re.compile(r"hca_id:\s*(\S{1,64})")
_PORT = re.compile(r"\s*port:\s*([0-9]{1,4})\s*", re.ASCII)
_FIELD = re.compile(r"\s*([A-Za-z][\w ]{0,40}?):\s*(.*)", re.ASCII)
_GID = re.compile(r"\s*GID\[\s*([0-9]{1,4})\]:\s*([0-9a-fA-F:.]{2,45})(?:, (.*))?", re.ASCII)
#: What the tool of MLNX_OFED prints without a colon.
_OTHER = re.compile(r"\s+([a-z][\w ()]{0,60}?)(?:\t+| {2,}| *= *)(0x[0-9a-fA-F]{1,16}|[0-9]{1,20})\s*", re.ASCII)
_CODED = re.compile(r"(.*?)\s*\(([0-9]{1,4})\)", re.ASCII)
_FOUND = re.compile(r"([0-9]{1,4}) HCAs? found:", re.ASCII)

_DEVICE_FIELDS = {
    "transport": "transport",
    "fw_ver": "firmware",
    "node_guid": "node_guid",
    "sys_image_guid": "system_guid",
    "vendor_id": "vendor",
    "vendor_part_id": "part",
    "hw_ver": "hardware",
    "board_id": "board",
    "phys_port_cnt": "port_count",
}
_STATES = {"PORT_DOWN": "Down", "PORT_INIT": "Initializing", "PORT_ARMED": "Armed", "PORT_ACTIVE": "Active"}


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``ibv_devinfo``."""
    if re.search(r"^hca_id:\s*\S", text, re.MULTILINE):
        return 0.97
    if re.search(r"^[ \t]*(active_mtu|port_lid|phys_port_cnt):", text, re.MULTILINE):
        return 0.7
    return 0.4 if _FOUND.search(text) or "IB devices" in text else 0.0


def likely_devices(text: str) -> float:
    """Return the likelihood that a text is output of ``ibv_devices``."""
    return 0.95 if re.match(r"\s*device\s+node GUID\s", text) else 0.0


def parse(text: str) -> Reading:
    """Return ``{"devices": [{"ca", "transport", "firmware", ..., "attributes", "ports": [...]}]}``.

    Each port: ``port``, ``state`` (ibstat's words), ``max_mtu`` and ``active_mtu`` (bytes), ``sm_lid``, ``lid``,
    ``lmc``, ``link_layer``, ``lanes``, ``lane_rate`` (Gb/s), ``physical_state``, ``gids`` and ``attributes`` (what
    else ``-v`` prints, as text). A device that ``-l`` names has ``ports`` None.
    """
    devices: List[Dict[str, Any]] = []
    notes = Notes()
    port: Optional[Dict[str, Any]] = None
    listed = False
    # Flags stand on lines of their own below the field they belong to; so do sub-fields of some capabilities.
    for line in values.lines(text):
        device = _DEVICE.match(line.strip())
        numbered = _PORT.fullmatch(line)
        if device:
            devices.append(_new_device(device.group(1)))
            port = None
        elif _FOUND.match(line.strip()):
            listed = True
        elif listed and not _open(devices) and re.fullmatch(r"\s+[\w.-]{1,64}\s*", line, re.ASCII):
            devices.append({"ca": line.strip(), "ports": None})
        elif numbered and _open(devices):
            port = _new_port(int(numbered.group(1)))
            devices[-1]["ports"].append(port)
        elif values.complaint(line):
            notes.warn(line)
        elif not _open(devices) or not _take(line, devices[-1], port):
            notes.puzzled(line)
    return notes.reading({"devices": devices})


def parse_devices(text: str) -> Reading:
    """Return ``{"devices": [{"ca", "node_guid"}]}`` of ``ibv_devices``."""
    notes = Notes()
    devices: List[Dict[str, Any]] = []
    for line in values.lines(text):
        row = re.fullmatch(r"\s*([\w.-]{1,64})\s+([0-9a-fA-F]{16})\s*", line, re.ASCII)
        if row:
            devices.append({"ca": row.group(1), "node_guid": values.guid(row.group(2))})
        elif values.complaint(line):
            notes.warn(line)
        elif not re.match(r"\s*(device\s+node GUID|-+\s+-+)", line):
            notes.puzzled(line)
    return notes.reading({"devices": devices})


def _open(devices: List[Dict[str, Any]]) -> bool:
    """Return whether there is a device whose fields may follow."""
    return bool(devices) and devices[-1]["ports"] is not None


def _new_device(name: str) -> Dict[str, Any]:
    device: Dict[str, Any] = dict.fromkeys(_DEVICE_FIELDS.values())
    device.update(ca=name, attributes={}, ports=[])
    return device


def _new_port(number: int) -> Dict[str, Any]:
    names = ("max_mtu", "active_mtu", "sm_lid", "lid", "lmc", "lanes", "lane_rate")
    port: Dict[str, Any] = dict.fromkeys(names)
    port.update(port=number, state="unknown", physical_state="unknown", link_layer="unknown", gids=[], attributes={})
    return port


def _take(line: str, device: Dict[str, Any], port: Optional[Dict[str, Any]]) -> bool:
    gid = _GID.fullmatch(line)
    if gid and port is not None:
        port["gids"].append(
            {"index": int(gid.group(1)), "gid": gid.group(2), "type": (gid.group(3) or "").strip() or None}
        )
        return True
    found = _FIELD.fullmatch(line)
    if not found:
        other = _OTHER.fullmatch(line)
        if other and port is None:
            device["attributes"][other.group(1)] = other.group(2)[:100]
        # Else a flag, or a remark such as "core clock not supported": of devices there are many.
        return line[:1].isspace() and (port is None or bool(re.fullmatch(r"\s+[A-Z][A-Z0-9_ ]+", line, re.ASCII)))
    label, value = found.group(1), found.group(2).strip()
    if port is not None:
        _take_port(port, label, value)
    elif label in _DEVICE_FIELDS:
        name = _DEVICE_FIELDS[label]
        if name in ("part", "port_count"):
            device[name] = values.digits(value)
        elif name in ("node_guid", "system_guid"):
            device[name] = values.guid(value)
        else:
            device[name] = _word(value) or None
    elif label != "Device ports" and value:
        device["attributes"][label] = value[:100]
    return True


def _take_port(port: Dict[str, Any], label: str, value: str) -> None:
    if label == "state":
        port["state"] = _STATES.get(_word(value), _word(value)) or "unknown"
    elif label in ("max_mtu", "active_mtu"):
        port[label] = values.digits(_word(value))
    elif label in ("sm_lid", "port_lid", "port_lmc"):
        port[label.replace("port_", "")] = values.integer(value)
    elif label == "link_layer":
        port["link_layer"] = value[:100] or "unknown"
    elif label == "active_width":
        port["lanes"] = values.lanes(_word(value))
    elif label == "active_speed":
        port["lane_rate"] = values.gbps(_word(value))
    elif label == "phys_state":
        port["physical_state"] = _physical(_word(value))
    elif value:
        port["attributes"][label] = value[:100]


def _word(value: str) -> str:
    """Return a value without the number of it in brackets."""
    found = _CODED.fullmatch(value)
    return (found.group(1) if found else value)[:100]


def _physical(word: str) -> str:
    words = {"LINK_UP": "LinkUp", "POLLING": "Polling", "DISABLED": "Disabled", "SLEEP": "Sleep"}
    return words.get(word, word) or "unknown"


FORMATS = [
    Format(
        "ibv_devinfo",
        "ibv_devinfo: devices and ports of verbs, with the active MTU",
        ("ibv_devinfo",),
        {"max_mtu": "B", "active_mtu": "B", "lane_rate": "Gb/s"},
        likely,
        parse,
    ),
    Format("ibv_devices", "ibv_devices: the devices of verbs", (), {}, likely_devices, parse_devices),
]
