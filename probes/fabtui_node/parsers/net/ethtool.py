"""``ethtool`` without options, ``-a``, ``-i``, ``-S`` and ``-m``: speed, pause, driver, counters and module."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.ib import values as ibwords

_SETTINGS = re.compile(r"Settings for (\S{1,64}):")
_PAUSE = re.compile(r"Pause parameters for (\S{1,64}):")
_PAIR = re.compile(r"(\s*)([A-Za-z][\w /.,#()\[\]-]{0,80}?)\s*:\s*(.*)", re.ASCII)
_MODE = re.compile(r"([0-9]{2,7})base\S{0,30}/(?:Full|Half)", re.ASCII)
_SPEED = re.compile(r"([0-9]{1,8})Mb/s", re.ASCII)
_COUNTER = re.compile(r"\s+(\S[^:]{0,120}(?:: ?[^:0-9]{0,60})?):\s*([0-9]{1,20})\s*", re.ASCII)
_MEASURED = re.compile(r"(-?[0-9]{1,9}(?:\.[0-9]{1,9})?) (degrees C|V|mA|mW)\b", re.ASCII)

_MODES = {
    "Supported link modes": "supported_modes",
    "Advertised link modes": "advertised_modes",
    "Link partner advertised link modes": "partner_modes",
}
_WORDS = {
    "Duplex": "duplex", "Port": "port", "Transceiver": "transceiver", "Auto-negotiation": "autoneg", "MDI-X": "mdix",
    "Supported FEC modes": "fec_supported", "Advertised FEC modes": "fec_advertised", "Active FEC encoding": "fec",
}  # fmt: skip
_PAUSE_NAMES = {
    "Autonegotiate": "autoneg", "RX": "rx", "TX": "tx", "RX negotiated": "rx_negotiated",
    "TX negotiated": "tx_negotiated", "tx_pause_frames": "tx_frames", "rx_pause_frames": "rx_frames",
}  # fmt: skip
_UNSAID = ("Not reported", "Unknown!", "Unknown! (255)", "Unknown! (65535)", "")


def parse(text: str) -> Reading:
    """Return ``{"interfaces": [...]}``.

    - ``interface``, ``speed`` (Mb/s), ``fastest`` (Mb/s, of the supported modes), ``lanes``, ``duplex``.
    - ``link`` (``yes``, ``no`` or ``unknown``), ``why`` (there is no link), ``autoneg``, ``port``, ``transceiver``.
    - ``fec``, ``fec_supported``, ``fec_advertised``, ``supported_modes``, ``advertised_modes``, ``partner_modes``.

    Missing and unknown values are None.
    """
    notes = Notes()
    interfaces: List[Dict[str, Any]] = []
    more: Optional[List[str]] = None
    for line in ibwords.lines(text):
        named, pair = _SETTINGS.match(line), _PAIR.fullmatch(line)
        if named:
            names = [*_MODES.values(), *_WORDS.values(), "speed", "fastest", "lanes", "why"]
            interfaces.append({**dict.fromkeys(names), "interface": named[1], "link": "unknown"})
            more = None
        elif pair and interfaces and not ibwords.complaint(line):
            more = _take(interfaces[-1], pair[2], pair[3].strip())
        elif line.strip() == "No data available":
            notes.warn(line)
        elif more is not None and line[:1].isspace() and not ibwords.complaint(line):
            more += _modes(line)
        elif ibwords.complaint(line) or not line[:1].isspace():
            ibwords.leftover(line, notes)
    for entry in interfaces:
        entry["fastest"] = max((int(mode.split("base")[0]) for mode in entry["supported_modes"] or []), default=None)
    return notes.reading({"interfaces": interfaces})


def _modes(text: str) -> List[str]:
    return [mode for mode in text.split() if _MODE.fullmatch(mode)]


def _take(entry: Dict[str, Any], label: str, value: str) -> Optional[List[str]]:
    """Put a value where it belongs; return the list that continues in the next lines, if it is one."""
    if label in _MODES:
        if value not in _UNSAID:
            modes = entry[_MODES[label]] = _modes(value)
            return modes
    elif label == "Speed":
        speed = _SPEED.match(value)
        # Drivers that do not know the speed print -1, signed or unsigned.
        entry["speed"] = int(speed[1]) if speed and int(speed[1]) not in (65535, 4294967295) else None
    elif label == "Lanes":
        entry["lanes"] = ibwords.digits(value)
    elif label == "Link detected":
        word = value.partition(" ")[0]
        entry["link"] = word if word in ("yes", "no") else "unknown"
        entry["why"] = value.partition(" ")[2].strip("()")[:100] or None
    elif label in _WORDS:
        entry[_WORDS[label]] = None if value in _UNSAID else value[:100]
    return None


def parse_pause(text: str) -> Reading:
    """Return the pause settings of interfaces.

    ``{"interfaces": [{"interface", "autoneg", "rx", "tx", "rx_negotiated", "tx_negotiated", "rx_frames",
    "tx_frames"}]}``: ``on``, ``off`` or None, and how many pause frames were counted.
    """
    notes = Notes()
    interfaces: List[Dict[str, Any]] = []
    for line in ibwords.lines(text):
        named, pair = _PAUSE.match(line), _PAIR.fullmatch(line)
        if named:
            interfaces.append({"interface": named[1], **dict.fromkeys(_PAUSE_NAMES.values())})
        elif pair and pair[2] in _PAUSE_NAMES:
            if not interfaces:
                interfaces.append({"interface": None, **dict.fromkeys(_PAUSE_NAMES.values())})
            name, value = _PAUSE_NAMES[pair[2]], pair[3].strip()[:20]
            interfaces[-1][name] = ibwords.digits(value) if name.endswith("_frames") else value or None
        elif line.strip() != "Statistics:":
            ibwords.leftover(line, notes)
    return notes.reading({"interfaces": interfaces})


def parse_driver(text: str) -> Reading:
    """Return ``{"driver", "version", "firmware", "bus"}``."""
    notes = Notes()
    names = {"driver": "driver", "version": "version", "firmware-version": "firmware", "bus-info": "bus"}
    values: Dict[str, Any] = dict.fromkeys(names.values())
    for line in ibwords.lines(text):
        pair = _PAIR.fullmatch(line)
        if pair and pair[2] in names:
            values[names[pair[2]]] = pair[3].strip()[:100] or None
        elif not pair or not pair[2].startswith(("supports-", "expansion-rom-version")):
            ibwords.leftover(line, notes)
    return notes.reading(values)


def parse_statistics(text: str) -> Reading:
    """Return ``{"counters": {name: count}}``; of per-queue counters as well."""
    notes = Notes()
    counters: Dict[str, int] = {}
    for line in ibwords.lines(text):
        match = _COUNTER.fullmatch(line)
        if match:
            counters[match[1].strip()] = int(match[2])
        elif ibwords.complaint(line) or line.strip() == "no stats available":
            notes.warn(line)
        elif not line.startswith("NIC statistics:"):
            notes.puzzled(line)
    return notes.reading({"counters": counters})


def parse_module(text: str) -> Reading:
    """Return the attributes of a module.

    ``{"identifier", "vendor", "part", "serial", "temperature" (C), "voltage" (V), "rx_power" and "tx_power" (mW, a
    value a lane), "bias" (mA, a value a lane), "alarms": [names that are on]}``.
    """
    notes = Notes()
    values: Dict[str, Any] = dict.fromkeys(("identifier", "vendor", "part", "serial", "temperature", "voltage"))
    lanes: Dict[str, List[float]] = {"rx_power": [], "tx_power": [], "bias": []}
    alarms: List[str] = []
    words = {"Identifier": "identifier", "Vendor name": "vendor", "Vendor PN": "part", "Vendor SN": "serial"}
    for line in ibwords.lines(text):
        pair = _PAIR.fullmatch(line)
        if pair is None or ibwords.complaint(line):
            ibwords.leftover(line, notes)
            continue
        label, value = pair[2], pair[3].strip()
        measured = _MEASURED.match(value)
        if label in words:
            values[words[label]] = value[:100] or None
        elif value == "On" and ("alarm" in label or "warning" in label):
            alarms.append(label)
            notes.warn("%s: On" % label)
        elif measured and "threshold" not in label:
            name = _measured(label.lower())
            if name in lanes:
                lanes[name].append(float(measured[1]))
            elif name:
                values[name] = float(measured[1])
    return notes.reading({**values, **lanes, "alarms": alarms})


def _measured(label: str) -> str:
    if label in ("module temperature", "module voltage"):
        return label[len("module ") :]
    if "bias" in label:
        return "bias"
    if "power" in label and ("rcvr" in label or "receiver" in label or "rx" in label):
        return "rx_power"
    return "tx_power" if "power" in label and ("transmit" in label or "laser" in label or "tx" in label) else ""


FORMATS = [
    Format(
        "ethtool",
        "ethtool: speed and link of an interface",
        first_of((0.97, _SETTINGS.pattern), (0.5, r"^[ \t]*(Link detected|Supported link modes):")),
        parse,
        {"speed": "Mb/s", "fastest": "Mb/s"},
    ),
    Format(
        "ethtool-a",
        "ethtool -a: pause frames of an interface",
        first_of((0.97, _PAUSE.pattern), (0.9, r"^[RT]X negotiated: +\w|^Autonegotiate:[ \t]+\w+\r?\nRX:[ \t]")),
        parse_pause,
    ),
    Format(
        "ethtool-i",
        "ethtool -i: driver and firmware of an interface",
        first_of(
            (0.95, r"^driver: \S+\r?\n(?:.{0,200}\n){0,3}?(?:firmware-version|bus-info):"),
            (0.9, r"^firmware-version:.*\n(?:expansion-rom-version:.*\n)?bus-info:|^supports-statistics: (?:yes|no)\b"),
        ),
        parse_driver,
    ),
    Format("ethtool-S", "ethtool -S: counters of an interface", first_of((0.97, "^NIC statistics:")), parse_statistics),
    Format(
        "ethtool-m",
        "ethtool -m: the module in a port",
        first_of((0.9, r"^\s{0,8}Identifier +: 0x[0-9a-f]{2} \(")),
        parse_module,
        units={"temperature": "C", "voltage": "V", "rx_power": "mW", "tx_power": "mW", "bias": "mA"},
    ),
]
