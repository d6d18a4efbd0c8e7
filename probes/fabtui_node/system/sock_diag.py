"""TCP sockets of this network namespace with the kernel's ``struct tcp_info``, by netlink (``sock_diag(7)``).

Any user may ask, and nothing is sent. The structure grows with the kernel: what one does not know is left out.
"""

from __future__ import annotations

import itertools
import socket
import struct
from typing import Any, Dict, List

from fabtui_node.system import netlink

_PROTOCOL, _BY_FAMILY = 4, 20
#: ``struct inet_diag_msg``: family, state, timer, retransmits, ports, addresses, interface, cookie, expiry, queues...
_MESSAGE = struct.Struct("=BBBB2s2s16s16sI8sIIIII")
_INFO = 2
#: All states but TIME-WAIT and LISTEN, and the one of a connection that neither end has closed.
_STATES, ESTABLISHED = 0xFFF & ~(1 << 6 | 1 << 10), 1 << 1
#: Name, offset and form of the fields of ``struct tcp_info`` that are read.
_FIELDS = (
    *(("backoff", 4, "=B"), ("mss", 16, "=I"), ("unacked", 24, "=I"), ("last_sent", 44, "=I"), ("last_recv", 52, "=I")),
    *(("rtt", 68, "=I"), ("retransmits", 100, "=I"), ("acked", 120, "=Q"), ("received", 128, "=Q")),
    *(("unsent", 144, "=I"), ("min_rtt", 148, "=I"), ("segments_in", 152, "=I"), ("segments_out", 156, "=I")),
)
#: Maximum number of sockets.
_MOST = 20_000


def sockets(states: int = _STATES) -> List[Dict[str, Any]]:
    """Return the TCP sockets in some states; by default those that are open or opening.

    Raises OSError if the kernel does not answer.

    Each has ``local`` and ``remote`` (address and port), ``inode`` and ``unread`` (bytes), and of ``tcp_info``: bytes
    ``mss``, ``unsent``, ``acked``, ``received``; segments ``unacked``, ``segments_in``, ``segments_out``,
    ``retransmits``; times ``last_sent``, ``last_recv`` (ms ago), ``rtt``, ``min_rtt`` (us); ``backoff``.
    """
    rows: List[Dict[str, Any]] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        request = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, states)
        entries = netlink.answers(_PROTOCOL, _BY_FAMILY, request, _MESSAGE.size)
        rows += [
            _socket(head, attributes.get(_INFO, b""))
            for head, attributes in itertools.islice(entries, _MOST)
            if len(head) == _MESSAGE.size
        ]
    return rows


def _socket(head: bytes, info: bytes) -> Dict[str, Any]:
    family, _, _, _, port, peer, address, remote, _, _, _, unread, _, _, inode = _MESSAGE.unpack(head)
    row: Dict[str, Any] = {"inode": inode, "unread": unread}
    row["local"] = [_address(family, address), int.from_bytes(port, "big")]
    row["remote"] = [_address(family, remote), int.from_bytes(peer, "big")]
    for name, start, form in _FIELDS:
        if start + struct.calcsize(form) <= len(info):
            row[name] = struct.unpack_from(form, info, start)[0]
    return row


def _address(family: int, data: bytes) -> str:
    text = netlink.address(data[:4] if family == socket.AF_INET else data)
    # An IPv6 socket may be connected over IPv4.
    return text[7:] if text.startswith("::ffff:") else text
