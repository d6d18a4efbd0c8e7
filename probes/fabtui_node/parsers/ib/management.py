"""Answers of ports, switches and the subnet manager: ``perfquery``, ``smpquery``, ``sminfo``, ``saquery``."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.ib import values

# The grammar that many of these share: ``Name:.......value``, below a heading that begins with ``#``.
_FIELD = re.compile(r"\s*([A-Za-z][\w ]{0,60}?):\.*\s*(.*)", re.ASCII)
# What the bits of the mask above stand for, a line each.
_FLAG = re.compile(r"\t{2,}(Is|Has|No)\w{1,60}|\s{8,}(Is|Has)\w{1,60}", re.ASCII)
#: Headings that lost their ``#``, as in Markdown.
_UNMARKED = re.compile(
    r" ?(?:Port (?:extended )?counters|Port\w{1,40} counters|PortSamplesControl"
    r"|(?:Node|Switch|Port|Mlnx ext|GUID) ?[Ii]nfo): "
)
_REMARKS = ("Disable may be irreversible", "Port is already in enable state")

# perfquery: counters, short (they stop at their limit), extended (64 bits), and details.
_SELECTORS = ("PortSelect", "CounterSelect", "CounterSelect2")

# smpquery (node info, port info, switch info, descriptions) and ibportstate: attributes of a device.
_BLOCK_NUMBERS = ("Lid", "SMLid", "LMC", "NumPorts", "LocalPort", "NeighborMTU", "MtuCap")

# sminfo: which subnet manager is in charge.
_MANAGER = re.compile(
    r"sminfo: sm lid ([0-9]{1,6}) sm guid (0x[0-9a-fA-F]{1,16}), activity count ([0-9]{1,12}) priority ([0-9]{1,4})"
    r" state ([0-9]{1,3})(?: (\S{1,40}))?",
    re.ASCII,
)

# saquery: records of the subnet administrator, decoded for nodes and paths.
_RECORD = re.compile(r"\s*([A-Za-z][\w ]{0,60}?)(?: (?:member|group))? dump:\s*", re.ASCII)
_RECORD_FIELD = re.compile(r"\s+([A-Za-z]\w{0,60})\.{2,60}\s*(.*)", re.ASCII)
_LISTED = re.compile(r"\s*([0-9]{1,6})  \"(.*)\"\s*", re.ASCII)
_MTUS = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
_RATES = {
    2: 2.5, 3: 10.0, 4: 30.0, 5: 5.0, 6: 20.0, 7: 40.0, 8: 60.0, 9: 80.0, 10: 120.0, 11: 14.0, 12: 56.0, 13: 112.0,
    14: 168.0, 15: 25.0, 16: 100.0, 17: 200.0, 18: 300.0, 19: 28.0, 20: 50.0, 21: 400.0, 22: 600.0, 23: 800.0,
    24: 1200.0,
}  # fmt: skip
_RECORD_NUMBERS = ("lid", "LID", "dlid", "slid", "num_ports", "port_num")

_LINK_UNITS = {
    **dict.fromkeys(("lane_rate", "lane_rates_supported", "lane_rates_enabled", "rate"), "Gb/s"),
    **{"NeighborMTU": "B", "MtuCap": "B"},
}
_PORT_INFO = r"^(Initial )?(Switch|CA/RT|Peer) PortInfo:"


class Block(NamedTuple):
    """One answer: what was asked for, of whom, and its fields as text."""

    title: str  #: The heading's words, for example ``Port counters``; "" when fields came without a heading.
    lid: Optional[int]  #: The LID that was asked, or None.
    port: Optional[int]  #: The port that was asked, or None; 255 stands for all ports of a switch.
    remark: str  #: The text in brackets of the heading, or "".
    before: str  #: The line before the heading, for example ``Peer PortInfo``, or "".
    fields: Dict[str, str]  #: The values by name.

    def as_dict(self) -> Dict[str, Any]:
        return {"title": self.title, "lid": self.lid, "port": self.port}


def blocks(text: str, notes: Notes) -> List[Block]:
    """Return the answers in a text; complaints become warnings, and other lines are noted as unknown."""
    answers: List[Block] = []
    before = last = ""
    for line in values.lines(text):
        field = _FIELD.fullmatch(line)
        if line.startswith("#") or _UNMARKED.match(line):
            answers.append(_heading(line if line.startswith("#") else "#" + line, before))
            before = ""
        elif re.fullmatch(r"\s*[\w /]{1,60}:\s*", line, re.ASCII):
            before = line.strip().rstrip(":")
        elif values.complaint(line):
            notes.warn(line)
        elif field:
            if not answers:
                answers.append(Block("", None, None, "", before, {}))
            last = field[1]
            answers[-1].fields[last] = field[2].strip()[:200]
        elif answers and last and _FLAG.fullmatch(line):
            flags = answers[-1].fields.get(last + " flags", "")
            answers[-1].fields[last + " flags"] = (flags + " " + line.strip()).strip()[:2000]
        elif line.strip() not in _REMARKS:
            notes.puzzled(line)
    return answers


def _heading(line: str, before: str) -> Block:
    title, _, about = line[1:].strip().partition(": ")
    lid = re.search(r"Lid ([0-9]{1,6})\b", about, re.ASCII)
    port = re.search(r"\bport ([0-9]{1,4})\b", about, re.ASCII)
    remark = re.search(r"\(([^()]{1,100})\)\s*$", about)
    lid_number, port_number = int(lid[1]) if lid else None, int(port[1]) if port else None
    return Block(title.rstrip(":")[:60], lid_number, port_number, remark[1] if remark else "", before, {})


def parse_counters(text: str) -> Reading:
    """Return ``{"blocks": [{"title", "lid", "port", "extended", "capabilities", "counters", "saturated"}]}``.

    ``extended`` is True if the counters have 64 bits. ``saturated`` names counters of the short form that are at
    their limit: more may have happened. Data is counted in words of 4 bytes. An empty text has no block: nothing is
    known then, it does not mean zero.
    """
    notes = Notes()
    entries: List[Dict[str, Any]] = []
    for block in blocks(text, notes):
        counters: Dict[str, int] = {}
        for name, value in block.fields.items():
            count = values.digits(value)
            if name not in _SELECTORS and count is None:
                notes.puzzled("%s: %s" % (name, value))
            elif name not in _SELECTORS and count is not None:
                counters[name] = count
        if block.title or counters:
            entry = {
                **block.as_dict(),
                "extended": "extended" in block.title if block.title else None,
                "capabilities": block.remark or None,
            }
            short = block.title in ("Port counters", "")
            entries.append({**entry, "counters": counters, "saturated": values.saturated(counters) if short else []})
    if not entries and not notes.warnings:
        notes.warn("there are no counters in the text")
    return notes.reading({"blocks": entries})


def parse_attributes(text: str) -> Reading:
    """Return ``{"blocks": [{"title", "lid", "port", "of", "fields", "link"}]}``.

    ``of`` is the owner of the port as ``ibportstate`` prints it (``Switch PortInfo``, ``Peer PortInfo``). ``fields``
    are numbers where the names are known to be such, else text as printed. ``link``, for port infos: ``state``,
    ``physical_state``, ``lanes``, ``lanes_supported``, ``lanes_enabled``, ``lane_rate``, ``lane_rates_supported``,
    ``lane_rates_enabled`` (Gb/s as printed) and ``rate`` (Gb/s).
    """
    notes = Notes()
    entries: List[Dict[str, Any]] = []
    for block in blocks(text, notes):
        fields = {name: values.integer(v) if name in _BLOCK_NUMBERS else v for name, v in block.fields.items()}
        entries.append({**block.as_dict(), "of": block.before or None, "fields": fields})
        if "LinkWidthActive" in fields or "LinkState" in fields:
            entries[-1]["link"] = _link(block.fields)
    return notes.reading({"blocks": entries})


def _link(fields: Dict[str, str]) -> Dict[str, Any]:
    width = values.lanes(fields.get("LinkWidthActive"))
    speeds = (values.gbps(fields.get("LinkSpeed" + name)) for name in ("ExtActive2", "ExtActive", "Active"))
    speed = next(filter(None, speeds), None)
    return {
        "state": fields.get("LinkState") or "unknown",
        "physical_state": fields.get("PhysLinkState") or "unknown",
        "lanes": width,
        "lanes_supported": _lanes(fields.get("LinkWidthSupported")),
        "lanes_enabled": _lanes(fields.get("LinkWidthEnabled")),
        "lane_rate": speed,
        "lane_rates_supported": _rates(fields, "Supported"),
        "lane_rates_enabled": _rates(fields, "Enabled"),
        "rate": values.link_rate(width, speed),
    }


def _lanes(text: Optional[str]) -> List[int]:
    return sorted(lanes for word in (text or "").split(" or ") if (lanes := values.lanes(word)) is not None)


def _rates(fields: Dict[str, str], which: str) -> List[float]:
    names = ("LinkSpeed" + which, "LinkSpeedExt" + which, "LinkSpeedExt%s2" % which)
    rates = (values.gbps(word) for name in names for word in fields.get(name, "").split(" or "))
    return sorted({rate for rate in rates if rate is not None})


def parse_manager(text: str) -> Reading:
    """Return ``{"sm": {"lid", "guid", "activity", "priority", "state"}}``; ``sm`` is None when none answered."""
    notes = Notes()
    manager: Optional[Dict[str, Any]] = None
    for line in values.lines(text):
        if match := _MANAGER.match(line):
            lid, guid, activity, priority, state, word = match.groups()
            manager = {"lid": int(lid), "guid": values.guid(guid), "activity": int(activity), "priority": int(priority)}
            manager["state"] = re.sub("^sminfo_", "", word or state, flags=re.IGNORECASE)
        else:
            values.leftover(line, notes)
    return notes.reading({"sm": manager})


def parse_records(text: str) -> Reading:
    """Return ``{"records": [{"record": name, "fields": {...}}], "names": [{"lid", "name"}]}``.

    Fields are as printed, but for LIDs and port numbers, which are numbers. A path record also has ``mtu_bytes`` and
    ``rate_gbps``, decoded; ``names`` are the names in lists such as ``saquery -N -l``.
    """
    notes = Notes()
    records: List[Dict[str, Any]] = []
    names: List[Dict[str, Any]] = []
    for line in values.lines(text):
        record, field, listed = _RECORD.fullmatch(line), _RECORD_FIELD.fullmatch(line), _LISTED.fullmatch(line)
        if record:
            records.append({"record": record[1], "fields": {}})
        elif field and records:
            value = field[2].strip()[:200]
            records[-1]["fields"][field[1]] = values.integer(value) if field[1] in _RECORD_NUMBERS else value
        elif listed:
            names.append({"lid": int(listed[1]), "name": listed[2][:200]})
        elif line.startswith("SA ClassPortInfo:") and not values.complaint(line):
            records.append({"record": "ClassPortInfo", "fields": {}})
        elif not re.match(r"=+\s*$|\s+LID \"name\"", line):
            values.leftover(line, notes)
    for entry in records:
        if entry["record"] == "PathRecord":
            entry["mtu_bytes"] = _MTUS.get(_coded(entry["fields"].get("mtu")))
            entry["rate_gbps"] = _RATES.get(_coded(entry["fields"].get("rate")))
    return notes.reading({"records": records, "names": names})


def _coded(text: Optional[str]) -> int:
    """Return the code in the lower six bits; the upper two are the comparison."""
    number = values.integer(text)
    return -1 if number is None else number & 0x3F


FORMATS = [
    Format(
        "perfquery",
        "perfquery: the counters of InfiniBand ports",
        first_of(
            (0.97, r"^#? ?(Port (extended )?counters|Port\w+ counters|PortSamplesControl): "),
        ),
        parse_counters,
        values.COUNTER_UNITS,
    ),
    Format(
        "sminfo",
        "sminfo: the subnet manager in charge",
        first_of((0.97, "sminfo: sm lid"), (0.8, "^sminfo: ")),
        parse_manager,
    ),
    Format(
        "saquery",
        "saquery: records of the subnet administrator",
        first_of(
            (0.97, r"^[ \t]*\w+ ?Record( member| group)? dump:"),
            (0.9, r"^SA ClassPortInfo:|^[ \t]+LID \"name\""),
            (0.5, "Query SA failed"),
        ),
        parse_records,
        {"mtu_bytes": "B", "rate_gbps": "Gb/s"},
    ),
    Format(
        "smpquery",
        "smpquery: node, port and switch info",
        first_of(
            (0.3, _PORT_INFO),
            (0.95, r"^#? ?(Node|Switch|Port|Mlnx ext|GUID) ?[Ii]nfo: "),
            (0.9, r"^Node Description:\.+"),
        ),
        parse_attributes,
        units=_LINK_UNITS,
    ),
    Format(
        "ibportstate",
        "ibportstate: the state of a port and its peer",
        first_of((0.97, _PORT_INFO), (0.5, "ibportstate:")),
        parse_attributes,
        units=_LINK_UNITS,
    ),
]
