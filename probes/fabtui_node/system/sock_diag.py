"""TCP sockets of this network namespace with the kernel's ``struct tcp_info``, by netlink (``sock_diag(7)``).

Any user may ask, and nothing is sent. The structure grows with the kernel: what one does not know is left out.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Any, Dict, Iterator, List

_PROTOCOL, _BY_FAMILY, _DUMP, _ERROR, _DONE = 4, 20, 0x301, 2, 3
_HEAD = struct.Struct("=IHHII")
#: ``struct inet_diag_msg``: family, state, timer, retransmits, ports, addresses, interface, cookie, expiry, queues...
_MESSAGE = struct.Struct("=BBBB2s2s16s16sI8sIIIII")
_INFO = 2
#: All states but TIME-WAIT and LISTEN.
_STATES = 0xFFF & ~(1 << 6 | 1 << 10)
#: Name, offset and form of the fields of ``struct tcp_info`` that are read.
_FIELDS = (
    *(("backoff", 4, "=B"), ("mss", 16, "=I"), ("unacked", 24, "=I"), ("last_sent", 44, "=I"), ("last_recv", 52, "=I")),
    *(("rtt", 68, "=I"), ("retransmits", 100, "=I"), ("acked", 120, "=Q"), ("received", 128, "=Q")),
    *(("unsent", 144, "=I"), ("min_rtt", 148, "=I"), ("segments_in", 152, "=I"), ("segments_out", 156, "=I")),
)
#: Maximum number of sockets.
_MOST = 20_000


def sockets(deadline: float) -> List[Dict[str, Any]]:
    """Return the TCP sockets that are open or opening; raise OSError if the kernel does not answer.

    Each has ``local`` and ``remote`` (address and port), ``inode`` and ``unread`` (bytes), and of ``tcp_info``: bytes
    ``mss``, ``unsent``, ``acked``, ``received``; segments ``unacked``, ``segments_in``, ``segments_out``,
    ``retransmits``; times ``last_sent``, ``last_recv`` (ms ago), ``rtt``, ``min_rtt`` (us); ``backoff``.
    """
    rows: List[Dict[str, Any]] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _PROTOCOL) as asker:
        for family in (socket.AF_INET, socket.AF_INET6):
            body = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _STATES)
            asker.send(_HEAD.pack(_HEAD.size + len(body), _BY_FAMILY, _DUMP, 1, 0) + body)
            rows += _answers(asker, deadline)
    return rows


def _answers(asker: socket.socket, deadline: float) -> Iterator[Dict[str, Any]]:
    count = 0
    while True:
        asker.settimeout(max(0.01, deadline - time.monotonic()))
        data, at = asker.recv(1 << 17), 0
        while at + _HEAD.size <= len(data):
            size, kind, _, _, _ = _HEAD.unpack_from(data, at)
            if kind == _DONE or size < _HEAD.size:
                return
            if kind == _ERROR:
                raise OSError(-struct.unpack_from("=i", data, at + _HEAD.size)[0], "sock_diag")
            count += 1
            if count <= _MOST and size >= _HEAD.size + _MESSAGE.size:
                yield _socket(data[at + _HEAD.size : at + size])
            at += size + 3 & ~3


def _socket(data: bytes) -> Dict[str, Any]:
    family, _, _, _, port, peer, address, remote, _, _, _, unread, _, _, inode = _MESSAGE.unpack_from(data)
    row: Dict[str, Any] = {"inode": inode, "unread": unread}
    row["local"] = [_address(family, address), int.from_bytes(port, "big")]
    row["remote"] = [_address(family, remote), int.from_bytes(peer, "big")]
    at = _MESSAGE.size
    while at + 4 <= len(data):
        size, kind = struct.unpack_from("=HH", data, at)
        if kind == _INFO:
            info = data[at + 4 : at + size]
            for name, start, form in _FIELDS:
                if start + struct.calcsize(form) <= len(info):
                    row[name] = struct.unpack_from(form, info, start)[0]
        at += max(size + 3 & ~3, 4)
    return row


def _address(family: int, data: bytes) -> str:
    text = socket.inet_ntop(family, data[:4] if family == socket.AF_INET else data)
    # An IPv6 socket may be connected over IPv4.
    return text[7:] if text.startswith("::ffff:") else text
