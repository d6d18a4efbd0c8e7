"""The kernel's log: reports of GPUs, NVSwitches, PCIe, network cards and their links, as events."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional

from fabtui_node.parsers.base import Format, Notes, Reading

#: How many events are kept, the last ones; all are counted.
MOST_EVENTS = 500
_MOST_COUNTS = 500
_MOST_LINES = 100_000
_WIDTH = 400

Event = Dict[str, Any]
#: What a line is that adds to the last event, or reports nothing.
_NOTHING: Event = {"kind": None}
_DEVICE = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"

# The beginnings of a line: all the ways in which time, host and level are written before it.
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_ISO = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"

_KMSG = re.compile(r"([0-9]{1,6}),[0-9]{1,12},([0-9]{1,18}),[^;]{0,40};(.{0,4000})", re.DOTALL)
_LEVEL = re.compile(r"<[0-9]{1,4}>|(?:kern|user|mail|daemon|auth|syslog|local[0-7]) {0,3}:[a-z]{3,6} {0,3}: {0,2}")
_UPTIME = re.compile(r"\[ {0,12}([0-9]{1,9}\.[0-9]{6,9})\] ?")
_CALLER = re.compile(r"\[ {0,10}[TC][0-9]{1,10}\] ?")
_WALL = re.compile(r"\[(%s %s [ 0-9][0-9] [0-9:]{8} [0-9]{4}|%s)\] ?" % (_DAY, _MONTH, _ISO))
_STAMP = re.compile(
    r"(%s [ 0-9]?[0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?|(?:%s )?%s(?: [A-Z]{3,5})?) " % (_MONTH, _DAY, _ISO)
)
_HOST = re.compile(r"([A-Za-z0-9_.:-]{1,64}) kernel(?:\[[0-9]{1,10}\])?: ?|kernel: ?")

# PCIe: errors (AER), and links narrower or slower than supported.
_NUMBER = r"([0-9]{1,6}(?:\.[0-9]{1,4})?)"
_BANDWIDTH = re.compile(
    r"\S{1,40} (" + _DEVICE + r"): " + _NUMBER + r" Gb/s available PCIe bandwidth"
    r"(?:, limited by " + _NUMBER + r" GT/s (?:PCIe )?x([0-9]{1,2}) link at (" + _DEVICE + r")"
    r" \(capable of " + _NUMBER + r" Gb/s with " + _NUMBER + r" GT/s (?:PCIe )?x([0-9]{1,2}) link\)"
    r"| \(" + _NUMBER + r" GT/s (?:PCIe )?x([0-9]{1,2}) link\))"
)
_SEVERITY = r"(Corrected|Correctable|Uncorrected|Uncorrectable)(?: \((Non-)?Fatal\))?"
_RECEIVED = re.compile(
    r"\S{1,40} (" + _DEVICE + r"): AER: (Multiple )?" + _SEVERITY + " error (?:message )?received"
    r"(?: from (" + _DEVICE + r")|:.{0,40})?",
    re.IGNORECASE,
)
_BUS_ERROR = re.compile(
    r"\S{1,40} ("
    + _DEVICE
    + r"):(?: AER:)? PCIe Bus Error: severity="
    + _SEVERITY
    + r", type=([A-Za-z ]{1,40}).{0,80}",
    re.IGNORECASE,
)
_BIT = re.compile(r"\S{1,40} (" + _DEVICE + r"):\s{1,6}\[ ?([0-9]{1,2})\] (\S.{0,60}?)(?:\s{2,20}.{0,40})?")
_MORE = re.compile(
    r"\S{1,40} " + _DEVICE + r":(?: AER:)?\s{1,6}(?:device \[|error status|TLP Header|broadcast error_detected)"
)
_DMAR = re.compile(
    r"(?:DMAR|AMD-Vi|iommu)\b.{0,120}?(?:\bfault\b|IO_PAGE_FAULT|Event logged).{0,120}", re.IGNORECASE | re.DOTALL
)
_AT_DEVICE = re.compile(r"device[ =]\[?([0-9A-Fa-f]{0,4}:?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])", re.IGNORECASE)
_CHECK = re.compile(r"(?:mce: )?\[?(?:Hardware Error\]|\{[0-9]{1,4}\}\[Hardware Error\]): (.{1,200})")

# Network cards: link changes, modules, health, power, firmware.
_NAME = "[A-Za-z0-9_.-]{1,15}"
_DRIVERS = "mlx[45]_(?:core|en|ib)|mlx5e?|mlxfw|bnxt_en|bnxt_re|ice|i40e|irdma|ionic|efa|idpf|ena"
_CARD = re.compile(r"(" + _DRIVERS + r") (" + _DEVICE + r")")
_LINK = re.compile(
    r"(?:\S{1,24} " + _DEVICE + r":? )?(?:\S{1,24}: )?(?!NIC )([a-z][A-Za-z0-9_.@-]{0,15}):? (?:NIC )?[Ll]ink (?:is )?"
    r"([Uu]p|[Dd]own|UP|DOWN)\b.{0,200}"
)
_PORT = re.compile(
    r"(?:\S{1,24} )?(?:(" + _DEVICE + r")|(mlx[45]_[0-9]{1,2})):? Port:? ([0-9]{1,3}) "
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
_TRANSMIT = re.compile(r"TX timeout (?:detected|on queue)|transmit queue [0-9]{1,5} timed out", re.IGNORECASE)
_PROBE = re.compile(r"(?:probe|init_one)\b.{0,80}failed with error(?: code)? -?[0-9]{1,4}", re.IGNORECASE)
#: The same of a device that the line names behind the driver, and by the network core.
_PROBE_OF = re.compile(r"(?:" + _DRIVERS + r"): probe of (" + _DEVICE + r") failed with error -?[0-9]{1,4}")
_WATCHDOG = re.compile(r"NETDEV WATCHDOG: (\S{1,15}) \((?:" + _DRIVERS + r")\): transmit queue [0-9]{1,5} timed out")
_EFA = re.compile(r"(?:infiniband )?efa_[0-9]{1,3}: Failed to process command (\w{1,40}) .{0,80}err (-[0-9]{1,4})")
_HOT = re.compile(r"[Hh]igh [Tt]emperature|temp_warn|over.?temperature")

#: A CPU that runs kernel code without end.
_LOCKUP = re.compile(r"(?:watchdog: )?(?:BUG: (soft) lockup - CPU#[0-9]{1,5} stuck for|.{0,40}(hard) LOCKUP on cpu)")

#: A process that the kernel killed, for want of memory in a cgroup or on the node.
_KILLED = re.compile(r"(?:(Memory cgroup out|Out) of memory: )?Killed process ([0-9]{1,10}) \(([^)]{1,64})\)")

# GPUs and NVSwitches.
_BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?"
_XID = re.compile(
    r"(?:\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4})\] )?"
    r"NVRM: Xid \((?:PCI:)?("
    + _BUS
    + r")[^)]{0,40}\): ([0-9]{1,4})(?:, ((?:(?!NVRM: Xid|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]).){0,600}))?",
    re.IGNORECASE,
)
# A report that is quoted in the output of another tool continues with what that tool writes.
_QUOTED = re.compile(r"\) => \{|\",? \"|\"\}")
_PID = re.compile(r"pid='?(<?[\w]{1,16}>?)'?(?:, name='?([^,']{1,64})'?)?(?:, )?(.{0,600})")
#: NVLink in a report of a GPU: Xids 144 to 150, and 74; -1 stands for none.
_NVLINK = re.compile(r"\bLink ([0-9]{1,3})(?= ?[(\[]| ?$)|NVLink: .{0,60} link ([0-9]{1,3}) ?\(")
_SXID = re.compile(
    r"nvidia-nvswitch([0-9]{1,3}): SXid \(PCI:(" + _BUS + r")\): ([0-9]{1,6}), (.{0,400})", re.IGNORECASE
)
_SXID_MORE = re.compile("(?:Severity|Data) [{0-9]")
_SWITCH_LINK = re.compile("Link ([0-9]{1,3})")
_INIT = re.compile(r"NVRM: GPU (" + _BUS + r"): RmInitAdapter failed! \(([0-9a-fx:]{3,40})\)", re.IGNORECASE)
_INIT_MINOR = re.compile(r"NVRM: GPU (" + _BUS + r"): rm_init_adapter failed, device minor number ([0-9]{1,4})")
_BOARD = re.compile(r"NVRM: GPU at (?:PCI:)?(" + _BUS + r"): (GPU-[0-9a-fA-F-]{8,60})")
_SERIAL = re.compile(r"NVRM: GPU Board Serial Number: ([0-9A-Za-z]{4,24})")
_LOST = re.compile(r"NVRM: (?:.{0,60}?(" + _BUS + r"))?.{0,40}?GPU has fallen off the bus")
_MISMATCH = re.compile(r"NVRM: API mismatch: ?.{0,200}")
_PEERMEM = re.compile(r"nvidia[-_]peermem .{0,80}ERROR (.{1,200})")
_NVRM = re.compile(r"NVRM: (?:GPU ?(?:at )?)?(?:PCI:)?(" + _BUS + r")")

#: Lines without any of these are skipped; most lines have none.
_HINTS = (
    *("NVRM", "nvrm", "nvidia", "PCIe", "pcie", "AER", "aer:", "mlx", "ink", "ib_", "bond"),
    *("DMAR", "iommu", "IOMMU", "Hardware Error", "IO_PAGE", ":    [", "Killed process"),
    *("lockup", "LOCKUP", "WATCHDOG", "efa_", "probe of"),
)

_UPTIME_MARK = re.compile(r"\[ {0,6}[0-9]{1,9}\.[0-9]{6}\] ")
#: Beginnings of lines of drivers and of the kernel itself.
_DRIVER = re.compile(
    r"(?:mlx[45]_(?:core|ib)|bnxt_(?:en|re)|efa|irdma|ice|i40e|nvidia[\w-]{0,20}|pcieport|pci|nvme) "
    + _DEVICE
    + r"[: ]|NVRM: |(?:watchdog: )?BUG: |INFO: task \S{1,80} blocked for|EDAC \S{1,20}: |mce: "
)

_UNITS = {
    **{"uptime": "s", "available": "Gb/s", "capable": "Gb/s", "speed": "GT/s", "speed_capable": "GT/s"},
    **{"width": "lanes", "width_capable": "lanes", "power": "W"},
}


def _event(kind: str, bus: Optional[str] = None, code: Any = None, **more: Any) -> Event:
    return {"kind": kind, "bus": bus.lower() if bus else None, "code": code, **more}


class KernelLine(NamedTuple):
    """A line of the log: its time as written (in the node's clock and zone), seconds since boot, and the rest."""

    time: Optional[str]
    uptime: Optional[float]
    text: str


def split(line: str) -> KernelLine:
    """Take the beginnings off a line of ``dmesg`` (plain, ``-T``, iso, ``-x``, ``-r``), syslog, journal or kmsg."""
    line = line[:4000]
    if kmsg := _KMSG.fullmatch(line):
        return KernelLine(None, int(kmsg[2]) / 1e6, kmsg[3])
    time: Optional[str] = None
    uptime: Optional[float] = None
    for _ in range(8):
        wall, up = _WALL.match(line) or _STAMP.match(line), _UPTIME.match(line)
        mark = wall or up or _LEVEL.match(line) or _CALLER.match(line) or _HOST.match(line)
        if not mark:
            break
        if wall:
            time = time or wall[1]
        elif up and uptime is None:
            uptime = float(up[1])
        line = line[mark.end() :]
    return KernelLine(time, uptime, line.lstrip(" "))


def bandwidth_event(text: str) -> Optional[Event]:
    """Return how much a PCIe device can transfer, ``pcie_limited`` where a link on the way lets through less."""
    match = _BANDWIDTH.match(text)
    if not match:
        return None
    bus, available, speed, width, at, capable, speed_capable, width_capable, plain_speed, plain_width = match.groups()
    event = _event("pcie_limited" if at else "pcie_bandwidth", bus, available=float(available))
    event.update(speed=float(speed or plain_speed), width=int(width or plain_width))
    if at:
        ratio = round(float(available) / float(capable), 4) if float(capable) else None
        event.update(at=at.lower(), capable=float(capable), speed_capable=float(speed_capable))
        event.update(width_capable=int(width_capable), ratio=ratio)
    return event


def _severity(word: str, non: Optional[str]) -> str:
    if word.lower().startswith("corr"):
        return "corrected"
    return "nonfatal" if non else "fatal"


class Aer:
    """Joins the lines of one PCIe error: its arrival, its kind, and the bit of the register."""

    def __init__(self) -> None:
        self._last: Optional[Event] = None

    def take(self, text: str) -> Optional[Event]:
        """Return a new event, ``{"kind": None}`` for a line that continues the last one, None for other lines."""
        last = self._last
        if received := _RECEIVED.match(text):
            bus, _, word, non, source = received.groups()
            self._last = _event("aer", source or bus, _severity(word, non), port=bus.lower(), type=None, detail=None)
            return self._last
        if error := _BUS_ERROR.match(text):
            bus, word, non, kind = error.groups()
            severity = _severity(word, non)
            if last is not None and last["type"] is None and last["code"] == severity:
                last.update(type=kind.strip())
                return _NOTHING
            self._last = _event("aer", bus, severity, port=None, type=kind.strip(), detail=None)
            return self._last
        bit = _BIT.fullmatch(text)
        if bit and last is not None:
            last["detail"] = last["detail"] or bit[3].strip()
            return _NOTHING
        if _MORE.match(text):
            return _NOTHING
        if _DMAR.match(text):
            device = _AT_DEVICE.search(text[:400])
            return _event("iommu", device[1] if device else None)
        return _event("machine_check") if _CHECK.match(text) else None


def device_event(text: str, devices: Dict[str, Dict[str, Any]]) -> Optional[Event]:
    """Return the event of a network card in a line, ``{"kind": None}`` for a harmless one, else None."""
    if probe := _PROBE_OF.match(text):
        return _event("nic_probe", probe[1])
    if watchdog := _WATCHDOG.match(text):
        return _event("nic_timeout", None, interface=watchdog[1])
    if efa := _EFA.search(text[:400]):
        return _event("efa_command", None, "%s %s" % efa.groups())
    card = _CARD.match(text)
    bus = card[2].lower() if card else None
    return _link_event(text, bus) or (_card_event(text, bus, devices) if bus else None)


def _link_event(text: str, bus: Optional[str]) -> Optional[Event]:
    if port := _PORT.match(text):
        bus = port[1] or bus
        interface, word = "%s/%s" % (port[2] or port[1], port[3]), port[4]
    elif bond := _BOND.match(text):
        interface, word = bond[2], bond[3]
    elif ready := _READY.match(text):
        # Containers come and go with interfaces of their own.
        if not _PHYSICAL.match(ready[1]) or ready[2] != "becomes ready":
            return _NOTHING
        interface, word = ready[1], "up"
    elif link := _LINK.match(text):
        interface, word = link[1], link[2]
    else:
        return None
    return _event("link_up" if word.lower() in ("up", "active") else "link_down", bus, interface=interface)


def _card_event(text: str, bus: str, devices: Dict[str, Dict[str, Any]]) -> Optional[Event]:
    firmware = _FIRMWARE.search(text)
    if firmware and (bus in devices or len(devices) < 256):
        devices.setdefault(bus, {})["firmware"] = firmware[1]
        return _NOTHING
    if module := _MODULE.search(text):
        code = next((word for word in _MODULE_WORDS if word in module[2].lower()), "unknown")
        return _event("module", bus, code, module=int(module[1]))
    if power := _POWER.search(text):
        return _event("nic_power", bus, power=int(power[1]))
    if _POWER_FINE.search(text):
        return _NOTHING
    kinds = (
        *(("nic_health", _HEALTH), ("nic_command", _COMMAND), ("nic_timeout", _TRANSMIT), ("nic_probe", _PROBE)),
        ("nic_temperature", _HOT),
    )
    return next((_event(kind, bus) for kind, pattern in kinds if pattern.search(text[:500])), None)


def lockup_event(text: str) -> Optional[Event]:
    """Return the CPU that a line reports as stuck, else None."""
    match = _LOCKUP.match(text[:_WIDTH])
    return _event("lockup", None, match[1] or match[2]) if match else None


def memory_event(text: str) -> Optional[Event]:
    """Return the process that a line reports as killed for memory, else None."""
    match = _KILLED.search(text[:_WIDTH])
    if not match:
        return None
    code = {"Out": "node", "Memory cgroup out": "cgroup"}.get(match[1] or "")
    return _event("oom", None, code, pid=int(match[2]), name=match[3])


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
        start = split(line)
        self.stamped += start.time is not None or start.uptime is not None
        if not any(hint in start.text for hint in _HINTS):
            return
        times = {"time": start.time, "uptime": start.uptime}
        if "Xid (" in start.text and self._xids(line, times):
            return
        event = self._nvidia(start.text) if "NVRM" in start.text or "nvidia" in start.text else None
        event = event or self._aer.take(start.text) or bandwidth_event(start.text)
        event = event or device_event(start.text, self.devices) or memory_event(start.text) or lockup_event(start.text)
        if event and event.get("kind"):
            # The same object is kept: lines that follow add to it.
            event.update(times, text=start.text[:_WIDTH])
            self._keep(event)
        elif not event and _NVRM.match(start.text):
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
            event: Event = {"kind": "xid", **times, "time": time or times["time"], "bus": bus.lower()}
            process = _PID.match(rest)
            pid, name, words = process.groups() if process else (None, None, rest)
            event.update(
                code=int(number),
                pid=int(pid) if pid and re.fullmatch("[0-9]{1,10}", pid, re.ASCII) else None,
                name=None if name in (None, "<unknown>") else name.strip(),
                text=(words or "").strip()[:_WIDTH],
            )
            if link := _NVLINK.search(event["text"]):
                event["interface"] = "NVLink %d" % int(link[1] or link[2])
            self._keep(event)
        return bool(seen)

    def _nvidia(self, text: str) -> Optional[Event]:
        if switch := _SXID.match(text):
            return self._sxid(switch)
        if init := _INIT.match(text):
            return _event("gpu_init", init[1], init[2], minor=None)
        if minor := _INIT_MINOR.match(text):
            return self._minor(minor[1].lower(), int(minor[2]))
        if board := _BOARD.match(text):
            bus = board[1].lower()
            if all(old["bus"] != bus for old in self.boards) and len(self.boards) < 256:
                self.boards.append({"bus": bus, "uuid": board[2], "serial": None})
            return _NOTHING
        if serial := _SERIAL.match(text):
            if self.boards:
                self.boards[-1]["serial"] = serial[1]
            return _NOTHING
        if peermem := _PEERMEM.match(text):
            return _event("peermem", detail=peermem[1])
        if lost := _LOST.match(text):
            return _event("gpu_lost", lost[1])
        return _event("driver_mismatch") if _MISMATCH.match(text) else None

    def _sxid(self, found: "re.Match[str]") -> Event:
        number, bus, code, rest = found.groups()
        known = ("sxid", bus.lower(), int(code), None) in self.counts
        if rest.startswith("Data") or (known and _SXID_MORE.match(rest)):
            return _NOTHING
        link, low = _SWITCH_LINK.search(rest), rest.lower()
        fatal = False if low.startswith("non-fatal") else (True if low.startswith("fatal") else None)
        return _event("sxid", bus, int(code), switch=int(number), fatal=fatal, link=int(link[1]) if link else None)

    def _minor(self, bus: str, minor: int) -> Event:
        """The driver prints the number of the device in a separate line, before or after the failure."""
        known = self._inits.get(bus)
        if known is not None and known.get("minor") is None:
            known["minor"] = minor
            return _NOTHING
        self._inits[bus] = {"minor": None, "waiting": minor}
        return _NOTHING

    def _keep(self, event: Event) -> None:
        if event["kind"] == "gpu_init":
            event["minor"] = self._inits.get(event["bus"], {}).get("waiting")
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
    ``nic_health``, ``nic_command``, ``nic_timeout``, ``nic_probe``, ``nic_power``, ``nic_temperature``,
    ``efa_command``; ``machine_check``; ``lockup`` (``soft`` or ``hard``); ``oom`` (``pid`` and
    ``name`` of the process; its code is ``cgroup`` or ``node``, by what lacked memory).
    """
    notes = Notes()
    log = _Log(notes)
    lines = text.splitlines()
    for line in lines[-_MOST_LINES:]:
        log.line(line)
    if len(lines) > _MOST_LINES:
        notes.warn("%d lines, the last %d were read" % (len(lines), _MOST_LINES))
    if lines and not log.stamped and not log.events and not _likely(text[:65536]):
        notes.warn("no line of this text looks like the kernel's log")
    numbers: Dict[str, int] = {}
    for count in log.counts.values():
        if count["kind"] == "xid":
            numbers[str(count["code"])] = numbers.get(str(count["code"]), 0) + count["count"]
        plugged = count["kind"] == "module" and str(count["code"]) == "plugged"
        if count["kind"] not in ("pcie_bandwidth", "link_up") and not plugged:
            times = " (%d times)" % count["count"] if count["count"] > 1 else ""
            code = " %s" % count["code"] if count["code"] is not None else ""
            where = " at " + str(count["bus"]) if count["bus"] else ""
            notes.warn("%s%s%s: %s%s" % (count["kind"], code, where, count["text"], times))
    values = {
        "lines": len(lines),
        "events": log.events[-MOST_EVENTS:],
        "counts": list(log.counts.values()),
        "xids": numbers,
        "boards": log.boards,
        "devices": log.devices,
    }
    return notes.reading(values)


def _likely(text: str) -> float:
    lines = [line for line in text.splitlines()[:200] if line.strip()]
    if not lines:
        return 0.0
    if any(_XID.search(line[:4000]) or _SXID.search(line[:4000]) or _INIT.search(line[:4000]) for line in lines):
        return 0.9
    parts = [split(line) for line in lines]
    marked = list(map(_is_kernels, lines, parts))
    starts = sum(1 for part, mark in zip(parts, marked) if mark or part.time is not None)  # noqa: B905 - Python 3.8
    known = any(_known(part.text) for part in parts)
    if starts >= len(lines) / 2 and (known or any(marked)):
        return 0.9 if known else 0.7
    # Lines that lost the text before them are known by the names of drivers.
    drivers = sum(1 for part in parts if _DRIVER.match(part.text))
    # The uptime in brackets and a driver with its device: no other log has both.
    both = any(_DRIVER.match(line[stamp.end() :]) for line in lines if (stamp := _UPTIME_MARK.search(line[:400])))
    return 0.6 if both else 0.5 if known or drivers >= len(lines) / 2 else 0.45 if drivers else 0.0


def _is_kernels(line: str, part: KernelLine) -> bool:
    """Return True if a line begins with a mark of the kernel: its facility, its uptime or its name."""
    level = _LEVEL.match(line) and "kern" in line[:8]
    wall = _WALL.match(line)
    dmesg_t = wall and wall[1][:1].isalpha()
    return part.uptime is not None or bool(level) or bool(dmesg_t) or " kernel: " in f" {line[:120]}"


def _known(text: str) -> bool:
    more = Aer().take(text) or bandwidth_event(text) or _MORE.match(text) or _BIT.fullmatch(text)
    card = _CARD.match(text) and _card_event(text, "", {})
    return bool(more or _PEERMEM.match(text) or lockup_event(text) or _EFA.search(text[:400]) or card)


FORMATS = [Format("dmesg", "reports of the kernel", _likely, parse_kernel, _UNITS, log=True, aliases=r"dmesg-\w+|xid")]
