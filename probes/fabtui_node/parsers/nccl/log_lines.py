"""Logs of NCCL (``NCCL_DEBUG=INFO``): connections between ranks, their transports and interfaces, and warnings."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from fabtui_node.parsers.base import Format, Likely, Notes, Reading
from fabtui_node.parsers.lines import is_prompt, plain_lines
from fabtui_node.parsers.nccl.transports import Path, path_of

_ROOT = re.compile(r"=== System : max(?:Bw|Width) ")
#: A NIC is in the line of its PCIe link, and what it sends over in the lines that follow; NIC/5000 is the device
#: 0000:05:00.0, which newer versions write NIC/0-5000.
_NIC = re.compile(r" {0,400}\+ PCI\[(\d{1,6}\.\d)\] - (NIC/(?:[0-9A-Fa-f]{1,16}-)?([0-9A-Fa-f]{1,12}))", re.ASCII)
_NET = re.compile(r" {0,400}\+ NET\[(\d{1,6}\.\d)\] - (NET/[0-9A-Fa-f-]{1,33})", re.ASCII)
#: Maximum number of NICs that are kept.
_MOST = 1024

# A line may follow a launcher's label or another program's prefix.
_LINE = re.compile(
    # A time zone may touch the host.
    r"(?:^|[\s\]>:]|[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d))"
    r"(?P<host>[\w.-]{1,253}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) \[(?P<dev>-?\d{1,5})\] "
    # NCCL from 2.29 on names the function, too; plug-ins name a function with its types in place of the file.
    r"(?:\d{1,12}\.\d{1,9} )?"
    r"(?:(?P<where>[\w./+-]{1,120}:\d{1,7}) (?:\([\w:~<>]{1,200}\) )?|[\w:~<>*&,() .]{1,300}:\d{1,7} )?"
    r"NCCL (?P<level>INFO|WARN|ERROR|TRACE|VERSION|ABORT) (?P<text>.*)$"
)
_CHANNEL = re.compile(
    r"(?:Channel|Ring)\s+(?P<name>\d{1,5}(?:/\d{1,5})?)\s*:\s*"
    r"(?P<src>\d{1,9})(?:\[[0-9a-fA-F]{1,12}\])? -> (?P<dst>\d{1,9})(?:\[[0-9a-fA-F]{1,12}\])?"
    r"(?: \[(?P<direction>send|receive)\])? via (?P<via>\S.{0,120})$"
)
_RING = re.compile(r"Channel \d{1,5}/\d{1,5}\s?:((?:\s{1,12}\d{1,7})+)\s{0,1024}$", re.ASCII)
_VIA = re.compile(
    r"^(?:(?P<p2p>P2P)/(?P<p2p_kind>direct pointer|IPC|CUMEM|MNNVL|indirect/\d+\[[0-9a-fA-F]+\])"
    r"(?P<read>/read)?(?P<ce>/CE)?"
    r"|(?P<shm>SHM)(?:/\S+)?"
    r"|(?P<net>NET)/(?P<plugin>[^/]+)/(?P<nic>\d+)(?:\((?P<proxy>\d+)\))?(?P<gdr>/GDRDMA)?(?P<pci>\(PCI\))?"
    r"(?P<shared>/Shared)?)\s*$"
)
#: NICs that NCCL uses as one: ``mlx5_0+mlx5_1``.
_VIRTUAL = re.compile(r"^NET/(?P<plugin>\S+?)\s*: Made virtual device \[(?P<index>\d{1,4})\] name=(?P<name>\S{1,200})")

_CHOICE = re.compile(
    r"^(?:(?P<function>\w+): )?(?P<bytes>\d+) Bytes -> Algo (?P<algorithm>\w+) [Pp]roto (?P<protocol>\w+)"
)
# NCCL before 2.22 prints their numbers.
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")

# Consequences of something that another line names.
_LATER = (
    *("Connection closed by remote peer", "Proxy Call to rank", "status=5", "WR_FLUSH"),
    *("Failed to execute operation", "commReclaim", "Socket recv failed while polling"),
)

# The log of a run as a whole.
#: A line whose host and process are lost, or that NCCL prints without: ``[0] NCCL INFO``, ``function:617 NCCL WARN``.
_BARE = re.compile(
    r"(?:^|[\s\]>:|])(?:\[(?P<dev>-?\d{1,5})\] )?(?:\d{1,12}\.\d{1,9} )?(?:(?P<where>[\w./+-]{1,120}:\d{1,7}) )?"
    r"NCCL (?P<level>INFO|WARN|ERROR|ABORT) (?P<text>.*)$"
)
#: Network and NICs that a process uses, version of NCCL, number of nodes: what other logs repeat of NCCL's.
USED = re.compile(r"NET/(\S{1,40}?) : Using((?: \[\d{1,4}\][^\s;]{1,120})+)( \[RO\])?(?:\s*; OOB (\S{1,120}))?")
USED_NIC = re.compile(r"\[(\d{1,4})\]([^\s:]+):([^\s;]+)")
_BOOTSTRAP = re.compile(r"Bootstrap ?: Using (\S{1,120})")
_NETWORK = re.compile(r"Using network (.{1,40}?)\s*$")
VERSION = re.compile(r"NCCL version (\d[\w.]{0,20})(?:\+cuda([\d.]{1,10}))?")
_COMM = re.compile(
    r"(?:comm|nccl\w*) ?(?:comm )?0x[0-9a-fA-F]+ rank (\d{1,9}) nranks (\d{1,9}) cudaDev (\d{1,5})(?: nvmlDev"
    r" (\d{1,5}))?"
    r"(?: busId ([0-9a-fA-F]{1,12}))?(?: commId (\w{1,40}))?.{0,120}- Init (START|COMPLETE)"
)
_CHANNELS = re.compile(
    r"(?P<coll>\d{1,5}) coll channels(?:, (?P<collnet>\d{1,5}) collnet channels)?"
    r"(?:, (?P<nvls>\d{1,5}) nvls channels)?, (?P<p2p>\d{1,5}) p2p channels"
)
NODES = re.compile(r"\bnNodes (\d{1,7})\b")
_GDR = re.compile(r"GPU Direct RDMA (Enabled|Disabled) for (?:HCA|GPU) ?(\d{1,4})?(?: '(\S{1,60})')?")
_RETURNS = re.compile(r"^\s*(\S{1,120}:\d{1,7}) -> (\d{1,3})\b")
_ENV = re.compile(r"\b(NCCL_[A-Z0-9_]{2,60}) set (?:by environment )?to (\S{1,120}?)\.?\s*$")
_COMPLETION = re.compile(
    r"Got completion (?:from peer (?P<peer>\S+) )?with (?:error (?P<e0>\d{1,5}), ?opcode (?P<o0>\d{1,5}), len ?"
    r"(?P<l0>\d{1,12}),"
    r" vendor err (?P<v0>\d{1,7})|status=(?:(?P<sname>\w+)\()?(?P<s>\d{1,5})\)? opcode=(?:\w+\()?(?P<o>\d{1,5})\)?"
    r"(?: len=(?P<l>\d{1,12}))? vendor[ _]err[= ](?P<v>\d{1,7}))(?:.{0,20}?\((?P<direction>Recv|Send|Read|Write)\))?"
)
_PEER = re.compile(
    r"(?:Connect to|connect to|remote peer|Call to recv from|Call to send to|from peer) (\S{1,120}<\d{1,6}>)"
)
#: What the result codes in ``file:line -> N`` mean.
_RESULTS = {
    1: "unhandled CUDA error", 2: "system error", 3: "internal error", 4: "invalid argument", 5: "invalid usage",
    6: "remote error", 7: "in progress",
}  # fmt: skip
#: Width (characters) from which on a line may have been cut by a terminal.
_NARROWEST = 78
#: Maximum number of pairs whose transports are kept.
_MOST_EDGES = 4096

_TITLE = "NCCL's log (NCCL_DEBUG=INFO): transports between ranks, NICs, warnings"


class Graph:
    """Follows the lines of the system graphs of processes: NICs, and the PCIe links in front of them."""

    def __init__(self) -> None:
        #: ``{"host", "nic", "bus", "net", "rate", "pcie"}`` of each NIC, rates in GB/s as NCCL reckons with them.
        self.nics: List[Dict[str, Any]] = []
        self._last: Dict[Any, Tuple[float, str, str]] = {}

    def line(self, text: str, host: Optional[str], process: Any) -> bool:
        """Take the text of a line of NCCL in; return whether it is part of a graph."""
        if " - N" not in text and "=== S" not in text:
            return False
        nic, net = _NIC.match(text), _NET.match(text)
        if nic and len(self._last) < _MOST:
            self._last[process] = float(nic[1]), nic[2], bus_id(nic[3])
        if net and process in self._last and len(self.nics) < _MOST:
            pcie, name, bus = self._last[process]
            entry = {"host": host, "nic": name, "bus": bus, "net": net[2], "rate": float(net[1]), "pcie": pcie}
            if entry not in self.nics:
                self.nics.append(entry)
        return bool(nic or net or _ROOT.match(text))


def bus_id(digits: str) -> str:
    """Return the PCI address that NCCL writes as a number in hexadecimal digits."""
    number = int(digits, 16)
    return "%04x:%02x:%02x.%x" % (number >> 20, number >> 12 & 0xFF, number >> 4 & 0xFF, number & 0xF)


class NcclLine(NamedTuple):
    """One line of the log; ``where`` is the source file and line that a warning names."""

    host: str
    pid: int
    tid: int
    device: int
    where: Optional[str]
    level: str
    text: str


class NcclChannel(NamedTuple):
    """One connection: ranks within the communicator, ``send`` or ``receive`` where known, and NCCL's transport."""

    name: str
    src: int
    dst: int
    direction: Optional[str]
    via: str


