"""``ibswinfo``: power supplies, fans and temperatures of an unmanaged switch; all four of its outputs."""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.ib import values as ibwords

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


def parse(text: str) -> Reading:
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
    values["psus"].setdefault(number, {})[name] = ibwords.decimal(value) if name == "power" else value or None
    return True


def _take(values: dict[str, Any], label: str, unit: str | None, value: str) -> bool:
    if psu := _PSU.fullmatch(label):
        return _psu(values, psu[1], psu[2].lower(), value)
    for name, pattern in (("fans", _FAN), ("modules", _MODULE)):
        if found := pattern.fullmatch(label):
            values[name][str(int(found[1]))] = ibwords.decimal(value)
            return True
    if label in _NUMBERS:
        count = ibwords.decimal(value)
        values[_NUMBERS[label]] = int(count) if count is not None and label == "ports" else count
    elif label in _PLAIN:
        values[_PLAIN[label]] = value or None
    elif label == "uptime":
        values["uptime"] = ibwords.decimal(value) if unit == "sec" else _seconds(value)
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
        "ibswinfo",
        "ibswinfo: power, fans and temperatures of an unmanaged switch",
        first_of((0.95, r"^PSU\d status\s+\||^(psu\d\.|fan#\d)"), (0.8, r"^(part number|PSID)\s+\|")),
        parse,
        units={"uptime": "s", "temperature": "C", "temperature_max": "C", "power": "W", "fans": "rpm", "modules": "C"},
    )
]
