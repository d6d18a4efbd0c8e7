"""``saquery``: records of the subnet administrator, decoded for nodes and paths."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values

_RECORD = re.compile(r"\s*([A-Za-z][\w ]{0,60}?)(?: (?:member|group))? dump:\s*", re.ASCII)
_FIELD = re.compile(r"\s+([A-Za-z]\w{0,60})\.{2,60}\s*(.*)", re.ASCII)
_LISTED = re.compile(r"\s*([0-9]{1,6})  \"(.*)\"\s*", re.ASCII)
_MTUS = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
_RATES = {
    2: 2.5, 3: 10.0, 4: 30.0, 5: 5.0, 6: 20.0, 7: 40.0, 8: 60.0, 9: 80.0, 10: 120.0, 11: 14.0, 12: 56.0, 13: 112.0,
    14: 168.0, 15: 25.0, 16: 100.0, 17: 200.0, 18: 300.0, 19: 28.0, 20: 50.0, 21: 400.0, 22: 600.0, 23: 800.0,
    24: 1200.0,
}  # fmt: skip
_NUMBERS = ("lid", "LID", "dlid", "slid", "num_ports", "port_num")


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``saquery``."""
    if re.search(r"^[ \t]*\w+ ?Record( member| group)? dump:", text, re.MULTILINE):
        return 0.97
    if re.search(r"^SA ClassPortInfo:|^[ \t]+LID \"name\"", text, re.MULTILINE):
        return 0.9
    return 0.5 if "Query SA failed" in text else 0.0


def parse(text: str) -> Reading:
    """Return ``{"records": [{"record": name, "fields": {...}}], "names": [{"lid", "name"}]}``.

    Fields are as printed, but for LIDs and port numbers, which are numbers. A path record also has ``mtu_bytes`` and
    ``rate_gbps``, decoded; ``names`` are those of lists as of ``saquery -N -l``.
    """
    notes = Notes()
    records: List[Dict[str, Any]] = []
    names: List[Dict[str, Any]] = []
    for line in values.lines(text):
        record, field, listed = _RECORD.fullmatch(line), _FIELD.fullmatch(line), _LISTED.fullmatch(line)
        if record:
            records.append({"record": record.group(1), "fields": {}})
        elif field and records:
            records[-1]["fields"][field.group(1)] = _value(field.group(1), field.group(2).strip()[:200])
        elif listed:
            names.append({"lid": int(listed.group(1)), "name": listed.group(2)[:200]})
        elif re.match(r"=+\s*$|\s+LID \"name\"", line):
            continue
        elif values.complaint(line):
            notes.warn(line)
        elif line.startswith("SA ClassPortInfo:"):
            records.append({"record": "ClassPortInfo", "fields": {}})
        else:
            notes.puzzled(line)
    for entry in records:
        if entry["record"] == "PathRecord":
            entry["mtu_bytes"] = _MTUS.get(_coded(entry["fields"].get("mtu")))
            entry["rate_gbps"] = _RATES.get(_coded(entry["fields"].get("rate")))
    return notes.reading({"records": records, "names": names})


def _value(name: str, text: str) -> Any:
    return values.integer(text) if name in _NUMBERS else text


def _coded(text: Optional[str]) -> int:
    """Return the code in the lower six bits; the upper two are the comparison."""
    number = values.integer(text)
    return -1 if number is None else number & 0x3F


FORMATS = [
    Format(
        "saquery",
        "saquery: records of the subnet administrator",
        ("saquery",),
        {"mtu_bytes": "B", "rate_gbps": "Gb/s"},
        likely,
        parse,
    )
]
