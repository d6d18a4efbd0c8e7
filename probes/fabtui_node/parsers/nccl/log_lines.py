"""Lines of NCCL's log: connections between ranks, their transports and interfaces, and warnings."""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

# A line may follow a launcher's label or another program's prefix.
_LINE = re.compile(
    r"(?:^|[\s\]>:])(?P<host>[\w.-]{1,253}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) \[(?P<dev>-?\d{1,5})\] "
    r"(?:\d{1,12}\.\d{1,9} )?(?:(?P<where>[\w./+-]{1,120}:\d{1,7}) )?"
    r"NCCL (?P<level>INFO|WARN|ERROR|TRACE|VERSION|ABORT) (?P<text>.*)$"
)
_CHANNEL = re.compile(
    r"(?:Channel|Ring)\s+(?P<name>\d{1,5}(?:/\d{1,5})?)\s*:\s*"
    r"(?P<src>\d{1,9})(?:\[[0-9a-fA-F]{1,12}\])? -> (?P<dst>\d{1,9})(?:\[[0-9a-fA-F]{1,12}\])?"
    r"(?: \[(?P<direction>send|receive)\])? via (?P<via>\S.{0,120})$"
)
_VIA = re.compile(
    r"^(?:(?P<p2p>P2P)/(?P<p2p_kind>direct pointer|IPC|CUMEM|MNNVL|indirect/\d+\[[0-9a-fA-F]+\])"
    r"(?P<read>/read)?(?P<ce>/CE)?"
    r"|(?P<shm>SHM)(?:/\S+)?"
    r"|(?P<net>NET)/(?P<plugin>[^/]+)/(?P<nic>\d+)(?:\((?P<proxy>\d+)\))?(?P<gdr>/GDRDMA)?(?P<pci>\(PCI\))?"
    r"(?P<shared>/Shared)?)\s*$"
)
_USING = re.compile(r"^NET/(?P<plugin>\S+?)\s*: Using(?P<list>(?: \[\d+\]\S+)+)")
_ENTRY = re.compile(r"\[(\d+)\]([^\s:]+):(\S+)")

_CHOICE = re.compile(
    r"^(?:(?P<function>\w+): )?(?P<bytes>\d+) Bytes -> Algo (?P<algorithm>\w+) [Pp]roto (?P<protocol>\w+)"
)
# NCCL before 2.22 prints their numbers.
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")

# Consequences of something that another line names.
_LATER = (
    "Connection closed by remote peer",
    "Proxy Call to rank",
    "status=5",
    "WR_FLUSH",
    "Failed to execute operation",
    "commReclaim",
)


class Line(NamedTuple):
    """One line of the log; ``where`` is the source file and line that a warning names."""

    host: str
    pid: int
    tid: int
    device: int
    where: Optional[str]
    level: str
    text: str


class Channel(NamedTuple):
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


def parse_line(text: str) -> Optional[Line]:
    """Return the parts of one line of NCCL's log, None if it is not one."""
    match = _LINE.search(text)
    if match is None:
        return None
    return Line(
        match.group("host"),
        int(match.group("pid")),
        int(match.group("tid")),
        int(match.group("dev")),
        match.group("where"),
        match.group("level"),
        match.group("text").rstrip(),
    )


def parse_channel(text: str) -> Optional[Channel]:
    """Return the connection in a line, or None."""
    match = _CHANNEL.search(text)
    if match is None:
        return None
    src, dst = int(match.group("src")), int(match.group("dst"))
    return Channel(match.group("name"), src, dst, match.group("direction"), match.group("via").strip())


def parse_nics(text: str) -> Nics:
    """Return the interfaces that a ``Using`` line lists, by plugin and index."""
    match = _USING.match(text)
    if match is None:
        return {}
    nics = {}  # type: Nics
    for index, name, rest in _ENTRY.findall(match.group("list")):
        # Sockets: eth0:10.0.0.1<0>. InfiniBand: mlx5_0:1/IB, a port and a link layer, no address.
        address = rest.rpartition("<")[0] if rest.endswith(">") else None
        nics[match.group("plugin"), int(index)] = Nic(name, address or None)
    return nics


