"""ICMP echoes through a socket, for nodes (containers above all) that have no ping.

Linux lets users whose group is in ``net.ipv4.ping_group_range`` open ICMP datagram sockets; root may open raw ones.
Packet formats: RFC 792 and RFC 4443.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import time
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.protocol import OF_CALLER

#: Seconds between the echoes to one target.
PERIOD = 0.2

_ECHO = {4: (8, 0), 6: (128, 129)}

# Level, MTU_DISCOVER and MTU of <linux/in.h> and <linux/in6.h>; the socket module of Python 3.8 has none of them.
_OPTIONS = {4: (socket.IPPROTO_IP, 10, 14), 6: (socket.IPPROTO_IPV6, 23, 24)}
_PMTUDISC_PROBE = 3


class NotPermitted(Exception):
    """This user may not send ICMP echoes by itself."""


def open_socket(src: str, dst: str) -> Tuple[socket.socket, bool]:
    """Return a socket from one address to another, and whether it is raw (and its replies carry an IPv4 header).

    Raises `NotPermitted` if the kernel allows neither kind of socket, and OSError if the addresses cannot be used.
    """
    family, protocol = (socket.AF_INET6, socket.IPPROTO_ICMPV6) if ":" in dst else (socket.AF_INET, socket.IPPROTO_ICMP)
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            sock = socket.socket(family, kind, protocol)
        except PermissionError:
            continue
        except OSError:
            if kind == socket.SOCK_DGRAM:
                continue
            raise
        try:
            if src:
                sock.bind((src, 0))
            sock.connect((dst, 0))
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        return sock, kind == socket.SOCK_RAW
    raise NotPermitted("no ping on this node, and this user may not send ICMP echoes")


def checksum(data: bytes) -> int:
    """Return the Internet checksum of some bytes (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def request(version: int, ident: int, number: int, payload: bytes) -> bytes:
    """Return an echo request; the kernel fills in the checksum of IPv6 and the identifier of datagram sockets."""
    head = struct.pack("!BBHHH", _ECHO[version][0], 0, 0, ident, number)
    if version == 6:
        return head + payload
    return struct.pack("!BBHHH", 8, 0, checksum(head + payload), ident, number) + payload


def reply_number(data: bytes, version: int, raw: bool, token: bytes) -> Optional[int]:
    """Return the sequence number of an echo reply to us, or None for any other packet."""
    if raw and version == 4:
        if len(data) < 20:
            return None
        data = data[(data[0] & 15) * 4 :]
    if len(data) < 8 + len(token) or data[0] != _ECHO[version][1] or data[8 : 8 + len(token)] != token:
        return None
    return int(struct.unpack("!H", data[6:8])[0])


def forbid_fragments(sock: socket.socket, version: int) -> None:
    """Forbid fragments, even if the kernel knows a smaller path MTU."""
    level, discover, _ = _OPTIONS[version]
    sock.setsockopt(level, discover, _PMTUDISC_PROBE)


def path_mtu(sock: socket.socket, problem: OSError) -> Optional[int]:
    """Return the path MTU (bytes) that the kernel knows for a connected socket whose datagram was too large."""
    level, _, mtu = _OPTIONS[6 if sock.family == socket.AF_INET6 else 4]
    with contextlib.suppress(OSError):
        return sock.getsockopt(level, mtu) if problem.errno == errno.EMSGSIZE else None
    return None


def ask(
    src: str, dst: str, echoes: int, wait: float, size: int, end: float, whole: bool = False, period: float = PERIOD
) -> Dict[str, Any]:
    """Send echo requests, without fragments if ``whole``, and return a row of the ping probe; times are in ms.

    Raises `NotPermitted` if this user may not.
    """
    version = 6 if ":" in dst else 4
    try:
        sock, raw = open_socket(src, dst)
    except OSError as problem:
        return {**_row(0, [], problem.strerror or str(problem)), **_of_caller(problem)}
    if whole:
        forbid_fragments(sock, version)
    ident = int.from_bytes(os.urandom(2), "big")
    token = os.urandom(8)
    payload = (token + b"fabtui" * (size // 6 + 1))[: max(size, len(token))]
    sent: Dict[int, float] = {}
    times: List[float] = []
    error: Optional[str] = None
    narrow: Optional[int] = None
    own: Dict[str, Any] = {}
    with sock:
        due = time.monotonic()
        until = due
        while time.monotonic() < min(until, end) or len(sent) < echoes:
            now = time.monotonic()
            if now >= end:
                break
            if len(sent) < echoes and now >= due:
                number = len(sent) + 1
                try:
                    sock.send(request(version, ident, number, payload))
                except OSError as problem:
                    own = _of_caller(problem)
                    error, narrow = problem.strerror or str(problem), path_mtu(sock, problem) or narrow
                sent[number] = now
                due, until = now + period, now + wait
            limit = min(end, due if len(sent) < echoes else until)
            if select.select([sock], [], [], max(0.0, limit - time.monotonic()))[0]:
                try:
                    number_back = reply_number(sock.recv(65536), version, raw, token)
                except OSError as problem:
                    error, narrow = problem.strerror or str(problem), path_mtu(sock, problem) or narrow
                    continue
                began = sent.get(number_back or 0)
                if began is not None and number_back is not None:
                    times.append((time.monotonic() - began) * 1000.0)
                    sent[number_back] = float("nan")
                    if len(times) == echoes:
                        break
    return {**_row(len(sent), times, error, narrow), **own}


def _of_caller(problem: OSError) -> Dict[str, Any]:
    return {"errno": problem.errno} if problem.errno in OF_CALLER else {}


def _row(sent: int, times: List[float], error: Optional[str], narrow: Optional[int] = None) -> Dict[str, Any]:
    good = [value for value in times if value == value]
    return {
        "sent": sent,
        "received": len(good),
        "loss": 100.0 * (sent - len(good)) / sent if sent else None,
        "rtt_min": min(good) if good else None,
        "rtt_avg": sum(good) / len(good) if good else None,
        "rtt_max": max(good) if good else None,
        "duplicates": len(times) - len(good),
        "path_mtu": narrow,
        "error": error if len(good) < sent or not sent else None,
    }
