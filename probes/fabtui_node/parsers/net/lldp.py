"""LLDP: outputs of ``lldpctl`` (text, ``-f json``, ``-f json0``), and the frames that systemd-networkd keeps.

The grammar is the one of lldpd's writers (``src/client/display.c``, ``json_writer.c``, ``text_writer.c``): JSON leaves
out arrays of one element, and turns a name into the key of an object. Frames: IEEE 802.1AB.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Dict, Iterator, List, Optional, Tuple

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_value

_MOST = 512
_WIDTH = 128
_INTERFACE = re.compile(r"Interface:\s+(\S{1,64}), via: (\S{1,16})(?:, RID: [0-9]+)?(?:, Time: .*)?", re.ASCII)
_PAIR = re.compile(r"\s+([A-Za-z][\w /&.-]{0,40}):\s*(.*)", re.ASCII)
_IDENTIFIER = re.compile(r"(mac|local|ifname|ifalias|ip|ipv4|ipv6|unhandled|chassis-component|port-component) (\S.*)")
_CAPABILITY = re.compile(r"(Bridge|Router), (on|off)")

#: Subtypes of the identifiers of chassis and ports.
_CHASSIS = {2: "ifalias", 4: "mac", 5: "ip", 6: "ifname", 7: "local"}
_PORT = {1: "ifalias", 3: "mac", 4: "ip", 5: "ifname", 7: "local"}
_LLDP_TYPE = b"\x88\xcc"
_SWITCHING = 0x04 | 0x10

Neighbour = Dict[str, Any]


def _neighbour(interface: str) -> Neighbour:
    names = ("chassis", "chassis_type", "system", "port", "port_type", "port_description", "switch")
    return {"interface": interface[:_WIDTH], **dict.fromkeys(names)}


def parse(text: str) -> Reading:
    """Return ``{"neighbours": [...]}``; unknown values are None.

    - ``interface``: the interface of the node.
    - ``chassis``, ``chassis_type``, ``system``: identifier of the switch, its kind (``mac``, ``local``, ``ip``), name.
    - ``port``, ``port_type``, ``port_description``: the port of the switch.
    - ``switch``: whether it forwards as a bridge or a router.
    """
    notes = Notes()
    begin = text.find("{")
    if begin >= 0 and not text[:begin].strip().startswith(("Interface", "-")):
        value = json_value(text[begin:])
        if not isinstance(value, dict):
            notes.warn("the JSON is cut off or damaged")
        return notes.reading({"neighbours": list(_of_json(value))[:_MOST]})
    return notes.reading({"neighbours": _of_text(text, notes)[:_MOST]})


def _of_text(text: str, notes: Notes) -> List[Neighbour]:
    neighbours: List[Neighbour] = []
    for line in text.splitlines():
        if begin := _INTERFACE.search(line):
            neighbours.append(_neighbour(begin[1]))
            continue
        pair = _PAIR.match(line)
        if pair is None or not neighbours:
            if line.strip(" -") and "LLDP neighbors" not in line and not line.startswith(("  ", "#")):
                notes.puzzled(line)
            continue
        _take(neighbours[-1], pair[1], pair[2].strip())
    return neighbours


def _take(one: Neighbour, name: str, value: str) -> None:
    identifier = _IDENTIFIER.fullmatch(value)
    if name in ("ChassisID", "PortID") and identifier:
        what = "chassis" if name == "ChassisID" else "port"
        one[what + "_type"], one[what] = identifier[1], identifier[2][:_WIDTH]
    elif name in ("SysName", "PortDescr") and value:
        one["system" if name == "SysName" else "port_description"] = value[:_WIDTH]
    elif name == "Capability" and (match := _CAPABILITY.fullmatch(value)):
        one["switch"] = bool(one["switch"]) or match[2] == "on"


def _items(value: Any) -> List[Dict[str, Any]]:
    """Return the objects of a value that may be a list of them, or one without its list."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


def _text(value: Any) -> Optional[str]:
    """Return a text, which ``json0`` has in an object within a list."""
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, dict):
        value = value.get("value")
    return value[:_WIDTH] if isinstance(value, str) and value else None


