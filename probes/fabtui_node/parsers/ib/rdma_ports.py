"""The RDMA ports of a node: ``ibstat``, ``ibstatus``, ``ibv_devinfo``, ``rdma link`` and ``show_gids``."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.ib import values as ibwords
from fabtui_node.parsers.lines import json_value, number
from fabtui_node.system import rdma_devices

_UNKNOWN = {"state": "unknown", "physical_state": "unknown", "link_layer": "unknown"}

# ibstat, with -l, -p or one port alone as well.
_CA = re.compile(r"(CA|Switch|Router|iWARP RNIC|\?\?\?):? '([^']{1,64})'")
_PORT = re.compile(r"Port ([0-9]{1,4}):", re.ASCII)
_FIELD = re.compile(r"([A-Za-z][A-Za-z ]{1,40}?):\s*(.*)")
_RATE = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,6})?(?=\s|$)", re.ASCII)
_GUID_LINE = re.compile(r"0x[0-9a-fA-F]{16}")
_NAME_LINE = re.compile(r"[A-Za-z][\w.-]{0,63}", re.ASCII)
CA_FIELDS = {
    "CA type": "type", "Firmware version": "firmware", "Hardware version": "hardware", "Node GUID": "node_guid",
    "System image GUID": "system_guid",
}  # fmt: skip
PORT_FIELDS = {
    "State": "state", "Physical state": "physical_state", "Rate": "rate", "Base lid": "lid", "SM lid": "sm_lid",
    "Capability mask": "capability_mask", "Port GUID": "guid", "Link layer": "link_layer",
}  # fmt: skip

# ibstatus: the same from sysfs.
_STATUS_PORT = re.compile(r"Infiniband device '([^']{1,64})' port ([0-9]{1,4}) status:", re.ASCII)
_STATUS_FIELD = re.compile(r"\s*(default gid|base lid|sm lid|state|phys state|rate|link_layer):\s*(.*)")
_STATUS_LINK = re.compile(r"\((1|2|4|8|12)X(?: ([A-Z]{3}[0-9]{0,2}))?\)")

# ibv_devinfo, short, with -v and with -l: devices and ports as verbs programs see them.
_DEVICE = re.compile(r"hca_id:\s*(\S{1,64})")
_VERBS_PORT = re.compile(r"\s*port:\s*([0-9]{1,4})\s*", re.ASCII)
_VERBS_FIELD = re.compile(r"\s*([A-Za-z][\w ]{0,40}?):\s*(.*)", re.ASCII)
_GID = re.compile(r"\s*GID\[\s*([0-9]{1,4})\]:\s*([0-9a-fA-F:.]{2,45})(?:, (.*))?", re.ASCII)
#: What the tool of MLNX_OFED prints without a colon.
_OTHER = re.compile(r"\s+([a-z][\w ()]{0,60}?)(?:\t+| {2,}| *= *)(0x[0-9a-fA-F]{1,16}|[0-9]{1,20})\s*", re.ASCII)
_CODED = re.compile(r"(.*?)(?<!\s)\s*\(([0-9]{1,4})\)", re.ASCII)
_FOUND = re.compile(r"([0-9]{1,4}) HCAs? found:", re.ASCII)
_VERBS_DEVICE = {
    "transport": "transport", "fw_ver": "firmware", "node_guid": "node_guid", "sys_image_guid": "system_guid",
    "vendor_id": "vendor", "vendor_part_id": "part", "hw_ver": "hardware", "board_id": "board",
    "phys_port_cnt": "port_count",
}  # fmt: skip
_VERBS_PORT_NAMES = ("max_mtu", "active_mtu", "sm_lid", "lid", "lmc", "lanes", "lane_rate")
_VERBS_STATES = {"PORT_DOWN": "Down", "PORT_INIT": "Initializing", "PORT_ARMED": "Armed", "PORT_ACTIVE": "Active"}

# rdma link: ports with their network interfaces, in the old, detailed and JSON forms of iproute2 too.
_LINK = re.compile(
    r"\s*(?:#\s*)?(?:link\s+|[0-9]{1,6}/[0-9]{1,6}:\s+)([\w.-]{1,64})/([0-9]{1,6}|-):?(?:\s+(.*))?", re.ASCII
)
_LINK_KEYS = ("state", "physical_state", "netdev", "netdev_index", "lid", "sm_lid", "lmc", "subnet_prefix")
_LINK_NUMBERS = ("netdev_index", "lid", "sm_lid", "lmc")
_LINK_STATES = {
    "UNKNOWN": "unknown", "ACTIVE": "Active", "DOWN": "Down", "INIT": "Initializing", "ARMED": "Armed",
    "ACTIVE_DEFER": "Active Deferred",
}  # fmt: skip

# show_gids: the GID table of all ports.
_GID_ROW = re.compile(
    r"\s*([\w.-]{1,64})\s+([0-9]{1,4})\s+([0-9]{1,5})\s+((?:[0-9a-fA-FxX*]{4}:){7}[0-9a-fA-FxX*]{4})"
    r"(?:\s+([0-9]{1,3}(?:\.[0-9]{1,3}){3}))?(?:\s+[vV]([0-9.]{1,3}))?(?:\s+(\S{1,64}))?\s*",
    re.ASCII,
)
_GID_TITLE = re.compile(r"\s*(DEV\s+PORT\s+INDEX|---\s+----)")
_GID_COUNT = re.compile(r"\s*n_gids_found=([0-9]{1,9})\s*", re.ASCII)


def parse_ibstat(text: str) -> Reading:
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
    for line in map(str.strip, ibwords.lines(text)):
        named, numbered = _CA.fullmatch(line), _PORT.fullmatch(line)
        if named:
            cas.append({**dict.fromkeys(CA_FIELDS.values()), "ca": named[2], "ports": []})
            port = None
        elif numbered and cas:
            port = {**dict.fromkeys(PORT_FIELDS.values()), "port": int(numbered[1]), **_UNKNOWN}
            cas[-1]["ports"].append(port)
        elif not _ibstat_field(line, cas, port):
            if not cas and not ibwords.complaint(line) and (_GUID_LINE.fullmatch(line) or _NAME_LINE.fullmatch(line)):
                plain.append(line)
            elif line.strip("."):
                ibwords.leftover(line, notes)
    values: Dict[str, Any] = {"cas": cas}
    if plain:
        values["port_guids"] = [word for word in plain if word.startswith("0x")]
        values["names"] = [word for word in plain if not word.startswith("0x")]
    return notes.reading(values)


def _ibstat_field(line: str, cas: List[Dict[str, Any]], port: Optional[Dict[str, Any]]) -> bool:
    """Put a line's value where it belongs; return False if the line is not a field of ours."""
    match = _FIELD.fullmatch(line)
    if not match or not cas:
        return False
    label, value = match[1], match[2].strip()
    # People who share such output blank GUIDs with dots; sysfs has empty files.
    word = value[:100] if value.strip(".") else None
    if label in ("Number of ports", "LMC"):
        return True
    if port is None:
        label = "CA type" if label in ("Switch type", "Router type", "iWARP RNIC type") else label
        if label in CA_FIELDS:
            cas[-1][CA_FIELDS[label]] = word
        return label in CA_FIELDS
    if label == "Effective speed":
        port["effective_rate"] = number(value)
        return True
    name = PORT_FIELDS.get(label)
    if name in ("lid", "sm_lid"):
        port[name] = ibwords.integer(value)
    elif name == "rate":
        rate = _RATE.match(value)
        port[name] = float(rate[0]) if rate else None
    elif name and word is not None and value != "???":
        port[name] = word
    return name is not None


