"""Outputs of InfiniBand tools that no probe runs: ways through a fabric, ``ibping``, ``ibdiagnet``, ``ibswinfo``."""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers import lines
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.ib import values as ibwords
from fabtui_node.parsers.lines import plain_lines

# ibroute: the forwarding table of a switch. ibaddr: the addresses of a port.
_SWITCH = re.compile(
    r"Unicast lids \[0x[0-9a-fA-F]{1,6}-0x[0-9a-fA-F]{1,6}\] of switch (.{1,120}?) "
    r"guid (0x[0-9a-fA-F]{1,16}) \((.*)\):",
    re.ASCII,
)
_ROUTE = re.compile(
    r"(0x[0-9a-fA-F]{1,6}) ([0-9]{1,4})\s*"
    r"(?:: \((.{1,40}?) portguid (0x[0-9a-fA-FxX*.]{1,18}): '(.*)'\)|: \((.*)\))?\s*",
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
            values["rtt_min"], values["rtt_avg"], values["rtt_max"] = map(lines.number, times.groups())
        elif not times:
            ibwords.leftover(line, notes)
    return notes.reading({**values, "rtts": rtts})


# Output and log of ibdiagnet: what the discovery found, complaints, and warnings and errors of each stage.
#
# Grammar: ibdiagnet 1 is public (ibutils, ``ibdebug_if.tcl``). Messages begin with ``-I-``, ``-W-`` or ``-E-``. Its
# ``Stages Status Report`` has the columns ``STAGE Errors Warnings``.
#
# Version 2 (NVIDIA, closed) keeps the marks and ends with ``Summary``, as in its manual and in public logs. Its columns
# are ``Stage Warnings Errors Comment``, so that their order is read from the heading.

_MARKED = re.compile(r"\s{0,8}-([IWE])-\s?(.*)", re.I)
_HEADING = re.compile(r"stage\s+(warnings\s+errors|errors\s+warnings)(?:\s+comment)?\s*", re.I)
_STAGE = re.compile(r"(\S(?:.{0,80}?\S)?)\s{2,200}(\d{1,12})\s{1,40}(\d{1,12})(?:\s{1,40}(.{1,200}?))?\s*")
_NODES = re.compile(r"(\d{1,9}) nodes \((\d{1,9}) Switches & (\d{1,9}) CA-s\) discovered", re.I)
_VERSION = re.compile(r"ibdiagnet(?:[ _-]?version)?:? +(?:version:? +)?\"?v?(\d+\.\d[\w.-]{0,40})", re.I)
#: Maximum number of complaints that are kept.
_MOST = 1000


class _Parser:
    def __init__(self) -> None:
        self.notes = Notes()
        self.values: dict[str, Any] = {"version": None, "nodes": None, "switches": None, "hosts": None}
        self.stages: list[dict[str, Any]] = []
        self.complaints: dict[tuple[str, str], int] = {}
        self.open: tuple[str, str] | None = None
        self.order: tuple[str, str] | None = None

    def line(self, line: str) -> None:
        marked = _MARKED.fullmatch(line)
        if marked or not line.startswith("    "):
            self._end()
        mark, text = (marked[1].upper(), marked[2].strip()) if marked else ("", line.strip())
        if heading := _HEADING.fullmatch(text[:200]):
            first = heading[1].lower().startswith("warnings")
            self.order = ("warnings", "errors") if first else ("errors", "warnings")
        elif self.order and mark in ("", "I") and (stage := _STAGE.fullmatch(text[:500])):
            numbers = dict(zip(self.order, (int(stage[2]), int(stage[3])), strict=True))
            row = {"stage": stage[1], "errors": numbers["errors"], "warnings": numbers["warnings"], "comment": stage[4]}
            self.stages.append(row)
        elif mark in ("W", "E") and text:
            self.open = ("error" if mark == "E" else "warning", text[:300])
        elif self.open and not mark and line.startswith("    ") and len(self.open[1]) < 300:
            # What follows a complaint, indented, belongs to it.
            self.open = (self.open[0], f"{self.open[1]} {text}"[:300])
        elif found := _NODES.search(text[:500]):
            self.values |= {
                name: int(count) for name, count in zip(("nodes", "switches", "hosts"), found.groups(), strict=True)
            }
        elif found := _VERSION.search(text[:300]):
            self.values["version"] = found[1]

    def _end(self) -> None:
        if self.open and (self.open in self.complaints or len(self.complaints) < _MOST):
            self.complaints[self.open] = self.complaints.get(self.open, 0) + 1
        self.open = None


def parse_ibdiagnet(text: str) -> Reading:
    """Return ``nodes``, ``switches``, ``hosts``, ``stages`` and ``complaints`` with how often each was printed."""
    parser = _Parser()
    for line in plain_lines(text):
        parser.line(line)
    parser.line("")
    notes = parser.notes
    for stage in parser.stages:
        if stage["errors"] or stage["warnings"]:
            notes.warn(f"{stage['stage']}: {stage['errors']} errors, {stage['warnings']} warnings")
    for level, complaint in parser.complaints:
        if level == "error":
            notes.warn(complaint)
    if not parser.stages:
        notes.warn("the summary of the stages is missing: the run did not end, or the text is a part of it")
    complaints = [{"level": level, "text": text, "count": count} for (level, text), count in parser.complaints.items()]
    return notes.reading({**parser.values, "stages": parser.stages, "complaints": complaints})


_DIAGNET_LIKELY = first_of(
    (
        0.97,
        r"(?i)^[ \t]{0,8}(?:-I- )?stage {1,60}(?:warnings {1,20}errors|errors {1,20}warnings)\b"
        r"|^[ \t]{0,8}-I- stages status report",
    ),
    (0.9, r"(?i)\bibdiagnet2?\.(?:log|db_csv)\b|nodes \(\d+ switches & \d+ ca-s\) discovered"),
    (0.6, r"^[ \t]{0,8}-[IWE]- .{1,300}\n(?:.*\n){0,3}?[ \t]{0,8}-[IWE]- "),
)


_PAIR = re.compile(r"\s*([A-Za-z][\w#./ -]{0,40}?)\s*(?:\(([^()|]{1,20})\)\s*)?[|:]\s*(.*)", re.ASCII)
_RULE = re.compile(r"\s*[=-]{3,}\s*")
_PSU = re.compile(r"psu([0-9]{1,2})[ .](status|dc|fan|power|part_number|serial)", re.ASCII | re.IGNORECASE)
_FAN = re.compile(r"fan#([0-9]{1,3})(?:\.speed)?", re.ASCII)
_MODULE = re.compile(r"QSFP#([0-9]{1,3})(?:\.temp)?", re.ASCII)
_UPTIME = re.compile(r"([0-9]{1,6})d-([0-9]{1,2}):([0-9]{2}):([0-9]{2})", re.ASCII)

_PLAIN = {
    "part number": "part", "part_number": "part", "serial number": "serial", "serial": "serial",
    "product name": "product", "product_name": "product", "revision": "revision", "PSID": "psid", "GUID": "guid",
    "firmware version": "firmware", "fw_version": "firmware", "CPLD": "cpld", "cpld": "cpld",
    "node_desription": "name", "node_description": "name", "fan status": "fan_status", "fans": "fan_status",
}  # fmt: skip
_NUMBERS = {
    "ports": "ports", "temperature": "temperature", "cur.temp": "temperature", "max temp": "temperature_max",
    "max.temp": "temperature_max",
}  # fmt: skip
_OF_PSU = {
    "P/N": "part", "part_number": "part", "S/N": "serial", "serial": "serial", "DC power": "dc", "dc": "dc",
    "fan status": "fan", "fan": "fan", "power": "power", "status": "status",
}  # fmt: skip


def parse_ibswinfo(text: str) -> Reading:
    """Return the vitals of the switch; None for missing values.

    Its ``name``, ``part``, ``serial``, ``product``, ``revision``, ``ports``, ``psid``, ``guid``,
    ``firmware``, ``uptime`` (s), ``psus`` ({"0": {"status", "part", "serial", "dc", "fan", "power"}}),
    ``temperature``, ``temperature_max``, ``fan_status``, ``fans`` and ``modules`` (by number).
    """
    notes = Notes()
    names = ["name", *_PLAIN.values(), *_NUMBERS.values(), "uptime"]
    values: dict[str, Any] = dict.fromkeys(names)
    values.update(psus={}, fans={}, modules={})
    psu: str | None = None
    ruled = False
    for line in ibwords.lines(text):
        if _RULE.fullmatch(line):
            ruled, psu = True, None
            continue
        pair = _PAIR.fullmatch(line)
        if pair is None and ruled and values["name"] is None and "|" not in line and not ibwords.complaint(line):
            values["name"] = line.strip()[:200]
        elif pair is None or ibwords.complaint(line):
            ibwords.leftover(line, notes)
        else:
            label, unit, value = pair[1], pair[2], pair[3].strip()[:100]
            found = _PSU.fullmatch(label)
            psu = found[1] if found and label.startswith("PSU") else psu
            if not (line[0].isspace() and psu is not None and _psu(values, psu, label, value)) and not _take(
                values, label, unit, value
            ):
                notes.puzzled(line)
    return notes.reading(values)


def _psu(values: dict[str, Any], number: str, label: str, value: str) -> bool:
    name = _OF_PSU.get(label)
    if name is None:
        return False
    values["psus"].setdefault(number, {})[name] = lines.number(value) if name == "power" else value or None
    return True


def _take(values: dict[str, Any], label: str, unit: str | None, value: str) -> bool:
    if psu := _PSU.fullmatch(label):
        return _psu(values, psu[1], psu[2].lower(), value)
    for name, pattern in (("fans", _FAN), ("modules", _MODULE)):
        if found := pattern.fullmatch(label):
            values[name][str(int(found[1]))] = lines.number(value)
            return True
    if label in _NUMBERS:
        count = lines.number(value)
        values[_NUMBERS[label]] = int(count) if count is not None and label == "ports" else count
    elif label in _PLAIN:
        values[_PLAIN[label]] = value or None
    elif label == "uptime":
        values["uptime"] = lines.number(value) if unit == "sec" else _seconds(value)
    else:
        return label == "warn threshold"
    return True


def _seconds(value: str) -> float | None:
    found = _UPTIME.fullmatch(value)
    if not found:
        return None
    days, hours, minutes, seconds = map(int, found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


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
        "ibtracert: the path from one port to another",
        first_of((0.97, r"^\[\d+\] -> (\w+ port )?\{0x"), (0.7, r"^From (ca|switch|router) \{0x")),
        parse_ibtracert,
    ),
    Format(
        "ibroute",
        "ibroute: the forwarding table of a switch",
        first_of(
            (0.97, r"Unicast lids \[0x"),
            (0.9, r"^0x[0-9a-fA-F]{4} \d{3} : \((?:Channel Adapter|Switch|Router) portguid 0x"),
        ),
        parse_ibroute,
    ),
    Format(
        "ibaddr",
        "ibaddr: the addresses of a port",
        first_of((0.95, r"^(GID \S+ )?LID start (0x)?[0-9a-f]+ end ")),
        parse_ibaddr,
    ),
    Format(
        "ibdiagnet",
        "ibdiagnet: warnings and errors of each check of an InfiniBand fabric",
        _DIAGNET_LIKELY,
        parse_ibdiagnet,
        aliases="ibdiagnet2",
    ),
    Format(
        "ibswinfo",
        "ibswinfo: power, fans and temperatures of an unmanaged switch",
        first_of((0.95, r"^PSU\d status\s+\||^(psu\d\.|fan#\d)"), (0.8, r"^(part number|PSID)\s+\|")),
        parse_ibswinfo,
        units={"uptime": "s", "temperature": "C", "temperature_max": "C", "power": "W", "fans": "rpm", "modules": "C"},
    ),
]