class Nic(NamedTuple):
    """A network interface or RDMA device that NCCL uses; RDMA devices have no address."""

    name: str
    address: Optional[str]


Nics = Dict[Tuple[str, int], Nic]


def parse_line(text: str) -> Optional[NcclLine]:
    """Return the parts of one line of NCCL's log, None if it is not one."""
    match = _LINE.search(text) if " NCCL " in text else None
    if match is None:
        return None
    host, pid, tid, device, where, level, rest = match.groups()
    return NcclLine(host, int(pid), int(tid), int(device), where, level, rest.rstrip())


def parse_channel(text: str) -> Optional[NcclChannel]:
    """Return the connection in a line, or None."""
    match = _CHANNEL.search(text)
    if match is None:
        return None
    name, src, dst, direction, via = match.groups()
    return NcclChannel(name, int(src), int(dst), direction, via.strip())


def parse_ring(text: str) -> Optional[List[int]]:
    """Return the ranks of a ring in their order (``Channel 00/02 : 0 1``), or None.

    Only the first rank of a communicator prints it; NCCL cuts a long line.
    """
    match = _RING.match(text)
    return None if match is None else [int(rank) for rank in match[1].split()]


def parse_nics(text: str) -> Nics:
    """Return the interfaces that a ``Using`` line lists, or the ones that become one, by plugin and index."""
    joined = _VIRTUAL.match(text)
    if joined is not None:
        return {(joined["plugin"], int(joined["index"])): Nic(joined["name"], None)}
    match = USED.match(text)
    if match is None:
        return {}
    nics = {}  # type: Nics
    for index, name, rest in USED_NIC.findall(match[2]):
        # Sockets: eth0:10.0.0.1<0>. InfiniBand: mlx5_0:1/IB, a port and a link layer, no address.
        address = rest.rpartition("<")[0] if rest.endswith(">") else None
        nics[match[1], int(index)] = Nic(name, address or None)
    return nics


