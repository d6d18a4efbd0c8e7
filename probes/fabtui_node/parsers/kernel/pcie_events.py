"""Kernel messages of PCIe: errors (AER), and links narrower or slower than supported."""

from __future__ import annotations

import re
from typing import Any, Dict, Optional

_BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
_NUMBER = r"([0-9]{1,6}(?:\.[0-9]{1,4})?)"
_BANDWIDTH = re.compile(
    r"\S{1,40} (" + _BUS + r"): " + _NUMBER + r" Gb/s available PCIe bandwidth"
    r"(?:, limited by " + _NUMBER + r" GT/s (?:PCIe )?x([0-9]{1,2}) link at (" + _BUS + r")"
    r" \(capable of " + _NUMBER + r" Gb/s with " + _NUMBER + r" GT/s (?:PCIe )?x([0-9]{1,2}) link\)"
    r"| \(" + _NUMBER + r" GT/s (?:PCIe )?x([0-9]{1,2}) link\))"
)
_SEVERITY = r"(Corrected|Correctable|Uncorrected|Uncorrectable)(?: \((Non-)?Fatal\))?"
_RECEIVED = re.compile(
    r"\S{1,40} (" + _BUS + r"): AER: (Multiple )?" + _SEVERITY + " error (?:message )?received"
    r"(?: from (" + _BUS + r")|:.{0,40})?",
    re.IGNORECASE,
)
_BUS_ERROR = re.compile(
    r"\S{1,40} (" + _BUS + r"):(?: AER:)? PCIe Bus Error: severity=" + _SEVERITY + r", type=([A-Za-z ]{1,40}).{0,80}",
    re.IGNORECASE,
)
_BIT = re.compile(r"\S{1,40} (" + _BUS + r"):\s{1,6}\[ ?([0-9]{1,2})\] (\S.{0,60}?)(?:\s{2,20}.{0,40})?")
_MORE = re.compile(
    r"\S{1,40} " + _BUS + r":(?: AER:)?\s{1,6}(?:device \[|error status|TLP Header|broadcast error_detected)"
)
_DMAR = re.compile(
    r"(?:DMAR|AMD-Vi|iommu)\b.{0,120}?(?:\bfault\b|IO_PAGE_FAULT|Event logged).{0,120}", re.IGNORECASE | re.DOTALL
)
_DEVICE = re.compile(r"device[ =]\[?([0-9A-Fa-f]{0,4}:?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])", re.IGNORECASE)
_CHECK = re.compile(r"(?:mce: )?\[?(?:Hardware Error\]|\{[0-9]{1,4}\}\[Hardware Error\]): (.{1,200})")

Event = Dict[str, Any]


def bandwidth_event(text: str) -> Optional[Event]:
    """Return how much a PCIe device can transfer, ``pcie_limited`` where a link on the way lets through less."""
    found = _BANDWIDTH.match(text)
    if not found:
        return None
    bus, available, speed, width, at, capable, speed_capable, width_capable, plain_speed, plain_width = found.groups()
    event: Event = {"kind": "pcie_limited" if at else "pcie_bandwidth", "bus": bus.lower(), "code": None}
    event.update(available=float(available), speed=float(speed or plain_speed), width=int(width or plain_width))
    if at:
        event.update(at=at.lower(), capable=float(capable), speed_capable=float(speed_capable))
        event.update(width_capable=int(width_capable), ratio=_ratio(float(available), float(capable)))
    return event


def _ratio(available: float, capable: float) -> Optional[float]:
    return round(available / capable, 4) if capable else None


def _severity(word: str, non: Optional[str]) -> str:
    if word.lower().startswith("corr"):
        return "corrected"
    return "nonfatal" if non else "fatal"


class Aer:
    """Joins the lines of one PCIe error: its arrival, its kind, and the bit of the register."""

    def __init__(self) -> None:
        self._last: Optional[Event] = None

    def take(self, text: str) -> Optional[Event]:
        """Return a new event, ``{"kind": None}`` for a line that goes on with the last one, None for other lines."""
        received, error, bit = _RECEIVED.match(text), _BUS_ERROR.match(text), _BIT.fullmatch(text)
        if received:
            bus, _, word, non, source = received.groups()
            self._last = {"kind": "aer", "bus": (source or bus).lower(), "code": _severity(word, non)}
            self._last.update(port=bus.lower(), type=None, detail=None)
            return self._last
        if error:
            return self._error(error)
        if bit and self._last is not None:
            self._last["detail"] = self._last["detail"] or bit.group(3).strip()
            return {"kind": None}
        if _MORE.match(text):
            return {"kind": None}
        return _others(text)

    def _error(self, found: Any) -> Event:
        bus, word, non, kind = found.groups()
        severity = _severity(word, non)
        if self._last is not None and self._last["type"] is None and self._last["code"] == severity:
            self._last.update(type=kind.strip())
            return {"kind": None}
        self._last = {"kind": "aer", "bus": bus.lower(), "code": severity, "port": None}
        self._last.update(type=kind.strip(), detail=None)
        return self._last


def _others(text: str) -> Optional[Event]:
    """Return faults of the IOMMU and of the machine itself."""
    if _DMAR.match(text):
        device = _DEVICE.search(text[:400])
        return {"kind": "iommu", "bus": device.group(1).lower() if device else None, "code": None}
    if _CHECK.match(text):
        return {"kind": "machine_check", "bus": None, "code": None}
    return None


def continues(text: str) -> bool:
    """Return True if a line continues a PCIe error."""
    return bool(_MORE.match(text) or _BIT.fullmatch(text))
