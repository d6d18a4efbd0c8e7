"""Probe ``udp``: one-way datagrams and TCP connections to ephemeral ports, between the addresses of nodes.

An echo goes there and back, and does not show which direction is broken. Here the receiver counts. Every node opens an
ephemeral UDP and TCP port on its data addresses for a bounded time; the controller announces them to the others. These
send small datagrams and unfragmented ones that fill the MTU, and try to connect. No root is needed.

One run of the probe plays one role: ``listen`` holds the ports until ``end`` or its deadline, ``send`` sends, ``count``
returns the datagrams received until then. ``flows`` sends and connects from several source ports (`flows`), ``trace``
finds the last router that answers for a flow.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import select
import socket
import struct
import threading
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from fabtui_node.probes.network import flows, icmp_socket
from fabtui_node.protocol import OF_CALLER, ErrorKind
from fabtui_node.registry import Emit, ProbeSpec, Value
from fabtui_node.system import sysfs

# Token, number of the target, number of the datagram, length of the payload.
_HEAD = struct.Struct("!16sIHH")
_SMALL_BYTES = 64
_MAX_ADDRESSES = 64
_MAX_TARGETS = 8192
_MAX_DATAGRAMS = 1024
#: Maximum number of targets that one listener counts; no node has more peers.
_MAX_COUNTED = 1 << 17
_RECEIVE_BUFFER = 8 << 20
_SO_RCVBUFFORCE = 33
#: Datagrams sent in one go, and the pause after them: a receiver that many send to at once has to keep up.
_BURST = 4
_PAUSE = 0.001
#: How long the kernel's queue of a target may be full, and to how many are sent at once: each has a socket.
_ROOM_WAIT = 0.02
_SENT_AT_ONCE = 200
_CONNECT_WAIT = 1.0
_CONNECTED_AT_ONCE = 256
_MAX_TRIES = 8
#: Maximum pause (ms) between rounds of flows.
_MAX_PAUSE = 10_000


_listeners: Dict[str, "UdpListener"] = {}
_lock = threading.Lock()


class UdpListener:
    """The open ports of a node and what came to them."""

    def __init__(self, token: bytes, addresses: List[str]) -> None:
        self._token = token
        self.over = threading.Event()
        self._udp: Dict[int, Tuple[socket.socket, str]] = {}
        self._tcp: Dict[int, socket.socket] = {}
        self._came: Dict[Tuple[str, int], List[Set[int]]] = {}
        self._sources: Dict[Tuple[str, int], str] = {}
        self.ports = [self._open(address) for address in addresses]

    def _open(self, address: str) -> Value:
        port: Value = {"address": address, "udp": None, "tcp": None, "error": None}
        try:
            sock = flows.bound_socket(address, socket.SOCK_DGRAM, _enlarge)
            self._udp[sock.fileno()] = (sock, address)
            port["udp"] = sock.getsockname()[1]
            server = flows.bound_socket(address, socket.SOCK_STREAM, lambda sock: sock.listen(1024))
            self._tcp[server.fileno()] = server
            port["tcp"] = server.getsockname()[1]
        except OSError as problem:
            port["error"] = problem.strerror or str(problem)
        return port

    def run(self, end: float) -> None:
        """Take what comes until `over` or a time of the monotonic clock."""
        poll = select.poll()
        for number in [*self._udp, *self._tcp]:
            poll.register(number, select.POLLIN)
        try:
            while not self.over.is_set() and time.monotonic() < end:
                for number, _ in poll.poll(100):
                    if number in self._udp:
                        self._take(*self._udp[number])
                    else:
                        with contextlib.suppress(OSError):
                            self._tcp[number].accept()[0].close()
        finally:
            for sock in [*(sock for sock, _ in self._udp.values()), *self._tcp.values()]:
                sock.close()

    def _take(self, sock: socket.socket, address: str) -> None:
        head = bytearray(_HEAD.size)
        for _ in range(256):
            try:
                length, sender = sock.recvfrom_into(head, len(head), socket.MSG_TRUNC)
            except OSError:
                return
            if length < _HEAD.size:
                continue
            token, number, datagram, size = _HEAD.unpack(head)
            key = (address, number)
            # Half a datagram does not count, and others may send to our ports.
            if token != self._token or size != length or datagram >= 2 * _MAX_DATAGRAMS:
                continue
            if key not in self._came and len(self._came) >= _MAX_COUNTED:
                continue
            self._sources.setdefault(key, sender[0])
            small, big = self._came.setdefault(key, [set(), set()])
            (small if length == _SMALL_BYTES else big).add(datagram)

    def count(self) -> Value:
        """Return what came so far, and how many datagrams the kernel had no room for (None: unknown)."""
        rows = [
            {"dst": key[0], "number": key[1], "src": self._sources.get(key), "small": len(small), "big": len(big)}
            for key, (small, big) in list(self._came.items())
        ]
        ports = {port["udp"] for port in self.ports if port["udp"]}
        drops = [parse_drops(sysfs.text("/proc/net/" + name, limit=1 << 22) or "", ports) for name in ("udp", "udp6")]
        known = [number for number in drops if number is not None]
        return {"rows": rows, "no_room": sum(known) if known else None}


def parse_drops(text: str, ports: Set[int]) -> Optional[int]:
    """Return how many datagrams for some local ports were dropped, from ``/proc/net/udp``; None: none is there."""
    dropped = None
    for line in text.splitlines()[1:]:
        fields = line.split()
        try:
            port, drops = int(fields[1].rpartition(":")[2], 16), int(fields[12])
        except (IndexError, ValueError):
            continue
        if port in ports:
            dropped = (dropped or 0) + drops
    return dropped


def _enlarge(sock: socket.socket) -> None:
    """Enlarge the kernel's queue of what came: root may exceed the limit."""
    for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, option, _RECEIVE_BUFFER)
            break