def cost_of(via: str) -> int:
    """Return how much worse than direct a way is; the worst of a pair's channels is the one to show."""
    match = _VIA.match(via)
    if match is None:
        return 9
    if match["p2p"]:
        return 1 if match["p2p_kind"].startswith("indirect") else 0
    if match["shm"]:
        return 2
    if path_of(via) is Path.TCP:
        return 6
    return (3 if match["gdr"] else 4) + (1 if match["proxy"] else 0)


def short_name(via: str, nics: Nics) -> str:
    """Return a way in short words, with the interface's name in place of NCCL's number for it where known."""
    match = _VIA.match(via)
    if match is None:
        return via[:80]
    if match["p2p"]:
        return "P2P/%s%s%s" % (match["p2p_kind"], match["read"] or "", match["ce"] or "")
    if match["shm"]:
        return "SHM/direct"
    plugin, index = match["plugin"], int(match["nic"])
    nic = nics.get((plugin, index))
    parts = ["NET", plugin, nic.name if nic else str(index)]
    if match["gdr"]:
        parts.append("GDRDMA" + (match["pci"] or ""))
    if match["proxy"]:
        parts.append("PXN")
    return "/".join(parts)


def address_of(via: str, nics: Nics) -> Optional[str]:
    """Return the address of the interface that a way uses, if it uses one with an address."""
    match = _VIA.match(via)
    if match is None or not match["net"]:
        return None
    nic = nics.get((match["plugin"], int(match["nic"])))
    return nic.address if nic else None


