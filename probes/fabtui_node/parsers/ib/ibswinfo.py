"""``ibswinfo``: power supplies, fans and temperatures of an unmanaged switch; all four of its outputs."""

from __future__ import annotations

import re
from typing import Any, Dict, Optional

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values as ibwords

_PAIR = re.compile(r"\s*([A-Za-z][\w#./ -]{0,40}?)\s*(?:\(([^()|]{1,20})\))?\s*[|:]\s*(.*)", re.ASCII)
_RULE = re.compile(r"\s*[=-]{3,}\s*")
_PSU = re.compile(r"psu([0-9]{1,2})[ .](status|dc|fan|power|part_number|serial)", re.ASCII | re.IGNORECASE)
_FAN = re.compile(r"fan#([0-9]{1,3})(?:\.speed)?", re.ASCII)
_MODULE = re.compile(r"QSFP#([0-9]{1,3})(?:\.temp)?", re.ASCII)
_UPTIME = re.compile(r"([0-9]{1,6})d-([0-9]{1,2}):([0-9]{2}):([0-9]{2})", re.ASCII)

_PLAIN = {
    "part number": "part",
    "part_number": "part",
    "serial number": "serial",
    "serial": "serial",
    "product name": "product",
    "product_name": "product",
    "revision": "revision",
    "PSID": "psid",
    "GUID": "guid",
    "firmware version": "firmware",
    "fw_version": "firmware",
    "CPLD": "cpld",
    "cpld": "cpld",
    "node_desription": "name",
    "node_description": "name",
    "fan status": "fan_status",
    "fans": "fan_status",
}
_NUMBERS = {
    "ports": "ports",
    "temperature": "temperature",
    "cur.temp": "temperature",
    "max temp": "temperature_max",
    "max.temp": "temperature_max",
}
_OF_PSU = {
    "P/N": "part",
    "part_number": "part",
    "S/N": "serial",
    "serial": "serial",
    "DC power": "dc",
    "dc": "dc",
    "fan status": "fan",
    "fan": "fan",
    "power": "power",
    "status": "status",
}


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``ibswinfo``."""
    if re.search(r"^PSU\d status\s+\|", text, re.MULTILINE) or re.search(r"^(psu\d\.|fan#\d)", text, re.MULTILINE):
        return 0.95
    return 0.8 if re.search(r"^(part number|PSID)\s+\|", text, re.MULTILINE) else 0.0


def parse(text: str) -> Reading:
    """Return the vitals of the switch; None for missing values.

    Its ``name``, ``part``, ``serial``, ``product``, ``revision``, ``ports``, ``psid``, ``guid``,
    ``firmware``, ``uptime`` (s), ``psus`` ({"0": {"status", "part", "serial", "dc", "fan", "power"}}),
    ``temperature``, ``temperature_max``, ``fan_status``, ``fans`` and ``modules`` (by number).
    """
    notes = Notes()
    names = ["name", *_PLAIN.values(), *_NUMBERS.values(), "uptime"]
    values: Dict[str, Any] = dict.fromkeys(names)
    values.update(psus={}, fans={}, modules={})
    psu: Optional[str] = None
    ruled = False
    for line in ibwords.lines(text):
        if _RULE.fullmatch(line):
            ruled, psu = True, None
            continue
        pair = _PAIR.fullmatch(line)
        if ibwords.complaint(line):
            notes.warn(line)
        elif pair is None:
            if ruled and values["name"] is None and "|" not in line:
                values["name"] = line.strip()[:200]
            else:
                notes.puzzled(line)
        else:
            label, unit, value = pair.group(1), pair.group(2), pair.group(3).strip()[:100]
            found = _PSU.fullmatch(label)
            psu = found.group(1) if found and label.startswith("PSU") else psu
            if not (line[0].isspace() and psu is not None and _psu(values, psu, label, value)) and not _take(
                values, label, unit, value
            ):
                notes.puzzled(line)
    return notes.reading(values)


def _psu(values: Dict[str, Any], number: str, label: str, value: str) -> bool:
    name = _OF_PSU.get(label)
    if name is None:
        return False
    values["psus"].setdefault(number, {})[name] = ibwords.decimal(value) if name == "power" else value or None
    return True


def _take(values: Dict[str, Any], label: str, unit: Optional[str], value: str) -> bool:
    psu, fan, module = _PSU.fullmatch(label), _FAN.fullmatch(label), _MODULE.fullmatch(label)
    if psu:
        return _psu(values, psu.group(1), psu.group(2).lower(), value)
    if fan:
        values["fans"][str(int(fan.group(1)))] = ibwords.decimal(value)
    elif module:
        values["modules"][str(int(module.group(1)))] = ibwords.decimal(value)
    elif label in _NUMBERS:
        number = ibwords.decimal(value)
        values[_NUMBERS[label]] = int(number) if number is not None and label == "ports" else number
    elif label in _PLAIN:
        values[_PLAIN[label]] = value or None
    elif label == "uptime":
        values["uptime"] = _seconds(value, unit)
    else:
        return label == "warn threshold"
    return True


def _seconds(value: str, unit: Optional[str]) -> Optional[float]:
    if unit == "sec":
        return ibwords.decimal(value)
    found = _UPTIME.fullmatch(value)
    if not found:
        return None
    days, hours, minutes, seconds = (int(word) for word in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


FORMATS = [
    Format(
        "ibswinfo",
        "ibswinfo: power, fans and temperatures of an unmanaged switch",
        (),
        {"uptime": "s", "temperature": "C", "temperature_max": "C", "power": "W", "fans": "rpm", "modules": "C"},
        likely,
        parse,
    )
]
