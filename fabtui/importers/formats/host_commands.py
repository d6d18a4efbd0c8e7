"""Outputs about a node that no probe runs: limits, kernel settings, PCI devices, and NCCL's topology of a node.

Limits are of a shell (``ulimit -a``) or a process (``/proc/PID/limits``).
"""

from __future__ import annotations

import re
from typing import Any

from fabtui.importers.tables import MOST, Tables, Values, kinds
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import number, whole
from fabtui_node.probes.host import ENOUGH_FILES, ENOUGH_MEMLOCK, parse_port_range
from fabtui_node.system.pci import REDIRECTING

Facts = dict[str, Values]
_LIMITS = kinds(
    r"""
    limit    Max (?P<name>[a-z ]{3,30}?)\s{2,}(?P<soft>unlimited|\d{1,20})\s+(?P<hard>unlimited|\d{1,20})(?:\s+
             (?P<unit>\w{1,12}))?$
    limit    (?P<name>[a-zA-Z][\w ()-]{1,40}?)\s+\((?:(?P<unit>[\w -]{1,20}), )?-[a-zA-Z]\)\s+(?P<soft>\S{1,20})$
    limit    (?P<name>[a-z]{2,12})\((?P<unit>blocks|kbytes|seconds)\)\s+(?P<soft>\S{1,20})$
    limit    (?P<name>nofiles|process|locks|rtprio)\s+(?P<soft>\S{1,20})$
    skip     [#$]|Limit\b
    puzzled  \S
    """
)
#: What one unit is in bytes, where it is a size.
_BYTES = {"kbytes": 1024, "bytes": 1, "512 bytes": 512}
_NAMES = {"locked memory": "max locked memory", "nofiles": "open files", "memory": "virtual memory"}
#: What the probe ``host`` calls the limits.
_HOST = {"max locked memory": "memlock", "open files": "nofile", "virtual memory": "as", "max user processes": "nproc"}
_LIMITS_LIKELY = first_of(
    (0.97, "^Limit +Soft Limit +Hard Limit +Units"),
    (0.95, r"^(?:max locked memory|open files|core file size|stack size) +\([^)\n]{2,30}-[a-z]\) +\S+$"),
    (0.8, r"\A(?=(?s:.*)^nofiles +\S+$)(?=(?s:.*)^stack\(kbytes\) +\S+$)"),
)
_SYSCTL_LIKELY = first_of((0.9, r"^(?:net|kernel|vm|fs)\.[\w.]{2,80} = \S"))
_LSPCI_LIKELY = first_of(
    (0.95, r"\b(?:LnkSta|LnkCap|ACSCtl):\s"),
    (0.8, r"^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [A-Z3][\w /-]{3,60}(?: \[[0-9a-f]{4}\])?: "),
)
_TOPOLOGY_LIKELY = first_of(
    (0.96, r'<(?:gpu dev|net name)="[^<>]{0,300}(?:gdr|sm|rank|speed|maxconn)="'),
    (0.9, r'<(?:pci busid|cpu (?:host_hash|numaid)|nvlink target)="'),
    (0.8, r'<system version="\d{1,3}">'),
)
_PCI_TITLE = "lspci -vv: PCIe links, and access control of bridges"
_PCI_UNITS = {"speed": "GT/s", "speed_max": "GT/s", "width": "lanes", "width_max": "lanes"}
_TOPOLOGY_UNITS = {"speed": "Gb/s", "pcie": "Gb/s", "link_speed": "GT/s", "link_width": "lanes"}


class _Limits(Tables, lines=_LIMITS):
    """Reads ``limits``: ``name``, ``soft`` and ``hard`` (None if unknown), ``unit``; sizes are in bytes."""

    def limit(self, values: Values, line: str) -> None:
        name, unit = values["name"].strip(), values.get("unit")
        name = _NAMES.get(name, name)
        soft, hard = _limit(values["soft"], unit), _limit(values.get("hard") or "", unit)
        unit = "bytes" if unit in _BYTES else unit
        self.facts.setdefault(name, {"name": name, "soft": soft, "hard": hard, "unit": unit})

    def reading(self) -> Reading:
        memlock, files = (self.facts.get(name, {}).get("soft") for name in ("max locked memory", "open files"))
        if isinstance(memlock, int) and memlock < ENOUGH_MEMLOCK:
            limited = f"locked memory is limited to {memlock // 1024} kB"
            self.notes.warn(f"{limited}: RDMA cannot register its buffers (ulimit -l)")
        if isinstance(files, int) and files < ENOUGH_FILES:
            self.notes.warn(f"only {files} files can be open at once (ulimit -n)")
        if not self.facts:
            self.notes.warn("no limit")
        return self.notes.reading({"limits": list(self.facts.values())})