def short_names(found: Iterable[str], nics: Nics) -> Optional[str]:
    """Return the short names of several transports, worst first; None of none."""
    ordered = sorted(found, key=lambda via: (-cost_of(via), via))
    return " + ".join(dict.fromkeys(short_name(via, nics) for via in ordered)) or None


def is_network(via: str) -> bool:
    """Return whether a way leaves the node."""
    return via.startswith(("NET/", "COLLNET/"))


def transports(lines: Iterable[NcclLine], src: int, dst: int, sending: bool) -> List[str]:
    """Return the ways that lines name for one direction, as the sending or the receiving side printed them."""
    channels = [channel for line in lines if (channel := parse_channel(line.text)) is not None]
    sides = (None, "send" if sending else "receive")
    return [found.via for found in channels if (found.src, found.dst) == (src, dst) and found.direction in sides]


def worst(found: Iterable[str]) -> Optional[str]:
    """Return the worst of several ways, None of none."""
    return max(found, key=cost_of, default=None)


def warnings(lines: Iterable[NcclLine]) -> List[str]:
    """Return the texts of what NCCL warned about, in order, each once."""
    return list(dict.fromkeys(line.text for line in lines if line.level in ("WARN", "ERROR") and line.text))


def root(found: List[str]) -> Optional[str]:
    """Return the first warning that is not just a consequence of another, else the first one."""
    causes = [text for text in found if not any(mark in text for mark in _LATER)]
    return next(iter(causes or found), None)


def is_peer_lost(text: str) -> bool:
    """Return True if a warning of NCCL means that the peer closed the connection."""
    return "onnection closed" in text or "onnection reset" in text


def choice(lines: Iterable[NcclLine]) -> Optional[str]:
    """Return the algorithm and protocol that NCCL chose for the last collective of some lines, None if unknown.

    Only the first rank of a communicator prints it.
    """
    matches = [match for line in lines if (match := _CHOICE.match(line.text))]
    if not matches:
        return None
    last = matches[-1]
    names = []
    for text, known in ((last["algorithm"], _ALGORITHMS), (last["protocol"], _PROTOCOLS)):
        names.append(known[int(text)] if text.isdecimal() and int(text) < len(known) else text.upper()[:40])
    return "/".join(names)


