"""``ibroute`` and ``ibaddr``: the forwarding table of a switch, and the addresses of a port."""

from __future__ import annotations

import re
from typing import Any, Dict, List

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values as ibwords

_SWITCH = re.compile(
    r"Unicast lids \[0x[0-9a-fA-F]{1,6}-0x[0-9a-fA-F]{1,6}\] of switch (.{1,120}?) "
    r"guid (0x[0-9a-fA-F]{1,16}) \((.*)\):",
    re.ASCII,
)
_ROUTE = re.compile(
    r"(0x[0-9a-fA-F]{1,6}) ([0-9]{1,4})\s*(?:: \((.{1,40}?) portguid (0x[0-9a-fA-F]{1,16}): '(.*)'\)|: \((.*)\))?\s*",
    re.ASCII,
)
_DUMPED = re.compile(r"([0-9]{1,6}) (?:valid )?lids dumped", re.ASCII)
_ADDRESS = re.compile(
    r"(?:GID (\S{2,45}) )?LID start (0x[0-9a-fA-F]{1,6}|[0-9]{1,6}) end (0x[0-9a-fA-F]{1,6}|[0-9]{1,6})\s*", re.ASCII
)


def likely_ibroute(text: str) -> float:
    """Return the likelihood that a text is output of ``ibroute``."""
    return 0.97 if "Unicast lids [0x" in text else 0.0


def likely_ibaddr(text: str) -> float:
    """Return the likelihood that a text is output of ``ibaddr``."""
    return 0.95 if re.search(r"^(GID \S+ )?LID start (0x)?[0-9a-f]+ end ", text, re.MULTILINE) else 0.0


def parse_ibroute(text: str) -> Reading:
    """Return ``{"switch": {"guid", "name"}, "routes": [{"lid", "port", "type", "guid", "name"}], "count"}``."""
    notes = Notes()
    switch: Dict[str, Any] = {"guid": None, "name": None}
    routes: List[Dict[str, Any]] = []
    count = None
    for line in ibwords.lines(text):
        named, route, dumped = _SWITCH.match(line), _ROUTE.fullmatch(line), _DUMPED.match(line)
        if named:
            switch = {"guid": ibwords.guid(named.group(2)), "name": named.group(3)[:200]}
        elif route:
            lid, port, kind, guid, name, other = route.groups()
            entry = {"lid": ibwords.integer(lid), "port": int(port), "type": kind or other, "guid": ibwords.guid(guid)}
            routes.append({**entry, "name": name[:200] if name is not None else None})
        elif dumped:
            count = int(dumped.group(1))
        elif re.match(r"\s+(Lid\s+Out|Port\s+Info)", line):
            continue
        elif ibwords.complaint(line):
            notes.warn(line)
        else:
            notes.puzzled(line)
    if count is not None and count != len(routes):
        notes.warn("%d of %d routes are in the text" % (len(routes), count))
    return notes.reading({"switch": switch, "routes": routes, "count": count})


def parse_ibaddr(text: str) -> Reading:
    """Return ``{"gid", "lid_start", "lid_end"}``."""
    notes = Notes()
    values: Dict[str, Any] = {"gid": None, "lid_start": None, "lid_end": None}
    for line in ibwords.lines(text):
        found = _ADDRESS.fullmatch(line)
        if found:
            values["gid"] = found.group(1)
            values["lid_start"], values["lid_end"] = (ibwords.integer(word) for word in found.groups()[1:])
        elif ibwords.complaint(line):
            notes.warn(line)
        else:
            notes.puzzled(line)
    return notes.reading(values)


FORMATS = [
    Format("ibroute", "ibroute: the forwarding table of a switch", (), {}, likely_ibroute, parse_ibroute),
    Format("ibaddr", "ibaddr: the addresses of a port", (), {}, likely_ibaddr, parse_ibaddr),
]
