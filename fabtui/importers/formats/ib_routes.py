"""Ways through a fabric: ``ibroute``, ``ibaddr``, ``ibtracert``, and round trips of ``ibping``."""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.ib import values as ibwords

# ibroute: the forwarding table of a switch. ibaddr: the addresses of a port.
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


def parse_ibroute(text: str) -> Reading:
    """Return ``{"switch": {"guid", "name"}, "routes": [{"lid", "port", "type", "guid", "name"}], "count"}``."""
    notes = Notes()
    switch: dict[str, Any] = {"guid": None, "name": None}
    routes: list[dict[str, Any]] = []
    count = None
    for line in ibwords.lines(text):
        named, route, dumped = _SWITCH.match(line), _ROUTE.fullmatch(line), _DUMPED.match(line)
        if named:
            switch = {"guid": ibwords.guid(named[2]), "name": named[3][:200]}
        elif route:
            lid, port, kind, guid, name, other = route.groups()
            entry = {"lid": ibwords.integer(lid), "port": int(port), "type": kind or other, "guid": ibwords.guid(guid)}
            routes.append({**entry, "name": name and name[:200]})
        elif dumped:
            count = int(dumped[1])
        elif not re.match(r"\s+(Lid\s+Out|Port\s+Info)", line):
            ibwords.leftover(line, notes)
    if count is not None and count != len(routes):
        notes.warn(f"{len(routes)} of {count} routes are in the text")
    return notes.reading({"switch": switch, "routes": routes, "count": count})


def parse_ibaddr(text: str) -> Reading:
    """Return ``{"gid", "lid_start", "lid_end"}``."""
    notes = Notes()
    values: dict[str, Any] = {"gid": None, "lid_start": None, "lid_end": None}
    for line in ibwords.lines(text):
        if found := _ADDRESS.fullmatch(line):
            values = {"gid": found[1], "lid_start": ibwords.integer(found[2]), "lid_end": ibwords.integer(found[3])}
        else:
            ibwords.leftover(line, notes)
    return notes.reading(values)


# ibtracert: the way of packets from a port to another, switch by switch.
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


def parse_ibtracert(text: str) -> Reading:
    """Return ``{"from", "to", "hops"}``.

    Ends: ``type``, ``guid`` (of the node), ``port``, ``lid``, ``name``. Each hop: ``out`` (the port it leaves the one
    before by), ``type``, ``guid`` (of the port it enters), ``in``, ``lid``, ``name``. ``to`` is None where the way
    was not found to its end.
    """
    notes = Notes()
    values: dict[str, Any] = {"from": None, "to": None}
    hops: list[dict[str, Any]] = []
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
            place: dict[str, Any] = {"type": "unknown", "guid": ibwords.guid(guid), "name": None, "lid": None}
            if out is None:
                values[which.strip().lower()] = {**place, "port": int(port)}
            else:
                hops.append({"out": int(out), **place, "in": int(port)})
        else:
            ibwords.leftover(line, notes)
    return notes.reading({**values, "hops": hops})


def _place(kind: str, guid: str, name: str, lid: str) -> dict[str, Any]:
    type_ = {"ca": "CA", "???": "unknown"}.get(kind.lower(), kind.lower())
    return {"type": type_, "guid": ibwords.guid(guid), "lid": int(lid), "name": name[:200]}


# ibping: round trips of management packets to a LID. It exits with 0 even when nothing came back.
_PONG = re.compile(r"Pong from (.{1,200}) \((.{1,100}?)\): time ([0-9]{1,9}\.[0-9]{1,6}) ms", re.ASCII)
_TITLE = re.compile(r"--- (.{0,200}?) \((.{1,100}?)\) ibping statistics ---", re.ASCII)
_SENT = re.compile(
    r"([0-9]{1,12}) packets transmitted, ([0-9]{1,12}) received, ([0-9]{1,5})% packet loss, time ([0-9]{1,12}) ms",
    re.ASCII,
)
_TIMES = re.compile(r"rtt min/avg/max = ([0-9.]{1,15})/([0-9.]{1,15})/([0-9.]{1,15}) ms", re.ASCII)


def parse_ibping(text: str) -> Reading:
    """Return ``{"host", "target", "sent", "received", "loss", "rtt_min", "rtt_avg", "rtt_max", "rtts"}``.

    Without an answer the times are None: the tool prints zeros then.
    """
    notes = Notes()
    names = ("host", "target", "sent", "received", "loss", "rtt_min", "rtt_avg", "rtt_max")
    values: dict[str, Any] = dict.fromkeys(names)
    rtts: list[float] = []
    for line in ibwords.lines(text):
        pong, title, sent, times = _PONG.match(line), _TITLE.match(line), _SENT.match(line), _TIMES.match(line)
        if pong:
            values["host"], values["target"] = pong[1], pong[2]
            rtts.append(float(pong[3]))
        elif title:
            values["host"], values["target"] = title[1].strip() or values["host"], title[2]
        elif sent:
            values.update(sent=int(sent[1]), received=int(sent[2]), loss=float(sent[3]))
        elif times and values["received"]:
            values["rtt_min"], values["rtt_avg"], values["rtt_max"] = map(ibwords.decimal, times.groups())
        elif not times:
            ibwords.leftover(line, notes)
    return notes.reading({**values, "rtts": rtts})


FORMATS = [
    Format(
        "ibping",
        "ibping: round trips of management packets",
        first_of((0.97, "ibping statistics ---"), (0.9, "^Pong from ")),
        parse_ibping,
        units={"loss": "%", "rtt_min": "ms", "rtt_avg": "ms", "rtt_max": "ms", "rtts": "ms"},
    ),
    Format(
        "ibtracert",
        "ibtracert: the way from a port to another",
        first_of((0.97, r"^\[\d+\] -> (\w+ port )?\{0x"), (0.7, r"^From (ca|switch|router) \{0x")),
        parse_ibtracert,
    ),
    Format(
        "ibroute", "ibroute: the forwarding table of a switch", first_of((0.97, r"Unicast lids \[0x")), parse_ibroute
    ),
    Format(
        "ibaddr",
        "ibaddr: the addresses of a port",
        first_of((0.95, r"^(GID \S+ )?LID start (0x)?[0-9a-f]+ end ")),
        parse_ibaddr,
    ),
]
