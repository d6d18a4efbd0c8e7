"""``ibnetdiscover``, as a topology file and with ``-p`` as one line a port: what hangs on what."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values

_TYPES = {"CA": "CA", "SW": "switch", "RT": "router", "Ca": "CA", "Switch": "switch", "Rt": "router"}
_LETTERS = {"H": "CA", "S": "switch", "R": "router"}

_DIFF = re.compile(r"[<>] ")
# -p: a port, and the port it is connected to, or spaces.
_PORT_ROW = re.compile(
    r"\s*(CA|SW|RT|\?\?)\s+([0-9]{1,6})\s+([0-9]{1,4})\s+(0x[0-9a-fA-F]{1,16})\s+([0-9]{1,2}[xX]|\?\?)\s+(\S{1,8})(.*)",
    re.ASCII,
)
_PEER = re.compile(
    r" - +(CA|SW|RT|\?\?)\s+([0-9]{1,6})\s+([0-9]{1,4})\s+(0x[0-9a-fA-F]{1,16})\s+\( '(.*?)' - '(.*)' \)\s*", re.ASCII
)
# The topology file: a node, then its ports.
# People who share such files cross out parts of GUIDs.
_GUID = r"([^\s\"()]{1,60})"
_NODE = re.compile(r"(Switch|Ca|Rt|\?\?\?)\s+([0-9]{1,5})\s+\"([SHR?])-" + _GUID + r"\"\s*#\s*\"(.*)\"(.*)", re.ASCII)
_PORT = re.compile(
    r"\[([0-9]{1,4})\](?:\[ext ([0-9]{1,4})\])?(?:\(" + _GUID + r"\))?\s+\"([SHR?])-" + _GUID + r"\""
    r"\[([0-9]{1,4})\](?:\[ext [0-9]{1,4}\])?\s*(?:\(" + _GUID + r"\))?\s*#\s*(.*)",
    re.ASCII,
)
# Old versions print neither width nor speed.
_ABOUT = re.compile(
    r"(?:lid ([0-9]{1,6}) lmc [0-9]{1,3} )?\"(.*)\" lid ([0-9]{1,6})(?: ([0-9]{1,2}x|\?\?)(\S{1,8})(?: .*)?)?\s*",
    re.ASCII,
)
_ID = re.compile(
    r"(vendid|devid|sysimgguid|switchguid|caguid|rtguid|\?\?\?guid)=" + _GUID + r"(?:\(" + _GUID + r"\))?(.*)"
)
_CHASSIS = re.compile(r"Chassis ([0-9]{1,6})\b", re.ASCII)
_PASSED = re.compile(r"#|Chassis [0-9]|Hostname: |Non-Chassis Nodes|[0-9]* ?Spine|Line ")
_FROM = re.compile(r"# Initiated from node ([0-9a-fA-F]{1,16}) port ([0-9a-fA-F]{1,16})")
_MANAGED = re.compile(r" ?(base|enhanced) port 0 lid ([0-9]{1,6}) lmc ([0-9]{1,3})", re.ASCII)


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``ibnetdiscover``."""
    if "# Topology file: generated on" in text or re.search(
        r"^(Switch|Ca)\s+\d+ \"[SH]-[0-9a-f]{16}\"", text, re.MULTILINE
    ):
        return 0.97
    return 0.95 if re.search(r"^(CA|SW|RT)\s+\d+\s+\d+ 0x[0-9a-f]{16} (\d+x|\?\?) \S+", text, re.MULTILINE) else 0.0


def parse(text: str) -> Reading:
    """Return ``{"form": "ports"|"topology"|None, "nodes": [...], "links": [...], "from_port"}``.

    A link is one port with what it is connected to, so that each cable is in there twice: ``type`` (``CA``,
    ``switch``, ``router``), ``name``, ``guid`` (of the port; of a switch, that of its management port), ``lid``,
    ``port``, ``lanes``, ``speed`` (``HDR``), ``rate`` (Gb/s) and ``peer``: None for a port with nothing on it, else
    ``type``, ``name``, ``guid``, ``lid``, ``port``. ``-p`` lists unconnected ports too, at the speed of a port that
    has none; a topology file does not. ``nodes`` are the devices of a topology file.
    """
    notes = Notes()
    reader = _Topology(notes)
    rows: List[Dict[str, Any]] = []
    for line in values.lines(text):
        if _DIFF.match(line):
            notes.warn("this is a comparison of two discoveries")
            line = line[2:]
        row = _PORT_ROW.fullmatch(line)
        if row:
            rows.append(_row(row))
        elif not reader.take(line):
            if values.complaint(line):
                notes.warn(line)
            elif not _PASSED.match(line):
                notes.puzzled(line)
    form = "ports" if rows else "topology" if reader.nodes else None
    links = rows or reader.finish()
    return notes.reading({"form": form, "nodes": reader.nodes, "links": links, "from_port": reader.from_port})


