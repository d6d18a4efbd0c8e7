"""The nodes and links of an InfiniBand fabric: ``ibnodes``, ``ibnetdiscover``, ``iblinkinfo`` and ``ibqueryerrors``."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.ib import values
from fabtui_node.parsers.lines import number

_TYPES = {
    "CA": "CA", "Ca": "CA", "H": "CA", "SW": "switch", "Switch": "switch", "S": "switch", "RT": "router",
    "Rt": "router", "Router": "router", "R": "router",
}  # fmt: skip

# ibnodes, ibhosts, ibswitches, ibrouters, ibnetdiscover -l: a line per node.
_LISTED = re.compile(
    r"(Ca|Switch|Router|Rt|\?\?\?)\s*: (0x[0-9a-fA-FxX*.]{1,18}) ports ([0-9]{1,5})"
    r"(?: devid (0x[0-9a-fA-F]{1,8}) vendid (0x[0-9a-fA-F]{1,8}))? \"(.*)\""
    r"(?: (base|enhanced) port 0 lid ([0-9]{1,6}) lmc ([0-9]{1,3}))?\s*",
    re.ASCII,
)

# ibnetdiscover, as a topology file and with -p as one line a port.
_DIFF = re.compile(r"[<>] ")
# -p: a port, and the port it is connected to, or spaces.
_PORT_ROW = re.compile(
    r"\s*(CA|SW|RT|\?\?)\s+([0-9]{1,6})\s+([0-9]{1,4})\s+(0x[0-9a-fA-FxX*.]{1,18})\s+([0-9]{1,2}[xX]|\?\?)\s+(\S{1,8})(.*)",
    re.ASCII,
)
_ROW_PEER = re.compile(
    r" - +(CA|SW|RT|\?\?)\s+([0-9]{1,6})\s+([0-9]{1,4})\s+(0x[0-9a-fA-FxX*.]{1,18})\s+\( '(.*?)' - '(.*)' \)\s*",
    re.ASCII,
)
# The topology file: a node, then its ports.
# People who share such files cross out parts of GUIDs.
_GUID = r"([^\s\"()]{1,60})"
_NODE = re.compile(r"(Switch|Ca|Rt|\?\?\?)\s+([0-9]{1,5})\s+\"([SHR?])-" + _GUID + r"\"\s*#\s*\"(.*)\"(.*)", re.ASCII)
_PORT = re.compile(
    r"\[([0-9]{1,4})\](?:\[ext ([0-9]{1,4})\])?(?:\(" + _GUID + r"\))?\s+\"([SHR?])-" + _GUID + r"\""
    r"\[([0-9]{1,4})\](?:\[ext [0-9]{1,4}\])?\s*(?:\(" + _GUID + r"\)\s*)?#\s*(.*)",
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

# iblinkinfo, by node and with -l one line a port: width and speed of links, and what they could be.
_HEADER = re.compile(r"(?:[<>] )?(CA|Switch|Router|\?\?):? (?:(0x[0-9a-fA-FxX*.]{16,18}) )?(.*):\s*")
_LINK_ROW = re.compile(
    r"(?:[<>] )?\s*(?:(0x[0-9a-fA-FxX*.]{16,18})\s+)?(?:\"(.*?)\"\s+)?"
    r"([0-9]{1,6})\s+([0-9]{1,4})\[\s*([0-9]{0,4})\]\s+==\((.*?)\)==>\s+(.*)",
    re.ASCII,
)
_LINK_PEER = re.compile(
    r"(?:(0x[0-9a-fA-FxX*.]{16,18})\s+)?([0-9]{1,6})\s+([0-9]{1,4})\[\s*([0-9]{0,4})\]\s+\"(.*)\"\s+\((.*)\)\s*",
    re.ASCII,
)
# With single blanks: more of them could be divided in too many ways.
_LINK = re.compile(r"(?:(\S+|undefined \([0-9]+\)) (.*?) )?(\S+?) ?/ ?(\S+)", re.ASCII)
_COULD = re.compile(r"Could be (\S+)(?: (Gbps))?")
# The bracket of -S/--switch-settings follows the state: "LinkUp) (HOQ:18 VL_Stall:7)==>".
_SETTINGS = re.compile(r"(?:\)|(?<!\s))\s*\(HOQ:[0-9]+ VL_Stall:[0-9]+\)?", re.ASCII)
#: Lanes of one port in copper and optics; ports report 12X as possible although no cable has it.
_WIDEST = 4

# ibqueryerrors: ports whose counters are beyond their threshold, also with data and link info. Its exit code is 1
# where it found errors, and 0 where it could not ask the subnet administrator.
_ERRORS_NODE = re.compile(r"(Errors|Data Counters) for (?:(0x[0-9a-fA-FxX*.]{1,18}) )?\"(.*)\"\s*")
_ERRORS_PORT = re.compile(r"\s*GUID (0x[0-9a-fA-FxX*.]{1,18}) port ([0-9]{1,4}|ALL):(.*)", re.ASCII)
_COUNTER = re.compile(r"\[([A-Za-z]\w{0,60}) == ([0-9]{1,20})(?: \(([^()\]]{1,30})\))?\]", re.ASCII)
_CHECKED = re.compile(
    r"#{1,2}\s*(?:Summary: )?([0-9]{1,9}) (nodes|ports) checked, ([0-9]{1,9}) (?:bad nodes found|ports have errors)",
    re.ASCII,
)
_FAILURES = re.compile(r"##\s*([0-9]{1,9}) PMA query failures", re.ASCII)
_THRESHOLD = re.compile(r"\[(\w{1,60}) = ([0-9]{1,20})\]", re.ASCII)
_LINK_INFO = re.compile(r"\s*Link info:")
#: Counters of traffic, not of errors.
TRAFFIC = re.compile(r"Port(Unicast|Multicast)?(Xmit|Rcv)(Data|Pkts)")


def parse_nodes(text: str) -> Reading:
    """Return the nodes, with None for values that are missing in a line.

    ``{"nodes": [{"type": "CA"|"switch"|"router", "guid", "ports", "name", "lid", "lmc", "device", "vendor"}]}``.
    """
    notes = Notes()
    nodes: List[Dict[str, Any]] = []
    for line in values.lines(text):
        match = _LISTED.fullmatch(line)
        if not match:
            values.leftover(line, notes)
            continue
        kind, guid, ports, device, vendor, name, _, lid, lmc = match.groups()
        node = {"type": _TYPES.get(kind, "unknown"), "guid": values.guid(guid), "ports": int(ports), "name": name[:200]}
        node.update(lid=values.digits(lid), lmc=values.digits(lmc), device=device, vendor=vendor)
        nodes.append(node)
    return notes.reading({"nodes": nodes})


def parse_topology(text: str) -> Reading:
    """Return ``{"form": "ports"|"topology"|None, "nodes": [...], "links": [...], "from_port"}``.

    A link is one port with what it is connected to, so that each cable is in there twice: ``type`` (``CA``,
    ``switch``, ``router``), ``name``, ``guid`` (of the port; a switch has one, of its management port), ``lid``,
    ``port``, ``lanes``, ``speed`` (``HDR``), ``rate`` (Gb/s) and ``peer``: None for a port with nothing on it, else
    ``type``, ``name``, ``guid``, ``lid``, ``port``. ``-p`` lists unconnected ports too, at the speed of a port that
    has none; a topology file does not. ``nodes`` are the devices of a topology file.
    """
    notes = Notes()
    reader = _Topology()
    rows: List[Dict[str, Any]] = []
    for line in values.lines(text):
        if _DIFF.match(line):
            notes.warn("this is a comparison of two discoveries")
            line = line[2:]
        row = _PORT_ROW.fullmatch(line)
        if row:
            rows.append(_row(row))
        elif not reader.take(line) and (values.complaint(line) or not _PASSED.match(line)):
            values.leftover(line, notes)
    form = "ports" if rows else "topology" if reader.nodes else None
    links = rows or reader.finish()
    return notes.reading({"form": form, "nodes": reader.nodes, "links": links, "from_port": reader.from_port})


def _end(kind: Optional[str], name: str, guid: Optional[str], lid: Optional[int], port: str) -> Dict[str, Any]:
    return {"type": kind, "name": name[:200], "guid": guid, "lid": lid, "port": int(port)}


def _speed(width: Optional[str], speed: Optional[str]) -> Dict[str, Any]:
    lanes, named = values.lanes(width), None if speed == "???" else speed
    lane = values.SPEED_NAMES.get(named or "")
    return {"lanes": lanes, "speed": named, "rate": None if lanes is None or lane is None else lanes * lane}


def _row(found: "re.Match[str]") -> Dict[str, Any]:
    kind, lid, port, guid, width, speed, rest = found.groups()
    peer = _ROW_PEER.fullmatch(rest)
    name = peer[5] if peer else rest.strip()
    if not peer and len(name) > 1 and name[0] == name[-1] == "'":
        name = name[1:-1]
    row = {**_end(_TYPES.get(kind, "unknown"), name, values.guid(guid), int(lid), port), **_speed(width, speed)}
    if not peer:
        return {**row, "rate": None, "peer": None}
    row["peer"] = _end(_TYPES.get(peer[1], "unknown"), peer[6], values.guid(peer[4]), int(peer[2]), peer[3])
    return row


class _Topology:
    """Reads a topology file line by line."""

    def __init__(self) -> None:
        self.nodes: List[Dict[str, Any]] = []
        self.from_port: Optional[str] = None
        self._links: List[Dict[str, Any]] = []
        self._ids: Dict[str, Any] = {}

    def take(self, line: str) -> bool:
        """Feed one line; return False if it cannot belong to a topology file."""
        begun, ident = _FROM.match(line), _ID.fullmatch(line.strip())
        node, port = _NODE.fullmatch(line), _PORT.fullmatch(line)
        if begun:
            self.from_port = values.guid(begun[2])
        elif ident:
            self._id(*ident.groups())
        elif node:
            self._node(node)
        elif port:
            about = _ABOUT.fullmatch(port[8])
            if about is None or not self.nodes:
                return False
            self._port(port, about)
        return bool(begun or ident or node or port)

    def _id(self, name: str, value: str, port_guid: Optional[str], rest: str) -> None:
        if name == "vendid":
            self._ids = {}
        self._ids[name] = value
        if chassis := _CHASSIS.search(rest):
            self._ids["chassis"] = int(chassis[1])
        if port_guid:
            self._ids["port_guid"] = values.guid(port_guid)

    def _node(self, found: "re.Match[str]") -> None:
        kind, ports, letter, guid, name, rest = found.groups()
        managed, ids = _MANAGED.search(rest), self._ids
        node = {
            "type": _TYPES.get(kind, _TYPES.get(letter, "unknown")),
            "guid": values.guid(guid),
            "port_guid": ids.get("port_guid"),
            "name": name[:200],
            "ports": int(ports),
            "lid": int(managed[2]) if managed else None,
            "system_guid": values.guid(ids.get("sysimgguid")),
        }
        node.update(vendor=ids.get("vendid"), device=ids.get("devid"), chassis=ids.get("chassis"))
        self.nodes.append(node)
        self._ids = {}

    def _port(self, port: "re.Match[str]", about: "re.Match[str]") -> None:
        number, _, own, letter, peer_node, peer_port, peer_guid, _ = port.groups()
        own_lid, peer_name, peer_lid, width, speed = about.groups()
        node = self.nodes[-1]
        guid = values.guid(own) or node["port_guid"] or node["guid"]
        link = _end(node["type"], node["name"], guid, int(own_lid) if own_lid else node["lid"], number)
        peer = values.guid(peer_guid) or values.guid(peer_node)
        link.update(_speed(width, speed))
        link["peer"] = _end(_TYPES.get(letter, "unknown"), peer_name, peer, int(peer_lid), peer_port)
        self._links.append(link)

    def finish(self) -> List[Dict[str, Any]]:
        ports = {node["guid"]: node["port_guid"] for node in self.nodes if node["port_guid"]}
        for link in self._links:
            link["peer"]["guid"] = ports.get(link["peer"]["guid"], link["peer"]["guid"])
        return self._links


def parse_links(text: str) -> Reading:
    """Return ``{"links": [...]}``, one entry per port, so that each cable has two.

    - ``type`` (``CA``, ``switch``, ``router`` or None), ``name``, ``guid`` (of the port), ``lid``, ``port``.
    - ``lanes``, ``lane_rate`` (Gb/s as printed), ``rate`` (Gb/s of the link), ``state``, ``physical_state``.
    - ``peer``: None, or ``name``, ``guid``, ``lid``, ``port``.
    - ``could_lanes`` and ``could_lane_rate``: what both ends support, if printed. ``below``: what the link is below
      that in, of ``width`` and ``speed``. A possible width of 12X does not count against a 4X link.
    """
    notes = Notes()
    links: List[Dict[str, Any]] = []
    header: Dict[str, Any] = {}
    for line in values.lines(text):
        row, head = _LINK_ROW.fullmatch(_SETTINGS.sub(")", line)), _HEADER.fullmatch(line)
        if row:
            links.append(_link_entry(row, header))
        elif head:
            header = {"type": _TYPES.get(head[1]), "guid": values.guid(head[2]), "name": head[3][:200]}
        elif values.complaint(line) or not re.match(r"link info:|#", line):
            values.leftover(line, notes)
    _set_types(links)
    return notes.reading({"links": links})


def _link_entry(row: "re.Match[str]", header: Dict[str, Any]) -> Dict[str, Any]:
    guid, named, lid, port, ext, link, rest = row.groups()
    if named is not None:
        header = {"name": named.strip()[:200]}
    entry: Dict[str, Any] = {"type": header.get("type"), "name": header.get("name")}
    entry.update(guid=values.guid(guid) or header.get("guid"), lid=int(lid), port=int(port))
    entry.update(ext_port=int(ext) if ext else None, line_mode=named is not None, has_guid=guid is not None)
    entry.update(lanes=None, lane_rate=None, state="unknown", physical_state="unknown")
    if match := _LINK.fullmatch(" ".join(link.split())):
        width, speed, state, physical = match.groups()
        entry.update(state=state, physical_state=physical, lanes=values.lanes(width), lane_rate=values.gbps(speed))
    entry["rate"] = values.link_rate(entry["lanes"], entry["lane_rate"])
    entry.update(peer=None, could_lanes=None, could_lane_rate=None)
    if peer := _LINK_PEER.fullmatch(rest.strip()):
        guid, lid, port, _, name, could = peer.groups()
        entry["peer"] = {"name": name[:200], "guid": values.guid(guid), "lid": int(lid), "port": int(port)}
        for word, unit in _COULD.findall(could):
            if unit:
                entry["could_lane_rate"] = number(word)
            elif values.lanes(word) is not None:
                entry["could_lanes"] = values.lanes(word)
            elif word == "FDR10":
                entry.update(could_lane_rate=values.SPEED_NAMES["FDR10"], could_speed=word)
    entry["below"] = _below(entry)
    return entry


def _below(entry: Dict[str, Any]) -> List[str]:
    below = []
    could = entry["could_lanes"]
    if entry["lanes"] is not None and could is not None and entry["lanes"] < min(could, _WIDEST):
        below.append("width")
    lane, could_lane = entry["lane_rate"], entry["could_lane_rate"]
    if lane is not None and could_lane is not None and (lane < could_lane or entry.get("could_speed") == "FDR10"):
        below.append("speed")
    return below


def _set_types(links: List[Dict[str, Any]]) -> None:
    """Set the types of switches and adapters in rows without headers, as after ``grep`` or with ``-l``."""
    rows: Dict[Optional[str], int] = {}
    for link in links:
        rows[link["guid"]] = rows.get(link["guid"], 0) + 1
    for link in links:
        line_mode, has_guid = link.pop("line_mode"), link.pop("has_guid")
        if line_mode:
            # The ports of a switch have one GUID in common, each port of an adapter has a different one.
            link["type"] = "switch" if link["port"] > 4 or (link["guid"] and rows[link["guid"]] > 1) else None
        elif link["type"] is None or has_guid != (link["type"] != "switch"):
            link["type"] = "CA" if has_guid else "switch"
            link["name"] = None
    switches = {link["guid"] for link in links if link["type"] == "switch"}
    for link in links:
        peer = link["peer"]
        if link["type"] is None and peer is not None and peer["guid"] in switches and link["port"] <= 2:
            link["type"] = "CA" if rows[link["guid"]] == 1 else None


def parse_errors(text: str) -> Reading:
    """Return ``{"ports": [...], "summary": {...}, "complete"}``.

    - Each port: ``node`` (its name), ``node_guid``, ``guid``, ``port``, ``counters``, ``saturated`` (counters at the
      limit of their short form) and ``extended`` (True if errors have 64 bits). ``port`` is a number, or ``ALL`` for
      the sum over a switch, which has other limits and adds nothing to the numbered ports.
    - Summary: ``nodes_checked``, ``bad_nodes``, ``ports_checked``, ``bad_ports``, ``query_failures``, ``thresholds``,
      ``suppressed``.
    - ``complete`` is False if the text has no summary: the tool did not finish.
    """
    notes = Notes()
    ports: List[Dict[str, Any]] = []
    node: Dict[str, Optional[str]] = {"node": None, "node_guid": None}
    names = ("nodes_checked", "bad_nodes", "ports_checked", "bad_ports", "query_failures")
    summary: Dict[str, Any] = {**dict.fromkeys(names), "thresholds": {}, "suppressed": []}
    for line in values.lines(text):
        named, port = _ERRORS_NODE.fullmatch(line), _ERRORS_PORT.fullmatch(line)
        if named:
            node = {"node": named[3][:200], "node_guid": values.guid(named[2])}
        elif port:
            ports.append({**node, **_error_counts(*port.groups())})
        elif line.startswith("##"):
            _sum_up(line, summary)
        elif values.complaint(line) or not _LINK_INFO.match(line):
            values.leftover(line, notes)
    complete = summary["nodes_checked"] is not None
    return notes.reading({"ports": ports, "summary": summary, "complete": complete})


def _error_counts(guid: str, number: str, rest: str) -> Dict[str, Any]:
    counters = _COUNTER.findall(rest)
    # A count of the short form has no scaled one in brackets.
    short = {name: int(count) for name, count, scaled in counters if not scaled}
    return {
        "guid": values.guid(guid),
        "port": number if number == "ALL" else int(number),
        "counters": {name: int(count) for name, count, _ in counters},
        "saturated": [] if number == "ALL" else values.saturated(short),
        "extended": any(scaled and not TRAFFIC.fullmatch(name) for name, _, scaled in counters),
    }


def _sum_up(line: str, summary: Dict[str, Any]) -> None:
    checked, failures = _CHECKED.match(line), _FAILURES.match(line)
    if checked:
        summary[checked[2] + "_checked"], summary["bad_" + checked[2]] = int(checked[1]), int(checked[3])
    elif failures:
        summary["query_failures"] = int(failures[1])
    elif "Thresholds:" in line:
        summary["thresholds"] = {name: int(count) for name, count in _THRESHOLD.findall(line)}
    elif "Suppressed:" in line:
        summary["suppressed"] = line.partition("Suppressed:")[2].split()[:100]


FORMATS = [
    Format(
        "ibnetdiscover",
        "ibnetdiscover: the topology of an InfiniBand fabric",
        first_of(
            (0.97, r"# Topology file: generated on|^(Switch|Ca)\s+\d+ \"[SH]-[0-9a-f]{16}\""),
            (0.95, r"^(CA|SW|RT)\s+\d+\s+\d+ 0x[0-9a-fx*.]{16,18} (\d+x|\?\?) \S+"),
        ),
        parse_topology,
        {"rate": "Gb/s"},
    ),
    Format(
        "iblinkinfo",
        "iblinkinfo: width, speed and state of the links of a fabric",
        first_of((0.3, r"\A(?=(?s:.*)\]\s+==\()(?=(?s:.*)Link info:)"), (0.97, r"\]\s+==\(.*\)==>\s")),
        parse_links,
        {"lane_rate": "Gb/s", "rate": "Gb/s", "could_lane_rate": "Gb/s"},
    ),
    Format(
        "ibqueryerrors",
        "ibqueryerrors: ports of a fabric that counted errors",
        first_of(
            (0.97, r"^[ \t]*GUID 0x[0-9a-fx*.]+ port (\d+|ALL):\s*\[|^##? ?Summary: \d+ nodes checked, \d+ bad nodes"),
            (0.6, r"^Errors for (0x[0-9a-fx*.]+ )?\""),
        ),
        parse_errors,
        values.COUNTER_UNITS,
    ),
    Format(
        "ibnodes",
        "ibnodes, ibhosts, ibswitches: nodes of the fabric",
        first_of((0.95, r"^(Ca|Switch|Router|Rt)\s*: 0x[0-9a-fx*.]+ ports \d+")),
        parse_nodes,
    ),
]