def parse_ibstatus(text: str) -> Reading:
    """Return the ports; None, or ``unknown`` for words, where the tool could not read the value or the text is cut.

    ``{"ports": [{"ca", "port", "gid", "lid", "sm_lid", "state", "physical_state", "rate" (Gb/s), "lanes", "speed",
    "link_layer"}]}``.
    """
    ports: List[Dict[str, Any]] = []
    notes = Notes()
    for line in ibwords.lines(text):
        named, field = _STATUS_PORT.match(line.strip()), _STATUS_FIELD.fullmatch(line)
        if named:
            port: Dict[str, Any] = dict.fromkeys(("gid", "lid", "sm_lid", "rate", "lanes", "speed"))
            ports.append({**port, "ca": named[1], "port": int(named[2]), **_UNKNOWN})
        elif field and ports:
            _status_field(ports[-1], field[1], field[2].strip())
        else:
            ibwords.leftover(line, notes)
    return notes.reading({"ports": ports})


def _status_field(port: Dict[str, Any], label: str, value: str) -> None:
    if not value or value == "unknown":
        return
    if label == "state":
        port["state"] = rdma_devices.parse_state(value)[:100]
    elif label == "phys state":
        port["physical_state"] = rdma_devices.parse_state(value, rdma_devices.PHYSICAL_STATES)[:100]
    elif label == "rate":
        port["rate"] = rdma_devices.parse_rate(value)
        if link := _STATUS_LINK.search(value):
            port["lanes"], port["speed"] = int(link[1]), link[2]
    elif label in ("base lid", "sm lid"):
        port["lid" if label == "base lid" else "sm_lid"] = ibwords.integer(value)
    else:
        port["gid" if label == "default gid" else "link_layer"] = value[:100]