def _limit(value: str, unit: str | None) -> Any:
    """Return a limit: a number (bytes for sizes), the word unlimited, or None for what is neither."""
    if value in ("unlimited", "infinity"):
        return "unlimited"
    count = whole(value)
    return None if count is None else count * _BYTES.get(unit or "", 1)


def _limit_facts(values: Values) -> dict[str, Facts]:
    limits = {
        _HOST[limit["name"]]: {end: -1 if limit[end] == "unlimited" else limit[end] for end in ("soft", "hard")}
        for limit in values["limits"]
        if limit["name"] in _HOST
    }
    return {"": {"host": {"limits": limits}}}


_SYSCTL = kinds(
    r"""
    setting  (?P<name>(?:net|kernel|vm|fs|dev|user|abi|crypto|debug)\.[\w./-]{2,100}) ?= ?(?P<value>.{0,400})$
    skip     [#$]|sysctl:
    puzzled  \S
    """
)


class _Settings(Tables, lines=_SYSCTL, facts={"settings": {}}):
    """Reads ``settings``: the value of each by its name, as text."""

    def setting(self, values: Values, line: str) -> None:
        if len(self.facts["settings"]) < 10_000:
            self.facts["settings"][values["name"]] = " ".join(values["value"].split())


def _setting_facts(values: Values) -> dict[str, Facts]:
    settings = values["settings"]
    balancing = settings.get("kernel.numa_balancing")
    host = {
        "network": {"port_range": parse_port_range(settings.get("net.ipv4.ip_local_port_range"))},
        "processors": {"numa_balancing": None if balancing is None else balancing != "0"},
    }
    return {"": {"host": host}}


# ``lspci -vv``: PCIe links of GPUs and NICs, and bridges whose Access Control Services (ACS) redirect traffic.
_LSPCI = kinds(
    r"""
    begin  (?P<bus>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<class>[A-Z3][\w /()-]{2,60}?)
           (?: \[[0-9a-f]{4}\])?: (?P<name>.{1,200})
    link   .*?Lnk(?P<end>Cap|Sta):\s.{0,60}?Speed <speed:num> ?GT/s.{0,20}?, Width x<width:int>
    below  .*?Bus: primary=[0-9a-f]{2}, secondary=(?P<first>[0-9a-f]{2}), subordinate=(?P<last>[0-9a-f]{2})
    acs    .*?ACSCtl:\s+(?P<flags>SrcValid[+-](?: \w{3,16}[+-]){3,8})
    """
)
_GPU = re.compile(r"(?:3D|VGA compatible|Display) controller|Processing accelerators")
_MAKER = re.compile(r"NVIDIA|Advanced Micro Devices|AMD|Habana|Intel.{0,40}Data Center GPU")
_NIC = re.compile(r"(?:Infiniband|Ethernet|Network|Fabric) controller")
_DEVICE = dict.fromkeys(("bus", "class", "name", "speed", "width", "speed_max", "width_max", "acs", "below"))


class _Lspci(Tables, lines=_LSPCI, fresh=_DEVICE, called="devices"):
    """Reads ``devices``: ``bus``, ``class``, ``name``, and what of their details the text has.

    ``speed`` and ``width`` of the PCIe link, ``speed_max`` and ``width_max``; ``acs``: the flags of ACS that are on;
    ``below``: the first and the last PCI bus below a bridge. A line about ACS alone is a device without a ``bus``.
    """

    def begin(self, values: Values, line: str) -> None:
        if len(self.tables) >= MOST:
            self.notes.warn(f"{MOST} devices were read, there are more")
            return
        bus = values.get("bus")
        super().begin({**values, "bus": f"0000:{bus}" if bus and bus.count(":") == 1 else bus}, line)

    def link(self, values: Values, line: str) -> None:
        if self.tables:
            end = "_max" if values["end"] == "Cap" else ""
            self.tables[-1].update({f"speed{end}": values["speed"], f"width{end}": values["width"]})

    def below(self, values: Values, line: str) -> None:
        if self.tables:
            self.tables[-1]["below"] = [int(values["first"], 16), int(values["last"], 16)]

    def acs(self, values: Values, line: str) -> None:
        if not self.tables or self.tables[-1]["acs"] is not None:
            self.begin({}, line)
        self.tables[-1]["acs"] = [flag[:-1] for flag in values["flags"].split() if flag.endswith("+")]


