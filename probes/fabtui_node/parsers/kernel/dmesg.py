"""The kernel's log: reports of GPUs, NVSwitches, PCIe, network cards and their links, as events."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.kernel import line_prefix
from fabtui_node.parsers.kernel.nic_events import device_event
from fabtui_node.parsers.kernel.pcie_events import Aer, bandwidth_event, continues
from fabtui_node.parsers.nvidia import xid_table

#: How many events are kept, the last ones; all are counted.
MOST_EVENTS = 500
_MOST_COUNTS = 500
_MOST_LINES = 100_000
_WIDTH = 400

_BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?"
_XID = re.compile(
    r"(?:\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4})\] )?"
    r"NVRM: Xid \((?:PCI:)?("
    + _BUS
    + r")[^)]{0,40}\): ([0-9]{1,4})(?:, ((?:(?!NVRM: Xid|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]).){0,600}))?"
)
# A report that is quoted in the output of another tool goes on with what that tool writes.
_QUOTED = re.compile(r"\) => \{|\",? \"|\"\}")
_PID = re.compile(r"pid='?(<?[\w]{1,16}>?)'?(?:, name='?([^,']{1,64})'?)?(?:, )?(.{0,600})")
_SXID = re.compile(
    r"nvidia-nvswitch([0-9]{1,3}): SXid \(PCI:(" + _BUS + r")\): ([0-9]{1,6}), (.{0,400})", re.IGNORECASE
)
_SXID_MORE = re.compile("(?:Severity|Data) [{0-9]")
_SWITCH_LINK = re.compile("Link ([0-9]{1,3})")
_INIT = re.compile(r"NVRM: GPU (" + _BUS + r"): RmInitAdapter failed! \(([0-9a-fx:]{3,40})\)")
_INIT_MINOR = re.compile(r"NVRM: GPU (" + _BUS + r"): rm_init_adapter failed, device minor number ([0-9]{1,4})")
_BOARD = re.compile(r"NVRM: GPU at (?:PCI:)?(" + _BUS + r"): (GPU-[0-9a-fA-F-]{8,60})")
_SERIAL = re.compile(r"NVRM: GPU Board Serial Number: ([0-9A-Za-z]{4,24})")
_LOST = re.compile(r"NVRM: (?:.{0,60}?(" + _BUS + r"))?.{0,40}?GPU has fallen off the bus")
_MISMATCH = re.compile(r"NVRM: API mismatch: ?.{0,200}")
_PEERMEM = re.compile(r"nvidia[-_]peermem .{0,80}ERROR (.{1,200})")
_NVRM = re.compile(r"NVRM: (?:GPU ?(?:at )?)?(?:PCI:)?(" + _BUS + r")")

#: Lines without any of these are skipped; most lines have none.
_HINTS = (
    *("NVRM", "nvidia", "PCIe", "AER", "mlx", "ink", "ib_", "bond"),
    *("DMAR", "iommu", "IOMMU", "Hardware Error", "IO_PAGE", ":    ["),
)

Event = Dict[str, Any]


class _Log:
    """Follows the lines; some events span several lines."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.events: List[Event] = []
        self.counts: Dict[Any, Dict[str, Any]] = {}
        self.boards: List[Dict[str, Any]] = []
        self.devices: Dict[str, Dict[str, Any]] = {}
        self.stamped = 0
        self._aer = Aer()
        self._inits: Dict[str, Event] = {}

    def line(self, line: str) -> None:
        start = line_prefix.split(line)
        self.stamped += start.time is not None or start.uptime is not None
        if not any(hint in start.text for hint in _HINTS):
            return
        times = {"time": start.time, "uptime": start.uptime}
        if "Xid (" in start.text and self._xids(line, times):
            return
        found = self._nvidia(start.text) if "NVRM" in start.text or "nvidia" in start.text else None
        found = found or self._aer.take(start.text) or bandwidth_event(start.text)
        found = found or device_event(start.text, self.devices)
        if found and found.get("kind"):
            # The same object is kept: lines that follow add to it.
            found.update(times, text=start.text[:_WIDTH])
            self._keep(found)
        elif not found and _NVRM.match(start.text):
            self.notes.puzzled(line)

    def _xids(self, line: str, times: Dict[str, Any]) -> bool:
        """Take all reports in a line; a log that quotes a report twice in a line means one."""
        seen = set()
        for found in _XID.finditer(line[:4000]):
            time, bus, number, rest = found.groups()
            rest = _QUOTED.split(rest or "", maxsplit=1)[0].strip()
            if (time, bus, number, rest) in seen:
                continue
            seen.add((time, bus, number, rest))
            event: Event = {
                "kind": "xid",
                **times,
                "time": time or times["time"],
                "bus": bus.lower(),
                "code": int(number),
            }
            process = _PID.match(rest)
            words = process.groups() if process else (None, None, rest)
            event["pid"] = int(words[0]) if words[0] and re.fullmatch("[0-9]{1,10}", words[0], re.ASCII) else None
            event["name"] = None if words[1] in (None, "<unknown>") else words[1].strip()
            event["text"] = (words[2] or "").strip()[:_WIDTH]
            event["meaning"] = xid_table.explain(int(number))
            self._keep(event)
        return bool(seen)

    def _nvidia(self, text: str) -> Optional[Event]:
        switch, init, minor = _SXID.match(text), _INIT.match(text), _INIT_MINOR.match(text)
        board, serial = _BOARD.match(text), _SERIAL.match(text)
        if switch:
            return self._sxid(switch)
        if init:
            event = {"kind": "gpu_init", "bus": init.group(1).lower(), "code": init.group(2), "minor": None}
            return event
        if minor:
            return self._minor(minor.group(1).lower(), int(minor.group(2)))
        if board:
            self._board({"bus": board.group(1).lower(), "uuid": board.group(2), "serial": None})
            return {"kind": None}
        if serial:
            if self.boards:
                self.boards[-1]["serial"] = serial.group(1)
            return {"kind": None}
        return self._nvidia_rest(text)

    def _nvidia_rest(self, text: str) -> Optional[Event]:
        peermem, lost = _PEERMEM.match(text), _LOST.match(text)
        if peermem:
            return {"kind": "peermem", "bus": None, "code": None, "detail": peermem.group(1)}
        if lost:
            return {"kind": "gpu_lost", "bus": lost.group(1).lower() if lost.group(1) else None, "code": None}
        if _MISMATCH.match(text):
            return {"kind": "driver_mismatch", "bus": None, "code": None}
        return None

    def _sxid(self, found: Any) -> Event:
        number, bus, code, rest = found.groups()
        if _SXID_MORE.match(rest):
            return {"kind": None}
        link = _SWITCH_LINK.search(rest)
        low = rest.lower()
        return {
            "kind": "sxid",
            "bus": bus.lower(),
            "code": int(code),
            "switch": int(number),
            "fatal": False if low.startswith("non-fatal") else (True if low.startswith("fatal") else None),
            "link": int(link.group(1)) if link else None,
        }

    def _minor(self, bus: str, minor: int) -> Event:
        """The driver prints the number of the device in a separate line, before or after the failure."""
        known = self._inits.get(bus)
        if known is not None and known.get("minor") is None:
            known["minor"] = minor
            return {"kind": None}
        self._inits[bus] = {"minor": None, "waiting": minor}
        return {"kind": None}

    def _board(self, board: Dict[str, Any]) -> None:
        known = [old for old in self.boards if old["bus"] == board["bus"]]
        if not known and len(self.boards) < 256:
            self.boards.append(board)

    def _keep(self, event: Event) -> None:
        if event["kind"] == "gpu_init":
            waiting = self._inits.get(event["bus"], {}).get("waiting")
            event["minor"] = waiting
            self._inits[event["bus"]] = event
        self.events.append(event)
        if len(self.events) > 2 * MOST_EVENTS:
            del self.events[:-MOST_EVENTS]
        key = (event["kind"], event["bus"], event["code"], event.get("interface"))
        count = self.counts.get(key)
        if count is None:
            if len(self.counts) >= _MOST_COUNTS:
                return
            named = dict(zip(("kind", "bus", "code", "interface"), key))  # noqa: B905 - Python 3.8 knows no strict=
            count = self.counts[key] = {**named, "count": 0, "first": _when(event), "text": event["text"]}
        count.update(count=count["count"] + 1, last=_when(event))