def parse_devinfo(text: str) -> Reading:
    """Return ``{"devices": [{"ca", "transport", "firmware", ..., "attributes", "ports": [...]}]}``.

    Each port: ``port``, ``state`` (ibstat's words), ``max_mtu`` and ``active_mtu`` (bytes), ``sm_lid``, ``lid``,
    ``lmc``, ``link_layer``, ``lanes``, ``lane_rate`` (Gb/s), ``physical_state``, ``gids`` and ``attributes`` (what
    else ``-v`` prints, as text). A device that ``-l`` names has ``ports`` None.
    """
    devices: List[Dict[str, Any]] = []
    notes = Notes()
    port: Optional[Dict[str, Any]] = None
    listed = False
    # Flags are on lines of their own below the field they belong to; so do sub-fields of some capabilities.
    for line in ibwords.lines(text):
        device, numbered = _DEVICE.match(line.strip()), _VERBS_PORT.fullmatch(line)
        # Fields may follow of the last device unless it was only listed.
        within = bool(devices) and devices[-1]["ports"] is not None
        if device:
            devices.append({**dict.fromkeys(_VERBS_DEVICE.values()), "ca": device[1], "attributes": {}, "ports": []})
            port = None
        elif _FOUND.match(line.strip()):
            listed = True
        elif listed and not within and re.fullmatch(r"\s+[\w.-]{1,64}\s*", line, re.ASCII):
            devices.append({"ca": line.strip(), "ports": None})
        elif numbered and within:
            port = {**dict.fromkeys(_VERBS_PORT_NAMES), "port": int(numbered[1]), **_UNKNOWN}
            port.update(gids=[], attributes={})
            devices[-1]["ports"].append(port)
        elif ibwords.complaint(line) or not within or not _verbs_field(line, devices[-1], port):
            ibwords.leftover(line, notes)
    return notes.reading({"devices": devices})


def _verbs_field(line: str, device: Dict[str, Any], port: Optional[Dict[str, Any]]) -> bool:
    gid, found = _GID.fullmatch(line), _VERBS_FIELD.fullmatch(line)
    if gid and port is not None:
        port["gids"].append({"index": int(gid[1]), "gid": gid[2], "type": (gid[3] or "").strip() or None})
        return True
    if not found:
        other = _OTHER.fullmatch(line)
        if other and port is None:
            device["attributes"][other[1]] = other[2][:100]
        # Else a flag, or a remark such as "core clock not supported": of devices there are many.
        return line[:1].isspace() and (port is None or bool(re.fullmatch(r"\s+[A-Z][A-Z0-9_ ]+", line, re.ASCII)))
    label, value = found[1], found[2].strip()
    coded = _CODED.fullmatch(value)
    # A value without the number of it in brackets.
    word = (coded[1] if coded else value)[:100]
    if port is not None:
        _verbs_port_field(port, label, value, word)
    elif label in _VERBS_DEVICE:
        name = _VERBS_DEVICE[label]
        if name in ("part", "port_count"):
            device[name] = ibwords.digits(value)
        else:
            device[name] = ibwords.guid(value) if name in ("node_guid", "system_guid") else word or None
    elif label != "Device ports" and value:
        device["attributes"][label] = value[:100]
    return True


