"""``iblinkinfo``, by node and with ``-l`` one line a port: width and speed of links, and what they could be."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values as ibwords

_HEADER = re.compile(r"(?:[<>] )?(CA|Switch|Router|\?\?):? (?:(0x[0-9a-fA-F]{16}) )?(.*):\s*")
_ROW = re.compile(
    r"(?:[<>] )?\s*(?:(0x[0-9a-fA-F]{16})\s+)?(?:\"(.*?)\"\s+)?"
    r"([0-9]{1,6})\s+([0-9]{1,4})\[\s*([0-9]{0,4})\]\s+==\((.*?)\)==>\s+(.*)",
    re.ASCII,
)
_PEER = re.compile(
    r"(?:(0x[0-9a-fA-F]{16})\s+)?([0-9]{1,6})\s+([0-9]{1,4})\[\s*([0-9]{0,4})\]\s+\"(.*)\"\s+\((.*)\)\s*", re.ASCII
)
_LINK = re.compile(r"\s*(?:(\S+|undefined \([0-9]+\))\s+(.*?)\s+)?(\S+?)\s*/\s*(\S+)", re.ASCII)
_COULD = re.compile(r"Could be (\S+)(?: (Gbps))?")
# The bracket of -S/--switch-settings follows the state: "LinkUp) (HOQ:18 VL_Stall:7)==>".
_SETTINGS = re.compile(r"\)?\s*\(HOQ:[0-9]+ VL_Stall:[0-9]+\)?", re.ASCII)

#: Lanes of one port in copper and optics; ports report 12X as possible although no cable has it.
_WIDEST = 4


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``iblinkinfo``."""
    if re.search(r"\]\s+==\(.*\)==>\s", text):
        return 0.97 if "Link info:" not in text else 0.3
    return 0.0


def parse(text: str) -> Reading:
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
    for line in ibwords.lines(text):
        row, head = _ROW.fullmatch(_SETTINGS.sub(")", line)), _HEADER.fullmatch(line)
        if row:
            links.append(_entry(row, header))
        elif head:
            header = {"type": _type(head.group(1)), "guid": ibwords.guid(head.group(2)), "name": head.group(3)[:200]}
        elif ibwords.complaint(line):
            notes.warn(line)
        elif not re.match(r"link info:|#", line):
            notes.puzzled(line)
    _set_types(links)
    return notes.reading({"links": links})


def _type(word: str) -> Optional[str]:
    return {"CA": "CA", "Switch": "switch", "Router": "router"}.get(word)


def _entry(row: "re.Match[str]", header: Dict[str, Any]) -> Dict[str, Any]:
    guid, named, lid, port, ext, link, rest = row.groups()
    line_mode = named is not None
    entry: Dict[str, Any] = {
        "type": None if line_mode else header.get("type"),
        "name": named.strip()[:200] if named is not None else header.get("name"),
        "guid": ibwords.guid(guid) or (None if line_mode else header.get("guid")),
        "lid": int(lid),
        "port": int(port),
        "ext_port": int(ext) if ext else None,
        "line_mode": line_mode,
        "has_guid": guid is not None,
    }
    entry.update(_link(link))
    entry.update(_peer(rest))
    entry["below"] = _below(entry)
    return entry


def _link(text: str) -> Dict[str, Any]:
    found = _LINK.fullmatch(text)
    values: Dict[str, Any] = {"lanes": None, "lane_rate": None, "state": "unknown", "physical_state": "unknown"}
    if found:
        width, speed, state, physical = found.groups()
        values.update(state=state, physical_state=physical, lanes=ibwords.lanes(width), lane_rate=ibwords.gbps(speed))
    values["rate"] = ibwords.link_rate(values["lanes"], values["lane_rate"])
    return values


def _peer(text: str) -> Dict[str, Any]:
    found = _PEER.fullmatch(text.strip())
    values: Dict[str, Any] = {"peer": None, "could_lanes": None, "could_lane_rate": None}
    if found:
        guid, lid, port, _, name, could = found.groups()
        values["peer"] = {"name": name[:200], "guid": ibwords.guid(guid), "lid": int(lid), "port": int(port)}
        for word, unit in _COULD.findall(could):
            if unit:
                values["could_lane_rate"] = ibwords.decimal(word)
            elif ibwords.lanes(word) is not None:
                values["could_lanes"] = ibwords.lanes(word)
            elif word == "FDR10":
                values["could_lane_rate"] = ibwords.SPEED_NAMES["FDR10"]
                values["could_speed"] = word
    return values


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
            # The ports of a switch have one GUID in common, those of an adapter each their own.
            link["type"] = "switch" if link["port"] > 4 or rows[link["guid"]] > 1 else None
        elif link["type"] is None or has_guid != (link["type"] != "switch"):
            link["type"] = "CA" if has_guid else "switch"
            link["name"] = None
    peers = {link["guid"]: link for link in links if link["type"] == "switch"}
    for link in links:
        peer = link["peer"]
        if link["type"] is None and peer is not None and peer["guid"] in peers and link["port"] <= 2:
            link["type"] = "CA" if rows[link["guid"]] == 1 else None


FORMATS = [
    Format(
        "iblinkinfo",
        "iblinkinfo: width, speed and state of the links of a fabric",
        ("iblinkinfo", "-l"),
        {"lane_rate": "Gb/s", "rate": "Gb/s", "could_lane_rate": "Gb/s"},
        likely,
        parse,
    )
]