class _Parser:
    def __init__(self) -> None:
        self.notes = Notes()
        self.lines = 0
        names = ("version", "cuda", "hosts", "nranks", "nodes", "network", "bootstrap")
        self.values: Dict[str, Any] = dict.fromkeys(names)
        self.hosts: Dict[str, None] = {}
        self.nics: List[Dict[str, Any]] = []
        self.edges: Dict[Tuple[int, int], Dict[str, Any]] = {}
        self.ranks: Dict[int, Dict[str, Any]] = {}
        self.warns: List[Dict[str, Any]] = []
        self.returns: Dict[int, int] = {}
        self.channels: Optional[Dict[str, int]] = None
        self.gdr: Dict[str, str] = {}
        self.env: Dict[str, str] = {}
        self._graph = Graph()
        self._wrapped = False
        self._width = 0

    def line(self, line: str) -> None:
        parsed = parse_line(line)
        bare = _BARE.search(line) if parsed is None and "NCCL " in line else None
        if "NCCL version" in line and (version := VERSION.search(line)):
            self.values["version"], self.values["cuda"] = version[1], version[2] or self.values["cuda"]
        if parsed is None and bare is None:
            if self._wrapped and line.strip() and self.warns and not is_prompt(line):
                # A terminal cuts in the middle of a word.
                in_word = self._width >= _NARROWEST and self.warns[-1]["text"][-1:].isalnum() and line[:1].isalnum()
                self.warns[-1]["text"] = (self.warns[-1]["text"] + ("" if in_word else " ") + line.strip())[:400]
            self._wrapped = False
            return
        self._width = len(line)
        self.lines += 1
        if parsed:
            self.hosts.setdefault(parsed.host)
        level, text = (parsed.level, parsed.text) if parsed else (bare["level"], bare["text"]) if bare else ("", "")
        self._wrapped = level in ("WARN", "ERROR")
        if not self._wrapped:
            self._info(parsed, text)
        elif len(self.warns) < 500:
            host: Optional[str] = parsed.host if parsed else None
            device = parsed.device if parsed else int(bare["dev"]) if bare and bare["dev"] else None
            at = parsed.where if parsed else bare["where"] if bare else None
            self.warns.append({"host": host, "device": device, "at": at, "text": text.strip()[:400]})

    def _info(self, found: Optional[NcclLine], text: str) -> None:
        host, process = (found.host, (found.host, found.pid)) if found else (None, None)
        if self._graph.line(text, host, process):
            return
        if channel := parse_channel(text):
            self._edge(channel, found)
        elif using := USED.search(text):
            self._nics(using, host)
        elif comm := _COMM.search(text):
            self._comm(comm, host)
        elif channels := _CHANNELS.search(text):
            self.channels = {name: int(count) for name, count in channels.groupdict().items() if count}
        elif returns := _RETURNS.match(text):
            self.returns[int(returns[2])] = self.returns.get(int(returns[2]), 0) + 1
        elif network := _NETWORK.search(text):
            self.values["network"] = network[1]
        elif bootstrap := _BOOTSTRAP.search(text):
            self.values["bootstrap"] = self.values["bootstrap"] or bootstrap[1]
        elif gdr := _GDR.search(text):
            self.gdr[gdr[3] or gdr[2] or "?"] = gdr[1].lower()
        elif env := _ENV.search(text):
            self.env[env[1]] = env[2]
        if nodes := NODES.search(text):
            self.values["nodes"] = int(nodes[1])

    def _edge(self, found: NcclChannel, line: Optional[NcclLine]) -> None:
        src, dst, via = found.src, found.dst, found.via
        if (src, dst) not in self.edges and len(self.edges) >= _MOST_EDGES:
            return
        edge = self.edges.setdefault((src, dst), {"src": src, "dst": dst, "via": via, "channels": [], "ways": []})
        if found.name not in edge["channels"] and len(edge["channels"]) < 64:
            edge["channels"].append(found.name)
        if via not in edge["ways"] and len(edge["ways"]) < 16:
            edge["ways"].append(via)
            # A pair may mix transports; the worst one is shown.
            edge["via"] = worst(edge["ways"])
        if line is not None and found.direction != "receive":
            self.ranks.setdefault(src, {"rank": src, "host": line.host, "device": line.device, "init": "unknown"})

    def _nics(self, found: "re.Match[str]", host: Optional[str]) -> None:
        # InfiniBand: mlx5_0:1/IB, a port and a link layer.
        names = [(name, rest.partition("/")[2] or None) for _, name, rest in USED_NIC.findall(found[2])]
        entry = {"net": found[1], "nics": [name for name, _ in names], "layers": [layer for _, layer in names]}
        entry.update(oob=found[4], host=host)
        if entry not in self.nics and len(self.nics) < 200:
            self.nics.append(entry)
        if len({layer for _, layer in names if layer}) > 1:
            odd = ", ".join(name for name, layer in names if layer == "RoCE")
            self.notes.warn("InfiniBand and RoCE are mixed: %s (see NCCL_IB_HCA)" % odd)

    def _comm(self, found: "re.Match[str]", host: Optional[str]) -> None:
        rank = int(found[1])
        self.values["nranks"] = max(self.values["nranks"] or 0, int(found[2]))
        kept = self.ranks.setdefault(rank, {"rank": rank, "host": None, "device": None, "init": "unknown"})
        kept.update(host=host, device=int(found[3]), bus=found[5])
        if kept["init"] != "complete":
            kept["init"] = {"START": "started", "COMPLETE": "complete"}[found[7]]

    def reading(self) -> Reading:
        for warn in self.warns:
            _explain(warn)
            device = "?" if warn["device"] is None else warn["device"]
            self.notes.warn("%s [%s] %s" % (warn["host"] or "?", device, warn["text"]))
        hung = [rank for rank, found in sorted(self.ranks.items()) if found["init"] == "started"]
        if hung and any(found["init"] == "complete" for found in self.ranks.values()):
            self.notes.warn("ranks that began to initialise and did not end: " + ", ".join(map(str, hung[:20])))
        if any(path_of(edge["via"]) is Path.TCP for edge in self.edges.values()):
            self.notes.warn("pairs are connected over sockets (TCP), not over RDMA")
        if not self.lines and not self.values["version"]:
            self.notes.warn("no line of NCCL")
        returns = sorted(self.returns.items())
        values = {
            **self.values,
            "hosts": list(self.hosts)[:4096],
            "first_cause": root([warn["text"] for warn in self.warns]),
            "nics": self.nics,
            "edges": [self.edges[key] for key in sorted(self.edges)],
            "ranks": [self.ranks[rank] for rank in sorted(self.ranks)][:4096],
            "nic_links": self._graph.nics,
            "channels": self.channels,
            "gpu_direct": self.gdr,
            "environment": self.env,
            "warns": self.warns,
            "returns": [{"code": at, "means": _RESULTS.get(at, "unknown"), "lines": count} for at, count in returns],
        }
        return self.notes.reading(values)