def cost_of(via: str) -> int:
    """Return how much worse than direct a way is; the worst of a pair's channels is the one to show."""
    match = _VIA.match(via)
    if match is None:
        return 9
    if match.group("p2p"):
        return 1 if match.group("p2p_kind").startswith("indirect") else 0
    if match.group("shm"):
        return 2
    if match.group("plugin") == "Socket":
        return 6
    return (3 if match.group("gdr") else 4) + (1 if match.group("proxy") else 0)


def short_name(via: str, nics: Nics) -> str:
    """Return a way in short words, with the interface's name in place of NCCL's number for it where known."""
    match = _VIA.match(via)
    if match is None:
        return via[:80]
    if match.group("p2p"):
        return "P2P/%s%s%s" % (match.group("p2p_kind"), match.group("read") or "", match.group("ce") or "")
    if match.group("shm"):
        return "SHM/direct"
    plugin, index = match.group("plugin"), int(match.group("nic"))
    nic = nics.get((plugin, index))
    parts = ["NET", plugin, nic.name if nic else str(index)]
    if match.group("gdr"):
        parts.append("GDRDMA" + (match.group("pci") or ""))
    if match.group("proxy"):
        parts.append("PXN")
    return "/".join(parts)


def address_of(via: str, nics: Nics) -> Optional[str]:
    """Return the address of the interface that a way uses, if it uses one with an address."""
    match = _VIA.match(via)
    if match is None or not match.group("net"):
        return None
    nic = nics.get((match.group("plugin"), int(match.group("nic"))))
    return nic.address if nic else None


def short_names(found: Iterable[str], nics: Nics) -> Optional[str]:
    """Return the short names of several transports, worst first; None of none."""
    ordered = sorted(found, key=lambda via: (-cost_of(via), via))
    return " + ".join(dict.fromkeys(short_name(via, nics) for via in ordered)) or None


def is_network(via: str) -> bool:
    """Return whether a way leaves the node."""
    return via.startswith(("NET/", "COLLNET/"))


def transports(lines: Iterable[Line], src: int, dst: int, sending: bool) -> List[str]:
    """Return the ways that lines name for one direction, as the sending or the receiving side printed them."""
    found = []  # type: List[str]
    for line in lines:
        channel = parse_channel(line.text)
        if channel is None or (channel.src, channel.dst) != (src, dst):
            continue
        if channel.direction is None or (channel.direction == "send") == sending:
            found.append(channel.via)
    return found


def worst(found: Iterable[str]) -> Optional[str]:
    """Return the worst of several ways, None of none."""
    return max(found, key=cost_of, default=None)


def warnings(lines: Iterable[Line]) -> List[str]:
    """Return the texts of what NCCL warned about, in order, each once."""
    found = []  # type: List[str]
    for line in lines:
        if line.level in ("WARN", "ERROR") and line.text and line.text not in found:
            found.append(line.text)
    return found


def root(found: List[str]) -> Optional[str]:
    """Return the first warning that is not just a consequence of another, else the first one."""
    for text in found:
        if not any(mark in text for mark in _LATER):
            return text
    return found[0] if found else None


def is_peer_lost(text: str) -> bool:
    """Return True if a warning of NCCL means that the peer closed the connection."""
    return "onnection closed" in text or "onnection reset" in text


def choice(lines: Iterable[Line]) -> Optional[str]:
    """Return the algorithm and protocol that NCCL chose for the last collective of some lines, None if untold.

    Only the first rank of a communicator prints it.
    """
    found = None
    for line in lines:
        match = _CHOICE.match(line.text)
        if match:
            found = match
    if found is None:
        return None
    names = []
    for text, known in ((found.group("algorithm"), _ALGORITHMS), (found.group("protocol"), _PROTOCOLS)):
        names.append(known[int(text)] if text.isdigit() and int(text) < len(known) else text.upper()[:40])
    return "/".join(names)