def _open(row: Value) -> Optional[socket.socket]:
    """Return a socket for one target: what piles up for a target that does not answer delays no other."""

    def prepare(sock: socket.socket) -> None:
        icmp_socket.forbid_fragments(sock, 6 if ":" in row["src"] else 4)
        sock.connect((row["dst"], row["udp"]))

    try:
        return flows.bound_socket(row["src"], socket.SOCK_DGRAM, prepare)
    except OSError as problem:
        _note(row, problem)
        return None


def _note(row: Value, problem: OSError) -> None:
    row["error"] = problem.strerror or str(problem)
    row["errno"] = problem.errno if problem.errno in OF_CALLER else None


def _send_one(sock: socket.socket, row: Value, token: bytes, number: int, field: str) -> None:
    """Send one datagram and note in the row that it was sent, or why not."""
    size = row["size"] if field == "big" else _SMALL_BYTES
    payload = _HEAD.pack(token, row["number"], number, size).ljust(size, b"\0")
    for _ in range(2):
        try:
            sock.send(payload)
            row[field] += 1
            return
        except BlockingIOError:
            select.select([], [sock], [], _ROOM_WAIT)
        except OSError as problem:
            # The error of an earlier datagram may be reported for a later one.
            if not row["error"]:
                _note(row, problem)
            if problem.errno == errno.EMSGSIZE:
                return


def _send_all(rows: List[Value], token: bytes, small: int, big: int, end: float) -> None:
    """Send to all targets in turn, so that what is lost at one moment is not all of one target's."""
    random.shuffle(rows)
    for start in range(0, len(rows), _SENT_AT_ONCE):
        opened = [(row, sock) for row in rows[start : start + _SENT_AT_ONCE] if (sock := _open(row)) is not None]
        sent = 0
        try:
            for number in range(max(small, big)):
                for row, sock in opened:
                    if time.monotonic() >= end:
                        return
                    if number < small:
                        _send_one(sock, row, token, number, "small")
                    if number < big and row["size"] > _SMALL_BYTES:
                        _send_one(sock, row, token, number, "big")
                    sent += 1
                    if sent % _BURST == 0:
                        time.sleep(_PAUSE)
        finally:
            for _, sock in opened:
                sock.close()