def _when(event: Event) -> Any:
    return event["time"] if event["time"] is not None else event["uptime"]


def parse_kernel(text: str) -> Reading:
    """Return what the kernel reports.

    Values: ``lines`` (how many), ``events``: ``[{"kind", "time" (as written), "uptime" (s), "bus", "code", "text"}]``
    with more by their kind, the last 500; ``counts``: ``[{"kind", "bus", "code", "interface", "count", "first", "last",
    "text"}]`` of all of them; ``xids``: how many of each number; ``boards``: GPUs with their UUID and serial number;
    ``devices``: what drivers print of network cards.

    Kinds: ``xid``, ``sxid``, ``gpu_init``, ``gpu_lost``, ``driver_mismatch``, ``peermem``; ``aer`` (its code is the
    severity), ``pcie_limited``, ``pcie_bandwidth``, ``iommu``; ``link_up``, ``link_down``, ``module``,
    ``nic_health``, ``nic_command``, ``nic_power``, ``nic_temperature``; ``machine_check``.
    """
    notes = Notes()
    log = _Log(notes)
    lines = text.splitlines()
    for line in lines[-_MOST_LINES:]:
        log.line(line)
    if len(lines) > _MOST_LINES:
        notes.warn("%d lines, the last %d were read" % (len(lines), _MOST_LINES))
    if lines and not log.stamped and not log.events:
        notes.warn("no line of this text looks like the kernel's log")
    numbers: Dict[str, int] = {}
    for count in log.counts.values():
        if count["kind"] == "xid":
            numbers[str(count["code"])] = numbers.get(str(count["code"]), 0) + count["count"]
        if count["kind"] not in ("pcie_bandwidth", "link_up") and not (count["kind"] == "module" and _fine(count)):
            times = " (%d times)" % count["count"] if count["count"] > 1 else ""
            code = " %s" % count["code"] if count["code"] is not None else ""
            notes.warn("%s%s%s: %s%s" % (count["kind"], code, _where(count), count["text"], times))
    values = {
        "lines": len(lines),
        "events": log.events[-MOST_EVENTS:],
        "counts": list(log.counts.values()),
        "xids": numbers,
        "boards": log.boards,
        "devices": log.devices,
    }
    return notes.reading(values)


