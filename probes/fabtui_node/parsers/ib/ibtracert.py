"""``ibtracert``: the way of packets from a port to another, switch by switch."""

from __future__ import annotations

import re
from typing import Any, Dict, List

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values as ibwords

_END = re.compile(
    r"(From|To) (ca|switch|router|\?\?\?) \{(0x[0-9a-fA-F]{1,16})\} portnum ([0-9]{1,4})"
    r" lid ([0-9]{1,6})-([0-9]{1,6}) \"(.*)\"\s*",
    re.ASCII | re.IGNORECASE,
)
_HOP = re.compile(
    r"\[([0-9]{1,4})\] -> (ca|switch|router|\?\?\?) port \{(0x[0-9a-fA-F]{1,16})\}\[([0-9]{1,4})\]"
    r" lid ([0-9]{1,6})-([0-9]{1,6}) \"(.*)\"\s*",
    re.ASCII | re.IGNORECASE,
)
_SHORT = re.compile(r"(From |To |\[([0-9]{1,4})\] -> )\{(0x[0-9a-fA-F]{1,16})\}\[([0-9]{1,4})\]\s*", re.ASCII)


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``ibtracert``."""
    if re.search(r"^\[\d+\] -> (\w+ port )?\{0x", text, re.MULTILINE):
        return 0.97
    return 0.7 if re.search(r"^From (ca|switch|router) \{0x", text, re.MULTILINE) else 0.0


def parse(text: str) -> Reading:
    """Return ``{"from", "to", "hops"}``.

    Ends: ``type``, ``guid`` (of the node), ``port``, ``lid``, ``name``. Each hop: ``out`` (the port it leaves the one
    before by), ``type``, ``guid`` (of the port it enters), ``in``, ``lid``, ``name``. ``to`` is None where the way
    was not found to its end.
    """
    notes = Notes()
    values: Dict[str, Any] = {"from": None, "to": None}
    hops: List[Dict[str, Any]] = []
    for line in ibwords.lines(text):
        end, hop, short = _END.fullmatch(line), _HOP.fullmatch(line), _SHORT.fullmatch(line)
        if end:
            which, kind, guid, port, lid, _, name = end.groups()
            values[which.lower()] = {**_place(kind, guid, name, lid), "port": int(port)}
        elif hop:
            out, kind, guid, into, lid, _, name = hop.groups()
            hops.append({"out": int(out), **_place(kind, guid, name, lid), "in": int(into)})
        elif short:
            which, out, guid, port = short.groups()
            place: Dict[str, Any] = {"type": "unknown", "guid": ibwords.guid(guid), "name": None, "lid": None}
            if out is None:
                values[which.strip().lower()] = {**place, "port": int(port)}
            else:
                hops.append({"out": int(out), **place, "in": int(port)})
        elif ibwords.complaint(line):
            notes.warn(line)
        else:
            notes.puzzled(line)
    values["hops"] = hops
    return notes.reading(values)


def _place(kind: str, guid: str, name: str, lid: str) -> Dict[str, Any]:
    kinds = {"ca": "CA", "???": "unknown"}
    return {
        "type": kinds.get(kind.lower(), kind.lower()),
        "guid": ibwords.guid(guid),
        "lid": int(lid),
        "name": name[:200],
    }


FORMATS = [Format("ibtracert", "ibtracert: the way from a port to another", (), {}, likely, parse)]
