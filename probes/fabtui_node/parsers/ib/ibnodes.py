"""``ibnodes``, ``ibhosts``, ``ibswitches``, ``ibrouters`` and ``ibnetdiscover -l``: one line per node of the fabric."""

from __future__ import annotations

import re
from typing import Any, Dict, List

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values

_NODE = re.compile(
    r"(Ca|Switch|Router|Rt|\?\?\?)\s*: (0x[0-9a-fA-F]{1,16}) ports ([0-9]{1,5})"
    r"(?: devid (0x[0-9a-fA-F]{1,8}) vendid (0x[0-9a-fA-F]{1,8}))? \"(.*)\""
    r"(?: (base|enhanced) port 0 lid ([0-9]{1,6}) lmc ([0-9]{1,3}))?\s*",
    re.ASCII,
)
_TYPES = {"Ca": "CA", "Switch": "switch", "Router": "router", "Rt": "router", "???": "unknown"}


def likely(text: str) -> float:
    """Return the likelihood that a text is output of one of these tools."""
    return 0.95 if re.search(r"^(Ca|Switch|Router|Rt)\s*: 0x[0-9a-f]+ ports \d+", text, re.MULTILINE) else 0.0


def parse(text: str) -> Reading:
    """Return the nodes, with None for values that are missing in a line.

    ``{"nodes": [{"type": "CA"|"switch"|"router", "guid", "ports", "name", "lid", "lmc", "device", "vendor"}]}``.
    """
    notes = Notes()
    nodes: List[Dict[str, Any]] = []
    for line in values.lines(text):
        found = _NODE.fullmatch(line)
        if found:
            kind, guid, ports, device, vendor, name, _, lid, lmc = found.groups()
            nodes.append(
                {
                    "type": _TYPES[kind],
                    "guid": values.guid(guid),
                    "ports": int(ports),
                    "name": name[:200],
                    "lid": values.digits(lid),
                    "lmc": values.digits(lmc),
                    "device": device,
                    "vendor": vendor,
                }
            )
        elif values.complaint(line):
            notes.warn(line)
        else:
            notes.puzzled(line)
    return notes.reading({"nodes": nodes})


FORMATS = [Format("ibnodes", "ibnodes, ibhosts, ibswitches: nodes of the fabric", (), {}, likely, parse)]