def _end(device: Values) -> str:
    if device["bus"] and _GPU.match(device["class"]) and _MAKER.search(device["name"]):
        return "gpu"
    return "nic" if device["bus"] and _NIC.match(device["class"]) else ""


def _above(bridge: Values, ends: list[Values]) -> bool:
    """Return whether a bridge is above a GPU or NIC; True as well where that is not known."""
    if not ends or bridge["below"] is None or bridge["bus"] is None:
        return True
    first, last = bridge["below"]
    domain = bridge["bus"].partition(":")[0]
    buses = [end["bus"].split(":") for end in ends]
    return any(bus[0] == domain and first <= int(bus[1], 16) <= last for bus in buses)


def pcie_limited(name: str, bus: Any, limits: str) -> Values:
    """Return a PCIe link that holds up its device as the probe ``kernel`` reports it."""
    return {"kind": "pcie_limited", "bus": bus, "count": 1, "text": f"{name}{limits}"}


def _pci_facts(values: Values) -> dict[str, Facts]:
    """Return the links as the probe ``kernel`` reports them, and ACS as the probe ``host`` does."""
    ends = [device for device in values["devices"] if _end(device)]
    limited = []
    for end in ends:
        narrow = end["width"] and end["width_max"] and end["width"] < end["width_max"]
        # An idle GPU lowers its speed to save power.
        slow = _end(end) == "nic" and end["speed"] and end["speed_max"] and end["speed"] < end["speed_max"]
        if narrow or slow:
            now, best = (f"{end[f'speed{of}']:g} GT/s x{end[f'width{of}']}" for of in ("", "_max"))
            limited.append(pcie_limited(end["name"][:80], end["bus"], f": {now}, could do {best}"))
    facts: Facts = {"kernel": {"counts": limited}} if limited else {}
    bridges = [device for device in values["devices"] if device["acs"] is not None and not _end(device)]
    if bridges:
        on = [bridge for bridge in bridges if set(bridge["acs"]) & set(REDIRECTING) and _above(bridge, ends)]
        named = [{"bus": bridge["bus"] or "a bridge", "flags": bridge["acs"]} for bridge in on]
        facts["host"] = {"acs": {"state": "on" if on else "off", "on": named}}
        if ends:
            sorts = [_end(end) for end in ends]
            facts["host"]["devices"] = {"gpus": sorts.count("gpu"), "rdma": sorts.count("nic")}
    return {"": facts} if facts else {}


# NCCL's topology of a node as XML: ``NCCL_TOPO_DUMP_FILE``, ``NCCL_TOPO_FILE`` and ``nccl-topo.xml`` of clouds.
_TAG = re.compile(r"<(?P<end>/?)(?P<name>system|cpu|pci|gpu|nic|net|nvlink)\b(?P<rest>[^<>]{0,2000})>")
_ATTRIBUTE = re.compile(r'([a-z_]{1,30})="([^"\n]{0,200})"')
_DEEPEST = 32
#: Share of the raw rate of PCIe (GT/s x lanes) that carries data, from generation 3 on.
_CODED = 128 / 130
#: A NIC this much faster than its PCIe link is held up by it; 400 Gb/s and PCIe 5.0 x16 belong together.
PCIE_MARGIN = 1.3