def _explain(warn: Dict[str, Any]) -> None:
    text = warn["text"]
    if peer := _PEER.search(text):
        warn["peer"] = peer[1]
    if done := _COMPLETION.search(text):
        warn["peer"] = done["peer"] or warn.get("peer")
        warn["error"] = int(done["e0"] or done["s"])
        warn["vendor_err"] = int(done["v0"] or done["v"])
        warn["direction"] = done["direction"]


def parse(text: str) -> Reading:
    """Return ``edges`` (ranks ``src``, ``dst``; worst transport ``via``), ``nics``, ``ranks``, ``warns``, ``returns``.

    ``nic_links`` are the NICs of NCCL's system graph, with what they and their PCIe links let through (`graph`).
    Ranks are numbers within a communicator; a log of several communicators mixes them. ``first_cause`` is the first
    warning that is not a consequence of another.
    """
    parser = _Parser()
    for line in plain_lines(text):
        parser.line(line)
    return parser.reading()


def _likely(text: str) -> float:
    count = len(re.findall(r"\bNCCL (?:INFO|WARN|TRACE) ", text))
    lines = sum(1 for line in text.splitlines() if line.strip())
    if not count and re.search(r"^NCCL version \d", text, re.MULTILINE):
        # All that NCCL_DEBUG=VERSION prints.
        return 0.5
    return 0.5 + 0.4 * min(1.0, count / max(lines, 1)) if count else 0.0


FORMATS = [
    Format(
        "nccl-log",
        _TITLE,
        Likely(_likely, r"NCCL (?:INFO|WARN|TRACE) |NCCL version"),
        parse,
        units={"rate": "GB/s", "pcie": "GB/s"},
        log=True,
        aliases="nccl-debug-log|nccl",
        errors=True,
    )
]
