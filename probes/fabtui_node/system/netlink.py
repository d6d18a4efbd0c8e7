"""Dumps of the kernel's tables of the network over rtnetlink, without a program: links, addresses, routes and others.

Formats: rtnetlink(7), netlink(7), ``linux/rtnetlink.h``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import Dict, Iterator, List, Tuple

#: Messages that ask for a dump, and the size of the header of an entry of each.
LINKS, ADDRESSES, ROUTES, NEIGHBOURS, RULES, QUEUES = 18, 22, 26, 30, 34, 38
_SIZES = {LINKS: 16, ADDRESSES: 8, ROUTES: 12, NEIGHBOURS: 12, RULES: 12, QUEUES: 20}
#: NLM_F_REQUEST with NLM_F_DUMP.
_DUMP = 0x301
_ERROR, _DONE = 2, 3
#: NLM_F_DUMP_INTR, and how often a table is read until it has not changed.
_INTERRUPTED, _AGAIN = 0x10, 4
_LARGEST = 1 << 18
#: Maximum number of messages of a dump: a table of routes may hold the whole internet.
_MOST = 20000
_DEADLINE = 2.0
#: The bits of an attribute's number beside those for nested and for big-endian values.
_NUMBER = 0x3FFF


def dump(kind: int) -> Iterator[Tuple[bytes, Dict[int, bytes]]]:
    """Yield the fixed header of each entry of a table, such as `LINKS`, and its attributes by number.

    A table that changed meanwhile, so that entries may be missing, is read again.

    Raises `OSError`: the kernel refuses, has no such table, or does not answer in time.
    """
    yield from answers(socket.NETLINK_ROUTE, kind, bytes(_SIZES[kind]), _SIZES[kind])


def answers(protocol: int, kind: int, request: bytes, size: int) -> Iterator[Tuple[bytes, Dict[int, bytes]]]:
    """Yield the header, of ``size`` bytes, of each entry that a kernel's protocol has for a request; see `dump`."""
    for _ in range(_AGAIN):
        entries, whole = _read(protocol, kind, request, size)
        if whole:
            break
    yield from entries


def _read(protocol: int, kind: int, request: bytes, size: int) -> Tuple[List[Tuple[bytes, Dict[int, bytes]]], bool]:
    """Return the entries of a table, and whether it did not change while it was read."""
    whole = True
    entries: List[Tuple[bytes, Dict[int, bytes]]] = []
    with contextlib.closing(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)) as kernel:
        kernel.settimeout(_DEADLINE)
        kernel.send(struct.pack("=IHHII", 16 + len(request), kind, _DUMP, 1, 0) + request)
        for _ in range(_MOST):
            for number, flags, body in _messages(kernel.recv(_LARGEST)):
                whole = whole and not flags & _INTERRUPTED
                if number == _DONE:
                    return entries, whole
                if number == _ERROR:
                    problem = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
                    raise OSError(problem, os.strerror(problem))
                entries.append((body[:size], attributes(body[size:])))
    return entries, whole


def attributes(data: bytes) -> Dict[int, bytes]:
    """Return the attributes in the bytes after a header, or in a nested attribute, by number; the last one counts."""
    values: Dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        length, number = struct.unpack_from("=HH", data, at)
        if length < 4:
            break
        values[number & _NUMBER] = data[at + 4 : at + length]
        at += length + 3 & ~3
    return values


def address(data: bytes) -> str:
    """Return an IP address as text; hexadecimal digits of anything else."""
    families = {4: socket.AF_INET, 16: socket.AF_INET6}
    return socket.inet_ntop(families[len(data)], data) if len(data) in families else data.hex()


def mac(data: bytes) -> str:
    return ":".join("%02x" % byte for byte in data)


def _messages(data: bytes) -> Iterator[Tuple[int, int, bytes]]:
    at = 0
    while at + 16 <= len(data):
        length, number, flags = struct.unpack_from("=IHH", data, at)
        if length < 16:
            return
        yield number, flags, data[at + 16 : at + length]
        at += length + 3 & ~3