def connect(rows: List[Value], end: float) -> None:
    """Try a TCP connection for each row; set ``connected`` (ms), or ``connect_error`` and ``connect_error_kind``.

    ``end`` (monotonic clock): when to give up on those that do not answer; those that wait have as long.
    """
    patience = max(0.1, end - time.monotonic())
    for start in range(0, len(rows), _CONNECTED_AT_ONCE):
        _connect_some(rows[start : start + _CONNECTED_AT_ONCE], time.monotonic() + patience)


def _connect_some(rows: List[Value], end: float) -> None:
    waiting: Dict[int, Tuple[socket.socket, Value, float]] = {}
    poll = select.poll()

    def harvest(patience: float) -> None:
        for number, _ in poll.poll(int(1000 * patience)):
            sock, row, began = waiting.pop(number)
            poll.unregister(number)
            failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                _fail(row, OSError(failed, os.strerror(failed)))
            else:
                row["connected"] = round(1000 * (time.monotonic() - began), 3)
            sock.close()

    try:
        for row in rows:
            began = time.monotonic()
            try:
                sock = _start_connection(row["src"], row["dst"], row["tcp"])
            except OSError as problem:
                _fail(row, problem)
                if problem.errno in OF_CALLER:
                    row.update(connect_error_kind=ErrorKind.CALLER, connect_errno=problem.errno)
                continue
            waiting[sock.fileno()] = (sock, row, began)
            poll.register(sock.fileno(), select.POLLOUT)
            # At once, so that the time covers the connection and not the start of all the others.
            harvest(0.0)
        while waiting and time.monotonic() < end:
            harvest(max(0.001, end - time.monotonic()))
    finally:
        for sock, row, began in waiting.values():
            _fail(row, socket.timeout("no answer in %.1f s" % (time.monotonic() - began)))
            sock.close()


def _fail(row: Value, error: OSError) -> None:
    row["connect_error"] = error.strerror or str(error)
    row["connect_error_kind"] = ErrorKind.of_socket(error)


def _start_connection(src: str, dst: str, port: int) -> socket.socket:
    def prepare(sock: socket.socket) -> None:
        failed = sock.connect_ex((dst, port))
        if failed not in (0, errno.EINPROGRESS):
            raise OSError(failed, os.strerror(failed))

    return flows.bound_socket(src, socket.SOCK_STREAM, prepare)


def _whole(value: Any, low: int, high: int) -> Optional[int]:
    good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    return value if good else None


def _targets(args: Value) -> List[Value]:
    listed = [target for target in args.get("targets") or [] if isinstance(target, dict)]
    if len(listed) > _MAX_TARGETS:
        raise ValueError("at most %d targets a request, not %d" % (_MAX_TARGETS, len(listed)))
    return [
        {
            "number": _whole(target.get("number"), 0, 0xFFFFFFFF) or 0,
            "id": target.get("id"),
            "src": str(target.get("src") or ""),
            "dst": str(target.get("dst") or ""),
            "udp": _whole(target.get("udp"), 1, 65535),
            "tcp": _whole(target.get("tcp"), 1, 65535),
            "size": _whole(target.get("size"), _SMALL_BYTES, 65507) or _SMALL_BYTES,
            **dict.fromkeys(("small", "big"), 0),
            **dict.fromkeys(("error", "errno", "connected", "connect_error", "connect_error_kind", "connect_errno")),
        }
        for target in listed
    ]


def _send(args: Value, token: bytes, end: float) -> Value:
    rows = _targets(args)
    small, big = (_whole(args.get(name), 0, _MAX_DATAGRAMS) or 0 for name in ("small", "big"))
    _send_all([row for row in rows if row["udp"]], token, small, big, end)
    # One of several connections at once is enough: a single SYN may be lost.
    tries = _whole(args.get("tries"), 1, _MAX_TRIES) or 1
    connect([row for row in rows if row["tcp"] for _ in range(tries)], min(end, time.monotonic() + _CONNECT_WAIT))
    return {"rows": [{name: row[name] for name in row if name not in ("udp", "tcp")} for row in rows]}