def _verbs_port_field(port: Dict[str, Any], label: str, value: str, word: str) -> None:
    if label == "state":
        port["state"] = _VERBS_STATES.get(word.upper(), word) or "unknown"
    elif label in ("max_mtu", "active_mtu"):
        port[label] = ibwords.digits(word)
    elif label in ("sm_lid", "port_lid", "port_lmc"):
        port[label.replace("port_", "")] = ibwords.integer(value)
    elif label == "link_layer":
        port["link_layer"] = value[:100] or "unknown"
    elif label == "active_width":
        port["lanes"] = ibwords.lanes(word)
    elif label == "active_speed":
        port["lane_rate"] = ibwords.gbps(word)
    elif label == "phys_state":
        port["physical_state"] = ibwords.PHYSICAL_STATES.get(word.upper(), word) or "unknown"
    elif value:
        port["attributes"][label] = value[:100]


def parse_devices(text: str) -> Reading:
    """Return ``{"devices": [{"ca", "node_guid"}]}`` of ``ibv_devices``."""
    notes = Notes()
    devices: List[Dict[str, Any]] = []
    for line in ibwords.lines(text):
        row = re.fullmatch(r"\s*([\w.-]{1,64})\s+([0-9a-fA-F]{16})\s*", line, re.ASCII)
        if row:
            devices.append({"ca": row[1], "node_guid": ibwords.guid(row[2])})
        elif ibwords.complaint(line) or not re.match(r"\s*(device\s+node GUID|-+\s+-+)", line):
            ibwords.leftover(line, notes)
    return notes.reading({"devices": devices})


def parse_rdma_link(text: str) -> Reading:
    """Return the links with ibstat's terms for states, and None for missing values.

    ``{"links": [{"ca", "port", "state", "physical_state", "netdev", "lid", "sm_lid", "lmc", "subnet_prefix",
    "netdev_index"}]}``.
    """
    notes = Notes()
    parsed = _links_from_json(text) if text.lstrip().startswith(("[", "{")) else None
    if parsed is not None:
        return notes.reading({"links": parsed})
    links: List[Dict[str, Any]] = []
    for line in ibwords.lines(text):
        link = _LINK.fullmatch(line.rstrip())
        if link:
            links.append(_new_link(link[1], ibwords.digits(link[2])))
            words = (link[3] or "").split()
            for key, value in zip(words, words[1:]):  # noqa: B905, RUF007 - Python 3.8
                _put(links[-1], key, value)
        elif ibwords.complaint(line) or not (links and line[:1].isspace()):
            ibwords.leftover(line, notes)
    return notes.reading({"links": links})


def _new_link(ca: str, port: Optional[int]) -> Dict[str, Any]:
    link: Dict[str, Any] = dict.fromkeys(_LINK_KEYS)
    link.update(ca=ca, port=port, state="unknown", physical_state="unknown")
    return link


def _put(link: Dict[str, Any], key: str, value: str) -> None:
    if key in _LINK_NUMBERS:
        link[key] = ibwords.digits(value)
    elif key == "state":
        link[key] = _LINK_STATES.get(value.upper(), value[:100])
    elif key == "physical_state":
        link[key] = "unknown" if value.upper() == "UNKNOWN" else ibwords.PHYSICAL_STATES.get(value.upper(), value[:100])
    elif key in _LINK_KEYS:
        link[key] = value[:100]


def _links_from_json(text: str) -> Optional[List[Dict[str, Any]]]:
    entries = json_value(text)
    if not isinstance(entries, list):
        return None
    links = []
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("ifname"), str):
            port = entry.get("port")
            links.append(
                _new_link(entry["ifname"][:64], port if isinstance(port, int) and 0 <= port < 1 << 32 else None)
            )
            for key, value in entry.items():
                if isinstance(value, str) or (type(value) is int and 0 <= value < 1 << 63):
                    _put(links[-1], key, str(value))
    return links