class _Topology:
    """Elements as they come: those that contain the current one are on a stack."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.lists: dict[str, list[Values]] = {"gpu": [], "net": [], "cpu": []}
        self._open: list[tuple[str, dict[str, str]]] = []

    def tag(self, name: str, rest: str, end: bool) -> None:
        if end:
            while self._open and self._open.pop()[0] != name:
                self.notes.warn(f"<{name}> ends where another element is open: lines are missing")
            return
        attributes = dict(_ATTRIBUTE.findall(rest))
        counts = {key: whole(attributes.get(key, "")) for key in ("dev", "rank", "sm", "port", "speed", "count")}
        flag = {"1": True, "0": False}.get(attributes.get("gdr", ""))
        entry: Values = {}
        if name == "cpu":
            entry = {"numa": whole(attributes.get("numaid", "")), "arch": attributes.get("arch")}
        elif name == "gpu":
            entry = {**{key: counts[key] for key in ("dev", "rank", "sm")}, "gdr": flag, **self._place(), "nvlinks": 0}
        elif name == "net":
            speed = None if counts["speed"] is None else counts["speed"] / 1000
            entry = {"name": attributes.get("name"), "dev": counts["dev"], "port": counts["port"], "speed": speed}
            entry |= {"guid": attributes.get("guid"), "gdr": flag, **self._place()}
            self._check(entry)
        elif name == "nvlink" and self.lists["gpu"]:
            self.lists["gpu"][-1]["nvlinks"] += counts["count"] or 0
        if entry and len(self.lists[name]) < MOST:
            self.lists[name].append(entry)
        if not rest.rstrip().endswith("/") and len(self._open) < _DEEPEST:
            self._open.append((name, attributes))

    def _check(self, nic: Values) -> None:
        if nic["speed"] and nic["pcie"] and nic["pcie"] < 0.95 * nic["speed"]:
            link = f"PCIe {nic['link_speed']:g} GT/s x{nic['link_width']}: at most {nic['pcie']:.0f} Gb/s"
            self.notes.warn(f"{nic['name']}: {nic['speed']:g} Gb/s behind {link}")

    def _place(self) -> Values:
        """Return where the element is: its PCI address, and the narrowest link on the way to the CPU."""
        above = [attributes for name, attributes in self._open if name == "pci"]
        cpu = next((attributes for name, attributes in reversed(self._open) if name == "cpu"), None)
        # Without the beginning of the text not all links are known.
        links = [link for link in map(_link, above) if link is not None and cpu is not None]
        rate, speed, width = min(links, default=(None, None, None))
        return {
            "bus": above[-1].get("busid") if above else None,
            "numa": whole((cpu or {}).get("numaid", "")),
            "link_speed": speed,
            "link_width": width,
            "pcie": None if rate is None else round(rate, 1),
        }


def _link(attributes: dict[str, str]) -> tuple[float, float, int] | None:
    """Return Gb/s, GT/s and lanes of the link of a PCI device; NCCL writes an empty speed where it knows none."""
    speed = number(attributes.get("link_speed", "").partition(" ")[0])
    width = whole(attributes.get("link_width", ""))
    return (speed * width * _CODED, speed, width) if speed and width and width > 0 else None


def _parse_topology(text: str) -> Reading:
    """Return ``gpus`` and ``nics`` with their place, ``cpus``, and ``complete``: whether the file ends as it should.

    ``speed`` and ``pcie`` are in Gb/s: of the port, and of the narrowest PCIe link between the device and its CPU;
    ``gdr`` is whether GPUDirect RDMA is possible, None if unknown.
    """
    parser = _Topology()
    for tag in _TAG.finditer(text):
        parser.tag(tag["name"], tag["rest"], bool(tag["end"]))
    complete = "</system>" in text
    if not complete:
        parser.notes.warn("no </system>: the text is cut off")
    gpus, nics, cpus = parser.lists.values()
    if names := [str(nic["name"]) for nic in nics if nic["gdr"] is False]:
        parser.notes.warn(f"no GPUDirect RDMA (gdr=0): {', '.join(names[:20])}")
    return parser.notes.reading({"gpus": gpus, "nics": nics, "cpus": cpus, "complete": complete})


def _topology_facts(values: Values) -> dict[str, Facts]:
    """Return NICs behind slower PCIe as the kernel reports them; a little slower is how such NICs are built."""
    limited = [
        pcie_limited(
            nic["name"], nic["bus"], f" of {nic['speed']:g} Gb/s is limited to {nic['pcie']:.0f} Gb/s by its PCIe link"
        )
        for nic in values["nics"]
        if nic["speed"] and nic["pcie"] and nic["speed"] > PCIE_MARGIN * nic["pcie"]
    ]
    return {"": {"kernel": {"counts": limited}}} if limited else {}


FORMATS = [
    Format(
        "ulimit", "limits of a process: ulimit -a, /proc/PID/limits", _LIMITS_LIKELY, _Limits.parse, facts=_limit_facts
    ),
    Format("sysctl", "sysctl: settings of the kernel", _SYSCTL_LIKELY, _Settings.parse, facts=_setting_facts),
    Format("lspci", _PCI_TITLE, _LSPCI_LIKELY, _Lspci.parse, units=_PCI_UNITS, facts=_pci_facts),
    Format(
        "nccl-topology",
        "NCCL's topology of a node as XML (NCCL_TOPO_DUMP_FILE): GPUs, NICs, PCIe links",
        _TOPOLOGY_LIKELY,
        _parse_topology,
        units=_TOPOLOGY_UNITS,
        aliases="nccl-topo|topo-xml",
        facts=_topology_facts,
    ),
]
