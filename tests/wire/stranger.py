"""A stranger on a node: connects to each port that the node side opens, and sends what no rank would.

Runs as a process of its own, ``stranger.py PID SECONDS [KIND...]``. With pauses of SECONDS it visits the ports of all
node sides below that process, until standard input closes. Then it prints as JSON how often it was let in, by kind, and
all ports that it saw.
"""

import contextlib
import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, REQUEST_DUMP = 4, 20, 0x301
#: By name, the number of the protocol, and the state of a socket that takes what anybody sends.
KINDS = {"tcp": (socket.IPPROTO_TCP, 10), "udp": (socket.IPPROTO_UDP, 7)}
#: How long a connection stays open on which nothing is sent.
HELD = 1.0
#: What a rank of gloo sends first is the number of the connection, of 8 bytes, from 0 on.
NUMBER = struct.Struct("=Q")
NUMBERS = 40

Port = tuple[str, str, int]


def descendants(root: int) -> set[int]:
    """Return the processes of node sides below a process, which have our code in their command lines."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, fresh = set(), {root}
    while fresh:
        found |= fresh
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
    return {pid for pid in found if is_ours(content(f"/proc/{pid}/cmdline"))}


def is_ours(argv: bytes) -> bool:
    """Return True for our code, and for the tools that probes run."""
    return b"exec(" in argv or argv.startswith(b"iperf3\0")


def content(path: str) -> bytes:
    """Return a file of /proc; nothing if its process has ended."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def inodes(pids: set[int]) -> set[int]:
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    kind, _, number = os.readlink(entry).rstrip("]").partition(":[")
                    if kind == "socket":
                        found.add(int(number))
    return found


def ports(owned: set[int]) -> set[Port]:
    """Return protocol, address and port of each socket of these that takes what anybody sends.

    From the kernel's socket diagnosis, as the tables of /proc are too slow for ports that are open for milliseconds.
    """
    found = set()
    for kind, (protocol, state) in KINDS.items():
        for family in (socket.AF_INET, socket.AF_INET6):
            found |= {(kind, *where) for where, inode in _sockets(family, protocol, state) if inode in owned}
    return found


def _sockets(family: int, protocol: int, state: int) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield address with port, and the number, of the sockets of a kind."""
    request = struct.pack("=BBBxI48x", family, protocol, 0, 1 << state)
    header = struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(header + request)
        while True:
            data = kernel.recv(1 << 20)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind != SOCK_DIAG_BY_FAMILY:
                    return
                (port,) = struct.unpack_from("!H", data, 20)
                raw = data[24 : 24 + (16 if family == socket.AF_INET6 else 4)]
                yield (socket.inet_ntop(family, raw), port), struct.unpack_from("=I", data, 84)[0]
                data = data[(length + 3) & ~3 :]


class Stranger:
    """Connects, sends something of some kinds, and closes."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = kinds
        self.done: Counter[str] = Counter()
        self.seen: set[Port] = set()
        self._held: list[tuple[float, socket.socket]] = []

    def visit(self, port: Port) -> None:
        self.seen.add(port)
        if port[0] == "udp":
            self._send_datagrams(port)
            return
        self._connect("nothing", port, b"")
        self._connect("random bytes", port, random.randbytes(64))
        self._connect("half a handshake", port, NUMBER.pack(0)[: NUMBER.size // 2])
        for number in range(NUMBERS):
            self._connect("handshake", port, NUMBER.pack(number))

    def _connect(self, kind: str, port: Port, data: bytes) -> None:
        if kind not in self._kinds:
            return
        with contextlib.suppress(OSError):
            sock = socket.create_connection(port[1:], 1.0)
            self.done[kind] += 1
            if not data:
                self._held.append((time.monotonic() + HELD, sock))
                return
            with sock:
                sock.sendall(data)

    def _send_datagrams(self, port: Port) -> None:
        """Send what looks like a datagram of the probe, with another token."""
        if "datagrams" not in self._kinds:
            return
        family = socket.AF_INET6 if ":" in port[1] else socket.AF_INET
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sock:
            for number in range(NUMBERS):
                sock.sendto(struct.pack("!16sIHH", bytes(16), number, 0, 64).ljust(64, b"\0"), port[1:])
                self.done["datagrams"] += 1

    def let_go(self) -> None:
        now = time.monotonic()
        for end, sock in self._held:
            if end < now:
                sock.close()
        self._held = [one for one in self._held if one[0] >= now]


def main(root: int, pause: float, kinds: Collection[str]) -> None:
    """Visit all ports until standard input closes."""
    stranger = Stranger(kinds)
    nodes: set[int] = set()
    listed_at = 0.0
    while not select.select([sys.stdin], [], [], pause)[0]:
        if time.monotonic() > listed_at + 0.2:
            nodes, listed_at = descendants(root), time.monotonic()
        for port in sorted(ports(inodes(nodes))):
            stranger.visit(port)
        stranger.let_go()
    print(json.dumps({"done": stranger.done, "seen": sorted(stranger.seen)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