def _fine(count: Dict[str, Any]) -> bool:
    return str(count["code"]) == "plugged"


def _where(count: Dict[str, Any]) -> str:
    return " at " + str(count["bus"]) if count["bus"] else ""


def _likely(text: str) -> float:
    lines = [line for line in text.splitlines()[:200] if line.strip()]
    if not lines:
        return 0.0
    if any(_XID.search(line[:4000]) or _SXID.search(line[:4000]) or _INIT.search(line[:4000]) for line in lines):
        return 0.9
    starts = sum(1 for line in lines if line_prefix.has_start(line))
    kernel = any(line_prefix.is_kernels(line) for line in lines)
    known = any(_known(line) for line in lines)
    if starts >= len(lines) / 2 and (kernel or known):
        return 0.9 if known else 0.7
    return 0.5 if known else 0.0


def _known(line: str) -> bool:
    text = line_prefix.split(line).text
    return bool(Aer().take(text) or bandwidth_event(text) or continues(text) or _PEERMEM.match(text))


_UNITS = {
    "uptime": "s",
    "available": "Gb/s",
    "capable": "Gb/s",
    "speed": "GT/s",
    "speed_capable": "GT/s",
    "width": "lanes",
    "width_capable": "lanes",
    "power": "W",
}

FORMATS = [Format("dmesg", "reports of the kernel", ("dmesg",), _UNITS, _likely, parse_kernel)]