def _flows(args: Value, token: bytes, end: float) -> Value:
    most = {"flows": flows.MAX_FLOWS, "rounds": flows.MAX_ROUNDS, "datagrams": flows.MAX_DATAGRAMS}
    plan = {name: _whole(args.get(name), 1, limit) or 1 for name, limit in most.items()}

    def datagram(number: int, place: int) -> bytes:
        return _HEAD.pack(token, number & 0xFFFFFFFF, place, _SMALL_BYTES).ljust(_SMALL_BYTES, b"\0")

    pause = _whole(args.get("pause_ms"), 0, _MAX_PAUSE) or 0
    return {"rows": flows.try_flows(_targets(args), plan, datagram, pause / 1000, end)}


def _trace(args: Value, end: float) -> Value:
    rows: List[Value] = []
    listed = [target for target in args.get("targets") or [] if isinstance(target, dict)]
    for at, target in enumerate(_targets(args)):
        port = _whole(listed[at].get("port"), 1, 65535)
        if port and target["udp"] and time.monotonic() < end:
            rows.append({"number": target["number"], "hops": flows.trace(target, port)})
    return {"rows": rows}


def _listen(args: Value, token: str, emit: Emit, end: float) -> Value:
    addresses = [text for text in args.get("addresses") or [] if isinstance(text, str)][:_MAX_ADDRESSES]
    listener = UdpListener(bytes.fromhex(token), addresses)
    with _lock:
        _listeners[token] = listener
    try:
        emit({"ports": listener.ports})
        listener.run(end)
    finally:
        with _lock:
            _listeners.pop(token, None)
    return listener.count()


def run(args: Value, emit: Emit, deadline: float) -> Value:
    """Play a role in a test of one-way datagrams and TCP connections.

    ``role``: ``listen``, ``send``, ``flows``, ``trace``, ``count`` or ``end``; ``token``: 32 hexadecimal digits that
    all nodes of a test share. To listen: ``addresses``. To send: ``targets``: ``[{"number", "id", "src", "dst", "udp"
    and "tcp" (ports, or null), "size" (bytes of a big payload)}]``, ``small`` and ``big``: datagrams for each;
    ``tries``: connections to each, of which one is enough. A listener emits ``{"ports": [{"address", "udp", "tcp",
    "error"}]}`` once they are open.

    Of a sender ``{"rows": [{"number", "id", "src", "dst", "size", "small", "big" (sent), "error", "connected" (ms, or
    null), "connect_error", "connect_error_kind" (`ErrorKind`), "errno" and "connect_errno" (of a call that failed for a
    reason of this node, or null)}]}``; of a listener and of ``count`` ``{"rows":
    [{"number", "src" (where it came from), "dst", "small", "big" (arrived)}], "no_room"}``; of ``end`` ``{}``.

    For ``flows``: ``targets``, ``flows`` (number of source ports), ``rounds``, ``datagrams`` of each flow and round,
    and ``pause_ms`` between rounds; of it ``{"rows": [{"number", "flows": [{"port", "refused", "sent" and "tcp" (by
    round)}]}]}``, with 1 for a connection, 0 for no answer, -1 for a refusal and null where none was tried. For
    ``trace``: ``targets`` with a ``port`` to send from; of it ``{"rows": [{"number", "hops" (addresses or null)}]}``.

    Raises ValueError: the arguments fit no role.
    """
    end = time.monotonic() + deadline - 0.2
    token, role = args.get("token"), args.get("role")
    if not isinstance(token, str) or len(token) != 32:
        raise ValueError("a token of 32 hexadecimal digits is missing")
    if role == "send":
        return _send(args, bytes.fromhex(token), end)
    if role == "flows":
        return _flows(args, bytes.fromhex(token), end)
    if role == "trace":
        return _trace(args, end)
    if role == "listen":
        return _listen(args, token, emit, end)
    with _lock:
        listener = _listeners.get(token)
    if role == "count":
        return {"rows": [], "no_room": None} if listener is None else listener.count()
    if role == "end":
        if listener is not None:
            listener.over.set()
        return {}
    raise ValueError("the role is listen, send, flows, trace, count or end, not %r" % (role,))


PROBE = ProbeSpec(
    name="udp",
    title="one-way UDP datagrams up to the MTU and TCP connections between all data addresses",
    phase="mesh",
    needs="nothing; an ephemeral port is open on each data address meanwhile",
    gives="per pair of addresses: datagrams sent and received, TCP connect time in ms",
    run=run,
)