def _rate(lanes: Optional[int], speed: Optional[str]) -> Optional[float]:
    lane = values.SPEED_NAMES.get(speed or "")
    return None if lanes is None or lane is None else lanes * lane


def _row(found: "re.Match[str]") -> Dict[str, Any]:
    kind, lid, port, guid, width, speed, rest = found.groups()
    peer = _PEER.fullmatch(rest)
    lanes, named = values.lanes(width), None if speed == "???" else speed
    row: Dict[str, Any] = {
        "type": _TYPES.get(kind, "unknown"),
        "name": (peer.group(5) if peer else _name(rest))[:200],
        "guid": values.guid(guid),
        "lid": int(lid),
        "port": int(port),
        "lanes": lanes,
        "speed": named,
        "rate": None,
        "peer": None,
    }
    if peer:
        row["rate"] = _rate(lanes, named)
        row["peer"] = {
            "type": _TYPES.get(peer.group(1), "unknown"),
            "name": peer.group(6)[:200],
            "guid": values.guid(peer.group(4)),
            "lid": int(peer.group(2)),
            "port": int(peer.group(3)),
        }
    return row


def _name(rest: str) -> str:
    name = rest.strip()
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] == "'" else name


class _Topology:
    """Reads a topology file line by line."""

    def __init__(self, notes: Notes) -> None:
        self.nodes: List[Dict[str, Any]] = []
        self.from_port: Optional[str] = None
        self._links: List[Dict[str, Any]] = []
        self._ids: Dict[str, Any] = {}
        self._notes = notes

    def take(self, line: str) -> bool:
        """Take a line; return False if it is none of a topology file."""
        begun, ident = _FROM.match(line), _ID.fullmatch(line.strip())
        if begun:
            self.from_port = values.guid(begun.group(2))
            return True
        if ident:
            self._id(*ident.groups())
            return True
        node, port = _NODE.fullmatch(line), _PORT.fullmatch(line)
        if node:
            self._node(node)
        elif port:
            about = _ABOUT.fullmatch(port.group(8))
            if about is None or not self.nodes:
                return False
            self._port(port, about)
        return bool(node or port)

    def _id(self, name: str, value: str, port_guid: Optional[str], rest: str) -> None:
        if name == "vendid":
            self._ids = {}
        self._ids[name] = value
        chassis = _CHASSIS.search(rest)
        if chassis:
            self._ids["chassis"] = int(chassis.group(1))
        if port_guid:
            self._ids["port_guid"] = values.guid(port_guid)

    def _node(self, found: "re.Match[str]") -> None:
        kind, ports, letter, guid, name, rest = found.groups()
        managed = _MANAGED.search(rest)
        self.nodes.append(
            {
                "type": _TYPES.get(kind, _LETTERS.get(letter, "unknown")),
                "guid": values.guid(guid),
                "port_guid": self._ids.get("port_guid"),
                "name": name[:200],
                "ports": int(ports),
                "lid": int(managed.group(2)) if managed else None,
                "system_guid": values.guid(self._ids.get("sysimgguid")),
                "vendor": self._ids.get("vendid"),
                "device": self._ids.get("devid"),
                "chassis": self._ids.get("chassis"),
            }
        )
        self._ids = {}

    def _port(self, port: "re.Match[str]", about: "re.Match[str]") -> None:
        number, _, own, letter, peer_node, peer_port, peer_guid, _ = port.groups()
        own_lid, peer_name, peer_lid, width, speed = about.groups()
        node = self.nodes[-1]
        lanes, named = values.lanes(width), None if speed == "???" else speed
        link = {
            "type": node["type"],
            "name": node["name"],
            "guid": values.guid(own) or node["port_guid"] or node["guid"],
            "lid": int(own_lid) if own_lid else node["lid"],
            "port": int(number),
            "lanes": lanes,
            "speed": named,
            "rate": _rate(lanes, named),
            "peer": {
                "type": _LETTERS.get(letter, "unknown"),
                "name": peer_name[:200],
                "guid": values.guid(peer_guid) or values.guid(peer_node),
                "lid": int(peer_lid),
                "port": int(peer_port),
            },
        }
        self._links.append(link)

    def finish(self) -> List[Dict[str, Any]]:
        """Return the links, with the GUIDs of ports where a line had only that of a node."""
        ports = {node["guid"]: node["port_guid"] for node in self.nodes if node["port_guid"]}
        for link in self._links:
            link["peer"]["guid"] = ports.get(link["peer"]["guid"], link["peer"]["guid"])
        return self._links


FORMATS = [
    Format(
        "ibnetdiscover",
        "ibnetdiscover: the topology of an InfiniBand fabric",
        ("ibnetdiscover", "-p"),
        {"rate": "Gb/s"},
        likely,
        parse,
    )
]