def parse_gids(text: str) -> Reading:
    """Return ``{"gids": [{"ca", "port", "index", "gid", "ipv4", "version", "netdev"}], "count", "roce_v2_ipv4"}``.

    ``version`` is the version of RoCE: 1 or 2, and 1 for InfiniBand as well; ``count`` the number of GIDs as printed;
    ``roce_v2_ipv4`` the ``ca``, ``port``, ``index`` and ``ipv4`` of the first such GID of each port.
    """
    gids: List[Dict[str, Any]] = []
    notes = Notes()
    count = None
    for line in ibwords.lines(text):
        row, counted = _GID_ROW.fullmatch(line), _GID_COUNT.fullmatch(line)
        if row:
            ca, port, index, gid, ipv4, version, netdev = row.groups()
            # People who share such tables cross out parts of GIDs.
            whole = gid.lower() if "x" not in gid.lower() and "*" not in gid else None
            gids.append({"ca": ca, "port": int(port), "index": int(index), "gid": whole, "ipv4": ipv4})
            gids[-1].update(version=ibwords.digits(version), netdev=netdev)
        elif counted:
            count = int(counted[1])
        elif not _GID_TITLE.match(line):
            ibwords.leftover(line, notes)
    if count is None and gids:
        notes.warn("the text ends before the number of GIDs")
    elif count is not None and count != len(gids):
        notes.warn("%d of %d GIDs are in the text" % (len(gids), count))
    roce: Dict[Any, Dict[str, Any]] = {}
    for entry in gids:
        if entry["version"] == 2 and entry["ipv4"]:
            roce.setdefault((entry["ca"], entry["port"]), {key: entry[key] for key in ("ca", "port", "index", "ipv4")})
    return notes.reading({"gids": gids, "count": count, "roce_v2_ipv4": list(roce.values())})


def _likely_gids(text: str) -> float:
    if re.search(r"^[ \t]*DEV\s+PORT\s+INDEX\s+GID", text, re.MULTILINE) or "n_gids_found=" in text:
        return 0.97
    return 0.6 if any(_GID_ROW.fullmatch(line) for line in text.splitlines()[:3]) else 0.0


FORMATS = [
    Format(
        "ibstat",
        "ibstat: state, rate and LIDs of InfiniBand and RoCE ports",
        first_of(
            (0.95, r"^(CA|Switch|Router|iWARP RNIC):? '[^'\n]+'"),
            (0.6, r"^[ \t]*(Physical state|Base lid|SM lid): "),
            (0.3, r"\A(?=(?s:.*)main: )(?=(?s:.*)IB device)"),
        ),
        parse_ibstat,
        {"rate": "Gb/s", "effective_rate": "Gb/s"},
    ),
    Format(
        "ibstatus",
        "ibstatus: state, rate and LIDs of InfiniBand and RoCE ports",
        first_of(
            (0.97, r"Infiniband device '[^'\n]{1,64}' port \d+ status:"), (0.5, r"^Fatal error: +(No devices|device ')")
        ),
        parse_ibstatus,
        units={"rate": "Gb/s"},
    ),
    Format(
        "ibv_devinfo",
        "ibv_devinfo: devices and ports of verbs, with the active MTU",
        first_of(
            (0.97, r"^hca_id:\s*\S"),
            (0.7, r"^[ \t]*(active_mtu|port_lid|phys_port_cnt):"),
            (0.4, _FOUND.pattern + "|IB devices"),
        ),
        parse_devinfo,
        {"max_mtu": "B", "active_mtu": "B", "lane_rate": "Gb/s"},
    ),
    Format(
        "ibv_devices",
        "ibv_devices: the devices of verbs",
        first_of((0.95, r"^\s{0,20}device\s+node GUID\s*$")),
        parse_devices,
    ),
    Format(
        "rdma-link",
        "rdma link: RDMA ports and their interfaces",
        first_of(
            (0.97, r"^[ #]*(link|\d+/\d+:)\s+[\w.-]+/\d+:?\s.*\bphysical_state\b"),
            (0.95, r'\A(?=(?s:.*)"physical_state")(?=(?s:.*)"ifname")'),
            (0.4, "NETLINK_RDMA"),
        ),
        parse_rdma_link,
    ),
    Format("show_gids", "show_gids: the GID tables of RDMA ports", _likely_gids, parse_gids),
]
