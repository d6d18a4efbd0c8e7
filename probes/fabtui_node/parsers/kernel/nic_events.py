"""Kernel messages of network cards: link changes, modules, health, power, firmware."""

from __future__ import annotations

import re
from typing import Any, Dict, Optional

_BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
_NAME = "[A-Za-z0-9_.-]{1,15}"
_DRIVERS = "mlx[45]_(?:core|en|ib)|mlx5e?|mlxfw|bnxt_en|bnxt_re|ice|i40e|irdma|ionic|efa|idpf|ena"
_CARD = re.compile(r"(" + _DRIVERS + r") (" + _BUS + r")")
_LINK = re.compile(
    r"(?:\S{1,24} " + _BUS + r":? )?(?:\S{1,24}: )?(?!NIC )([a-z][A-Za-z0-9_.@-]{0,15}):? (?:NIC )?[Ll]ink (?:is )?"
    r"([Uu]p|[Dd]own|UP|DOWN)\b.{0,200}"
)
_PORT = re.compile(
    r"(?:\S{1,24} )?(?:(" + _BUS + r")|(mlx[45]_[0-9]{1,2})):? Port:? ([0-9]{1,3}) "
    r"[Ll]ink (ACTIVE|DOWN|UP|[Uu]p|[Dd]own)"
)
_BOND = re.compile(r"(bond\S{0,14}): \(?(?:slave|port) (" + _NAME + r")\)?: link status (?:definitely )?(up|down)")
_READY = re.compile(r"IPv6: ADDRCONF\(NETDEV_(?:CHANGE|UP)\): (" + _NAME + r"): link (becomes ready|is not ready)")
_PHYSICAL = re.compile("ib|en|eth|bond|mlx|roce", re.ASCII)
_MODULE = re.compile(r"Port module event(?:\[error\])?: module ([0-9]{1,3}), (.{1,120})")
_MODULE_WORDS = ("unplugged", "plugged", "error", "temperature")
_FIRMWARE = re.compile(r"firmware version: ([0-9]{1,4}(?:\.[0-9]{1,6}){1,3})")
_POWER = re.compile(r"Detected insufficient power on the PCIe slot \(([0-9]{1,5})W\)")
_POWER_FINE = re.compile(r"PCIe slot (?:advertised sufficient power|power capability was not advertised)")
_HEALTH = re.compile(
    r"health compromised|fatal error [0-9]|health poll failed|health issue observed|in an? (?:internal )?error state"
    r"|entering error state|health recovery (?:flow|failed)|PCI slot is unavailable|assert_var",
    re.IGNORECASE,
)
_COMMAND = re.compile(
    r"timeout\. Will cause a leak|No done completion|wait_func.{0,60}timeout|cmd_work_handler.{0,60}fail", re.IGNORECASE
)
_HOT = re.compile(r"[Hh]igh [Tt]emperature|temp_warn|over.?temperature")

Event = Dict[str, Any]
Devices = Dict[str, Dict[str, Any]]


def device_event(text: str, devices: Devices) -> Optional[Event]:
    """Return the event of a network card in a line, ``{"kind": None}`` for a harmless one, else None."""
    card = _CARD.match(text)
    bus = card.group(2).lower() if card else None
    return _link_event(text, bus) or (_card_event(text, bus, devices) if bus else None)


def _link_event(text: str, bus: Optional[str]) -> Optional[Event]:
    port, bond, ready = _PORT.match(text), _BOND.match(text), _READY.match(text)
    link = _LINK.match(text)
    interface, word = None, ""
    if port:
        bus = port.group(1).lower() if port.group(1) else bus
        interface, word = "%s/%s" % (port.group(2) or port.group(1), port.group(3)), port.group(4)
    elif bond:
        interface, word = bond.group(2), bond.group(3)
    elif ready:
        # Containers come and go with interfaces of their own.
        physical = _PHYSICAL.match(ready.group(1)) and ready.group(2) == "becomes ready"
        interface, word = ready.group(1), "up" if physical else ""
    elif link:
        interface, word = link.group(1), link.group(2)
    else:
        return None
    if not word:
        return {"kind": None}
    up = word.lower() in ("up", "active")
    return {"kind": "link_up" if up else "link_down", "bus": bus, "code": None, "interface": interface}


def _card_event(text: str, bus: Optional[str], devices: Devices) -> Optional[Event]:
    module, firmware, power = _MODULE.search(text), _FIRMWARE.search(text), _POWER.search(text)
    if firmware and bus and (bus in devices or len(devices) < 256):
        devices.setdefault(bus, {})["firmware"] = firmware.group(1)
        return {"kind": None}
    if module:
        words = module.group(2).lower()
        code = next((word for word in _MODULE_WORDS if word in words), "unknown")
        return {"kind": "module", "bus": bus, "code": code, "module": int(module.group(1))}
    if power:
        return {"kind": "nic_power", "bus": bus, "code": None, "power": int(power.group(1))}
    if _POWER_FINE.search(text):
        return {"kind": None}
    for kind, pattern in (("nic_health", _HEALTH), ("nic_command", _COMMAND), ("nic_temperature", _HOT)):
        if pattern.search(text[:500]):
            return {"kind": kind, "bus": bus, "code": None}
    return None