def _of_json(value: Any) -> Iterator[Neighbour]:
    for lldp in _items(value.get("lldp") if isinstance(value, dict) else None):
        for entry in _items(lldp.get("interface")):
            named = [(_text(entry["name"]), entry)] if "name" in entry else list(entry.items())
            for name, inner in named:
                for one in _items(inner):
                    if isinstance(name, str) and ("chassis" in one or "port" in one):
                        yield _of_interface(name, one)


def _of_interface(name: str, value: Dict[str, Any]) -> Neighbour:
    neighbour = _neighbour(name)
    for chassis in _items(value.get("chassis"))[:1]:
        # With a name, the chassis is an object in an object.
        if "id" not in chassis and len(chassis) == 1:
            ((system, inner),) = chassis.items()
            neighbour["system"], chassis = system[:_WIDTH], (_items(inner) or [{}])[0]
        neighbour["system"] = _text(chassis.get("name")) or neighbour["system"]
        neighbour["chassis_type"], neighbour["chassis"] = _identifier(chassis)
        flags = [
            one.get("enabled") is True
            for one in _items(chassis.get("capability"))
            if one.get("type") in ("Bridge", "Router")
        ]
        neighbour["switch"] = any(flags) if _items(chassis.get("capability")) else None
    for port in _items(value.get("port"))[:1]:
        neighbour["port_type"], neighbour["port"] = _identifier(port)
        neighbour["port_description"] = _text(port.get("descr"))
    return neighbour


def _identifier(value: Dict[str, Any]) -> Tuple[Optional[str], Optional[str]]:
    one = (_items(value.get("id")) or [{}])[0]
    return _text(one.get("type")), _text(one.get("value"))


def parse_frames(data: bytes, interface: str) -> List[Neighbour]:
    """Return the neighbours of an interface from a file of systemd-networkd.

    The file has frames, each behind its length: 8 bytes, little-endian.
    """
    neighbours: List[Neighbour] = []
    at = 0
    while at + 8 <= len(data) and len(neighbours) < _MOST:
        (length,) = struct.unpack_from("<Q", data, at)
        frame = data[at + 8 : at + 8 + min(length, len(data))]
        at += 8 + length
        one = _of_frame(frame, interface) if len(frame) == length else None
        if one is not None:
            neighbours.append(one)
    return neighbours


def _of_frame(frame: bytes, interface: str) -> Optional[Neighbour]:
    if frame[12:14] != _LLDP_TYPE:
        return None
    found, at = _neighbour(interface), 14
    while at + 2 <= len(frame):
        (head,) = struct.unpack_from(">H", frame, at)
        kind, value = head >> 9, frame[at + 2 : at + 2 + (head & 0x1FF)]
        at += 2 + (head & 0x1FF)
        if kind == 0 or len(value) < head & 0x1FF:
            break
        if kind in (1, 2) and value:
            name, kinds = ("chassis", _CHASSIS) if kind == 1 else ("port", _PORT)
            found[name + "_type"] = kinds.get(value[0])
            found[name] = _shown(kinds.get(value[0]), value[1:])
        elif kind in (4, 5):
            found["port_description" if kind == 4 else "system"] = _shown("local", value)
        elif kind == 7 and len(value) == 4:
            found["switch"] = bool(struct.unpack(">HH", value)[1] & _SWITCHING)
    return found if found["chassis"] and found["port"] else None


def _shown(kind: Optional[str], value: bytes) -> Optional[str]:
    if kind == "mac" and len(value) == 6:
        return ":".join("%02x" % byte for byte in value)
    if kind == "ip" or kind == "mac" or kind is None:
        return value[:32].hex() or None
    return value[:_WIDTH].decode("utf-8", "replace").strip() or None


FORMATS = [
    Format(
        "lldpctl",
        "neighbours by LLDP: lldpctl, lldpctl -f json",
        first_of(
            (0.9, r"^LLDP neighbors:"),
            (0.9, r"^Interface:\s+\S{1,64}, via: (?:LLDP|CDPv|EDP|FDP|SONMP)"),
            (0.85, r'"lldp": ?[\[{]\s*(?:\{\s*)?"interface": ?[\[{]'),
            (0.7, r"^ +ChassisID:\s+(?:mac|local|ip|ifname) "),
        ),
        parse,
    )
]
